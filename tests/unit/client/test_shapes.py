"""What the client makes of answers."""

from __future__ import annotations

import msgspec
import pytest

from tests.unit.client.scripted import BRANCH, INFO, TURN
from turnledger.client import Answer, ChatInfo, Turn
from turnledger.client.shapes import decoded
from turnledger.errors import RequestFailed
from turnledger.model.ids import BranchId


def test_answer_text_is_that_of_its_turn() -> None:
    said = {"type": "message", "role": "assistant", "content": "Hi"}
    told = {"id": TURN, "number": 1, "kind": "completed", "output": [said]}
    turn = decoded(Turn, msgspec.json.encode(told))
    info = decoded(ChatInfo, msgspec.json.encode(INFO))
    assert Answer(turn=turn, chat=info, branch=BranchId(BRANCH)).text == "Hi"


@pytest.mark.parametrize("raw", [b"", b"{", b"[]", b"\xff", b'{"id":5}', b'{"id":"conv_1"}', b"[" * 5000])
def test_answer_that_makes_no_sense_is_an_error(raw: bytes) -> None:
    with pytest.raises(RequestFailed, match="understands"):
        decoded(ChatInfo, raw)
