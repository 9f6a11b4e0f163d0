"""The index finds what reading everything finds, whatever was said and whatever is asked."""

import shutil
import tempfile
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from killick import InvalidQuery, Message, Reasoning, Store, Text
from killick.search import port
from killick.search.port import Search
from killick.search.query import Phrase, Query, parse
from killick.stores.memory import MemoryDisk
from killick.stores.sqlite.database import SqliteDatabase
from killick.stores.sqlite.search import SQL, _compiled, _filters

words = st.sampled_from(
    ["ab", "abc", "b", "Ä", "a", "x_y", "1", "東京", "京都", "京", "สวัส", "ดี", "\ud800", "\0", "ß"]
)
texts = st.lists(words, max_size=6).flatmap(
    lambda found: st.sampled_from([" ", "", "-", "\n"]).map(lambda gap: gap.join(found))
)
said = st.tuples(st.integers(0, 1), texts, texts)
terms = st.one_of(
    words,
    words.map(lambda word: word + "*"),
    texts.map(lambda text: f'"{text}"'),
    st.sampled_from(["AND", "OR", "NOT", "(", ")", '"', "*"]),
)
queries = st.lists(terms, min_size=1, max_size=7).map(" ".join) | st.text(max_size=12)


class Both:
    """The same said to a file and to a store that reads everything."""

    def __init__(self) -> None:
        self.folder = Path(tempfile.mkdtemp(prefix="killick-search-"))
        self.stores = [Store(self.folder / "work.db", durability="normal")]
        self.stores.append(Store(MemoryDisk().open()))
        self.real = self.stores[0]
        self.ranked: list[int | None] = []

    def say(self, corpus: list[tuple[int, str, str]]) -> None:
        for store in self.stores:
            sessions = [store.create_session(id=f"s{number}") for number in range(2)]
            for number, text, thought in corpus:
                with sessions[number].turn(None) as turn:
                    turn.record(Message("assistant", [Text(text), Reasoning(thought)]))
            fork = sessions[0].fork(id="fork")
            with fork.turn("a東京 ab") as turn:
                pass

    def search(self, query: str, **filters: Any) -> list[Any]:
        outcomes: list[Any] = []
        for store in self.stores:
            try:
                hits = store.search(query, limit=100, wait_seconds=60, **filters)
                assert hits.behind == 0
                outcomes.append([(hit.session_id, hit.seq, hit.marked("[", "]")) for hit in hits])
                self.ranked.append(hits.ranked)
            except InvalidQuery as error:
                outcomes.append([str(error)])
        return outcomes

    def close(self) -> None:
        for store in self.stores:
            store.close()
        shutil.rmtree(self.folder)


@settings(max_examples=60, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.lists(said, max_size=6), st.lists(queries, min_size=1, max_size=12))
def test_an_index_finds_what_reading_everything_finds(
    corpus: list[tuple[int, str, str]], asked: list[str]
) -> None:
    both = Both()
    try:
        both.say(corpus)
        for query in asked:
            for filters in ({}, {"reasoning": False}, {"session": "fork"}, {"session": "s1"}):
                real, model = both.search(query, **filters)
                assert real == model, (query, filters)
        both.real.rebuild_search(substrings=True)
        for query in asked:
            real, model = both.search(query)
            assert real == model, query
            real, model = both.search(query, substring=True)
            assert real == model, query
    finally:
        both.close()


@settings(max_examples=80, deadline=None, suppress_health_check=list(HealthCheck))
@given(st.lists(said, max_size=8), st.lists(queries, min_size=1, max_size=12), st.integers(1, 4))
@example([(0, "b b b", ""), (0, "ab", ""), *[(1, "b a", "")] * 8], ["ab OR b"], 4)
def test_the_newest_are_ranked_as_fts5_ranks_all(
    corpus: list[tuple[int, str, str]], asked: list[str], most: int
) -> None:
    both = Both()
    try:
        both.say(corpus)
        for text in asked:
            try:
                query = parse(text)
            except InvalidQuery:
                continue
            newest, _ = both.search(text)
            real, model = both.search(text, order="best")
            assert sorted(real) == sorted(model) == sorted(newest)
            best = ranked(both.folder / "work.db", query)
            assert best.places == best.by_fts5
            with pytest.MonkeyPatch.context() as patch:
                patch.setattr(port, "RANKED_MAX", most)
                real, model = both.search(text, order="best")
                assert sorted(real) == sorted(model) == sorted(newest[:most])
                assert both.ranked[-2:] == [most if len(newest) > most else None] * 2
                few = ranked(both.folder / "work.db", query)
            if isinstance(query, Phrase):  # with more of them it matters how rare each is
                assert few.places == [place for place in best.by_fts5 if place in few.places]
    finally:
        both.close()


class Ranked(NamedTuple):
    """What was found, the best first: as a search gives it, and by the rank of FTS5 itself."""

    places: list[tuple[int, int]]
    by_fts5: list[tuple[int, int]]


def ranked(path: Path, query: Query) -> Ranked:
    database = SqliteDatabase(path)
    wanted = Search(tenant="", query=query, order="best", limit=100)
    with database.reading() as reader:
        places, _ = reader.find_documents(wanted, None)
        sql = SQL.search_newest.replace("ORDER BY", "ORDER BY word.rank,")
        bindings = {"words": _compiled(wanted, query), "first": 0, "last": 2**62, "lineage": None}
        by_fts5: Any = reader.connection.execute(sql, {**_filters(wanted), **bindings}).fetchall()
    database.close()
    return Ranked(places, by_fts5)
