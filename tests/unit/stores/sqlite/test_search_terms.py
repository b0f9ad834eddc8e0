"""Terms of the full-text index: whatever people write is data to SQLite, never part of its language."""

import apsw
import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnledger.model.search_words import has, sought_in, words_of
from turnledger.stores.sqlite.search_terms import asked, terms_of

TYPED = st.text() | st.text("aAb \"'*-+^:(){}é東京\x00") | st.sampled_from(["NEAR(a b)", "a OR b", "words:a"])


@pytest.fixture(scope="module")
def index() -> apsw.Connection:
    connection = apsw.Connection(":memory:")
    connection.execute(
        "CREATE VIRTUAL TABLE w USING fts5(words, content='', contentless_delete=1, tokenize='ascii')"
    )
    return connection


def finds(index: apsw.Connection, texts: list[str], typed: str, owner: str = "ann", scope: str = "") -> bool:
    index.execute("DELETE FROM w WHERE rowid = 1")
    index.execute("INSERT INTO w (rowid, words) VALUES (1, ?)", (terms_of("ann", "", texts),))
    query = asked(owner, scope, sought_in(typed))
    return bool(index.execute("SELECT rowid FROM w WHERE w MATCH ?", (query,)).fetchall())


@given(texts=st.lists(TYPED, max_size=3), typed=TYPED)
def test_the_index_finds_what_has_the_words(index: apsw.Connection, texts: list[str], typed: str) -> None:
    sought = sought_in(typed)
    words = [words_of(text) for text in texts]
    is_there = all(any(has(phrase, each) for each in words) for phrase in sought)
    if sought:
        assert finds(index, texts, typed) == is_there


@given(typed=TYPED)
def test_every_text_is_found_by_itself(index: apsw.Connection, typed: str) -> None:
    if len(sought_in(typed)) > 0:
        assert finds(index, [typed], typed)
        assert not finds(index, [typed], typed, owner="ben")
        assert not finds(index, [typed], typed, scope="shop")


def test_texts_without_words_have_no_terms() -> None:
    assert terms_of("ann", "shop", ["", "…", "🙂"]) == ""
    assert terms_of("ann", "shop", []) == ""


def test_marks_are_as_long_as_the_tables_expect() -> None:
    _, word = terms_of("ann", "", ["heron"]).split()
    assert len(word) == 13 + len("heron")
