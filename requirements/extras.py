"""Install each framework's extra into a fresh environment, and import its adapter there.

    make extras                          # all of them
    make extras ARGS="langchain strands"

An extra is installed as a user does, `pip install '.[langchain]'`, so that the newest versions come
that its range allows, not those of the locks. A range that no longer installs, or an adapter that
does not import with what came, fails it.
"""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).parents[1]
ADAPTERS = {
    "openai-agents": ("openai_agents", "openai-agents"),
    "langchain": ("langchain", "langchain"),
    "langgraph": ("langgraph", "langgraph"),
    "claude-agent-sdk": ("claude_agent_sdk", "claude-agent-sdk"),
    "google-adk": ("google_adk", "google-adk"),
    "agent-framework": ("agent_framework", "agent-framework-core"),
    "strands": ("strands", "strands-agents"),
    "pydantic-ai-harness": ("pydantic_ai.step_store", "pydantic-ai-harness"),
    "chat": ("pydantic_ai", "pydantic-ai-slim"),
    "acp": ("ag_ui", "agent-client-protocol"),
}
"""The extras, each with the adapter that is imported and the package whose version is told."""

TRY = """
import importlib, json, sys
from importlib.metadata import version
from killick import Store
importlib.import_module(f"killick.adapters.{sys.argv[1]}")
with Store("work.db") as store, store.create_session().turn("Hello?") as turn:
    with turn.stream() as reply:
        reply.text("Yes.")
print(json.dumps({"version": version(sys.argv[2])}))
"""


def attempt(extra: str, folder: Path) -> str:
    """Return the version that an extra brought, or raise what pip or the import said."""
    module, package = ADAPTERS[extra]
    subprocess.run([sys.executable, "-m", "venv", str(folder)], check=True)
    python = str(folder / "bin" / "python")
    install = [python, "-m", "pip", "install", "--quiet", f"{ROOT}[{extra}]"]
    subprocess.run(install, check=True, capture_output=True, text=True)
    env = {name: value for name, value in os.environ.items() if not name.startswith("PYTHON")}
    done = subprocess.run(
        [python, "-c", TRY, module, package],
        check=True, capture_output=True, text=True, cwd=folder, env=env,
    )  # fmt: skip
    return str(json.loads(done.stdout)["version"])


def main(names: list[str]) -> int:
    failed = 0
    for extra in names or list(ADAPTERS):
        with tempfile.TemporaryDirectory(prefix="killick-extra-") as folder:
            try:
                brought = attempt(extra, Path(folder))
            except subprocess.CalledProcessError as error:
                failed += 1
                print(f"{extra}: failed\n{error.stderr[-2000:]}", flush=True)
            else:
                print(f"{extra}: {ADAPTERS[extra][1]} {brought}", flush=True)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
