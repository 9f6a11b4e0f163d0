"""A pytest plugin of CI: run each failed test once more, alone; one that then passes is unsteady.

Load it with `-p tests.once_more`. An unsteady test is named, and counted apart in pytest's closing
line; it does not fail the run. A test that fails again does.
"""

import subprocess
import sys
from pathlib import Path

import pytest

_AT_MOST = 20
"""With more failures than this the change is at fault, and repeating them says nothing."""


@pytest.hookimpl(tryfirst=True)
def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """Move what passes alone from the failures to a count of its own, before the summary."""
    if exitstatus != pytest.ExitCode.TESTS_FAILED or hasattr(session.config, "workerinput"):
        return
    stats = session.config.pluginmanager.getplugin("terminalreporter").stats
    failed = {report.nodeid: report for kind in _KINDS for report in stats.get(kind, ())}
    if not failed or len(failed) > _AT_MOST:
        return
    unsteady = [name for name in failed if _passes_alone(name, session.config.rootpath)]
    for kind in _KINDS:
        stats[kind] = [report for report in stats.get(kind, ()) if report.nodeid not in unsteady]
        if not stats[kind]:
            del stats[kind]
    if unsteady:
        stats["unsteady"] = [failed[name] for name in unsteady]
    if len(unsteady) == len(failed):
        session.exitstatus = pytest.ExitCode.OK


_KINDS = ("failed", "error")


def _passes_alone(name: str, root: Path) -> bool:
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", name]
    return subprocess.run(command, cwd=root, capture_output=True, check=False).returncode == 0


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    unsteady = terminalreporter.stats.get("unsteady", ())
    if not unsteady:
        return
    terminalreporter.section("UNSTEADY: failed, then passed alone", sep="!", red=True)
    for report in unsteady:
        terminalreporter.write_line(f"UNSTEADY {report.nodeid}")
        terminalreporter.write_line(str(report.longreprtext))
