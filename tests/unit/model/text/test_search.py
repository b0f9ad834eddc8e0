"""Search: words are normalized across spellings, and snippets mark the words found."""

from __future__ import annotations

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from tests.unit.model.shapes import repeatable
from turnledger.model.text.search import (
    CUT,
    LENGTH,
    QUERY_WORDS,
    WORD_LENGTH,
    WORDS_OF_TEXT,
    Phrase,
    Snippet,
    compose,
    contains,
    parse_query,
    places_of,
    snippet_of,
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
def test_words_are_normalized_across_scripts_and_spellings(text: str, words: str) -> None:
    assert words_of(text) == words.split()


def test_words_and_texts_are_bounded_in_length() -> None:
    assert words_of("x" * (WORD_LENGTH + 5)) == ["x" * WORD_LENGTH]
    assert len(words_of("a " * (WORDS_OF_TEXT + 5))) == WORDS_OF_TEXT


@repeatable
@given(TEXTS)
def test_spans_give_the_place_of_each_word(text: str) -> None:
    line = compose(text)
    spans = spans_of(line)
    assert [span.word for span in spans] == words_of(text)
    for span in spans:
        assert span.word in words_of(line[span.start : span.end])


@repeatable
@given(TEXTS)
def test_words_of_normalized_words_are_unchanged(text: str) -> None:
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
def test_query_is_split_into_words_and_phrases(typed: str, sought: list[tuple[str, bool]]) -> None:
    # Where a character is a word, `is_open` makes no difference.
    expected = [Phrase(tuple(words.split()), is_open) for words, is_open in sought]
    found = list(parse_query(typed))
    assert [phrase.words for phrase in found] == [phrase.words for phrase in expected]
    if not typed.startswith("東"):
        assert found == expected


@repeatable
@given(st.text() | st.text('"“a é東*-'))
@example('"' * 1_000)
@example("word " * 10_000)
def test_query_of_any_text_is_a_valid_search_within_its_limit(typed: str) -> None:
    sought = parse_query(typed)
    words = [word for phrase in sought for word in phrase.words]
    assert len(words) <= QUERY_WORDS
    assert words == words_of(typed)[: len(words)]
    assert not any(phrase.is_open for phrase in sought[:-1])


@repeatable
@given(st.lists(st.sampled_from(["ab", "abc", "b"]), max_size=8), st.sampled_from(["ab", "ab b", "b ab"]))
def test_phrase_matches_exactly_where_its_words_stand(words: list[str], phrase: str) -> None:
    for is_open in (False, True):
        sought = Phrase(tuple(phrase.split()), is_open)
        text = f" {' '.join(words)} "
        needle = f" {phrase}" if is_open else f" {phrase} "
        assert contains(sought, words) == (needle in text)
        for place in places_of(sought, words):
            assert " ".join(words[place:]).startswith(phrase)


WORDS = st.sampled_from(
    ["heron", "Herons", "e-mail", "Zürich", "東京", "a", "\n\t", "\x07", "x" * 90, "u\u0308", '"', "…", "ﬁn"]
)
LONG_TEXTS = st.lists(WORDS, max_size=60).map(" ".join) | st.text(max_size=400)


def marked(snippet: Snippet | None) -> list[str]:
    assert snippet is not None
    return [snippet.text[start:end] for start, end in snippet.marks]


def test_snippet_marks_the_words_sought() -> None:
    snippet = snippet_of(["Two herons, one Heron."], parse_query("heron"))
    assert snippet == Snippet("Two herons, one Heron.", ((4, 10), (16, 21)))
    assert marked(snippet_of(["An e-mail of MINE"], parse_query("mine e-mail"))) == ["e-mail", "MINE"]


def test_snippet_joins_overlapping_phrases_into_one_mark() -> None:
    assert marked(snippet_of(["a b c d"], parse_query('"a b" "b c" d'))) == ["a b c", "d"]


def test_snippet_of_texts_without_every_phrase_is_none() -> None:
    assert snippet_of(["a heron", "an egret"], parse_query("heron stork")) is None
    assert snippet_of([], parse_query("heron")) is None
    assert snippet_of(["a heron"], ()) is None


def test_snippet_shows_the_text_with_most_phrases() -> None:
    texts = ["one", "one two", "two one three", "three"]
    assert snippet_of(texts, parse_query("one two three ")) == Snippet(texts[2], ((0, 3), (4, 7), (8, 13)))
    assert snippet_of(["one", "two"], parse_query("one two")) == Snippet("one", ((0, 3),))


def test_snippet_is_one_line_without_control_characters() -> None:
    assert snippet_of(["\n a\r\n\tb \x00\x1b[31m c\u2028d "], parse_query("d")) == Snippet(
        "a b [31m c d", ((11, 12),)
    )


def test_snippet_of_a_long_text_is_the_part_around_the_first_match() -> None:
    text = "before " * 100 + "heron " + "after " * 100
    snippet = snippet_of([text], parse_query("heron"))
    assert snippet is not None
    assert marked(snippet) == ["heron"]
    assert snippet.text.startswith(f"{CUT}before ")
    assert snippet.text.endswith(f" after{CUT}")


@repeatable
@given(st.lists(LONG_TEXTS, max_size=3), LONG_TEXTS)
def test_snippet_of_any_texts_has_valid_marks_if_every_phrase_is_found(texts: list[str], typed: str) -> None:
    sought = parse_query(typed)
    snippet = snippet_of(texts, sought)
    words = [words_of(text) for text in texts]
    is_there = bool(sought) and all(any(contains(phrase, each) for each in words) for phrase in sought)
    assert (snippet is not None) == is_there
    if snippet is None:
        return
    assert len(snippet.text) <= LENGTH + 2
    assert not any(letter in snippet.text for letter in "\n\r\t\x00\x07")
    ends = [0, *(place for mark in snippet.marks for place in mark), len(snippet.text)]
    assert ends == sorted(ends)
    assert all(start < end for start, end in snippet.marks)


@repeatable
@given(LONG_TEXTS)
def test_snippet_of_a_single_word_always_contains_it(text: str) -> None:
    for word in words_of(text)[:5]:
        assert marked(snippet_of([text], parse_query(f'"{word}"')))
