"""Everything that the description allows, and much that it does not, asked of a real server."""

import subprocess
import sys
from pathlib import Path

import pytest

from tests.server.client import Server

CHECKS = (
    "not_a_server_error",
    "status_code_conformance",
    "content_type_conformance",
    "response_schema_conformance",
    "response_headers_conformance",
    "negative_data_rejection",
)


@pytest.mark.slow
@pytest.mark.timeout(180)
def test_no_answer_is_an_error_of_the_server_or_undocumented(
    server: Server, tmp_path: Path
) -> None:
    session_id = server.create(title="Fix the build")
    server.begin(session_id, "work")
    server.until_end(session_id)
    command = [
        *(sys.executable, "-m", "schemathesis.cli", "run", f"{server.url}/openapi.json"),
        # Their answers are streams; test_events.py, test_news.py and test_ag_ui.py read them.
        *("--exclude-path", "/api/sessions/{session_id}/events"),
        *("--exclude-path", "/api/sessions/{session_id}/turns/{turn_id}/ag-ui"),
        *("--exclude-path", "/api/news"),
        *("--checks", ",".join(CHECKS), "--phases", "coverage,fuzzing", "--max-examples", "3"),
        *("--seed", "1", "--no-shrink", "--request-timeout", "10"),
        *("--suppress-health-check", "all", "--warnings", "off"),
    ]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=170)
    assert done.returncode == 0, done.stdout[-4000:]
    assert server.log_lines("request_failed") == []
