from __future__ import annotations

import msgspec

from turnledger.server.turns.chat_completions import renamed


def test_only_the_id_of_an_answer_changes() -> None:
    assert renamed([b'{"id":"a", "x":"a"}'], "a", "turn_1") == [b'{"id":"turn_1", "x":"a"}']
    assert renamed([b'{"id":"a","x":{"id":"a"}}'], "a", "turn_1") == [b'{"id":"turn_1","x":{"id":"a"}}']
    assert renamed([b'{"x":"a", "id":"a"}'], "a", "turn_1") == [b'{"x":"a", "id":"turn_1"}']
    assert renamed([], "a", "turn_1") == []
    assert msgspec.json.decode(renamed([b'{"x":"a"}'], "", "turn_1")[0]) == {"id": "turn_1", "x": "a"}
