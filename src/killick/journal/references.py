"""The blobs that an entry names, which must be kept as long as it is."""

from killick.model import entries as e
from killick.model.parts import BLOB_PARTS, Part, Text, ToolResult


def blobs_of(body: e.Body) -> list[str]:
    """The blobs that an entry names."""
    match body:
        case e.MessageRecorded() | e.MessageEnded() | e.PromptQueued():
            names: list[str] = []
            for part in body.parts:
                if type(part) is not Text:
                    names += _blobs_of_part(part)
            return names
        case e.ToolFinished() | e.LateResult():
            return _blobs_of_part(body.result)
        case e.ModelCallStarted():
            return [name for name in (body.system, body.tools) if name is not None]
        case _:
            return []


def _blobs_of_part(part: Part) -> list[str]:
    if isinstance(part, BLOB_PARTS):
        return [part.blob]
    if isinstance(part, ToolResult) and not isinstance(part.content, str):
        return [inner.blob for inner in part.content if isinstance(inner, BLOB_PARTS)]
    return []
