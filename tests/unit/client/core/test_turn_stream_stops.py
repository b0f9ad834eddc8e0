"""A stop that comes before its turn has begun."""

from __future__ import annotations

from tests.unit.client.core.test_turn_stream import TOLD, WHOLE, asked, followed
from tests.unit.client.scripted import CUT, TURN, Script, begun, finished, reading, started
from turnledger import errors
from turnledger.client.core.steps import Steps
from turnledger.model.ids import TurnId


def test_a_stop_that_fails_leaves_the_turn_to_be_read() -> None:
    def stop(turn: TurnId) -> Steps[None]:
        yield from ()
        raise errors.NotAdmitted

    script = Script(begun(*WHOLE))
    following = asked(script)
    following.stop_when_begun(stop)
    assert followed(script, following) == TOLD


def test_a_stop_that_came_before_the_turn_began_is_carried_out_once_it_has() -> None:
    stopped: list[str] = []

    def stop(turn: TurnId) -> Steps[None]:
        stopped.append(turn)
        yield from ()

    script = Script(begun(started(), end=CUT), reading(finished(2, "kept")))
    following = asked(script)
    following.stop_when_begun(stop)
    assert followed(script, following) == ["started", "kept"]
    assert stopped == [TURN]
