"""A request is repeated as far as that is safe, and what could not be learned is told so.

Tries are counted, pauses grow, and there is an end to it.
"""

from __future__ import annotations

from math import nan
from typing import Any

import pytest

from tests.unit.client.scripted import CUT, UNREACHED, Script, refused, told
from turnledger import errors
from turnledger.client.core.exchange import Pacing, RepeatedExchange, Retries, RetryCount, Timeouts
from turnledger.client.core.steps import Broken, Request
from turnledger.errors import InvalidInput

ASKED = Request(method="POST", path="/api/tokens", body=b"{}")


def exchanged(script: Script, **options: Any) -> Any:
    return script.play(RepeatedExchange(script.trying(), **options).ask(ASKED)).body


def test_a_good_answer_is_returned() -> None:
    assert exchanged(Script(told({"a": 1}, 201))) == b'{"a":1}'


@pytest.mark.parametrize(
    "passing", [CUT, UNREACHED, refused(503, "shutting_down"), refused(500, "internal_error")]
)
def test_what_may_be_repeated_is_repeated(passing: Any) -> None:
    script = Script(passing, passing, told({}))
    assert exchanged(script) == b"{}"
    assert script.asked == [ASKED] * 3
    assert script.pauses == [1.0, 2.0]


@pytest.mark.parametrize(
    "nothing_done", [UNREACHED, refused(503, "admission_moved"), refused(429, "too_many_requests")]
)
def test_what_happens_once_is_repeated_where_nothing_was_done(nothing_done: Any) -> None:
    assert exchanged(Script(nothing_done, told({})), is_repeatable=False) == b"{}"


def test_what_happens_once_is_not_repeated_where_it_may_have_been_done() -> None:
    script = Script(CUT)
    with pytest.raises(errors.ServerUnavailable, match="Look at the list"):
        exchanged(script, is_repeatable=False, once="Look at the list.")
    with pytest.raises(errors.RequestFailed) as raised:
        exchanged(Script(refused(500, "internal_error")), is_repeatable=False)
    assert raised.value.code == "internal_error"


def test_an_error_that_stays_is_raised_and_its_answer_can_be_looked_at() -> None:
    script = Script(CUT, refused(412, "revision_conflict"))
    exchanging = RepeatedExchange(script.trying())
    with pytest.raises(errors.RevisionConflict):
        script.play(exchanging.ask(ASKED))
    assert exchanging.may_be_done
    assert exchanging.refusal is not None
    assert exchanging.refusal.status == 412


def test_what_never_arrived_is_not_done() -> None:
    script = Script(UNREACHED, refused(404, "conversation_not_found"))
    exchanging = RepeatedExchange(script.trying())
    with pytest.raises(errors.ConversationNotFound):
        script.play(exchanging.ask(ASKED))
    assert not exchanging.may_be_done


def test_in_the_end_it_is_given_up() -> None:
    with pytest.raises(errors.ServerUnavailable, match="after 5 tries: the connection was cut") as raised:
        exchanged(Script(*[CUT] * 5), idempotency_key="k")
    assert raised.value.idempotency_key == "k"
    with pytest.raises(errors.ServerUnavailable, match="never reached it"):
        exchanged(Script(UNREACHED, retries=Retries(times=0)))


def test_what_is_hopeless_is_given_up_at_once() -> None:
    with pytest.raises(errors.ServerUnavailable):
        exchanged(Script(Broken("no", may_have_arrived=False, is_hopeless=True)))


class Now:
    """Stands still unless it is moved."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def __call__(self) -> float:
        return self.seconds


def trying(chance: float = 1.0, now: Now | None = None, **retries: float) -> RetryCount:
    pacing = Pacing(now=now or Now(), chance=lambda: chance)
    return RetryCount(
        Retries(**{"times": 5, "first": 1.0, "most": 6.0, "patience": 100.0, **retries}), pacing
    )


def test_each_pause_is_twice_as_long_up_to_the_longest_and_then_there_is_none() -> None:
    counted = trying()
    assert [counted.pause() for _ in range(6)] == [1.0, 2.0, 4.0, 6.0, 6.0, None]


def test_chance_makes_pauses_shorter_but_never_by_more_than_half() -> None:
    assert trying(chance=0.0).pause() == 0.5
    assert trying(chance=0.5).pause() == 0.75


def test_progress_begins_the_count_anew() -> None:
    counted = trying()
    assert [counted.pause(), counted.pause()] == [1.0, 2.0]
    counted.failed = 0
    assert counted.pause() == 1.0


def test_what_the_server_asks_for_is_waited() -> None:
    assert trying().pause(30.0) == 30.0
    assert trying().pause(0.0) == 1.0


def test_those_who_are_told_the_same_time_do_not_come_back_at_the_same_time() -> None:
    assert trying(chance=0.5).pause(4.0) == 5.0
    assert trying(chance=0.0).pause(4.0) == 6.0
    assert trying(chance=0.0).pause(80.0) == 86.0


def test_who_waits_for_ever_waits_as_long_as_the_longest_pause_and_comes_by_chance() -> None:
    assert trying().longest() == 6.0
    assert trying(chance=0.0).longest() == 3.0
    assert trying().longest(40.0) == 40.0


def test_patience_ends_before_a_pause_that_would_outlast_it() -> None:
    now = Now()
    counted = trying(now=now, patience=10.0)
    assert counted.pause() == 1.0
    now.seconds = 9.5
    assert counted.pause() is None
    assert trying(patience=10.0).pause(11.0) is None


def test_patience_counts_from_the_first_failure_since_there_was_progress() -> None:
    now = Now()
    counted = trying(now=now, patience=10.0)
    counted.pause()
    now.seconds = 500.0
    counted.failed = 0
    assert counted.pause() == 1.0


def test_without_retries_there_is_one_try() -> None:
    assert trying(times=0).pause() is None


@pytest.mark.parametrize("wrong", [{"times": -1}, {"first": -0.1}, {"patience": -1.0}, {"most": nan}])
def test_retries_below_zero_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(InvalidInput):
        Retries(**wrong)  # type: ignore[arg-type]


def test_timeouts_are_above_zero() -> None:
    with pytest.raises(InvalidInput):
        Timeouts(silence=0)
    with pytest.raises(InvalidInput):
        Timeouts(connect=nan)
