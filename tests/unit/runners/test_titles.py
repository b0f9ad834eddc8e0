"""Chat titles: the excerpt sent to the model, and the cleaning of its answer."""

from __future__ import annotations

import pytest

from tests.unit.runners.conftest import Canned, whole
from turnledger import Ledger
from turnledger.errors import MalformedAnswer, ModelUnavailable
from turnledger.model.turn import Turn
from turnledger.runners.titles import ANSWER_LENGTH, QUESTION_LENGTH, FirstExchange, clean_title, write_title


def make_namer(text: str | None, finish_reason: str | None = "stop") -> Canned:
    return Canned(completion=whole({"role": "assistant", "content": text}, finish_reason))


@pytest.mark.parametrize(
    ("answer", "title"),
    [
        ("Trip to Rome", "Trip to Rome"),
        ('  "Trip to Rome."\n', "Trip to Rome"),
        ("**Title: Trip to Rome**", "Trip to Rome"),
        ("# Trip to Rome\n\nThis title says what it is about.", "Trip to Rome"),
        ("<think>They want\nRome.</think>\nTrip to Rome", "Trip to Rome"),
        ("<think>They want Rome, and never came to", None),
        ("„Reise nach Rom“", "Reise nach Rom"),
        ("Wait and see...", "Wait and see..."),
        ("Trip\x1b[2J to\x00 Rome\u202e", "Trip[2J to Rome"),
        ("", None),
        (' "" \n', None),
    ],
)
def test_cleaned_title_drops_quotes_markup_and_reasoning(answer: str, title: str | None) -> None:
    assert clean_title(answer) == title


def test_cleaned_title_is_one_line_of_at_most_sixty_characters() -> None:
    made = clean_title("word " * 100)
    assert made is not None
    assert len(made) <= 60
    assert made.startswith("word word")


async def first_turn(question: str, answered: str) -> Turn:
    async with await Ledger.open() as ledger:
        chat = await ledger.conversation()
        async with chat.turn(question) as turn:
            turn.emit(answered)
        return (await chat.turns())[0]


async def test_title_model_is_sent_only_the_beginning_of_both_texts() -> None:
    beginning = FirstExchange.of(await first_turn("q" * 10_000, "a" * 10_000))
    assert (beginning.question, beginning.answer) == ("q" * QUESTION_LENGTH, "a" * ANSWER_LENGTH)
    namer = make_namer("Questions")
    assert await write_title(namer, "tiny", beginning) == "Questions"
    [request] = namer.received
    assert request.settings == {"model": "tiny"}
    assert isinstance(request.messages, list)
    assert [each["role"] for each in request.messages] == ["system", "user"]
    assert "q" * QUESTION_LENGTH in request.messages[1]["content"]
    assert len(request.messages[1]["content"]) < QUESTION_LENGTH + ANSWER_LENGTH + 100


@pytest.mark.parametrize(
    "namer",
    [make_namer(None), make_namer(" "), Canned(completion=b'{"choices":[]}'), Canned(completion=b"{}")],
)
async def test_title_by_an_empty_answer_returns_none(namer: Canned) -> None:
    assert await write_title(namer, "tiny", FirstExchange("Hi", "Hello.")) is None


async def test_title_by_an_error_or_an_overlong_answer_raises() -> None:
    with pytest.raises(ModelUnavailable):
        await write_title(
            Canned(completion=b'{"error":{"message":"overloaded"}}'), "tiny", FirstExchange("Hi", "Hello.")
        )
    with pytest.raises(MalformedAnswer):
        await write_title(make_namer("word " * 20_000), "tiny", FirstExchange("Hi", "Hello."))


@pytest.mark.parametrize(
    ("reason", "problem"),
    [("error", ModelUnavailable), ("odd", MalformedAnswer), (None, MalformedAnswer)],
)
async def test_title_by_an_incomplete_answer_raises(reason: str | None, problem: type[Exception]) -> None:
    with pytest.raises(problem):
        await write_title(make_namer("Trip to", reason), "tiny", FirstExchange("Hi", "Hello."))


async def test_title_by_an_answer_with_a_listed_finish_reason_is_returned() -> None:
    namer = make_namer("Trip to Rome", "COMPLETE")
    namer.finish_reasons = {"COMPLETE"}  # type: ignore[attr-defined]
    assert await write_title(namer, "tiny", FirstExchange("Hi", "Hello.")) == "Trip to Rome"
