"""A request is repeated as far as that is safe, and what could not be learned is told so."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.client.scripted import CUT, UNREACHED, Script, refused, told
from turnledger import errors
from turnledger.client.exchanging import Exchanging
from turnledger.client.retrying import Retries
from turnledger.client.wire import Broken, Request

ASKED = Request(method="POST", path="/api/tokens", body=b"{}")


def exchanged(script: Script, **options: Any) -> Any:
    return script.play(Exchanging(script.trying(), **options).ask(ASKED)).body


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
    exchanging = Exchanging(script.trying())
    with pytest.raises(errors.RevisionConflict):
        script.play(exchanging.ask(ASKED))
    assert exchanging.may_be_done
    assert exchanging.refusal is not None
    assert exchanging.refusal.status == 412


def test_what_never_arrived_is_not_done() -> None:
    script = Script(UNREACHED, refused(404, "conversation_not_found"))
    exchanging = Exchanging(script.trying())
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
