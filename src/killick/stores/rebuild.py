"""What is derived from a journal, made anew from the journal alone."""

from killick.journal.derived import advance
from killick.journal.usage import Spent, fold_usage
from killick.stores.base import Reader, SessionRow, Transaction


def derived(reader: Reader, key: int) -> tuple[SessionRow, list[Spent]]:
    """What a session's own entries amount to. Raises SessionDamaged when one cannot be read."""
    row = reader.origin(key)
    entries = reader.entries(key, after=row.base_seq)
    for entry in entries:
        row.head = entry.seq
        advance(row, entry.seq, entry.at_us, entry.body)
    return row, fold_usage(entries)


def labels_of(row: SessionRow) -> list[tuple[str, str]]:
    """What a session is found by: the kind of each label, and the label."""
    tags = [("tag", tag) for tag in row.about.tags]
    return [*tags, *(("model", model) for model in row.about.models)]


def rebuild(tx: Transaction, key: int) -> None:
    """Save it in place of what was saved.

    Raises SessionDamaged, with nothing changed. If interrupted: rolled back with its transaction.
    """
    row, usage = derived(tx, key)
    tx.save_session(row)
    tx.save_labels(row)
    tx.drop_usage(key)
    for spent in usage:
        tx.spend(key, spent)
