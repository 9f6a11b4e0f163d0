"""OpenAI Responses: items by their place in the output; ids of items may change on the way.

Deltas come first and the whole item afterwards. Whatever the deltas did not bring, the item does;
whatever both bring is taken once. An item that the provider ran itself is kept as it came.
"""

from base64 import b64decode
from typing import Any, Final

from killick.journal.assembly import is_whole_object
from killick.model.messages import Reasoning
from killick.recorders.actions import (
    NO_ACTIONS,
    Action,
    CallFacts,
    CallPiece,
    EndPart,
    Event,
    MediaPiece,
    ReasoningPiece,
    TextPiece,
    WholePart,
    count,
    extra,
    opaque,
    text_of,
    to_json,
    unsent,
    usage,
)

_CALLS: Final = {"function_call": "arguments", "custom_tool_call": "input"}
"""Items that call a tool of ours, and where their text is."""
_OURS: Final = frozenset({"computer_call", "local_shell_call", "shell_call", "apply_patch_call"})
"""Built-in tools that the provider knows and the caller runs."""
_BY_BOTH: Final = frozenset({"shell_call"})
"""Those that the provider may run itself, in a container: then their output is in the answer."""
_OUTPUTS: Final = frozenset(f"{kind}_output" for kind in _BY_BOTH)
_PROGRESS: Final = (".in_progress", ".completed", ".searching", ".interpreting", ".generating")
_PROGRESS_TOO: Final = frozenset(
    {"response.queued", "response.content_part.added", "response.reasoning_summary_part.done"}
    | {"response.image_generation_call.partial_image", "response.compaction.compacting"}
    | {"response.mcp_list_tools.failed", "response.mcp_call.failed", "keepalive"}
)
_SAYING: Final = frozenset({"response.output_text", "response.refusal"})
_THINKING: Final = frozenset({"response.reasoning_summary_text", "response.reasoning_text"})
_ARGUMENTS: Final = frozenset(
    {"response.function_call_arguments", "response.custom_tool_call_input"}
)


_KNOWN_CALL: Final = frozenset({"type", "call_id", "name", "arguments", "input", "status"})
_KNOWN_MESSAGE: Final = frozenset({"id", "type", "role", "content", "status"})
_KNOWN_REASONING: Final = frozenset(
    {"id", "type", "summary", "content", "encrypted_content", "status"}
)
"""The fields of an item that have a place in a part; the others are kept with it."""


class _Item:
    """One item of the output as it comes."""

    def __init__(self, start: Event) -> None:
        self.start = start
        self.type = text_of(start.get("type"))
        self.item_id = text_of(start.get("id"))
        self.call_id = ""
        self.given: dict[int, int] = {}
        """How many characters of each of its texts were taken already."""
        self.text = ""
        self.refusing = False
        self.annotations: list[Any] = []
        self.kept: Event = {}
        """The further fields that were kept with its part already."""
        self.sealed = False
        self.done = False


class ResponsesReader:
    """Reads the events of a response stream; the last one holds a whole response."""

    def __init__(self, prefix: str) -> None:
        self.ended = False
        self.cut: str | None = None
        self._prefix = prefix
        self._items: dict[int, _Item] = {}
        self._undecided: list[tuple[int, Event]] = []

    def read(self, event: Event) -> list[Action]:
        kind = text_of(event.get("type"))
        stem, _, last = kind.rpartition(".")
        if last in ("delta", "done"):
            actions = self._piece(stem, last, event)
            if actions is not None:
                return actions
        match kind:
            case "response.output_item.added":
                return self._add(event.get("output_index", len(self._items)), event["item"])
            case "response.output_item.done":
                return self._done(self._place(event), event["item"])
            case "response.output_text.annotation.added":
                self._items[self._place(event)].annotations.append(event["annotation"])
                return NO_ACTIONS
            case "response.reasoning_summary_part.added":
                return self._next_summary(event)
            case "response.created" | "response.in_progress":
                return _ids(event["response"])
            case "response.completed" | "response.incomplete" | "response.failed":
                return self._end(event["response"])
            case "error":
                self.cut = f"the provider reported an error: {event.get('message')}"
                return NO_ACTIONS
        if kind.endswith(_PROGRESS) or kind in _PROGRESS_TOO:
            return NO_ACTIONS
        return [unsent("openai", event=event)]

    def _place(self, event: Event) -> int:
        """Return an event's index in the output. Some servers give the item's id alone."""
        if "output_index" in event:
            index: int = event["output_index"]
            return index
        item_id = event.get("item_id") or (event.get("item") or {}).get("id")
        known = [index for index, item in self._items.items() if item.item_id == item_id]
        return known[-1] if known else max(self._items, default=0)

    # -- pieces --------------------------------------------------------------------------------

    def _piece(self, stem: str, last: str, event: Event) -> list[Action] | None:
        """Return the actions of a delta or its `done`; None for another event."""
        if stem == "response.content_part":
            return NO_ACTIONS
        item = self._items.get(self._place(event))
        if item is None or stem == "response.output_item":
            return None
        if stem in _SAYING:
            name = "refusal" if stem == "response.refusal" else "text"
            text = text_of(event.get("delta" if last == "delta" else name))
            actions = self._say(item, event.get("content_index", 0), text, last, stem)
            return [*self._renamed(item, event), *actions]
        if stem in _THINKING:
            # Summaries and the reasoning itself are numbered apart.
            index = event.get("summary_index", -1 - event.get("content_index", 0))
            text = text_of(event.get("delta") if last == "delta" else event.get("text"))
            return [ReasoningPiece(piece) for piece in _fresh(item, index, text, last)]
        if stem in _ARGUMENTS:
            name = "delta" if last == "delta" else _CALLS.get(item.type, "arguments")
            # Whether a limit has cut it off, only the item says.
            last = "delta" if last == "delta" else "rest"
            return self._arguments(item, text_of(event.get(name)), last)
        if last == "delta":  # of something hosted: its item brings it whole
            item.text += text_of(event.get("delta"))
        return NO_ACTIONS

    def _say(self, item: _Item, index: int, text: str, last: str, stem: str) -> list[Action]:
        actions: list[Action] = []
        for piece in _fresh(item, index, text, last):
            if stem == "response.refusal" and not item.refusing:
                item.refusing = True
                actions += [EndPart(), unsent("openai", refusal=True)]
            actions.append(TextPiece(piece))
            actions += self._more(item, item.start, _KNOWN_MESSAGE)
        return actions

    def _more(
        self, item: _Item, value: Event, known: frozenset[str], call_id: str | None = None
    ) -> list[Action]:
        """Keep the further fields of an item that are new: it comes twice, and may come changed."""
        fresh = {k: v for k, v in value.items() if k not in item.kept or item.kept[k] != v}
        item.kept |= fresh
        return [*extra("openai-responses", fresh, known, call_id)]

    def _renamed(self, item: _Item, event: Event) -> list[Action]:
        """Note another id: some servers stream an item's text under one of its own."""
        item_id = text_of(event.get("item_id"))
        if not item_id or item_id == item.item_id:
            return NO_ACTIONS
        item.item_id = item_id
        return [CallFacts(ids=(("message", item_id),))]

    def _arguments(self, item: _Item, text: str, last: str) -> list[Action]:
        if not item.call_id:
            return NO_ACTIONS
        actions: list[Action] = []
        for piece in _fresh(item, 0, text, last):
            item.text += piece
            actions.append(CallPiece(item.call_id, arguments=piece))
        if last == "done" and (item.type == "custom_tool_call" or not item.text.strip()):
            item.sealed = True
            actions.append(CallPiece(item.call_id, done=True))
        return actions

    def _next_summary(self, event: Event) -> list[Action]:
        return [ReasoningPiece("\n\n")] if event.get("summary_index", 0) > 0 else NO_ACTIONS

    # -- items -----------------------------------------------------------------------------------

    def _add(self, index: int, start: Event) -> list[Action]:
        item = self._items[index] = _Item(start)
        if item.type == "message":
            return [EndPart(), *_message_ids(start)]
        if item.type in _CALLS:
            kind = "custom" if item.type == "custom_tool_call" else "function"
            item.call_id = self._unused(text_of(start.get("call_id")))
            name = text_of(start.get("name")) or "tool"
            opening = CallPiece(item.call_id, name, tool_type=kind)  # type: ignore[arg-type]
            more = self._more(item, start, _KNOWN_CALL, item.call_id)
            text = text_of(start.get(_CALLS[item.type]))
            return [opening, *more, *self._arguments(item, text, "delta")]
        return NO_ACTIONS

    def _unused(self, call_id: str) -> str:
        taken = {item.call_id for item in self._items.values()}
        fresh = call_id and call_id not in taken
        return call_id if fresh else f"{call_id or self._prefix}_{len(taken)}"

    def _done(self, index: int, whole: Event, *, cut: bool = False) -> list[Action]:
        actions: list[Action] = []
        if index not in self._items:
            actions += self._add(index, whole)
        item = self._items[index]
        if item.done:
            return actions
        item.done = True
        if item.type == "message":
            self._end_message(item, whole, actions)
        elif item.type == "reasoning":
            self._end_reasoning(item, whole, actions)
        elif item.type in _CALLS:
            cut = cut or whole.get("status") == "incomplete"
            last = "rest" if cut else "done"
            actions += self._more(item, whole, _KNOWN_CALL, item.call_id)
            actions += self._arguments(item, text_of(whole.get(_CALLS[item.type])), last)
        else:
            self._end_other(index, whole, actions)
        return actions

    def _end_message(self, item: _Item, whole: Event, actions: list[Action]) -> None:
        actions += _message_ids(whole)
        for index, part in enumerate(whole.get("content") or ()):
            refusal = part.get("type") == "refusal"
            stem = "response.refusal" if refusal else "response.output_text"
            text = text_of(part.get("refusal" if refusal else "text"))
            actions += self._say(item, index, text, "done", stem)
            known = len(item.annotations)
            item.annotations += (part.get("annotations") or ())[known:]
        if item.given:
            actions += self._more(item, whole, _KNOWN_MESSAGE)
        actions.append(EndPart())
        self._cite(item, actions)

    def _cite(self, item: _Item, actions: list[Action]) -> None:
        if item.annotations:
            actions.append(unsent("openai", citations=item.annotations))
            item.annotations = []

    def _end_reasoning(self, item: _Item, whole: Event, actions: list[Action]) -> None:
        parts = [*(whole.get("summary") or ()), *(whole.get("content") or ())]
        text = "\n\n".join(text_of(part.get("text")) for part in parts)
        # Its id stands where a signature would: the provider wants both back together.
        seal = whole.get("id"), whole.get("encrypted_content")
        more = extra("openai-responses", whole, _KNOWN_REASONING)
        if item.given or text:  # a seal closes the part, so it comes last
            actions += [] if item.given else [ReasoningPiece(text)]
            actions += [*more, ReasoningPiece("", *seal), EndPart()]
        elif any(seal):
            kept = {each.shape: each.fields for each in more} or None
            actions += [WholePart(Reasoning("", *seal, extra=kept)), EndPart()]

    def _end_other(self, index: int, whole: Event, actions: list[Action]) -> None:
        kind = whole.get("type")
        result = whole.get("result")
        if kind == "image_generation_call" and isinstance(result, str):
            about = {key: value for key, value in whole.items() if key != "result"}
            kind_of_image = f"image/{whole.get('output_format') or 'png'}"
            actions += [MediaPiece(b64decode(result), kind_of_image), unsent("openai", item=about)]
        elif kind in _BY_BOTH and not isinstance(whole.get("environment"), dict):
            self._undecided.append((index, whole))  # the output that follows it says whose it is
        elif kind in _OURS and not _is_hosted(whole):
            actions += self._call(index, whole)
        elif kind in _OUTPUTS:
            actions += self._decide(text_of(whole.get("call_id")))
            actions.append(WholePart(opaque("openai", whole)))
        elif kind == "mcp_approval_request":  # it must be answered, which only the caller can
            actions.append(unsent("openai", item=whole))
        else:
            actions.append(WholePart(opaque("openai", whole)))

    def _call(self, index: int, whole: Event) -> list[Action]:
        """Return the call of a built-in tool that the caller runs."""
        call_id = self._unused(text_of(whole.get("call_id")))
        self._items[index].call_id = call_id
        about = {k: v for k, v in whole.items() if k not in ("id", "call_id", "type", "status")}
        arguments = to_json(about).decode()
        return [CallPiece(call_id, str(whole["type"]), arguments), unsent("openai", item=whole)]

    def _decide(self, answered: str | None = None) -> list[Action]:
        """Return calls whose output has come as the provider's; at the end, the rest as ours."""
        actions: list[Action] = []
        waiting, self._undecided = self._undecided, []
        for index, whole in waiting:
            if answered is None:
                actions += self._call(index, whole)
            elif text_of(whole.get("call_id")) == answered:
                actions.append(WholePart(opaque("openai", whole)))
            else:
                self._undecided.append((index, whole))
        return actions

    # -- the end ---------------------------------------------------------------------------------

    def _end(self, response: Event) -> list[Action]:
        actions = _ids(response)
        status = text_of(response.get("status")) or "completed"
        output = response.get("output") or ()
        for index, item in enumerate(output):
            last = index == len(output) - 1
            actions += self._done(index, item, cut=last and status != "completed")
        actions += self._decide()
        reason = (response.get("incomplete_details") or {}).get("reason") or status
        actions.append(CallFacts(finish_reason=reason, usage=_usage(response.get("usage"))))
        self.ended = True
        if status == "failed":
            error = response.get("error") or {}
            self.cut = f"the provider reported an error: {error.get('message')}"
        elif status != "completed" and any(self._is_open(item) for item in self._items.values()):
            self.cut = f"the answer ended with {reason!r} in the middle of a tool call"
        return actions

    def _is_open(self, item: _Item) -> bool:
        return item.type in _CALLS and not item.sealed and not is_whole_object(item.text)

    def close(self) -> list[Action]:
        actions = self._decide()
        for item in self._items.values():
            self._cite(item, actions)
            ours = item.type in ("message", "reasoning", *_CALLS)
            if not item.done and not ours:
                actions.append(unsent("openai", unfinished=item.start, partial=item.text))
        return actions


def _is_hosted(item: Event) -> bool:
    """Tell whether the provider runs it: in a container, and not where the caller is."""
    environment = item.get("environment")
    return isinstance(environment, dict) and environment.get("type", "local") != "local"


def whole_events(response: Event) -> list[Event]:
    """Return a whole response as the event that would have ended its stream."""
    return [{"type": "response.completed", "response": response}]


def _fresh(item: _Item, index: int, text: str, last: str) -> list[str]:
    """Return the part of this text that is new: a delta is, a whole text may have more."""
    given = item.given.get(index, 0)
    piece = text if last == "delta" else text[given:]
    if not piece:
        return []
    item.given[index] = given + len(piece)
    return [piece]


def _ids(response: Event) -> list[Action]:
    return [CallFacts(ids=(("response", response["id"]),))] if response.get("id") else []


def _message_ids(item: Event) -> list[Action]:
    return [CallFacts(ids=(("message", item["id"]),))] if item.get("id") else []


def _usage(tokens: Any) -> Any:
    return usage(
        tokens,
        input=count(tokens, "input_tokens"),
        output=count(tokens, "output_tokens"),
        cached=count(tokens, "input_tokens_details", "cached_tokens"),
        reasoning=count(tokens, "output_tokens_details", "reasoning_tokens"),
    )
