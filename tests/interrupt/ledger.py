"""What a scenario was told, and whether a store that is opened afterwards knows it too."""

from typing import Any

from killick import Message, Session, Store, Text
from killick.model import entries as e


class Ledger:
    """Notes each acknowledgement when it comes; what came later, or never, is not noted."""

    def __init__(self, *, exact: bool = True) -> None:
        self.exact = exact
        """Whether nothing can come between an acknowledgement and its note."""
        self.began: dict[str, str] = {}
        self.leaving: set[str] = set()
        self.failing: set[str] = set()
        self.theirs: set[str] = set()
        self.may_stop_theirs = False
        self.said: dict[str, str] = {}
        self.ending: set[str] = set()
        self.streamed: set[str] = set()
        self.recorded: dict[str, str] = {}
        self.printed: dict[tuple[str, str], str] = {}
        self.answers: dict[tuple[str, str], str] = {}
        self.kept: dict[str, list[str]] = {}
        self.sessions: set[str] = set()
        self.deleting: set[str] = set()

    # -- while the scenario runs -----------------------------------------------------------------

    def begin(self, session: Any, turn: Any) -> None:
        """The turn's block was entered: its start and its prompt are durable."""
        self.sessions.add(session.id)
        self.began[turn.id] = session.id

    def leave(self, turn: Any) -> None:
        """The last thing in a turn's block: from here on it completes."""
        self.leaving.add(turn.id)

    def say(self, reply: Any, text: str) -> None:
        reply.text(text)
        self.said[reply.id] = self.said.get(reply.id, "") + text

    def end(self, reply: Any) -> None:
        """The last thing in a stream's block: from here on its message can be complete."""
        self.ending.add(reply.id)

    def left(self, reply: Any) -> None:
        """A stream's block was left as it should be: its message is complete."""
        self.streamed.add(reply.id)
        self.said.setdefault(reply.id, "")

    def output(self, turn: Any, call: Any, call_id: str, text: str) -> None:
        call.output(text)
        key = (turn.id, call_id)
        self.printed[key] = self.printed.get(key, "") + text

    def answer(self, turn: Any, call_id: str, content: str) -> None:
        self.answers[turn.id, call_id] = content

    def record(self, session: Any, message_id: str) -> None:
        self.recorded[message_id] = session.id

    def keep(self, session: Any, kind: str) -> None:
        """An entry of this kind was acknowledged."""
        self.sessions.add(session.id)
        self.kept.setdefault(session.id, []).append(kind)

    # -- afterwards ------------------------------------------------------------------------------

    def check(self, store: Store) -> None:
        """Everything that was acknowledged is there, each turn has its one ending."""
        assert store.counts()["deltas"] == 0
        for info in store.sessions(archived=None):
            self._check_session(store.session(info.id))
        for session_id in self.sessions - self.deleting:
            store.session(session_id)

    def _check_session(self, session: Session) -> None:
        entries = session.entries()
        messages = {message.id: message for message in session.messages()}
        kinds = [entry.kind for entry in entries]
        assert [entry.seq for entry in entries] == list(range(1, len(entries) + 1))
        for kind in set(self.kept.get(session.id, ())):
            assert kinds.count(kind) >= self.kept[session.id].count(kind), kind
        self._check_turns(session, entries)
        self._check_texts(entries, messages)
        self._check_tools(entries)
        for message_id, session_id in self.recorded.items():
            assert session_id != session.id or messages[message_id].state == "complete"

    def _check_turns(self, session: Session, entries: list[e.Entry]) -> None:
        started = [x.body.turn_id for x in entries if isinstance(x.body, e.TurnStarted)]
        ended = [x.body.turn_id for x in entries if isinstance(x.body, e.TurnEnding)]
        assert sorted(started) == sorted(ended), "one ending for each turn"
        assert len(set(started)) == len(started)
        ours = {turn_id for turn_id, session_id in self.began.items() if session_id == session.id}
        assert ours <= set(started)
        for turn in session.turns():
            if turn.id in self.theirs:
                assert turn.status == "completed" or self.may_stop_theirs, turn
                continue
            allowed = {"interrupted"}
            if turn.id in self.failing:
                allowed = {"failed", "interrupted"}
            elif turn.id in self.leaving:
                allowed = {"completed"} if self.exact else {"completed", "interrupted"}
            assert turn.status in allowed, (turn, allowed)
            assert turn.status == "completed" or turn.reason

    def _check_texts(self, entries: list[e.Entry], messages: dict[str, Message]) -> None:
        for started in (x.body for x in entries if isinstance(x.body, e.MessageStarted)):
            said = self.said.get(started.id, "")
            if started.id in self.streamed:
                assert messages[started.id].state == "complete"
            elif started.id not in messages:
                assert said == ""
                continue
            elif started.id not in self.ending:
                assert messages[started.id].state == "partial", (messages, entries)
            stored = messages[started.id].text
            assert stored == said if self.exact else stored.startswith(said), (stored, said)

    def _check_tools(self, entries: list[e.Entry]) -> None:
        turns = {x.body.turn_id for x in entries if isinstance(x.body, e.TurnStarted)}
        results: dict[tuple[str, str], Any] = {}
        printed: dict[tuple[str, str], str] = {}
        for body in (entry.body for entry in entries):
            if isinstance(body, e.ToolFinished | e.LateResult):
                key = (body.turn_id, body.result.call_id)
                assert key not in results
                results[key] = body.result.content
                printed[key] = body.output or printed.get(key) or str(body.result.content)
            elif isinstance(body, e.ToolOutput):
                printed[body.turn_id, body.call_id] = body.output
        for key, content in self.answers.items():
            assert key[0] not in turns or results[key] == content
        for key, text in self.printed.items():
            if key[0] in turns:
                assert printed[key] == text if self.exact else printed[key].startswith(text)


def use_again(session: Session) -> None:
    """The next turn starts and completes."""
    with session.turn("and now?") as turn:
        turn.record(Message("assistant", [Text("now it goes on")]))
    assert turn.status == "completed"
