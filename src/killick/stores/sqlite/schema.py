"""The named statements of queries.sql, read once."""

from importlib.resources import files
from typing import NamedTuple

from killick.stores.sql import parse


class SqliteQueries(NamedTuple):
    """One field for each block; a missing or extra one fails at import."""

    find_session: str
    session: str
    base_of: str
    forks_of: str
    stopping: str
    session_keys: str
    origin: str
    find_key: str
    head_of: str
    labels: str
    usage_of: str
    streams: str
    find_ids: str
    unscrubbed: str
    erase_entries: str
    erase_deltas: str
    erase_session: str
    own_blobs: str
    drop_references: str
    note_erasure: str
    scrubbed: str
    sessions: str
    create_session: str
    save_session: str
    drop_labels: str
    put_label: str
    drop_usage: str
    spend: str
    usage: str
    insert_entry: str
    entries: str
    newest_entries: str
    turn_entries: str
    history_entries: str
    find_entry: str
    deltas: str
    put_deltas: str
    drop_deltas: str
    blob_key: str
    blob: str
    blob_by_key: str
    claim_blob: str
    put_blob: str
    refer: str
    loose_blobs: str
    drop_blob: str
    holds: str
    count_sessions: str
    count_entries: str
    count_deltas: str
    count_blobs: str
    search_state: str
    row_of_entry: str
    unindexed: str
    unindexed_one: str
    save_search_mark: str
    mark_before: str
    save_search_damage: str
    save_substrings: str
    find_document: str
    put_document: str
    replace_document: str
    put_words: str
    documents_of: str
    drop_words: str
    drop_documents: str
    tidy_words: str
    reach_of_session: str
    flush_words: str
    create_substrings: str
    search_schema: str
    forget_search_schema: str
    search_newest: str


def _load() -> SqliteQueries:
    text = files("killick.stores.sqlite").joinpath("queries.sql").read_text(encoding="utf-8")
    return SqliteQueries(**parse(text))


SQL = _load()
