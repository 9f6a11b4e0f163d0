"""What `--json` prints, as docs/command.md describes it. Pure."""

from datetime import datetime
from typing import Any

from killick.cli.output import plain
from killick.model import entries as e
from killick.model.sessions import SessionInfo, moment
from killick.views.context import Context
from killick.views.timeline import TimedTurn
from killick.views.transcript import Shown

Shape = dict[str, Any]


def time_shape(at: datetime | None) -> str | None:
    """ISO 8601, in UTC, to the microsecond."""
    return None if at is None else at.isoformat().replace("+00:00", "Z")


def session_shape(info: SessionInfo) -> Shape:
    about = info.about
    return {
        "id": info.id,
        "title": about.title,
        "titled_by": about.titled_by,
        "type": about.type,
        "status": about.status,
        "project": plain(about.project),
        "tags": list(about.tags),
        "models": list(about.models),
        "archived": about.archived,
        "pinned": about.pinned,
        "deleted_at": time_shape(info.deleted_at),
        "created_at": time_shape(info.created_at),
        "updated_at": time_shape(info.updated_at),
        "fork": plain(about.fork),
        "parent": plain(about.parent),
        "extra": plain(about.extra),
    }


def shown_shape(shown: Shown) -> Shape:
    return {
        "kind": shown.kind,
        "seq": shown.seq,
        "at": time_shape(shown.at),
        "role": shown.role,
        "state": shown.state,
        "turn_id": shown.turn_id,
        "text": shown.text,
        "parts": plain(shown.parts),
        "tools": plain(shown.tools),
        "status": shown.status,
        "reason": shown.reason,
        "cause": shown.cause,
        "folded": [shown_shape(one) for one in shown.folded],
    }


def turn_shape(turn: TimedTurn) -> Shape:
    return {
        "id": turn.id,
        "status": turn.status,
        "reason": turn.reason,
        "cause": turn.cause,
        "started_at": time_shape(moment(turn.started_at_us)),
        "seconds": turn.seconds,
        "usage": plain(turn.usage),
        "model_calls": [_timed(plain(call)) for call in turn.model_calls],
        "tools": [_timed(plain(tool)) for tool in turn.tools],
    }


def _timed(fields: Shape) -> Shape:
    at = time_shape(moment(fields.pop("started_at_us")))
    return {**fields, "started_at": at}


def context_shape(context: Context) -> Shape:
    return {
        "format": context.format,
        "system": context.system,
        "messages": context.messages,
        "repairs": plain(context.repairs),
        "origins": [list(seqs) for seqs in context.origins],
    }


def followed_shape(item: e.Entry | e.FollowedDelta) -> Shape:
    if isinstance(item, e.Entry):
        return {"kind": item.kind, "seq": item.seq, "at": time_shape(item.at), **_body(item.body)}
    return {
        "kind": "delta",
        "seq": item.seq,
        "turn_id": item.turn_id,
        "message_id": item.message_id,
        "call_id": item.call_id,
        "part": item.part,
        "offset": item.offset,
        "type": item.delta.type,
        "text": item.text,
    }


def _body(body: e.Body) -> Shape:
    fields: Shape = plain(body)
    return {"body": fields}
