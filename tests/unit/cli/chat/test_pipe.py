"""One turn from a pipe: what is written, and for whom."""

from __future__ import annotations

import io

import pytest

from tests.unit.cli.chat.test_turn_view import Scripted, said
from turnledger.cli.chat.backend import NewTurn
from turnledger.cli.chat.pipe import run_piped
from turnledger.model.event import TurnFinished
from turnledger.model.turn import AttemptState

pytestmark = pytest.mark.anyio


class Out(io.StringIO):
    def __init__(self, *, is_terminal: bool) -> None:
        super().__init__()
        self._is_terminal = is_terminal

    def isatty(self) -> bool:
        return self._is_terminal


class Talking:
    """A chat in which this is answered."""

    def __init__(self, *texts: str) -> None:
        self._texts = texts

    def ask(self, wish: NewTurn) -> Scripted:
        return Scripted(*said(*self._texts), TurnFinished(9, AttemptState.COMPLETED))


@pytest.mark.parametrize(
    ("is_terminal", "written"),
    [(False, "a \u202eb\u202c\n\tc\nd\n"), (True, "a \\u202eb\\u202c\n    c\nd\n")],
)
async def test_a_terminal_is_told_nothing_that_misleads_its_reader(is_terminal: bool, written: str) -> None:
    out = Out(is_terminal=is_terminal)
    talk = Talking("a \u202eb\u202c\r", "\n\tc\r\nd")
    await run_piped(talk, "demo", "Hello", out)  # type: ignore[arg-type]
    assert out.getvalue() == written
