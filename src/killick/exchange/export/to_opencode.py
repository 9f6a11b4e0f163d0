"""A session as the document that opencode and Kilo import. A call and its result are one part."""

from collections.abc import Iterator
from typing import Any, Final

from killick.exchange.export.handover import (
    Answered,
    Handover,
    Holds,
    Spoken,
    base64,
    json_document,
    object_of,
)
from killick.model.messages import ToolCall

HOLDS: Final = Holds(images=True)
_TOKENS: Final = {"input": 0, "output": 0, "reasoning": 0, "cache": {"read": 0, "write": 0}}


def own_id(native_id: str) -> str:
    """Return the id of the session as opencode wants ids."""
    return f"ses_{native_id.replace('-', '')}"


def write(
    handover: Handover, *, agent: str, version: str, model: tuple[str, str]
) -> Iterator[bytes]:
    """Yield the document. `model` is a provider and a model that the agent has."""
    document = _Document(handover, agent, version, model)
    return json_document({"info": document.info()}, "messages", document.messages(), indent=1)


class _Document:
    """One session, with ids that sort before all that the agent makes from now on."""

    def __init__(
        self, handover: Handover, agent: str, version: str, model: tuple[str, str]
    ) -> None:
        self._handover = handover
        self._agent = agent
        self._version = version
        self._provider, self._model = model
        self._session = own_id(handover.native_id)
        self._parts = 0
        self._asked = ""

    def info(self) -> dict[str, Any]:
        handover = self._handover
        created, updated = handover.created_us // 1_000, handover.updated_us // 1_000
        return {
            "id": self._session,
            "slug": "killick",
            "projectID": "global",
            "directory": handover.folder,
            "path": handover.folder.lstrip("/"),
            "title": handover.title,
            "version": self._version,
            "time": {"created": created, "updated": updated},
        }

    def messages(self) -> Iterator[dict[str, Any]]:
        for number, item, answers in self._handover.items.with_answers():
            yield self._message(number, item, answers)

    def _message(self, number: int, item: Spoken, answers: dict[str, Answered]) -> dict[str, Any]:
        id_ = self._id("msg", number)
        at = item.at_us // 1_000
        common: dict[str, Any] = {"id": id_, "sessionID": self._session, "agent": self._agent}
        parts = self._text(id_, item, at)
        if item.role == "user":
            self._asked = id_
            model = {"providerID": self._provider, "modelID": self._model}
            info = common | {"role": "user", "time": {"created": at}, "model": model}
            return {"info": info, "parts": parts}
        for call in item.calls:
            if call.id in answers:
                parts.append(self._tool(id_, call, answers[call.id], at))
        ended = max([at, *(answer.at_us // 1_000 for answer in answers.values())])
        info = common | {
            "role": "assistant",
            "parentID": self._asked or id_,
            "mode": self._agent,
            "path": {"cwd": self._handover.folder, "root": "/"},
            "cost": 0,
            "tokens": _TOKENS,
            "modelID": self._model,
            "providerID": self._provider,
            "time": {"created": at, "completed": ended},
            "finish": "tool-calls" if item.calls else "stop",
        }
        return {"info": info, "parts": parts}

    def _text(self, id_: str, item: Spoken, at: int) -> list[dict[str, Any]]:
        parts = list[dict[str, Any]]()
        if item.text:
            text: dict[str, Any] = {"type": "text", "text": item.text}
            if item.role == "assistant":
                text["time"] = {"start": at, "end": at}
            elif item.synthetic:
                text["synthetic"] = True
            parts.append(text | self._part(id_))
        for kind, data in item.images:
            url = f"data:{kind};base64,{base64(data)}"
            file = {"type": "file", "mime": kind, "filename": "image", "url": url}
            parts.append(file | self._part(id_))
        return parts

    def _tool(self, id_: str, call: ToolCall, answer: Answered, at: int) -> dict[str, Any]:
        ended = max(at, answer.at_us // 1_000)
        state: dict[str, Any] = {
            "input": object_of(call),
            "time": {"start": at, "end": ended},
        }
        if answer.is_error:
            state |= {"status": "error", "error": answer.text}
        else:
            state |= {"status": "completed", "output": answer.text, "title": call.name}
            state["metadata"] = {}
        part = {"type": "tool", "tool": call.name, "callID": call.id, "state": state}
        return part | self._part(id_)

    def _part(self, message_id: str) -> dict[str, Any]:
        self._parts += 1
        own = {"id": self._id("prt", self._parts), "messageID": message_id}
        return own | {"sessionID": self._session}

    def _id(self, kind: str, number: int) -> str:
        """Return an id that sorts by its number, before those that are made later.

        The agent's own begin with the time; there, too, zeros come first.
        """
        name = self._handover.uuid(number).replace("-", "")[-12:]
        return f"{kind}_000{number:09x}00{name}"
