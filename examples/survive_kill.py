"""Kill an agent in mid-turn with SIGKILL, then open its store and print what is read back."""

import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

from killick import Store, Text, ToolResult, Turn
from killick.model.entries import ToolOutput, ToolStarted


def agent(path: Path) -> None:
    """The victim: an answer that still streams, and the three tools it called, at once."""
    with Store(path) as store, ThreadPoolExecutor() as threads:
        session = store.create_session(title="Release 1.4")
        with session.turn("Test it, read the log, and deploy.") as turn, turn.stream() as reply:
            reply.text("I do all three at once.")
            for name in ("run_tests", "read_log", "deploy"):
                reply.tool_call(f"call_{name}", name=name, arguments="{}")
                threads.submit(run_tool, turn, name)
            threads.shutdown()


def run_tool(turn: Turn, name: str) -> None:
    with turn.tool(f"call_{name}") as call:
        if name == "deploy":
            call.output("uploading 1 of 40")
            print(f"{name} hangs\n", end="", flush=True)
            time.sleep(3600)
        call.finish(f"{name}: no problem found")
        print(f"{name} has finished\n", end="", flush=True)


def main(path: Path) -> None:
    command = [sys.executable, __file__, str(path)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        print("The agent:", ", ".join(child.stdout.readline().strip() for _ in range(3)))
        time.sleep(0.5)  # what is streamed is durable within a window of 50 ms
        child.kill()
    print(f"Killed with signal {-child.returncode}. What is read back:")
    with Store(path) as store:
        session = store.session(store.sessions()[0].id)  # opening it closes the dead turn
        for message in session.messages():
            texts = [part.text for part in message.parts if isinstance(part, Text)]
            calls = [call.name for call in message.tool_calls]
            results = [part.content for part in message.parts if isinstance(part, ToolResult)]
            print(f"  {message.role}, {message.state}:", *texts, *results, calls or "")
        for entry in session.entries():
            if isinstance(entry.body, ToolStarted | ToolOutput):
                print(f"  {entry.kind}: {entry.body.call_id}", getattr(entry.body, "output", ""))
        for turn in session.turns():
            print(f"  the turn: {turn.status}, {turn.reason}")


if __name__ == "__main__":
    with tempfile.TemporaryDirectory() as folder:
        agent(Path(sys.argv[1])) if sys.argv[1:] else main(Path(folder) / "work.db")
