"""Concurrent requests to one chat over HTTP, with two workers on one store, have a serial outcome."""

from __future__ import annotations

import pytest

from tests.races import race, serial_model
from tests.races.race import BEFORE
from tests.races.serial_model import Request, outcomes


def test_concurrent_requests_have_an_outcome_of_some_serial_order(capsys: pytest.CaptureFixture[str]) -> None:
    race.main(["--seed", "3", "--rounds", "8"])
    answered = {line.split()[-2] for line in capsys.readouterr().out.splitlines()}
    # Some were refused because others were first, or the test proves nothing.
    assert {"200", "201"} < answered
    assert answered & {"404", "409"}


def post(name: str, work: serial_model.Work) -> Request:
    return Request(name, work, "POST", "/", {})


def test_in_a_race_for_the_last_turn_one_wins() -> None:
    twice = [post("a", serial_model.undo("q3")), post("b", serial_model.undo("q3"))]
    assert {each.answers for each in outcomes(BEFORE, twice)} == {(200, 409), (409, 200)}


def test_a_request_that_is_sent_twice_is_done_once() -> None:
    again = post("a", serial_model.undo())
    (only,) = outcomes(BEFORE, [again, again])
    assert (only.answers, only.shown) == ((200, 200), BEFORE.line[:2])


def test_turn_before_an_edit_is_on_the_branch_that_the_edit_leaves() -> None:
    both = outcomes(BEFORE, [post("a", serial_model.send), post("b", serial_model.edit("q3"))])
    shown = {each.shown for each in both}
    assert shown == {(*BEFORE.line[:2], ("b", False)), (*BEFORE.line[:2], ("b", False), ("a", False))}
