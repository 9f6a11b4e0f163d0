"""An entry in a few words."""

from collections.abc import Callable

from killick.model import entries as e

ToolName = Callable[[str, str], str]

_ENDINGS = {"completed": "green", "failed": "red", "interrupted": "yellow"}


def entry_words(body: e.Body, tool: ToolName) -> tuple[str, str]:
    """What happened, and how it looks. Nothing for what only frames something else."""
    match body:
        case e.TurnStarted():
            return "a turn begins", "bold"
        case e.TurnEnded():
            was = "was " if body.status == "interrupted" else ""
            reason = f": {body.reason}" if body.reason else ""
            return f"the turn {was}{body.status}{reason}", _ENDINGS[body.status]
        case e.MessageRecorded():
            return f"{body.role}:", "bold"
        case e.MessageStarted():
            return f"{body.role} begins", "bold"
        case e.MessageEnded(state=state):
            partial = state == "partial"
            return ("cut off here: a partial message", "yellow") if partial else ("", "")
        case e.ModelCallStarted():
            return f"model {body.model or 'call'}, attempt {body.attempt}", "dim"
        case e.ModelCallEnded():
            return (f"the model call failed: {body.error}", "red") if body.error else ("", "")
        case _:
            return _other_words(body, tool)


def _other_words(body: e.Body, tool: ToolName) -> tuple[str, str]:
    match body:
        case e.ToolCalled():
            return "", ""
        case e.ToolStarted():
            return f"{tool(body.message_id, body.call_id)} runs", "cyan"
        case e.ToolOutput():
            return f"{tool(body.message_id, body.call_id)} was left without a result", "yellow"
        case e.ToolFinished() | e.LateResult():
            name = tool(body.message_id, body.result.call_id)
            late = ", late" if isinstance(body, e.LateResult) else ""
            done = "failed" if body.result.is_error else "finished"
            return f"{name} {done}{late}", "red" if body.result.is_error else "green"
        case e.StopAsked():
            return f"stop was asked for: {body.reason}", "yellow"
        case e.Compacted():
            return f"{body.first} to {body.through} are folded into a summary", "magenta"
        case e.Rewound():
            return f"rewound to {body.through}", "magenta"
        case e.Renamed():
            return f"renamed to {body.title!r}", "magenta"
        case _:
            return e.kind_of(body).replace("_", " "), "dim"
