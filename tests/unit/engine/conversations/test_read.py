"""A chat read whole: its turns, its attempts and its state at one moment."""

from __future__ import annotations

import pytest

from turnledger import Ledger
from turnledger.errors import BranchNotFound
from turnledger.model.flags import NOTHING_HIDDEN, HiddenItems


async def test_chat_read_whole_has_turns_hidden_items_attempts_and_its_state() -> None:
    async with await Ledger.open("memory:") as ledger:
        chat = await ledger.conversation(title="Order")
        for question in ("one", "two", "three"):
            async with chat.turn(question) as turn:
                turn.emit("a")
        await chat.flag(turn.id, 0, to_user=False)
        with pytest.raises(OSError, match="gone"):
            async with chat.turn("four"):
                raise OSError("gone")
        async with chat.turn("five") as running:
            running.emit("a")
            page = await chat.read(limit=2)
        assert [each.input[0].text for each in page.turns] == ["two", "three"]
        assert page.hidden == [NOTHING_HIDDEN, HiddenItems((0,), ())]
        assert [each.attempt.input[0].text for each in page.attempts] == ["five", "four"]
        assert (page.chat.conversation.title, page.chat.turns, page.chat.is_running) == ("Order", 3, True)
        assert page.before == 2
        first = await chat.read(before=page.before)
        assert ([each.input[0].text for each in first.turns], first.before) == (["one"], None)


async def test_chat_read_on_another_branch_leaves_its_state_as_it_is() -> None:
    async with await Ledger.open("memory:") as ledger:
        chat = await ledger.conversation()
        async with chat.turn("one") as turn:
            turn.emit("a")
        before = (await chat.info()).branch
        async with chat.edit(turn.id, "two") as edit:
            edit.emit("a")
        page = await chat.read(branch=before)
        assert [each.id for each in page.turns] == [turn.id]
        assert page.chat.conversation.branch == edit.turn.branch != before  # type: ignore[union-attr]
        with pytest.raises(BranchNotFound):
            await chat.read(branch="branch_01890000000070008000000000000000")
