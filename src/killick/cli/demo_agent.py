"""The agent that the demonstration interrupts, in a process of its own; it needs no model.

    python -m killick.cli.demo_agent STORE SESSION CONTINUES

Its three tools are measuring stations. It asks those whose results the session does not have, and
then reports, word by word. It is killed, so it never has to end well.
"""

import sys
import threading
import time
from pathlib import Path
from typing import Final

from killick.model.messages import ToolResult
from killick.session.sync import Session, Store

PROMPT: Final = "Ask all three stations, and tell me what is coming."
STATIONS: Final = {
    "read_thermometer": "temperature: 11 degrees, falling",
    "read_barometer": "pressure: 989 hectopascal, falling fast",
    "read_anemometer": "wind: 31 knots from the north-west",
}
SLOW: Final = "read_anemometer"


def read(station: str, asked_once: Path) -> str:
    """Read a station; the slow one never answers the process that asks it first."""
    if station == SLOW and not asked_once.exists():
        asked_once.touch()
        threading.Event().wait()
    return STATIONS[station]


def results(session: Session) -> list[str]:
    """Return the real results that the session has; an unknown outcome is none."""
    parts = [part for message in session.messages() for part in message.parts]
    return [str(part.content) for part in parts if isinstance(part, ToolResult)]


def main(path: str, session_id: str, continues: str) -> None:
    tools = {
        name: lambda name=name: read(name, Path(path).with_name("asked-once")) for name in STATIONS
    }
    with Store(path) as store:
        session = store.session(session_id)
        prompt = None if continues else PROMPT
        with session.turn(prompt, continues=continues or None) as turn:
            known = results(session)
            missing = [name for name, result in STATIONS.items() if result not in known]
            if missing:
                with turn.stream(provider="demo", model="storm-1") as reply:
                    for number, name in enumerate(missing):
                        reply.tool_call(f"call_{number}", name=name, arguments="{}")
                with turn.run_tools(reply, tools):
                    pass
            report = f"The stations report the following. {'; '.join(results(session))}. "
            with turn.stream(provider="demo", model="storm-1") as reply:
                for word in (report + "A storm is coming, and soon.").split():
                    reply.text(f"{word} ")
                    time.sleep(0.05)


if __name__ == "__main__":
    main(*sys.argv[1:])
