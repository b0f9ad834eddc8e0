"""Whatever happens to connections and servers, in whatever order: in the end the turn is told, once."""

from __future__ import annotations

from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from tests.unit.client.core.test_turn_stream import asked
from tests.unit.client.scripted import (
    CUT,
    UNREACHED,
    Script,
    begun,
    finished,
    reading,
    refused,
    started,
    text,
)
from turnledger.client.core.exchange import Retries
from turnledger.client.core.steps import Reply, Request
from turnledger.client.shapes import TurnRestarted
from turnledger.model.event import TurnFinished

WORDS = ["Hello", " there", ", how", " are", " you?"]
LENGTH = len(b"".join(text(number, word) for number, word in enumerate(WORDS, 2)))
FAULTS = st.one_of(
    st.tuples(st.just("cut"), st.integers(0, LENGTH + 200)),
    st.tuples(st.just("end"), st.integers(0, LENGTH + 200)),
    st.tuples(st.just("die"), st.integers(0, len(WORDS))),
    st.tuples(st.just("lose"), st.integers(0, len(WORDS))),
    st.sampled_from([("refuse", 503), ("refuse", 429), ("unreached", 0), ("unanswered", 0)]),
)


class Anything(Script):
    """A server that is true to its log, on a line that is not. A turn that dies keeps of its log what was
    written down; one that is lost with its store is not known any more."""

    def __init__(self, faults: list[tuple[str, int]]) -> None:
        super().__init__(retries=Retries(times=50, first=0.0, most=0.0))
        self._faults = list(faults)
        self._turns = 0
        self._log: list[bytes] | None = None

    def _answer(self, request: Request) -> Any:
        self.asked.append(request)
        fault, at = self._faults.pop(0) if self._faults else ("none", 0)
        if fault == "refuse":
            return refused(at, "server_busy")
        if fault == "unreached":
            return UNREACHED
        if fault == "lose" and self._log is not None:
            self._log = None
        answer = (
            self._asked_for()
            if request.method == "POST"
            else self._read(int(request.headers["last-event-id"]))
        )
        if fault == "unanswered":
            return CUT
        if isinstance(answer, Reply):
            return answer
        if fault == "die" and self._log is not None:
            self._die(at)
        if fault in ("cut", "end", "die"):
            sent = b"".join(answer.pieces)[: at if fault != "die" else LENGTH // 2]
            answer.pieces, answer.end = [sent], b"" if fault == "end" else CUT
        self._open = iter([*filter(None, answer.pieces), answer.end, b""])
        return Reply(200, answer.headers)

    def _asked_for(self) -> Any:
        if self._log is None or b"process_died" in self._log[-1]:
            self._turns += 1
            self._log = [started(), *(text(number, word) for number, word in enumerate(WORDS, 2))]
            self._log.append(finished(len(WORDS) + 2))
        return begun(*self._log, turn=f"turn_018900000000700080000000000000{self._turns:02x}")

    def _read(self, after: int) -> Any:
        if self._log is None:
            return refused(404, "turn_not_found")
        return reading(*self._log[after:])

    def _die(self, written: int) -> None:
        assert self._log is not None
        if b"process_died" not in self._log[-1]:
            self._log = [*self._log[: 1 + written], finished(2 + written, "failed", "process_died")]


@settings(max_examples=200, deadline=None)
@given(faults=st.lists(FAULTS, max_size=12))
def test_every_event_once_and_in_order_since_the_last_restart(faults: list[tuple[str, int]]) -> None:
    script = Anything(faults)
    following = asked(script)
    script.play(following.steps())
    since = max((at for at, told in enumerate(script.given) if isinstance(told, TurnRestarted)), default=-1)
    told = script.given[since + 1 :]
    assert [event.number for event in told] == list(range(1, len(WORDS) + 3))
    assert isinstance(told[-1], TurnFinished)
    assert following.text == "".join(WORDS)
    for part in _between_restarts(script.given):
        assert [event.number for event in part] == list(range(1, len(part) + 1))


def _between_restarts(told: list[Any]) -> list[list[Any]]:
    parts: list[list[Any]] = [[]]
    for each in told:
        if isinstance(each, TurnRestarted):
            parts.append([])
        else:
            parts[-1].append(each)
    return parts


def test_what_was_tried_here_includes_restarts() -> None:
    script = Anything([("die", 1), ("cut", 40), ("lose", 0), ("none", 0)])
    following = asked(script)
    script.play(following.steps())
    assert len(_between_restarts(script.given)) >= 2
    assert following.text == "".join(WORDS)
