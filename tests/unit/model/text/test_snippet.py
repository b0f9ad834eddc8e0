"""A snippet shows why a text was found: on one line, not too long, with marks that fit."""

from hypothesis import given
from hypothesis import strategies as st

from turnledger.model.text.search import CUT, LENGTH, Snippet, has, snippet_of, sought_in, words_of

WORDS = st.sampled_from(
    ["heron", "Herons", "e-mail", "Zürich", "東京", "a", "\n\t", "\x07", "x" * 90, "u\u0308", '"', "…", "ﬁn"]
)
TEXTS = st.lists(WORDS, max_size=60).map(" ".join) | st.text(max_size=400)


def marked(snippet: Snippet | None) -> list[str]:
    assert snippet is not None
    return [snippet.text[start:end] for start, end in snippet.marks]


def test_what_was_sought_is_marked() -> None:
    snippet = snippet_of(["Two herons, one Heron."], sought_in("heron"))
    assert snippet == Snippet("Two herons, one Heron.", ((4, 10), (16, 21)))
    assert marked(snippet_of(["An e-mail of MINE"], sought_in("mine e-mail"))) == ["e-mail", "MINE"]


def test_phrases_that_overlap_are_one_mark() -> None:
    assert marked(snippet_of(["a b c d"], sought_in('"a b" "b c" d'))) == ["a b c", "d"]


def test_a_text_without_all_of_it_has_no_snippet() -> None:
    assert snippet_of(["a heron", "an egret"], sought_in("heron stork")) is None
    assert snippet_of([], sought_in("heron")) is None
    assert snippet_of(["a heron"], ()) is None


def test_the_text_that_has_most_of_it_is_shown() -> None:
    texts = ["one", "one two", "two one three", "three"]
    assert snippet_of(texts, sought_in("one two three ")) == Snippet(texts[2], ((0, 3), (4, 7), (8, 13)))
    assert snippet_of(["one", "two"], sought_in("one two")) == Snippet("one", ((0, 3),))


def test_it_is_one_line() -> None:
    assert snippet_of(["\n a\r\n\tb \x00\x1b[31m c\u2028d "], sought_in("d")) == Snippet(
        "a b [31m c d", ((11, 12),)
    )


def test_of_a_long_text_it_is_the_part_around_the_first_word() -> None:
    text = "before " * 100 + "heron " + "after " * 100
    snippet = snippet_of([text], sought_in("heron"))
    assert snippet is not None
    assert marked(snippet) == ["heron"]
    assert snippet.text.startswith(f"{CUT}before ")
    assert snippet.text.endswith(f" after{CUT}")


@given(st.lists(TEXTS, max_size=3), TEXTS)
def test_marks_fit_and_all_that_is_found_has_some(texts: list[str], typed: str) -> None:
    sought = sought_in(typed)
    snippet = snippet_of(texts, sought)
    words = [words_of(text) for text in texts]
    is_there = bool(sought) and all(any(has(phrase, each) for each in words) for phrase in sought)
    assert (snippet is not None) == is_there
    if snippet is None:
        return
    assert len(snippet.text) <= LENGTH + 2
    assert not any(letter in snippet.text for letter in "\n\r\t\x00\x07")
    ends = [0, *(place for mark in snippet.marks for place in mark), len(snippet.text)]
    assert ends == sorted(ends)
    assert all(start < end for start, end in snippet.marks)


@given(TEXTS)
def test_a_single_word_is_always_within_its_snippet(text: str) -> None:
    for word in words_of(text)[:5]:
        assert marked(snippet_of([text], sought_in(f'"{word}"')))
