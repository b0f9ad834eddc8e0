"""What a reader sees of a chat who came by a link."""

from typing import Any

import pytest

from turnledger import Ledger
from turnledger.model.item import Item
from turnledger.server.access.share_view import as_readers_see


@pytest.fixture
def anyio_backend() -> str:
    return "asyncio"


CALL = {"type": "function_call", "call_id": "c", "name": "look", "arguments": "{}"}
RESULT = {"type": "function_call_output", "call_id": "c", "output": "the password"}


async def test_what_was_said_and_nothing_else() -> None:
    async with await Ledger.open() as ledger:
        chat = await ledger.conversation(metadata={"note": "mine"}, conversation_key="mine")
        async with chat.turn("q1") as turn:
            await turn.add(CALL, RESULT)
            turn.emit("a1")
        async with chat.turn("q2") as hidden:
            hidden.emit("a2")
        await chat.flag(hidden.id, 0, to_user=False)
        turns = await chat.turns()
        given: dict[str, Any] = {
            "title": "t",
            "conversation_key": "mine",
            "metadata": {"note": "mine"},
            "attempts": [1],
            "turns": [
                {
                    "id": each.id,
                    "input": each.input,
                    "output": each.output,
                    "hidden": places,
                    "details": {"model": "m"},
                }
                for each, places in zip(turns, await chat.hidden(turns), strict=True)
            ],
        }
        shown = await as_readers_see(chat, given)
        assert {name: shown[name] for name in ("title", "conversation_key", "metadata", "attempts")} == {
            "title": "t",
            "conversation_key": None,
            "metadata": {},
            "attempts": [],
        }
        assert "tags" not in shown
        said = [[texts(turn["input"]), texts(turn["output"])] for turn in shown["turns"]]
        assert said == [[["q1"], ["a1"]], [[], ["a2"]]]
        assert [turn["details"] for turn in shown["turns"]] == [{}, {}]
        assert len(given["turns"][0]["output"]) == 3


async def test_a_chat_in_which_nothing_was_said() -> None:
    async with await Ledger.open() as ledger:
        chat = await ledger.conversation()
        assert await as_readers_see(chat, {"turns": []}) == {"turns": []}


def texts(items: list[Item]) -> list[str]:
    return [
        content if isinstance(content, str) else content[0]["text"]
        for content in (item.fields["content"] for item in items)
    ]
