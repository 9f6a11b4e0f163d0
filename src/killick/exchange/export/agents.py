"""The agents in which a session can go on: where each keeps its sessions, and how it is resumed."""

import json
import os
import re
import shlex
import shutil
import sqlite3
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from pathlib import Path
from tempfile import TemporaryDirectory
from types import MappingProxyType
from typing import Final, Literal

import msgspec

from killick.errors import KillickError
from killick.exchange.export import (
    to_claude_code,
    to_codex,
    to_copilot,
    to_gemini,
    to_hermes,
    to_opencode,
    to_pi,
    to_qwen,
)
from killick.exchange.export.handover import Handover, Holds, hand_over, iso
from killick.exchange.export.native import made_by
from killick.exchange.export.shelf import LONG
from killick.model.sessions import moment
from killick.session.sync import Store

_RUN_SECONDS: Final = 120


class NotPlaced(KillickError):
    """A session could not be put where another agent looks for it; the message says what to do."""


class Places(msgspec.Struct, frozen=True):
    """Where agents keep things: a home, and what the environment says instead.

    With `own`, the home is that of the one agent, and not a person's.
    """

    home: Path
    environment: Mapping[str, str]
    own: bool = False

    def of(self, folder: str, variable: str | None = None) -> Path:
        """Return the folder of an agent below the home, or where a variable says."""
        if self.own:
            return self.home
        chosen = self.environment.get(variable) if variable else None
        return Path(chosen) if chosen else self.home / folder


class Placed(msgspec.Struct, frozen=True):
    """A session where another agent looks for it: its id there, the file, and how to resume it."""

    id: str
    path: Path
    command: list[str]


class AgentFormat(msgspec.Struct, frozen=True):
    """An agent in which a session can go on.

    `source` is the name of its format among those that are imported, `folder` and `variable` say
    where it keeps its things.
    """

    name: str
    program: str
    source: str
    folder: str
    variable: str | None
    holds: Holds
    place: Callable[["AgentFormat", Handover, Places], Path]
    resume: Callable[[str], list[str]]
    data: Callable[[Handover], Iterator[bytes]]
    own_id: Callable[[str], str] = lambda native_id: native_id

    def put(self, handover: Handover, places: Places) -> Placed:
        """Put the session there, unless it is there already. Raises NotPlaced.

        If interrupted: it is there whole, or not at all.
        """
        try:
            path = self.place(self, handover, places)
        except sqlite3.Error as error:
            raise NotPlaced(f"{_database(self, places)}: {error}") from error
        own_id = self.own_id(handover.native_id)
        return Placed(own_id, path, [self.program, *self.resume(own_id)])


def places_of(
    agent: AgentFormat, home: Path | None, environment: Mapping[str, str]
) -> tuple[Places, list[str]]:
    """Return where an agent keeps its sessions, and the variables that make it look there.

    A given home is a person's, unless it is called as the agent's own folder is.
    """
    if home is None:
        return Places(Path.home(), environment), []
    home = home.absolute()
    own = home.name == Path(agent.folder).name and agent.variable is not None
    if own:
        return Places(home, {}, own=True), [f"{agent.variable}={home}"]
    return Places(home, {}), [f"HOME={home}"]


def _grown(agent: AgentFormat, handover: Handover, path: Path) -> NotPlaced:
    own_id = agent.own_id(handover.native_id)
    command = shlex.join([agent.program, *agent.resume(own_id)])
    return NotPlaced(
        f"this session has gone on in {agent.name} as {own_id}; go on there with `{command}`, or "
        f"bring it in first: `{shlex.join(['killick', 'import', str(path)])}`"
    )


# -- agents that keep files ------------------------------------------------------------------------


def _file(
    write: Callable[[Handover], Iterator[bytes]], where: Callable[[Handover, Path], Path]
) -> Callable[[AgentFormat, Handover, Places], Path]:
    def place(agent: AgentFormat, handover: Handover, places: Places) -> Path:
        path = where(handover, places.of(agent.folder, agent.variable))
        if not _put(path, write(handover)) and not _has(path, write(handover)):
            raise _grown(agent, handover, path)
        return path

    return place


def _put(path: Path, pieces: Iterator[bytes]) -> bool:
    """Write a file; False where there is one. If interrupted: it is there whole, or not at all."""
    if path.exists():
        return False
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = path.with_name(f".{path.name}.{os.getpid()}")
    try:
        with fresh.open("xb") as file:
            file.writelines(pieces)
            file.flush()
            os.fsync(file.fileno())
        os.link(fresh, path)
    except FileExistsError:
        return False  # another process was first
    finally:
        fresh.unlink(missing_ok=True)
    return True


def _has(path: Path, pieces: Iterator[bytes]) -> bool:
    """Tell whether a file holds these bytes and no more."""
    with path.open("rb") as file:
        return all(file.read(len(piece)) == piece for piece in pieces) and not file.read(1)


def _dashed(folder: str) -> str:
    return re.sub(r"[^a-zA-Z0-9]", "-", folder)


def _codex(handover: Handover, home: Path) -> Path:
    at = moment(handover.created_us)
    name = f"rollout-{at:%Y-%m-%dT%H-%M-%S}-{handover.native_id}.jsonl"
    return home / "sessions" / f"{at:%Y}" / f"{at:%m}" / f"{at:%d}" / name


def _claude_code(handover: Handover, home: Path) -> Path:
    return home / "projects" / _dashed(handover.folder) / f"{handover.native_id}.jsonl"


def _qwen(handover: Handover, home: Path) -> Path:
    return (
        home
        / "projects"
        / _dashed(handover.folder)
        / "chats"
        / f"{to_qwen.own_id(handover.native_id)}.jsonl"
    )


def _copilot(handover: Handover, home: Path) -> Path:
    return home / "session-state" / handover.native_id / "events.jsonl"


def _pi(handover: Handover, home: Path) -> Path:
    name = re.sub(r"[/\\:]", "-", handover.folder.lstrip("/\\"))
    at = iso(handover.created_us).replace(":", "-").replace(".", "-")
    return home / "sessions" / f"--{name}--" / f"{at}_{handover.native_id}.jsonl"


def _gemini(handover: Handover, home: Path) -> Path:
    at = iso(handover.updated_us)[:16].replace(":", "-")
    name = f"session-{at}-{handover.native_id[:8]}.jsonl"
    return home / "tmp" / _gemini_project(home, handover.folder) / "chats" / name


def _gemini_project(home: Path, folder: str) -> str:
    """Return the name of a folder in Gemini CLI's list of projects; add it where it is not there.

    Raises NotPlaced for a list that cannot be added to. If interrupted: it is the old or the new.
    """
    listed = home / "projects.json"
    try:
        known = json.loads(listed.read_text("utf-8")) if listed.exists() else {}
        projects = known.setdefault("projects", {})
        taken = {str(name) for name in projects.values()}
    except (ValueError, AttributeError) as error:
        raise NotPlaced(f"{listed} is no list of projects; mend or move it: {error}") from error
    if isinstance(projects.get(folder), str):
        return str(projects[folder])
    plain = re.sub(r"[^a-z0-9]+", "-", Path(folder).name.lower()).strip("-") or "project"
    name = next(
        name
        for name in (plain, *(f"{plain}-{n}" for n in range(1, len(taken) + 2)))
        if name not in taken and not (home / "tmp" / name).exists()
    )
    root = home / "tmp" / name / ".project_root"
    root.parent.mkdir(parents=True, exist_ok=True)
    root.write_text(folder, "utf-8")
    fresh = listed.with_name(f".{listed.name}.{os.getpid()}")
    fresh.write_text(
        json.dumps({**known, "projects": {**projects, folder: name}}, indent=2), "utf-8"
    )
    fresh.replace(listed)
    return name


# -- agents that keep a database -------------------------------------------------------------------


def _database(agent: AgentFormat, places: Places) -> Path:
    if agent.variable is not None:
        return places.of(agent.folder, agent.variable) / "state.db"
    data = places.environment.get("XDG_DATA_HOME") or places.home / ".local" / "share"
    return Path(data) / agent.program / f"{agent.program}.db"


def _hermes(agent: AgentFormat, handover: Handover, places: Places) -> Path:
    path = _database(agent, places)
    there = to_hermes.count(path, handover.native_id)
    if there is None:
        to_hermes.insert(handover, path)
    elif there != len(handover.items):
        raise _grown(agent, handover, path)
    return path


def _opencode(
    mode: str, default: tuple[str, str]
) -> Callable[[AgentFormat, Handover, Places], Path]:
    """Return what has opencode, or a program like it, import a document."""

    def place(agent: AgentFormat, handover: Handover, places: Places) -> Path:
        path = _database(agent, places)
        there = _messages(path, agent.own_id(handover.native_id))
        if there is None:
            document = to_opencode.write(
                handover,
                agent=mode,
                version=_version(agent),
                model=_used(path) or _chosen(agent, places) or default,
            )
            _import(agent, places, handover.folder, document)
            if _messages(path, agent.own_id(handover.native_id)) is None:
                raise NotPlaced(f"{agent.name} imported the session, but not into {path}")
        elif there != handover.items.spoken:
            raise _grown(agent, handover, path)
        return path

    return place


def _messages(database: Path, session_id: str) -> int | None:
    """Return how many messages a session has in opencode's database; None without the session."""
    if not database.exists():
        return None
    with closing(sqlite3.connect(f"{database.as_uri()}?mode=ro", uri=True)) as connection:
        tables = {row[0] for row in connection.execute("SELECT name FROM sqlite_master")}
        if not {"session", "message"} <= tables:
            return None
        match = connection.execute("SELECT 1 FROM session WHERE id = ?", (session_id,))
        if match.fetchone() is None:
            return None
        rows = connection.execute(
            "SELECT count(*) FROM message WHERE session_id = ?", (session_id,)
        )
        return int(rows.fetchone()[0])


def _used(database: Path) -> tuple[str, str] | None:
    """Return the provider and model that were used there last: others may not be set up."""
    if not database.exists():
        return None
    query = "SELECT data FROM message ORDER BY time_created DESC LIMIT 50"
    with closing(sqlite3.connect(f"{database.as_uri()}?mode=ro", uri=True)) as connection:
        try:
            rows = [json.loads(row[0]) for row in connection.execute(query)]
        except (sqlite3.Error, ValueError):
            return None
    for row in rows:
        provider, model = row.get("providerID"), row.get("modelID")
        if isinstance(provider, str) and isinstance(model, str):
            return provider, model
    return None


def _chosen(agent: AgentFormat, places: Places) -> tuple[str, str] | None:
    """Return the provider and model that the agent's settings name."""
    config = places.environment.get("XDG_CONFIG_HOME") or places.home / ".config"
    for ending in ("json", "jsonc"):
        file = Path(config) / agent.program / f"{agent.program}.{ending}"
        try:
            match = re.search(r'"model"\s*:\s*"([^"/]+)/([^"]+)"', file.read_text("utf-8"))
        except (OSError, UnicodeDecodeError):
            continue
        if match is not None:
            return match[1], match[2]
    return None


def _version(agent: AgentFormat) -> str:
    done = _run(agent, "--version")
    return done.stdout.decode("utf-8", "replace").strip() or "0.0.0"


def _import(agent: AgentFormat, places: Places, folder: str, document: Iterator[bytes]) -> None:
    home = {} if places.environment else {"HOME": str(places.home)}
    with TemporaryDirectory() as beside:
        file = Path(beside) / "session.json"
        with file.open("wb") as opened:
            opened.writelines(document)
        done = _run(agent, "import", str(file), folder=folder, home=home)
    if done.returncode:
        lines = (done.stderr or done.stdout).decode("utf-8", "replace").strip().split("\n")
        words = next((line for line in lines if "error" in line.lower()), lines[0])
        raise NotPlaced(f"{agent.name} did not import the session: {words}")


def _run(
    agent: AgentFormat,
    *arguments: str,
    folder: str | None = None,
    home: Mapping[str, str] = MappingProxyType({}),
) -> subprocess.CompletedProcess[bytes]:
    """Run an agent's program to its end. Raises NotPlaced."""
    program = shutil.which(agent.program)
    if program is None:
        raise not_installed(agent)
    try:
        return subprocess.run(
            [program, *arguments],
            cwd=folder,
            env={**os.environ, **home},
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=_RUN_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        raise NotPlaced(
            f"`{shlex.join([agent.program, arguments[0]])}` had not ended after "
            f"{_RUN_SECONDS} seconds, and was ended; see whether {agent.name} runs, and try again"
        ) from None


def not_installed(agent: AgentFormat) -> NotPlaced:
    """Return the error that says what to install."""
    return NotPlaced(
        f"{agent.name} is not installed: there is no program {agent.program!r} on the PATH; "
        "install it, or choose another agent with --in"
    )


def written(
    store: Store, session_id: str, agent: AgentFormat, longer_than: int = LONG
) -> tuple[list[str], Iterator[bytes]]:
    """Return what an agent cannot hold, and a session as that agent's file. Raises SessionNotFound.

    Of opencode and Kilo it is the document that they import, of hermes a database of its own.
    """
    project = store.session(session_id).info().project
    folder = Path((project.directory or project.root) if project is not None else "/")
    handover = hand_over(store, session_id, agent.holds, folder, longer_than)
    return handover.losses, agent.data(handover)


def _rows(handover: Handover) -> Iterator[bytes]:
    return made_by("state.db", lambda path: to_hermes.insert(handover, path))


def _document(mode: str, model: tuple[str, str]) -> Callable[[Handover], Iterator[bytes]]:
    return lambda handover: to_opencode.write(handover, agent=mode, version="0.0.0", model=model)


def _resume(*before: str) -> Callable[[str], list[str]]:
    return lambda native_id: [*before, native_id]


AGENTS: Final[dict[str, AgentFormat]] = {
    agent.name: agent
    for agent in (
        AgentFormat(
            "codex", "codex", "codex", ".codex", "CODEX_HOME", to_codex.HOLDS,
            _file(to_codex.write, _codex), _resume("resume"), to_codex.write,
        ),
        AgentFormat(
            "claude-code", "claude", "claude-code", ".claude", "CLAUDE_CONFIG_DIR",
            to_claude_code.HOLDS, _file(to_claude_code.write, _claude_code), _resume("--resume"),
            to_claude_code.write,
        ),
        AgentFormat(
            "opencode", "opencode", "opencode", ".local/share/opencode", None, to_opencode.HOLDS,
            _opencode("build", ("opencode", "big-pickle")), _resume("--session"),
            _document("build", ("opencode", "big-pickle")),
            to_opencode.own_id,
        ),
        AgentFormat(
            "qwen", "qwen", "qwen", ".qwen", None, to_qwen.HOLDS, _file(to_qwen.write, _qwen),
            _resume("--resume"), to_qwen.write, to_qwen.own_id,
        ),
        AgentFormat(
            "hermes", "hermes", "hermes", ".hermes", "HERMES_HOME", to_hermes.HOLDS, _hermes,
            _resume("chat", "--resume"), _rows,
        ),
        AgentFormat(
            "gemini", "gemini", "gemini", ".gemini", None, to_gemini.HOLDS,
            _file(to_gemini.write, _gemini), _resume("--resume"), to_gemini.write,
        ),
        AgentFormat(
            "copilot", "copilot", "copilot", ".copilot", None, to_copilot.HOLDS,
            _file(to_copilot.write, _copilot), lambda native_id: [f"--resume={native_id}"],
            to_copilot.write,
        ),
        AgentFormat(
            "pi", "pi", "pi", ".pi/agent", "PI_CODING_AGENT_DIR", to_pi.HOLDS,
            _file(to_pi.write, _pi), _resume("--session"), to_pi.write,
        ),
        AgentFormat(
            "kilo", "kilo", "opencode", ".local/share/kilo", None, to_opencode.HOLDS,
            _opencode("code", ("kilo", "kilo-auto/free")), _resume("--session"),
            _document("code", ("kilo", "kilo-auto/free")),
            to_opencode.own_id,
        ),
    )
}  # fmt: skip
"""Every agent in which `killick continue` goes on; goose takes a file alone."""

FILE_ONLY: Final[Sequence[Literal["goose"]]] = ("goose",)
