"""Words are the same however they are written, and whatever is typed is a search."""

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from turnledger.model.text.search import (
    WORD_LENGTH,
    WORDS_OF_TEXT,
    WORDS_SOUGHT,
    Phrase,
    composed,
    has,
    places_of,
    sought_in,
    spans_of,
    words_of,
)

LETTERS = 'aZ1 "“-_.é\u0301ß東京がﬁ½İ\u00ad\u200b\u200d\x00한ไ🙂\ud800'
TEXTS = st.text() | st.text(LETTERS)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("Hello, World!", "hello world"),
        ("don't e-mail snake_case 3.14", "don t e mail snake case 3 14"),
        ("Zürich ZU\u0308RICH Ångström", "zurich zurich angstrom"),
        ("Straße STRASSE ﬁne ① ½", "strasse strasse fine 1 1 2"),
        ("İstanbul ΣΊΣΥΦΟΣ ς", "istanbul σισυφοσ σ"),
        ("東京タワー iPhone手机", "東 京 タ ワ ー iphone 手 机"),
        ("がか ｶﾞ", "が か カ ゙"),
        ("한국어 검색", "한국어 검색"),
        ("हिन्दी की", "हिन्दी की"),
        ("ไทย", "ไ ท ย"),
        ("soft\u00adhyphen zero\u200bwidth join\u200der", "softhyphen zero width joiner"),
        ("שָׁלוֹם مُحَمَّد", "שלום محمد"),
        ("🙂 … \x00 \ud800", ""),
    ],
)
def test_words_are_found_however_they_are_written(text: str, words: str) -> None:
    assert words_of(text) == words.split()


def test_words_and_texts_are_looked_at_so_far() -> None:
    assert words_of("x" * (WORD_LENGTH + 5)) == ["x" * WORD_LENGTH]
    assert len(words_of("a " * (WORDS_OF_TEXT + 5))) == WORDS_OF_TEXT


@given(TEXTS)
def test_spans_are_the_words_where_they_stand(text: str) -> None:
    line = composed(text)
    spans = spans_of(line)
    assert [span.word for span in spans] == words_of(text)
    for span in spans:
        assert span.word in words_of(line[span.start : span.end])


@given(TEXTS)
def test_a_word_is_its_own_word(text: str) -> None:
    words = words_of(text)
    assert words_of(" ".join(words)) == words


@pytest.mark.parametrize(
    ("typed", "sought"),
    [
        ("", []),
        (' "" " ', []),
        ("one", [("one", True)]),
        ("one two", [("one", False), ("two", True)]),
        ('"one two" three', [("one two", False), ("three", True)]),
        ('one "two three"', [("one", False), ("two three", False)]),
        ('one "two thr', [("one", False), ("two thr", True)]),
        ("„one two“ x", [("one two", False), ("x", False)]),
        ("e-mail", [("e mail", True)]),
        ("vitamin d", [("vitamin", False), ("d", False)]),
        ("검", [("검", True)]),
        ("a OR (b NOT c*)", [("a", False), ("or", False), ("b", False), ("not", False), ("c", False)]),
        ("東京 大", [("東 京", True), ("大", False)]),
    ],
)
def test_what_is_typed_is_looked_for(typed: str, sought: list[tuple[str, bool]]) -> None:
    # Where a word is a character, it cannot go on, whatever is said of it.
    expected = [Phrase(tuple(words.split()), is_open) for words, is_open in sought]
    found = list(sought_in(typed))
    assert [phrase.words for phrase in found] == [phrase.words for phrase in expected]
    if not typed.startswith("東"):
        assert found == expected


@given(st.text() | st.text('"“a é東*-'))
@example('"' * 1_000)
@example("word " * 10_000)
def test_whatever_is_typed_is_a_search(typed: str) -> None:
    sought = sought_in(typed)
    words = [word for phrase in sought for word in phrase.words]
    assert len(words) <= WORDS_SOUGHT
    assert words == words_of(typed)[: len(words)]
    assert not any(phrase.is_open for phrase in sought[:-1])


@given(st.lists(st.sampled_from(["ab", "abc", "b"]), max_size=8), st.sampled_from(["ab", "ab b", "b ab"]))
def test_phrases_are_found_where_they_stand(words: list[str], phrase: str) -> None:
    for is_open in (False, True):
        sought = Phrase(tuple(phrase.split()), is_open)
        text = f" {' '.join(words)} "
        needle = f" {phrase}" if is_open else f" {phrase} "
        assert has(sought, words) == (needle in text)
        for place in places_of(sought, words):
            assert " ".join(words[place:]).startswith(phrase)
