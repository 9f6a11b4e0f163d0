"""Compares what a context says of tools with the journal that it was made of.

It reads the entries itself and shares nothing with `views.neutral`: it folds the journal to the
states that each call had when a model was called, and now, and looks for exactly these statements,
in this order, in what is sent. A statement too few is as wrong as one too many.
"""

import json
import re
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Final, NamedTuple, Protocol

from killick.journal.assembly import is_whole_object
from killick.journal.visibility import History
from killick.model import entries as e
from killick.model.messages import Opaque, Text, ToolCall, ToolResult
from killick.views.validators.findings import Findings, Violation

RULES: Final = {
    "call": "every whole call in view is sent once, and no other",
    "statement": "what is said of a call is what the journal knew each time a model was called",
    "gone": "a late result of a call that is not shown is told with its tool's name",
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
_HOSTED: Final = re.compile(r"\[The model's provider (ran|began to run) its own tool (\S+)")
_SURROGATES: Final = re.compile("[\ud800-\udfff]")
_UNSAFE: Final = re.compile(r"[^a-zA-Z0-9_-]")
_WORDS: Final = {
    "not run": "it did not run",
    "denied": "it was denied",
    "running": "it is still running",
    "unknown": "its outcome is unknown",
    "unseen": "its outcome is unknown",
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
    """A call's state, and the text that goes with it: a result, a reason, output."""

    state: str
    text: str = ""

    def is_told_by(self, other: "Statement") -> bool:
        return self.state == other.state and self.text in other.text


# -- the journal -------------------------------------------------------------------------------


class _Call:
    """The facts of one call."""

    def __init__(self, part: ToolCall, *, seen: bool) -> None:
        self.part = part
        self.seen = seen and part.tool_type != "hosted"
        self.started = self.running = self.said = False
        self.output = ""
        self.asked = ""
        self.denial: str | None = None
        self.result: ToolResult | None = None
        self.history: list[Statement] = []

    def now(self) -> Statement:
        if self.result is not None:
            state = "failed" if self.result.is_error else "finished"
            return Statement(state, _clean(_text(self.result)).strip())
        if self.started:
            return Statement("running" if self.running else "unknown", _clean(self.output).strip())
        if self.denial is not None:
            return Statement("denied", _clean(self.denial).strip())
        return Statement("not run" if self.seen else "unseen")

    def tell(self) -> None:
        """A model is called, or would be now: it is told what it was not told before."""
        now = self.now()
        if self.said and self.history[-1:] != [now]:
            self.history.append(now)


class _Journal:
    """Folds the entries that a model may be shown."""

    def __init__(self, entries: Sequence[e.Entry]) -> None:
        history = History(entries)
        self._hidden = history.hides("model")
        self.calls: dict[tuple[str, str], _Call] = {}
        self.again: list[_Call] = []
        self.gone: list[tuple[str, ToolResult]] = []
        self.hosted: list[tuple[str, str]] = []
        self.rewound_texts: list[str] = []
        self.failures: list[e.TurnEnding] = []
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

    def _miss(self, body: e.Body, *, rewound: bool) -> None:
        match body:
            case e.TurnStarted(starts="unseen"):
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
                elif not self._hidden.has_result(body):
                    call.output, call.running = body.output, False
            case e.ToolFinished() | e.LateResult():
                self._answer(self.calls.get((body.message_id, body.result.call_id)), body)
            case e.LateText():
                self._late(body)
            case e.ApprovalAsked() if (body.message_id, body.call_id) in self.calls:
                call = self._asked[body.id] = self.calls[body.message_id, body.call_id]
                call.asked, call.denial = body.id, None
            case e.ApprovalDecided(approved=False) if body.id in self._asked:
                call = self._asked[body.id]
                call.denial = (body.reason or "") if call.asked == body.id else call.denial
            case e.ModelCallStarted():
                for call in self.every():
                    call.tell()
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
            elif isinstance(part, Opaque) and assistant:
                self.hosted += _hosted(part)

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
        if call is not None:
            call.result = call.result or result
            return
        name = self._named.get((body.message_id, body.result.call_id))
        if name is not None:
            self.gone.append((name, result))

    def _late(self, body: e.LateText) -> None:
        text = "".join(delta.text for delta in body.deltas)
        if body.call_id is not None:
            call = self.calls.get((body.message_id, body.call_id))
            if call is not None and not self._hidden.has_result(body):
                call.output += text
        elif body.message_id in self._rewound:
            self.rewound_texts.append(text)
        else:
            self.visible.append(text)


def _hosted(part: Opaque) -> list[tuple[str, str]]:
    """Return the provider and the tool's name, if a provider called its own tool by this."""
    try:
        value = json.loads(part.data)
    except ValueError:
        return []
    kind = value.get("type", "") if isinstance(value, dict) else ""
    if part.provider == "openai" and kind.endswith("_call"):
        return [("openai", value.get("name") or kind[: -len("_call")])]
    if part.provider == "anthropic" and kind in ("server_tool_use", "mcp_tool_use"):
        return [("anthropic", value.get("name", "tool"))]
    return []


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
    elif is_whole_object(text):
        value = json.loads(text)
    else:
        value = {"arguments": text} if text.strip() else {}
    return _clean(json.dumps(value, sort_keys=True, ensure_ascii=False))


# -- the context -------------------------------------------------------------------------------


class _Sent:
    """The calls, the results and the words of a context, whatever its format is."""

    def __init__(self, format_: str, messages: Sequence[Json]) -> None:
        self.calls: dict[str, str] = {}
        self.results: dict[str, Statement] = {}
        self.texts: list[str] = []
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

    def _gemini(self, message: Json) -> None:
        for part in message["parts"]:
            if "function_call" in part:
                self._call(part["function_call"]["id"], part["function_call"]["args"])
            elif "function_response" in part:
                [(flag, text)] = part["function_response"]["response"].items()
                self._result(part["function_response"]["id"], text, flag == "error")
            elif "text" in part and not part.get("thought"):
                self.texts.append(part["text"])

    def _call(self, call_id: str, arguments: Any) -> None:
        self.calls[call_id] = json.dumps(arguments, sort_keys=True, ensure_ascii=False)

    def _result(self, call_id: str, text: str, failed: bool | None) -> None:  # noqa: FBT001
        made_up = _made_up(text)
        if made_up is None:
            in_words = text.startswith("[This tool call failed")
            made_up = Statement("failed" if failed or in_words else "finished", text)
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
    if first == "[This tool call did not run.]":
        return Statement("not run")
    if first.startswith("[This tool call was denied"):
        return Statement("denied", rest)
    if first.startswith("[This tool call is still running"):
        return Statement("running", rest)
    if first.startswith("[The outcome of this tool call is unknown"):
        return Statement("unseen" if "was not seen" in first else "unknown", rest)
    return None


def _since(sentence: str, rest: str) -> Statement:
    """Return what a note says that became true of a call."""
    if "still running" in sentence:
        return Statement("running", rest)
    if "unknown" in sentence:
        return Statement("unseen" if "was not seen" in sentence else "unknown", rest)
    if "denied since" in sentence:
        return Statement("denied", rest)
    if "not denied any more" in sentence:
        return Statement("not run")
    return Statement("failed" if "has failed" in sentence else "finished", rest)


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
    _compare_gone(report, journal, sent)
    _compare_hosted(report, journal, sent, context.format)
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


def _compare_gone(report: Findings, journal: _Journal, sent: _Sent) -> None:
    spoken = [
        (match[2], match[3], _clean(_tail(text, match.end())))
        for text in sent.texts
        for match in _GONE.finditer(text)
    ]
    for name, result in journal.gone:
        wanted = _UNSAFE.sub("_", name)[:64] or "tool"
        outcome = "failed" if result.is_error else "finished"
        content = _clean(_text(result)).strip()
        if not any((wanted, outcome) == note[:2] and content in note[2] for note in spoken):
            report.add("gone", result.call_id, f"{name} has {outcome}, and it is not told")
    if len(spoken) > len(journal.gone):
        report.add("gone", "messages", f"{len(spoken)} told, {len(journal.gone)} are true")


def _compare_hosted(report: Findings, journal: _Journal, sent: _Sent, format_: str) -> None:
    own = {"openai-responses": "openai"}.get(format_, format_)
    wanted = sorted(name for provider, name in journal.hosted if provider != own)
    spoken = sorted(match[2] for text in sent.texts for match in _HOSTED.finditer(text))
    ours = [name for provider, name in journal.hosted if provider == own]
    for name in ours:  # what cannot be sent back may be told
        if spoken.count(name) > wanted.count(name):
            spoken.remove(name)
    if wanted != spoken:
        report.add("hosted", "messages", f"{wanted} ran, {spoken} are told")


def _compare_words(report: Findings, journal: _Journal, sent: _Sent) -> None:
    words = _clean("\n".join(sent.texts))
    visible = _clean("\n".join(journal.visible))
    for text in map(_clean, journal.rewound_texts):
        if text.strip() and text in words and text not in visible:
            report.add("rewound", "messages", f"{text!r} was rewound")
    for failure in journal.failures:
        reason, kind = failure.reason or "", failure.error_type
        if reason != kind and reason in words and reason not in visible:
            report.add("error", "messages", f"{reason!r} is told")
        ending = f": {kind}." if kind else "."
        if f"[The turn above failed before it was complete{ending}" not in words:
            report.add("error", "messages", f"that a turn failed with {kind} is not told")


def _compare_repairs(report: Findings, journal: _Journal, context: ContextLike) -> None:
    wanted = sorted(
        f"{call.part.id!r}: {_WORDS[call.now().state]}"
        for call in journal.every()
        if call.now().state in _WORDS
    )
    made = sorted(r.reason for r in context.repairs if r.action == "made up a result")
    if wanted != made:
        report.add("repair", "repairs", f"{wanted} is true, {made} is reported")


def count_calls(entries: Iterable[e.Entry]) -> int:
    """Count the whole calls in view."""
    return sum(1 for _ in _Journal(list(entries)).every())
