"""Who leaves last is noticed, once."""

from turnledger.model.ids import TurnId
from turnledger.server.audience import Audience

TURN = TurnId("turn_01a1e0bc39367804ba97aa83b3fdbca9")
OTHER = TurnId("turn_01a1e0bc39367804ba97aa83b3fdbcaa")


def test_where_nobody_reads_it_is_done_at_once() -> None:
    done: list[str] = []
    audience = Audience()
    audience.join(OTHER)
    audience.when_gone(TURN, lambda: done.append("alone"))
    assert done == ["alone"]


def test_the_last_one_to_leave_does_it_once() -> None:
    done: list[str] = []
    audience = Audience()
    audience.join(TURN)
    audience.join(TURN)
    audience.when_gone(TURN, lambda: done.append("gone"))
    audience.leave(TURN)
    assert (done, set(audience.turns)) == ([], {TURN})
    audience.leave(TURN)
    assert not audience.turns
    audience.join(TURN)
    audience.leave(TURN)
    assert done == ["gone"]


def test_what_is_over_is_forgotten() -> None:
    done: list[str] = []
    audience = Audience()
    audience.join(TURN)
    audience.when_gone(TURN, lambda: done.append("gone"))
    audience.forget(TURN)
    audience.leave(TURN)
    assert done == []
