"""Compares what a context says of tools with the journal that it was made of.

It reads the entries itself and shares nothing with `views.neutral`: it folds the journal to the
states that each call had when a model was called, and now, and looks for exactly these statements,
in this order, in what is sent. A statement too few is as wrong as one too many.
"""

import contextlib
import json
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final, NamedTuple, Protocol

import msgspec

from killick.journal.assembly import assemble, is_whole_object
from killick.journal.visibility import History
from killick.model import entries as e
from killick.model.messages import Text, ToolCall, ToolResult
from killick.views.validators.findings import Findings, Violation
from killick.views.validators.hosted_runs import Run, find_untold, runs_of

RULES: Final = {
    "call": "every whole call in view is sent once, and no other",
    "statement": "what is said of a call is what the journal knew each time a model was called",
    "cut": "a call that was cut off in its arguments, or came late, is told by its tool's name",
    "gone": "a late result of a call that is not shown is told with its tool's name",
    "settled": "what was found out about a call that is not shown is told with its tool's name",
    "hosted": "what a provider ran itself is told to the others",
    "rewound": "late text of a rewound answer is not told",
    "error": "of a failed turn's exception the type is told, and its text is not",
    "repair": "the repairs say the same of a call as the text",
}

_NOTE: Final = re.compile(r"^\[The tool call (\S+) \(([^)]*)\) above (.*?)\]$", re.MULTILINE)
_ANY_NOTE: Final = re.compile(r"^\[(The|A) (tool call|turn|answer|conversation)\b", re.MULTILINE)
_GONE: Final = re.compile(
    r"^\[A tool call that is not shown here, (\S+) \(([^)]*)\), has (finished|failed) since\.",
    re.MULTILINE,
)
_CUT: Final = re.compile(
    r"A call to (\S+) (was cut off while its arguments were written|came after the answer was "
    r"over)(?:, (so it did not run|and whether it ran was not seen))?\."
)
_GONE_SETTLED: Final = re.compile(
    r"^\[A tool call that is not shown here, (\S+) \(([^)]*)\), was settled since\. (.*?)\.\]$",
    re.MULTILINE,
)
_ADVICE: Final = "Check what it did before repeating it."
_UNKNOWN: Final = {
    "was started and left no result": "unknown",
    "left no result, and whether it ran was not seen": "unseen",
}
_PLAIN: Final = {
    "[This tool call did not run.]": "not run",
    "[This tool call was denied, so it did not run.]": "denied",
    "[This tool call was denied.]": "denied with a result",
    "[This tool call is still running and has no result yet.]": "running",
    **{
        f"[The outcome of this tool call is unknown: it {why}. {_ADVICE}]": state
        for why, state in _UNKNOWN.items()
    },
}
_FAILED: Final = ("[This tool call failed.]", "[This tool call failed and gave no output.]")
_SINCE: Final = {
    "has finished since. Its result:": "finished",
    "has failed since. Its result:": "failed",
    "was started since. It is still running and has no result yet.": "running",
    "was denied since, so it did not run.": "denied",
    "was denied since.": "denied with a result",
    "is not denied any more. It did not run so far.": "not run",
    **{f"{why}, so its outcome is unknown. {_ADVICE}": state for why, state in _UNKNOWN.items()},
}
_WAS: Final = "[The outcome of this tool call was unknown."
_FOUND: Final = re.compile(r"\. A (person|check) found out that it (?:ran|(did not run))\.\]?$")
_FAILURE: Final = re.compile(r"^\[The turn above failed before it was complete(?:: (\w+))?\.", re.M)
_HIDDEN: Final = "[What this tool returned is hidden.]"
_SURROGATES: Final = re.compile("[\ud800-\udfff]")
_UNSAFE: Final = re.compile(r"[^a-zA-Z0-9_-]")
_WORDS: Final = {
    "not run": "it did not run",
    "denied": "it was denied",
    "running": "it is still running",
    "unknown": "its outcome is unknown",
    "unseen": "its outcome is unknown",
    "settled ran": "it was settled that it ran",
    "settled not run": "it was settled that it did not run",
}

Json = dict[str, Any]


class ContextLike(Protocol):
    """A context, or anything that has its fields."""

    @property
    def format(self) -> str: ...
    @property
    def messages(self) -> list[Json]: ...
    @property
    def repairs(self) -> Sequence[Any]: ...


class Statement(NamedTuple):
    """A call's state, and the texts that go with it: a result, a reason, evidence, output."""

    state: str
    texts: tuple[str, ...] = ()
    mark: str = ""
    """Tells two settlements apart that say the same."""

    def is_told_by(self, other: "Statement") -> bool:
        words = "\n".join(other.texts)
        return self.state == other.state and all(_is_said(text, words) for text in self.texts)


# -- the journal -------------------------------------------------------------------------------


class _Call:
    """The facts of one call."""

    def __init__(self, part: ToolCall, *, seen: bool) -> None:
        self.part = part
        self.seen = seen
        self.started = self.running = self.said = False
        self.untold = self.over = False
        self.output = ""
        self.asked = ""
        self.denial: str | None = None
        self.denial_told = False
        self.result: ToolResult | None = None
        self.settled: Statement | None = None
        self.history: list[Statement] = []

    def now(self) -> Statement:
        if self.result is not None:
            text = _clean(_text(self.result)).strip()
            if self.denial is not None and not self.started and not self.denial_told:
                return Statement("denied with a result", (_clean(self.denial).strip(), text))
            return Statement("failed" if self.result.is_error else "finished", (text,))
        printed = _clean(self.output).strip()
        if self.settled is not None:
            return self.settled._replace(texts=(*self.settled.texts, printed))
        if self.started:
            return Statement("running" if self.running else "unknown", (printed,))
        if self.denial is not None:
            return Statement("denied", (_clean(self.denial).strip(),))
        proven = self.seen and self.part.tool_type != "hosted"
        return Statement("not run" if proven else "unseen")

    def tell(self) -> None:
        """A model is called, or would be now: it is told what it was not told before."""
        now = self.now()
        if not self.said or self.over or self.history[-1:] == [now]:
            return
        self.history.append(now)
        if self.result is not None:
            self.over = True
            if self.settled is not None and self.untold:
                self.history.append(Statement(f"had {self.settled.state}", self.settled.texts))
        self.untold = False
        self.denial_told = now.state == "denied"


class _Broken:
    """A partial message, the calls that broke off in it, and whether a model was called since."""

    def __init__(self, body: e.MessageRecorded | e.MessageEnded) -> None:
        self.body = body
        self.cut: list[tuple[str, bool]] = []
        self.sent = False


class _Journal:
    """Folds the entries that a model may be shown."""

    def __init__(self, entries: Sequence[e.Entry]) -> None:
        history = History(entries)
        self._hidden = history.hides("model")
        self.calls: dict[tuple[str, str], _Call] = {}
        self.again: list[_Call] = []
        self.gone: list[tuple[str, ToolResult]] = []
        self.gone_settled: list[tuple[str, Statement]] = []
        self._hosted: list[tuple[str, list[Run]]] = []
        self.rewound_texts: list[str] = []
        self.failures: list[e.TurnEnding] = []
        self.broken: dict[str, _Broken] = {}
        self.late: list[tuple[str, bool]] = []
        self.visible: list[str] = []
        self._named: dict[tuple[str, str], str] = {}
        self._unseen: set[str] = set()
        self._rewound: set[str] = set()
        self._asked: dict[str, _Call] = {}
        self._hidden_calls: set[tuple[str, str]] = set()
        for entry in entries:
            if not history.is_in_view(entry.seq):
                self._miss(entry.body, rewound=True)
            elif history.compacted_by(entry.seq) is not None:
                self._miss(entry.body, rewound=False)
            elif self._hidden.has(entry):
                self._hide(entry.body)
            else:
                self._take(entry.body, hidden=entry.seq in self._hidden.places)
        for call in self.every():
            call.tell()

    def every(self) -> Iterator[_Call]:
        yield from (call for call in [*self.calls.values(), *self.again] if call.said)

    @property
    def hosted(self) -> list[Run]:
        return [run for _, runs in self._hosted for run in runs]

    def _miss(self, body: e.Body, *, rewound: bool) -> None:
        match body:
            case e.TurnStarted() | e.TurnEnding():
                self._nothing_runs()
                if isinstance(body, e.TurnStarted) and body.starts == "unseen":
                    self._unseen.add(body.turn_id)
            case e.MessageRecorded() | e.MessageEnded():
                calls = [part for part in body.parts if isinstance(part, ToolCall)]
                self._named.update({(body.id, call.id): call.name for call in calls})
                self._rewound |= {body.id} if rewound else set()
            case e.MessageStarted():
                self._rewound |= {body.id} if rewound else set()
            case _:
                pass

    def _hide(self, body: e.Body) -> None:
        """Note the calls of a hidden message: results that are messages go with them."""
        if isinstance(body, e.MessageRecorded | e.MessageEnded):
            calls = [part for part in body.parts if isinstance(part, ToolCall)]
            self._hidden_calls |= {(body.turn_id, call.id) for call in calls}

    def _take(self, body: e.Body, *, hidden: bool) -> None:
        match body:
            case e.TurnStarted():
                self._nothing_runs()
                self._unseen |= {body.turn_id} if body.starts == "unseen" else set()
            case e.TurnEnding():
                self._nothing_runs()
                self.failures += [body] if body.status == "failed" else []
            case e.Rewound():
                self._nothing_runs()
            case e.MessageRecorded() | e.MessageEnded():
                self._say(body, hidden=hidden)
            case e.ToolCalled():
                part = ToolCall(body.call_id, body.name)
                self.calls[body.message_id, body.call_id] = self._new(part, body.turn_id)
            case e.ToolStarted() | e.ToolOutput() if (body.message_id, body.call_id) in self.calls:
                call = self.calls[body.message_id, body.call_id]
                if isinstance(body, e.ToolStarted):
                    call.started = call.running = True
                    call.settled = None
                else:
                    hidden_output = self._hidden.has_result(body) and body.output
                    call.output = _HIDDEN if hidden_output else body.output
                    call.running = False
            case e.Settled():
                self._settle(body)
            case e.LateResult(second=second) if second:
                pass  # the first is the result
            case e.ToolFinished() | e.LateResult():
                self._answer(self.calls.get((body.message_id, body.result.call_id)), body)
            case e.LateText():
                self._late(body)
            case e.ApprovalAsked() if (body.message_id, body.call_id) in self.calls:
                call = self._asked[body.id] = self.calls[body.message_id, body.call_id]
                if call.result is None:
                    call.asked, call.denial, call.denial_told = body.id, None, False
            case e.ApprovalDecided(approved=False) if body.id in self._asked:
                call = self._asked[body.id]
                if call.asked == body.id and call.result is None:
                    call.denial = body.reason or ""
            case e.ModelCallStarted():
                for call in self.every():
                    call.tell()
                for message in self.broken.values():
                    message.sent = True
            case _:
                pass

    def _nothing_runs(self) -> None:
        for call in [*self.calls.values(), *self.again]:
            call.running = False

    def _new(self, part: ToolCall, turn_id: str) -> _Call:
        return _Call(part, seen=turn_id not in self._unseen)

    def _say(self, body: e.MessageRecorded | e.MessageEnded, *, hidden: bool) -> None:
        partial = isinstance(body, e.MessageEnded) and body.state == "partial"
        assistant = isinstance(body, e.MessageEnded) or body.role == "assistant"
        self.visible += [part.text for part in body.parts if isinstance(part, Text)]
        for part in body.parts:
            if isinstance(part, ToolCall) and assistant:
                self._make(body, part, partial=partial)
            elif isinstance(part, ToolResult):
                if (body.turn_id, part.call_id) in self._hidden_calls:
                    continue
                same = [call for (_, name), call in self.calls.items() if name == part.call_id]
                if same and same[-1].result is None:
                    shown = "" if hidden else part.content
                    same[-1].result = ToolResult(part.call_id, shown, part.is_error)
                    self.visible.append(_text(same[-1].result))
        if assistant:
            self._hosted.append((body.id, runs_of(body.parts)))
        if partial:
            self.broken[body.id] = _Broken(body)
            self._find_cut(self.broken[body.id])

    def _find_cut(self, message: "_Broken") -> None:
        """Note the calls of a partial message that are not whole, and were not run either."""
        calls = [part for part in message.body.parts if isinstance(part, ToolCall)]
        whole = [part for part in calls if (message.body.id, part.id) in self.calls]
        seen = message.body.turn_id not in self._unseen
        message.cut = [(part.name, seen) for part in calls if part not in whole]

    def _make(
        self, body: e.MessageRecorded | e.MessageEnded, part: ToolCall, *, partial: bool
    ) -> None:
        known = self.calls.get((body.id, part.id))
        if known is None and partial and not is_whole_object(part.arguments):
            return
        if known is not None and known.said:  # the same id twice in one message
            self.again.append(self._new(part, body.turn_id))
            self.again[-1].said = True
            return
        self._hidden_calls.discard((body.turn_id, part.id))
        call = known or self._new(part, body.turn_id)
        call.part, call.said = part, True
        self.calls[body.id, part.id] = call

    def _answer(self, call: _Call | None, body: e.ToolFinished | e.LateResult) -> None:
        result = body.result
        if self._hidden.has_result(body):
            result = ToolResult(result.call_id, "", is_error=result.is_error)
        self.visible.append(_text(result))
        if call is not None:
            call.result = call.result or result
            return
        name = self._named.get((body.message_id, body.result.call_id))
        if name is not None:
            self.gone.append((name, result))

    def _settle(self, body: e.Settled) -> None:
        hidden = self._hidden.has_result(body)
        given = () if hidden else (body.result or "", body.evidence or "")
        texts = tuple(_clean(text).strip() for text in given)
        state = "settled not run" if body.outcome == "did_not_run" else "settled ran"
        state += ", by a check" if body.by == "check" else ", by a person"
        call = self.calls.get((body.message_id, body.call_id))
        name = self._named.get((body.message_id, body.call_id))
        if call is not None:
            call.settled, call.untold = Statement(state, texts, body.id), True
        elif name is not None:
            self.gone_settled.append((name, Statement(state, texts)))

    def _late(self, body: e.LateText) -> None:
        text = "".join(delta.text for delta in body.deltas)
        if body.call_id is not None:
            call = self.calls.get((body.message_id, body.call_id))
            if call is not None and not self._hidden.has_result(body):
                call.output += text
        elif body.message_id in self._rewound:
            self.rewound_texts += [delta.text for delta in body.deltas if delta.type == "text"]
        else:
            self.visible += [delta.text for delta in body.deltas if delta.type == "text"]
            self._late_calls(body)

    def _late_calls(self, body: e.LateText) -> None:
        """Take the calls of what came late: calls like others, unless a model was called before."""
        message = self.broken.get(body.message_id)
        if message is None or message.sent:
            seen = body.turn_id not in self._unseen
            heads = [delta.head for delta in body.deltas if isinstance(delta.head, ToolCall)]
            self.late += [(head.name, seen) for head in heads]
            brought = [delta.head for delta in body.deltas if delta.head is not None]
            self._hosted.append((body.message_id, runs_of(brought)))
            return
        parts = assemble(body.deltas, onto=message.body.parts)
        self._hosted = [kept for kept in self._hosted if kept[0] != body.message_id]
        self._hosted.append((body.message_id, runs_of(parts)))
        message.body = msgspec.structs.replace(message.body, parts=parts)
        for part in parts:
            known = isinstance(part, ToolCall) and self.calls.get((body.message_id, part.id))
            if isinstance(part, ToolCall) and not (known and known.said):
                self._make(message.body, part, partial=True)
        self._find_cut(message)


def _is_said(text: str, inside: str) -> bool:
    """Tell whether a text stands inside another, and not in the middle of its words."""
    return re.search(rf"(?<!\w){re.escape(text)}(?!\w)", inside) is not None


def _text(result: ToolResult) -> str:
    if isinstance(result.content, str):
        return result.content
    return "\n".join(part.text for part in result.content if isinstance(part, Text))


def _clean(text: str) -> str:
    return _SURROGATES.sub("\ufffd", text)


def _key(part: ToolCall) -> str:
    """Make a name of a call from its arguments, which a context has in every format."""
    text = part.arguments
    if part.tool_type == "custom":
        value: Any = {"input": text} if text.strip() else {}
    elif is_whole_object(text) and _is_sendable(json.loads(text)):
        value = json.loads(text)
    else:
        value = {"arguments": text} if text.strip() else {}
    return _clean(json.dumps(value, sort_keys=True, ensure_ascii=False))


def _is_sendable(value: Any) -> bool:
    """Tell whether arguments can be sent as they are, without lone surrogates and infinities."""
    with contextlib.suppress(ValueError):
        return bool(json.dumps(value, allow_nan=False, ensure_ascii=False).encode())
    return False


# -- the context -------------------------------------------------------------------------------


class _Sent:
    """The calls, the results and the words of a context, whatever its format is."""

    def __init__(self, format_: str, messages: Sequence[Json]) -> None:
        self.calls: dict[str, str] = {}
        self.results: dict[str, Statement] = {}
        self.texts: list[str] = []
        self.native = 0
        """How many halves of runs of the provider's own tools are sent as they came."""
        reader = {
            "openai-chat": self._chat,
            "openai-responses": self._responses,
            "anthropic": self._anthropic,
            "gemini": self._gemini,
        }[format_]
        for message in messages:
            reader(message)

    def _chat(self, message: Json) -> None:
        for call in message.get("tool_calls", ()):
            self._call(call["id"], json.loads(call["function"]["arguments"]))
        content = message.get("content") or ""
        if message["role"] == "tool":
            self._result(message["tool_call_id"], content, None)
        elif isinstance(content, str):
            self.texts.append(content)
        else:
            self.texts += [block["text"] for block in content if block["type"] == "text"]

    def _responses(self, item: Json) -> None:
        match item.get("type"):
            case "function_call":
                self._call(item["call_id"], json.loads(item["arguments"]))
            case "custom_tool_call":
                self._call(item["call_id"], {"input": item["input"]} if item["input"] else {})
            case "function_call_output" | "custom_tool_call_output":
                self._result(item["call_id"], item["output"], None)
            case "message" if isinstance(item["content"], str):
                self.texts.append(item["content"])
            case "message":
                self.texts += [block["text"] for block in item["content"] if "text" in block]
            case str() as kind if kind.endswith("_call"):
                self.native += 1
            case _:
                pass

    def _anthropic(self, message: Json) -> None:
        for block in message["content"]:
            match block["type"]:
                case "tool_use":
                    self._call(block["id"], block["input"])
                case "tool_result":
                    inner = "\n".join(each.get("text", "") for each in block["content"])
                    self._result(block["tool_use_id"], inner, block.get("is_error", False))
                case "text":
                    self.texts.append(block["text"])
                case "server_tool_use" | "mcp_tool_use":
                    self.native += 1
                case _:
                    pass

    def _gemini(self, message: Json) -> None:
        for part in message["parts"]:
            if "function_call" in part:
                self._call(part["function_call"]["id"], part["function_call"]["args"])
            elif "function_response" in part:
                [(flag, text)] = part["function_response"]["response"].items()
                self._result(part["function_response"]["id"], text, flag == "error")
            elif "executable_code" in part or "tool_call" in part:
                self.native += 1
            elif "text" in part and not part.get("thought"):
                self.texts.append(part["text"])

    def _call(self, call_id: str, arguments: Any) -> None:
        self.calls[call_id] = json.dumps(arguments, sort_keys=True, ensure_ascii=False)

    def _result(self, call_id: str, text: str, failed: bool | None) -> None:  # noqa: FBT001
        made_up = _made_up(text)
        if made_up is None:
            in_words = text.startswith("[This tool call failed")
            made_up = Statement("failed" if failed or in_words else "finished", (text,))
        elif failed and made_up.state.startswith("settled ran"):
            made_up = made_up._replace(state=f"{made_up.state}, and failed")
        self.results[call_id] = made_up

    def statements(self, call_id: str) -> list[Statement]:
        """Return everything that is said of a call, in order."""
        first = [self.results[call_id]] if call_id in self.results else []
        notes = [
            _since(match[3], _tail(text, match.end()))
            for text in self.texts
            for match in _NOTE.finditer(text)
            if match[1] == call_id
        ]
        return [*first, *notes]

    def stray(self) -> Iterator[str]:
        """Yield the ids of calls that are spoken of and are not here."""
        spoken = [match[1] for text in self.texts for match in _NOTE.finditer(text)]
        yield from (call_id for call_id in spoken if call_id not in self.calls)


def _made_up(text: str) -> Statement | None:
    """Return what a sentence in place of a result says; None for a result."""
    first, _, rest = text.partition("\n")
    if first in _PLAIN:
        return Statement(_PLAIN[first], (rest,))
    if first.startswith(_WAS) and (finding := _FOUND.search(first)):
        return Statement(_settled(finding), (rest,))
    odd = first.startswith(("[This tool call ", "[The outcome of this")) and first not in _FAILED
    return Statement(f"something else: {first}") if odd else None


def _since(sentence: str, rest: str) -> Statement:
    """Return what a note says that became true of a call."""
    before = "had " if sentence.startswith("was settled before its result came") else ""
    if sentence.startswith("was settled") and (finding := _FOUND.search(sentence)):
        return Statement(f"{before}{_settled(finding)}", (rest,))
    return Statement(_SINCE.get(sentence, f"something else: {sentence}"), (rest,))


def _settled(finding: re.Match[str]) -> str:
    return f"settled {'not run' if finding[2] else 'ran'}, by a {finding[1]}"


def _tail(text: str, start: int) -> str:
    """Return a note's own text: up to the next note, where a format joins them."""
    following = _ANY_NOTE.search(text, start)
    return text[start : following.start()] if following else text[start:]


# -- the comparison ----------------------------------------------------------------------------


def truth(entries: Iterable[e.Entry], context: ContextLike) -> list[Violation]:
    """Return every false or missing statement of a context about the tools of its journal.

    `context` is of a provider's format, without a budget, with `partial` and `errors` as they are.
    """
    report = Findings(RULES)
    journal = _Journal(list(entries))
    sent = _Sent(context.format, context.messages)
    _compare_calls(report, journal, sent)
    for call_id in sent.stray():
        report.add("statement", call_id, "something is said of a call that is not there")
    _compare_cut(report, journal, sent)
    _compare_gone(report, journal, sent)
    _compare_gone_settled(report, journal, sent)
    if (wrong := find_untold(journal.hosted, sent.texts, sent.native, context.format)) is not None:
        report.add("hosted", "messages", wrong)
    _compare_words(report, journal, sent)
    _compare_repairs(report, journal, context)
    return report.found


def _compare_calls(report: Findings, journal: _Journal, sent: _Sent) -> None:
    expected: dict[str, list[_Call]] = {}
    for call in journal.every():
        expected.setdefault(_key(call.part), []).append(call)
    shown: dict[str, list[str]] = {}
    for call_id, key in sent.calls.items():
        shown.setdefault(key, []).append(call_id)
    for key in expected.keys() | shown.keys():
        wanted, ids = expected.get(key, []), list(shown.get(key, ()))
        if len(wanted) != len(ids):
            report.add("call", key, f"{len(wanted)} in the journal, {len(ids)} in the context")
            continue
        for call in wanted:
            match = next((i for i in ids if _fits(call.history, sent.statements(i))), None)
            if match is None:
                spoken = [sent.statements(call_id) for call_id in ids]
                report.add("statement", key, f"{call.history} is true, {spoken} is told")
            else:
                ids.remove(match)


def _fits(true: Sequence[Statement], spoken: Sequence[Statement]) -> bool:
    return len(true) == len(spoken) and all(map(Statement.is_told_by, true, spoken))


def _compare_cut(report: Findings, journal: _Journal, sent: _Sent) -> None:
    words = {True: "so it did not run", False: None}
    wanted = [
        (_safe(name), words[seen])
        for message in journal.broken.values()
        for name, seen in message.cut
    ]
    words[False] = "and whether it ran was not seen"
    wanted += [(_safe(name), words[seen]) for name, seen in journal.late]
    spoken = [(match[1], match[3]) for text in sent.texts for match in _CUT.finditer(text)]
    if sorted(wanted, key=str) != sorted(spoken, key=str):
        report.add("cut", "messages", f"{wanted} broke off, {spoken} is told")


def _safe(name: str) -> str:
    return _UNSAFE.sub("_", name)[:64] or "tool"


def _compare_gone(report: Findings, journal: _Journal, sent: _Sent) -> None:
    spoken = [
        (match[2], match[3], _clean(_tail(text, match.end())))
        for text in sent.texts
        for match in _GONE.finditer(text)
    ]
    for name, result in journal.gone:
        wanted = _safe(name)
        outcome = "failed" if result.is_error else "finished"
        content = _clean(_text(result)).strip()
        if not any((wanted, outcome) == note[:2] and _is_said(content, note[2]) for note in spoken):
            report.add("gone", result.call_id, f"{name} has {outcome}, and it is not told")
    if len(spoken) > len(journal.gone):
        report.add("gone", "messages", f"{len(spoken)} told, {len(journal.gone)} are true")


def _compare_gone_settled(report: Findings, journal: _Journal, sent: _Sent) -> None:
    spoken = [
        (match[2], Statement(_settled(finding), (_tail(text, match.end()),)))
        for text in sent.texts
        for match in _GONE_SETTLED.finditer(text)
        if (finding := _FOUND.search(f". {match[3]}."))
    ]
    for name, true in journal.gone_settled:
        note = next((n for n in spoken if n[0] == _safe(name) and true.is_told_by(n[1])), None)
        if note is None:
            report.add("settled", "messages", f"of {name} {true} is true, and it is not told")
        else:
            spoken.remove(note)
    if spoken:
        report.add("settled", "messages", f"{spoken} is told, and is not true")


def _compare_words(report: Findings, journal: _Journal, sent: _Sent) -> None:
    words = _clean("\n".join(sent.texts))
    visible = _clean("\n".join(journal.visible))
    for text in map(_clean, journal.rewound_texts):
        if text.strip() and text in words and text not in visible:
            report.add("rewound", "messages", f"{text!r} was rewound")
    for failure in journal.failures:
        reason = failure.reason or ""
        if reason != failure.error_type and reason in words and reason not in visible:
            report.add("error", "messages", f"{reason!r} is told")
    kinds = sorted(failure.error_type or "" for failure in journal.failures)
    failed = sorted(match[1] or "" for match in _FAILURE.finditer(words))
    if kinds != failed:
        report.add("error", "messages", f"turns failed with {kinds}, {failed} is told")


def _compare_repairs(report: Findings, journal: _Journal, context: ContextLike) -> None:
    wanted = sorted(
        f"{call.part.id!r}: {_WORDS[state]}"
        for call in journal.every()
        if (state := call.now().state.partition(",")[0]) in _WORDS
    )
    made = sorted(r.reason for r in context.repairs if r.action == "made up a result")
    if wanted != made:
        report.add("repair", "repairs", f"{wanted} is true, {made} is reported")
    noted = sorted(
        f"{call.part.id!r}: {_WORDS[state]}, and a model was told something else"
        for call in journal.every()
        for statement in call.history[1:]
        if (state := statement.state.partition(",")[0]) in _WORDS
    )
    made = sorted(r.reason for r in context.repairs if r.reason.endswith("told something else"))
    if noted != made:
        report.add("repair", "repairs", f"{noted} became true, {made} is reported")


def count_calls(entries: Iterable[e.Entry]) -> int:
    """Count the whole calls in view."""
    return sum(1 for _ in _Journal(list(entries)).every())
