"""Ranks what a search found, as FTS5's own `rank` does, for the newest of very many matches too.

FTS5 reads every match of a word for each search, to tell how rare the word is. Here the caller says
how many there are among the documents that are ranked.
"""

import json
from math import log
from typing import Any, Final
from weakref import WeakSet

import apsw

_SATURATION: Final = 1.2
_BY_LENGTH: Final = 0.75
_LEAST: Final = 1e-6
"""The constants of BM25 as FTS5 has them; the last is for a word that is in most documents."""


_ranking = WeakSet[apsw.Connection]()


def add_ranking(connection: apsw.Connection) -> None:
    """Let a connection order by `worth(table, documents, times of its phrases)`, least first."""
    if connection not in _ranking:
        connection.register_fts5_function("worth", _worth)
        _ranking.add(connection)


def _worth(match: apsw.FTS5ExtensionApi, *asked: Any) -> float:
    documents, times = asked
    if match.aux_data is None:  # the first of a search
        average = match.column_total_size() / match.row_count
        documents = documents or match.row_count
        match.aux_data = average, [_rarity(documents, count) for count in json.loads(times)]
    average, rarities = match.aux_data
    length: float = _SATURATION * (1 - _BY_LENGTH + _BY_LENGTH * match.column_size() / average)
    if len(rarities) == 1:
        counts = [match.inst_count]  # sooner told than its places
    else:
        counts = [sum(map(len, match.phrase_locations(n))) for n in range(len(rarities))]
    worth = 0.0
    for rarity, count in zip(rarities, counts, strict=True):
        worth += rarity * ((count * (_SATURATION + 1.0)) / (count + length))
    return -worth


def _rarity(documents: int, times: int) -> float:
    rarity = log((documents - times + 0.5) / (times + 0.5))
    return rarity if rarity > 0 else _LEAST
