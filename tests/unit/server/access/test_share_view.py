"""What a reader sees of a chat who came by a link."""

import pytest
from msgspec.structs import replace

from turnledger import Ledger
from turnledger.api.turns import ShownChat
from turnledger.api.views import show_listed_as, show_turn
from turnledger.chat import Chat
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
        given = await shown_chat(chat)
        assert (given.conversation_key, given.metadata) == ("mine", {"note": "mine"})
        shown = await as_readers_see(chat, given)
        assert (shown.title, shown.conversation_key, shown.metadata) == ("q1", None, {})
        assert (shown.tags, shown.attempts) == ((), ())
        said = [[texts(turn.input), texts(turn.output)] for turn in shown.turns]
        assert said == [[["q1"], ["a1"]], [[], ["a2"]]]
        assert [turn.details for turn in shown.turns] == [{}, {}]
        assert len(given.turns[0].output) == 3


async def test_a_chat_in_which_nothing_was_said() -> None:
    async with await Ledger.open() as ledger:
        chat = await ledger.conversation()
        given = await shown_chat(chat)
        assert await as_readers_see(chat, given) == given


async def shown_chat(chat: Chat) -> ShownChat:
    turns = await chat.turns()
    shown = [
        replace(show_turn(*each), details={"model": "m"})
        for each in zip(turns, await chat.hidden(turns), strict=True)
    ]
    return show_listed_as(ShownChat, await chat.summary(), turns=tuple(shown))


def texts(items: tuple[Item, ...]) -> list[str]:
    return [
        content if isinstance(content, str) else content[0]["text"]
        for content in (item.fields["content"] for item in items)
    ]
