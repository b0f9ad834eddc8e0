"""Terms of the full-text index: whatever people write is data to SQLite, never part of its language."""

import apsw
import pytest
from hypothesis import given
from hypothesis import strategies as st

from turnledger.model.search_words import Phrase, has, sought_in, words_of
from turnledger.stores.sqlite.search_terms import asked, terms_of

TYPED = st.text() | st.text("aAb \"'*-+^:(){}é東京\x00") | st.sampled_from(["NEAR(a b)", "a OR b", "words:a"])


@pytest.fixture(scope="module")
def index() -> apsw.Connection:
    connection = apsw.Connection(":memory:")
    connection.execute(
        "CREATE VIRTUAL TABLE w"
        " USING fts5(words, content='', contentless_delete=1, detail='none', tokenize='ascii')"
    )
    return connection


def finds(
    index: apsw.Connection, texts: list[str], typed: str, owner: str = "ann", scope: str = "", block: int = 7
) -> bool:
    index.execute("DELETE FROM w WHERE rowid = 1")
    index.execute("INSERT INTO w (rowid, words) VALUES (1, ?)", (terms_of("ann", "", 7, texts),))
    query = asked(owner, scope, block, sought_in(typed))
    return bool(index.execute("SELECT rowid FROM w WHERE w MATCH ?", (query,)).fetchall())


@given(texts=st.lists(TYPED, max_size=3), typed=TYPED)
def test_the_index_finds_what_has_the_words(index: apsw.Connection, texts: list[str], typed: str) -> None:
    sought = sought_in(typed)
    single = [Phrase((word,)) for phrase in sought for word in phrase.words]
    if single:
        single[-1] = Phrase(single[-1].words, sought[-1].is_open)
        words = [word for text in texts for word in words_of(text)]
        assert finds(index, texts, typed) == all(has(phrase, words) for phrase in single)


@given(typed=TYPED)
def test_every_text_is_found_by_itself(index: apsw.Connection, typed: str) -> None:
    if len(sought_in(typed)) > 0:
        assert finds(index, [typed], typed)
        assert not finds(index, [typed], typed, owner="ben")
        assert not finds(index, [typed], typed, scope="shop")
        assert not finds(index, [typed], typed, block=0x77)


def test_texts_without_words_have_no_terms() -> None:
    assert terms_of("ann", "shop", 7, ["", "…", "🙂"]) == ""
    assert terms_of("ann", "shop", 7, []) == ""
