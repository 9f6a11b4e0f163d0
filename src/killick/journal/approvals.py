"""Which questions wait for a person's decision."""

from collections.abc import Iterable

from killick.journal.closing import AWAITING_APPROVAL
from killick.model import entries as e


class Waiting:
    """Takes entries in order; `asked` are the questions that wait, by their ids, in order.

    They are those of the turn that runs, or of one whose process ended while it waited.
    """

    def __init__(self) -> None:
        self.asked: dict[str, e.ApprovalAsked] = {}

    def take(self, body: e.Body) -> None:
        match body:
            case e.ApprovalAsked():
                self.asked[body.id] = body
            case e.ApprovalDecided():
                self.asked.pop(body.id, None)
            case e.TurnStarted():
                self.asked.clear()  # the conversation has gone on without them
            case e.TurnEnded(reason=reason) if reason != AWAITING_APPROVAL:
                self.asked.clear()  # whoever stopped it, or let it fail, did not want them
            case _:
                pass


def waiting(entries: Iterable[e.Entry]) -> list[e.ApprovalAsked]:
    """What waits after these entries, which begin no later than the newest turn."""
    fold = Waiting()
    for entry in entries:
        fold.take(entry.body)
    return list(fold.asked.values())
