"""The index finds what reading everything finds, whatever was said and whatever is asked."""

import shutil
import tempfile
from pathlib import Path
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from killick import InvalidQuery, Message, Reasoning, Store, Text
from killick.stores.memory import MemoryDisk

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
