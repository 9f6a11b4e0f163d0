"""Between an editor and an ACP agent: each line is recorded, then passed on as it came.

The protocol is JSON-RPC, a message in each line. Two things alone are changed on the way: an agent
that cannot load sessions is said to, and what an editor then asks about its sessions is answered
from the store; in a session that was loaded so, the agent has a session of its own, and its id is
put in the place of the editor's.
"""

import contextlib
import json
import os
import subprocess
import threading
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any, BinaryIO, Final, Literal

import msgspec

from killick.errors import KillickError, SessionNotFound, TurnStopped, UsageError
from killick.exchange.compose import session_id_of
from killick.exchange.importer import PROXY_NOTE_KEY
from killick.model import entries as e
from killick.model.causes import Cause
from killick.model.sessions import Project, SessionInfo
from killick.proxy.acp_turns import AcpConversation, replay
from killick.recall import Recall
from killick.session.sync import Store

Json = dict[str, Any]
Line = bytes
WhenLost = Literal["pass", "refuse"]

_OURS: Final = "killick-"
_LISTED: Final = 100
_READ_BYTES: Final = 65_536
_INTERNAL: Final = -32603
_NOT_FOUND: Final = -32002
_LEAVE_SECONDS: Final = 5.0
_STOP_SECONDS: Final = 0.2
_NOTE: Final = "killick.acp"
_AGENTS: Final = (
    ("claude", "claude-code"),
    ("codex", "codex"),
    ("opencode", "opencode"),
    ("kilo", "opencode"),
    ("gemini", "gemini"),
    ("qwen", "qwen"),
    ("copilot", "copilot"),
    ("hermes", "hermes"),
)
"""Words in the names of agents, and the formats in which their own sessions come in."""


class Passed(msgspec.Struct):
    """Lines that follow from one line: to the agent, and to the editor."""

    to_agent: list[Line] = []
    to_editor: list[Line] = []


class AcpProxy:
    """The state of one agent and its editor. A caller holds `mutex` around every method."""

    def __init__(
        self,
        store: Store,
        command: Sequence[str],
        project_of: Callable[[Path], Project],
        when_lost: WhenLost = "pass",
        complain: Callable[[str], None] = lambda _text: None,
    ) -> None:
        self.mutex = threading.RLock()
        self._store = store
        self._project_of = project_of
        self._when_lost = when_lost
        self._complain = complain
        self._agent = _agent_of(Path(command[0]).name)
        self._can: Json = {}
        self._asked_agent: dict[str, Json] = {}
        self._asked_editor: dict[str, Json] = {}
        self._approvals: dict[str, tuple[AcpConversation, e.ApprovalAsked]] = {}
        self._conversations: dict[str, AcpConversation] = {}
        self._prompts: dict[str, AcpConversation] = {}
        self._agents_id: dict[str, str] = {}
        self._editors_id: dict[str, str] = {}
        self._loads: dict[str, tuple[Json, bool]] = {}
        self._untold: set[str] = set()
        self._number = 0

    # -- from the editor -----------------------------------------------------------------------

    def from_editor(self, line: Line) -> Passed:
        """Record a line of the editor; what is to be passed on."""
        message = _decode(line)
        if message is None:
            return Passed([line])
        if "method" not in message:
            self._take_answer(message)
            return Passed([line])
        if "id" in message:
            self._asked_agent[_key(message["id"])] = message
        params = message.get("params")
        params = params if isinstance(params, dict) else {}
        match message["method"]:
            case "session/prompt":
                return self._prompt(line, message, params)
            case "session/cancel":
                conversation = self._conversations.get(str(params.get("sessionId")))
                if conversation is not None:
                    conversation.is_cancelled = True
            case "session/list" if not self._has("list") and "id" in message:
                try:
                    return self._answered(message, self._list(params))
                except (KillickError, OSError) as error:
                    return self._refused(message, f"the store cannot be read: {error}")
            case "session/load" | "session/resume" if "id" in message:
                if not self._can.get("loadSession"):
                    return self._load(message, params)
            case _:
                pass
        return Passed([self._for_agent(line, message, params)])

    def _prompt(self, line: Line, message: Json, params: Json) -> Passed:
        """Begin a turn: the prompt is durable before the agent is given it."""
        native, history = params.get("sessionId"), ""
        try:
            if not isinstance(native, str):
                raise UsageError("it names no session")
            conversation = self._conversations.get(native) or self._open(native, None)
            if native in self._untold:
                history = self._hand_over(conversation.session.id)
            conversation.begin(params.get("prompt"))
            self._prompts[_key(message.get("id"))] = conversation
        except (KillickError, OSError) as error:
            self._lost("a prompt", error)
            if self._when_lost == "refuse" and "id" in message:
                return self._refused(message, f"the prompt could not be recorded: {error}")
        if history:
            self._untold.discard(str(native))
            blocks = params.get("prompt")
            blocks = blocks if isinstance(blocks, list) else []
            params = {**params, "prompt": [{"type": "text", "text": history}, *blocks]}
            message = {**message, "params": params}
            line = _encode(message)
        return Passed([self._for_agent(line, message, params)])

    def _take_answer(self, message: Json) -> None:
        """Record the person's decision, before the agent is told of it."""
        key = _key(message.get("id"))
        request = self._asked_editor.pop(key, None)
        conversation, asked = self._approvals.pop(key, (None, None))
        if request is None or conversation is None or asked is None:
            return
        result = message.get("result")
        outcome = result.get("outcome") if isinstance(result, dict) else None
        chosen = outcome.get("optionId") if isinstance(outcome, dict) else None
        options = request["params"].get("options")
        kinds = [
            str(option.get("kind"))
            for option in (options if isinstance(options, list) else ())
            if isinstance(option, dict) and option.get("optionId") == chosen
        ]
        kind = kinds[0] if kinds else ""
        if kind.startswith(("allow", "reject")):
            with self._recording("a decision"):
                conversation.session.decide_approval(
                    asked, approved=kind.startswith("allow"), by="editor"
                )

    # -- from the agent ------------------------------------------------------------------------

    def from_agent(self, line: Line) -> Passed:
        """Record a line of the agent; what is to be passed on."""
        message = _decode(line)
        if message is None:
            return Passed(to_editor=[line])
        if "method" not in message:
            return self._take_result(line, message)
        params = message.get("params")
        params = params if isinstance(params, dict) else {}
        native = self._editors_id.get(str(params.get("sessionId")), str(params.get("sessionId")))
        conversation = self._conversations.get(native)
        if "id" in message:
            self._asked_editor[_key(message["id"])] = message
        cancel: list[Line] = []
        if conversation is not None and message["method"] == "session/update":
            update = params.get("update")
            if isinstance(update, dict):
                cancel = self._record(native, conversation, lambda: conversation.take(update))
        elif conversation is not None and message["method"] == "session/request_permission":
            call = params.get("toolCall")
            if isinstance(call, dict):
                cancel = self._record(
                    native, conversation, lambda: self._ask(message, conversation, call)
                )
        return Passed(cancel, [self._for_editor(line, message, params)])

    def _ask(self, message: Json, conversation: AcpConversation, call: Json) -> None:
        asked = conversation.ask(call)
        if asked is not None:
            self._approvals[_key(message["id"])] = conversation, asked

    def _record(
        self, native: str, conversation: AcpConversation, record: Callable[[], object]
    ) -> list[Line]:
        """Record an update; a turn that was asked to stop elsewhere is cancelled at its agent."""
        try:
            record()
        except TurnStopped as stopped:
            with self._recording("a stop"):
                conversation.end(error=stopped)
            return [self._cancel(native)]
        except (KillickError, OSError) as error:
            self._lost("an update", error)
        return []

    def stop_asked(self) -> list[Line]:
        """End the turns that were asked to stop elsewhere; lines for the agent that cancel them."""
        lines = []
        for native, conversation in self._conversations.items():
            turn = conversation.turn
            if turn is not None and turn.stop_asked is not None:
                with self._recording("a stop"):
                    conversation.end(cause="stopped")
                lines.append(self._cancel(native))
        return lines

    def _cancel(self, native: str) -> Line:
        params = {"sessionId": self._agents_id.get(native, native)}
        return _encode({"jsonrpc": "2.0", "method": "session/cancel", "params": params})

    def _take_result(self, line: Line, message: Json) -> Passed:
        key = _key(message.get("id"))
        if key in self._loads:
            return self._loaded(message, *self._loads.pop(key))
        request = self._asked_agent.pop(key, None)
        result = message.get("result")
        if request is None:
            return Passed(to_editor=[line])
        params = request.get("params")
        params = params if isinstance(params, dict) else {}
        result = result if isinstance(result, dict) else {}
        match request["method"]:
            case "initialize":
                line = self._initialized(line, message, result)
            case "session/new" | "session/fork" if isinstance(result.get("sessionId"), str):
                with self._recording("a session"):
                    self._open(result["sessionId"], params.get("cwd"))
            case "session/load" | "session/resume":
                if "error" in message and self._is_stored(params):  # the agent has lost it
                    return self._load(request, params)
                if "error" not in message:
                    with self._recording("a session"):
                        self._open(str(params.get("sessionId")), params.get("cwd"))
            case "session/prompt":
                self._ended(message, result)
            case _:
                pass
        return Passed(to_editor=[line])

    def _ended(self, message: Json, result: Json) -> None:
        """End the turn of a prompt, durable before the editor is told."""
        conversation = self._prompts.pop(_key(message.get("id")), None)
        if conversation is None:
            return
        with self._recording("an ending"):
            if "error" in message:
                conversation.end(error=RuntimeError(_error_text(message["error"])))
            elif result.get("stopReason") == "cancelled":
                conversation.end(cause="stopped" if conversation.is_cancelled else "cancelled")
            else:
                reason = result.get("stopReason")
                conversation.end(
                    usage=_usage(result.get("usage")),
                    reason=reason if isinstance(reason, str) else None,
                )

    def leave(self, cause: Cause, why: str) -> Passed:
        """End what runs, when the agent or the editor is gone; errors for who still waits."""
        for conversation in self._conversations.values():
            with self._recording("an ending"):
                conversation.end(cause=cause)
        waiting = list(self._asked_agent.values())
        self._asked_agent.clear()
        refused = [self._error(request, _INTERNAL, why) for request in waiting]
        return Passed(to_editor=[_encode(message) for message in refused])

    # -- sessions ------------------------------------------------------------------------------

    def _initialized(self, line: Line, message: Json, result: Json) -> Line:
        """Learn what the agent can; it is said to load sessions, with the help of the store."""
        info = result.get("agentInfo")
        if isinstance(info, dict) and isinstance(info.get("name"), str):
            self._agent = _agent_of(info["name"])
        can = result.get("agentCapabilities")
        self._can = can if isinstance(can, dict) else {}
        sessions = self._can.get("sessionCapabilities")
        sessions = dict(sessions) if isinstance(sessions, dict) else {}
        added: Json = {} if self._has("list") else {"list": {}}
        if not self._can.get("loadSession"):
            added["resume"] = {}
        if not added or "error" in message:
            return line
        more = {**self._can, "loadSession": True, "sessionCapabilities": {**sessions, **added}}
        return _encode({**message, "result": {**result, "agentCapabilities": more}})

    def _has(self, capability: str) -> bool:
        sessions = self._can.get("sessionCapabilities")
        return isinstance(sessions, dict) and sessions.get(capability) is not None

    def _open(self, native: str, cwd: object) -> AcpConversation:
        """Open the session of a conversation, or begin it: the agent's id names it for ever."""
        folder = Path(cwd) if isinstance(cwd, str) and cwd else None
        marks = {"agent": self._agent, "id": native, "acp": True}
        session = self._store.open_session(
            session_id_of(self._agent, native),
            project=None if folder is None else self._project_of(folder),
            extra={"proxy": marks},
        )
        if session.info().extra.get("proxy") != marks:  # another way in was first: it is linked
            session.note(_NOTE, key=PROXY_NOTE_KEY)
        self._conversations[native] = AcpConversation(session, self._store.put_blob)
        return self._conversations[native]

    def _list(self, params: Json) -> Json:
        cursor, cwd = params.get("cursor"), params.get("cwd")
        before = None
        if isinstance(cursor, str):
            with contextlib.suppress(SessionNotFound):
                before = self._store.session_info(cursor)
        infos = self._store.sessions(limit=_LISTED, before=before)
        openings = self._store.openings([info.id for info in infos if info.title is None])
        listed = []
        for info in infos:
            marks = info.extra.get("proxy")
            folder = info.project.directory or info.project.root if info.project else None
            if not isinstance(marks, dict) or marks.get("agent") != self._agent or not folder:
                continue
            if marks.get("acp") and (not isinstance(cwd, str) or cwd == folder):
                listed.append(_listed(info, marks["id"], folder, openings.get(info.id)))
        more = {"nextCursor": infos[-1].id} if len(infos) == _LISTED else {}
        return {"sessions": listed, **more}

    def _is_stored(self, params: Json) -> bool:
        try:
            self._store.session(session_id_of(self._agent, str(params.get("sessionId"))))
        except KillickError:
            return False
        return True

    def _load(self, message: Json, params: Json) -> Passed:
        """Begin a session of the agent's own, in which the editor's goes on."""
        if not self._is_stored(params):
            why = f"there is no session {params.get('sessionId')!r} in this store"
            return self._refused(message, why, _NOT_FOUND)
        self._number += 1
        request = {
            "jsonrpc": "2.0",
            "id": f"{_OURS}{self._number}",
            "method": "session/new",
            "params": {"cwd": params.get("cwd"), "mcpServers": params.get("mcpServers") or []},
        }
        self._asked_agent.pop(_key(message["id"]), None)
        self._loads[_key(request["id"])] = message, message["method"] == "session/load"
        return Passed([_encode(request)])

    def _loaded(self, answer: Json, message: Json, is_load: bool) -> Passed:  # noqa: FBT001
        result = answer.get("result")
        own = result.get("sessionId") if isinstance(result, dict) else None
        if not isinstance(own, str) or not isinstance(result, dict):
            return Passed(to_editor=[_encode({**answer, "id": message["id"]})])
        native = str(message["params"]["sessionId"])
        self._agents_id[native], self._editors_id[own] = own, native
        lines = []
        try:
            conversation = self._open(native, message["params"].get("cwd"))
            self._untold.add(native)
            shown = conversation.session.transcript() if is_load else []
        except (KillickError, OSError) as error:
            return self._refused(message, str(error))
        for update in replay(shown):
            params = {"sessionId": native, "update": update}
            lines.append(_encode({"jsonrpc": "2.0", "method": "session/update", "params": params}))
        kept = {key: value for key, value in result.items() if key != "sessionId"}
        lines.append(_encode({"jsonrpc": "2.0", "id": message["id"], "result": kept}))
        return Passed(to_editor=lines)

    def _hand_over(self, session_id: str) -> str:
        """Return what the agent is told of a session that it does not have itself."""
        recall = Recall(lambda: contextlib.nullcontext(self._store), only=None, here=None)
        try:
            return recall.call("hand_over", {"session": session_id})
        except KillickError as error:
            self._complain(f"session {session_id} was not handed over: {error}")
            return ""

    # -- lines ---------------------------------------------------------------------------------

    def _for_agent(self, line: Line, message: Json, params: Json) -> Line:
        own = self._agents_id.get(str(params.get("sessionId")))
        return line if own is None else _encode({**message, "params": {**params, "sessionId": own}})

    def _for_editor(self, line: Line, message: Json, params: Json) -> Line:
        native = self._editors_id.get(str(params.get("sessionId")))
        if native is None:
            return line
        return _encode({**message, "params": {**params, "sessionId": native}})

    def _answered(self, message: Json, result: Json) -> Passed:
        self._asked_agent.pop(_key(message["id"]), None)
        return Passed(
            to_editor=[_encode({"jsonrpc": "2.0", "id": message["id"], "result": result})]
        )

    def _refused(self, message: Json, why: str, code: int = _INTERNAL) -> Passed:
        self._asked_agent.pop(_key(message["id"]), None)
        return Passed(to_editor=[_encode(self._error(message, code, why))])

    def _error(self, message: Json, code: int, why: str) -> Json:
        return {"jsonrpc": "2.0", "id": message["id"], "error": {"code": code, "message": why}}

    # -- what cannot be recorded ---------------------------------------------------------------

    @contextlib.contextmanager
    def _recording(self, what: str) -> Iterator[None]:
        try:
            yield
        except (KillickError, OSError) as error:
            self._lost(what, error)

    def _lost(self, what: str, error: BaseException) -> None:
        self._complain(f"{what} was not recorded: {error}")


def _agent_of(name: str) -> str:
    """Return the name under which an agent's own sessions come in, or the one that it gives."""
    folded = name.casefold()
    return next((known for word, known in _AGENTS if word in folded), folded)


def _listed(info: SessionInfo, native: object, folder: str, opening: str | None) -> Json:
    return {
        "sessionId": native,
        "cwd": folder,
        "title": info.title or opening,
        "updatedAt": info.updated_at.isoformat(),
    }


def _usage(value: object) -> e.Usage | None:
    if not isinstance(value, dict):
        return None
    names = {"input": "inputTokens", "output": "outputTokens", "reasoning": "thoughtTokens"}
    figures = {name: value.get(key) for name, key in names.items()}
    counted = {name: n for name, n in figures.items() if isinstance(n, int) and n >= 0}
    return e.Usage(**counted) if counted else None


def _error_text(error: object) -> str:
    text = error.get("message") if isinstance(error, dict) else error
    return str(text or "the agent gave no reason")


def _key(message_id: object) -> str:
    return json.dumps(message_id)


def _decode(line: Line) -> Json | None:
    try:
        value = json.loads(line)
    except ValueError:
        return None
    return value if isinstance(value, dict) and isinstance(value.get("method", ""), str) else None


def _encode(message: Json) -> Line:
    return json.dumps(message, separators=(",", ":")).encode() + b"\n"


# -- processes ---------------------------------------------------------------------------------


def read_lines(descriptor: int) -> Iterator[Line]:
    """Yield lines as they come, without a buffered reader, which a process cannot end while it
    waits in another thread.
    """
    pieces: list[bytes] = []
    while data := os.read(descriptor, _READ_BYTES):
        *whole, rest = data.split(b"\n")
        for each in whole:
            yield b"".join([*pieces, each, b"\n"])
            pieces = []
        if rest:
            pieces.append(rest)
    if pieces:
        yield b"".join(pieces)


class AcpRelay:
    """Runs the agent, and passes lines between it and the editor until one of them is gone."""

    def __init__(
        self, proxy: AcpProxy, command: Sequence[str], editor: tuple[int, BinaryIO]
    ) -> None:
        self._proxy = proxy
        self._command = list(command)
        self._from_editor, self._to_editor = editor
        self._writing = threading.Lock(), threading.Lock()
        self._over = threading.Event()
        self._is_editor_gone = False

    def run(self) -> int:
        """Pass lines on until the agent has ended; its exit code, as a shell has it.

        If interrupted: the agent is ended, and its turns are, as terminated.
        """
        process = subprocess.Popen(self._command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
        assert process.stdin is not None
        assert process.stdout is not None
        self._agent = process.stdin
        for work in (self._read_editor, self._watch_stops):
            threading.Thread(target=work, args=(process,), daemon=True).start()
        try:
            for line in process.stdout:
                with self._proxy.mutex:
                    passed = self._proxy.from_agent(line)
                self._pass(passed)
            code = process.wait()
        except BaseException:
            process.terminate()
            self._leave("terminated", "the proxy was ended")
            raise
        finally:
            self._over.set()
        if self._is_editor_gone:
            self._leave("client_gone", "the editor is gone")
        else:
            self._leave("crashed", f"the agent ended, with code {code}")
        return code if code >= 0 else 128 - code

    def _read_editor(self, process: subprocess.Popen[bytes]) -> None:
        for line in read_lines(self._from_editor):
            with self._proxy.mutex:
                passed = self._proxy.from_editor(line)
            self._pass(passed)
        self._is_editor_gone = True
        with self._writing[0], contextlib.suppress(OSError, ValueError):
            self._agent.close()
        for end in (process.terminate, process.kill):
            if self._over.wait(_LEAVE_SECONDS):
                return
            end()

    def _watch_stops(self, _process: subprocess.Popen[bytes]) -> None:
        while not self._over.wait(_STOP_SECONDS):
            with self._proxy.mutex:
                lines = self._proxy.stop_asked()
            self._pass(Passed(lines))

    def _leave(self, cause: Cause, why: str) -> None:
        with self._proxy.mutex:
            passed = self._proxy.leave(cause, why)
        self._pass(passed)

    def _pass(self, passed: Passed) -> None:
        """Write lines; a side that is gone is noticed where it is read."""
        for stream, lines, lock in (
            (self._agent, passed.to_agent, self._writing[0]),
            (self._to_editor, passed.to_editor, self._writing[1]),
        ):
            if lines:
                with lock, contextlib.suppress(OSError, ValueError):
                    stream.write(b"".join(lines))
                    stream.flush()
