"""Who only reads along is told what there is, from where it was cut off, and nothing is raised for it."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from tests.unit.client.core.test_turn_stream import TOLD, WHOLE, followed, paths
from tests.unit.client.scripted import CUT, TURN, Script, finished, reading, refused, started
from turnledger import errors
from turnledger.client.core.turn_stream import TurnFollower
from turnledger.model.ids import TurnId


def reader(after: int = 0) -> Callable[[Script], TurnFollower]:
    return lambda script: TurnFollower(script.trying(), script.retries, turn=TurnId(TURN), after=after)


def test_a_reader_goes_on_where_it_was_cut_off() -> None:
    script = Script(reading(*WHOLE[:2], end=CUT), reading(*WHOLE[2:]))
    assert followed(script, reader()(script)) == TOLD
    assert paths(script) == ["GET 0", "GET 2"]


def test_a_reader_is_told_of_a_failure_and_nothing_is_raised() -> None:
    script = Script(reading(started(), finished(2, "failed", "process_died")))
    assert followed(script, reader()(script)) == ["started", "failed"]


def test_a_reader_of_what_it_has_heard_before_hears_nothing() -> None:
    script = Script(reading())
    assert followed(script, reader(4)(script)) == []


def test_a_reader_beyond_the_last_event_hears_nothing() -> None:
    script = Script(reading(finished(2)))
    assert followed(script, reader(4)(script)) == []


def test_a_reader_that_was_told_more_than_was_kept_is_told_all_again() -> None:
    script = Script(
        reading(*WHOLE[:3], end=CUT),
        reading(finished(2, "failed", "process_died")),
        reading(started(), finished(2, "failed", "process_died")),
    )
    assert followed(script, reader()(script))[3:] == ["again 1", "started", "failed"]
    assert paths(script) == ["GET 0", "GET 3", "GET 0"]


def test_a_reader_hears_of_a_death_behind_what_was_written_down() -> None:
    died = reading(started(), finished(2, "failed", "process_died"))
    script = Script(reading(*WHOLE[:3], end=CUT), reading(), died, died)
    assert followed(script, reader()(script)) == [*TOLD[:3], "again 1", "started", "failed"]
    assert paths(script) == ["GET 0", "GET 3", "GET 0", "GET 0"]


def test_a_reader_of_what_was_withdrawn_looks_back_once() -> None:
    script = Script(reading(*WHOLE[:2], end=CUT), reading(), reading(*WHOLE[:2]))
    assert followed(script, reader()(script)) == TOLD[:2]


def test_a_reader_of_an_unknown_turn_is_told_so() -> None:
    script = Script(refused(404, "turn_not_found"))
    with pytest.raises(errors.TurnNotFound):
        followed(script, reader()(script))


def test_a_stream_that_ends_too_soon_is_read_on() -> None:
    script = Script(reading(*WHOLE[:2]), reading(*WHOLE[2:]))
    assert followed(script, reader()(script)) == TOLD
