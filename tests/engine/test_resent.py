"""Resent histories: a client sends its whole copy each time. Nothing is doubled, nothing is lost."""

from __future__ import annotations

import asyncio
from typing import Any

import pytest

from turnledger.chat import Chat
from turnledger.engine.turn.begin import begin
from turnledger.errors import (
    HistoryDiverged,
    IdempotencyMismatch,
    InvalidInput,
    MalformedItems,
    MissingToolResults,
    NoNewInput,
    TurnReplayed,
)
from turnledger.model.messages.calls import NOT_ANSWERED
from turnledger.model.messages.messages import messages_of
from turnledger.model.turn import Turn, TurnKind
from turnledger.testing.gates import Fate
from turnledger.testing.scripted_model import Ask, ScriptedModel, Step, Tool
from turnledger.testing.store_contract.stage import (
    LIMITS,
    Stage,
    StageProcess,
    chain,
    exchange,
    message_texts,
    play,
    run_block,
    soon,
    user,
)

Messages = list[dict[str, Any]]
SYSTEM = {"role": "system", "content": "Be brief."}
OTHER = {"role": "system", "content": "Be kind."}
BROKEN = ValueError("broken")
NOTE = {"role": "system", "content": "Answer in French."}


def talk(*texts: str) -> Messages:
    """Messages of a user and an assistant, in turn."""
    return [{"role": ("user", "assistant")[place % 2], "content": text} for place, text in enumerate(texts)]


def calling(*call_ids: str, kind: str = "function") -> dict[str, Any]:
    """An assistant message that calls tools of the client."""
    body = {"name": "look", "arguments": "{}"} if kind == "function" else {"name": "look", "input": "x"}
    calls = [{"id": call_id, "type": kind, kind: body} for call_id in call_ids]
    return {"role": "assistant", "content": None, "tool_calls": calls}


def result(call_id: str, text: str = "found") -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": call_id, "content": text}


async def send(chat: Chat, messages: Messages, *script: Step, **options: Any) -> Turn:
    """Send a history, and have it answered."""
    return await soon(play(chat.resent(messages, **options), ScriptedModel([*(script or ("ok",))])))


async def fail(chat: Chat, messages: Messages, *script: Step, **options: Any) -> None:
    """Send a history whose turn acts on the world, and then fails."""
    with pytest.raises(ValueError, match="broken"):
        await send(chat, messages, *(script or (Tool("pay"),)), BROKEN, **options)


async def shown(chat: Chat) -> Messages:
    """The whole history, as a chat client is shown it."""
    return messages_of(await chat.history())


async def instructed(chat: Chat) -> list[list[str] | None]:
    """What each turn recorded as its instructions."""
    return [
        None if turn.instructions is None else [item.text for item in turn.instructions]
        for turn in await chat.turns()
    ]


async def state_of(chat: Chat) -> object:
    info = await chat.info()
    return await chat.turns(), await chat.attempts(), info.branch, info.revision, await chat.instructions()


async def refused(chat: Chat, messages: Messages, error: type[Exception], **options: Any) -> None:
    """The request is refused, and nothing has changed."""
    before = await state_of(chat)
    with pytest.raises(error):
        await send(chat, messages, **options)
    assert await state_of(chat) == before


async def sound(process: StageProcess) -> None:
    assert await process.ledger.check() == []


class TestResent:
    async def test_each_request_continues_the_one_before(self, stage: Stage) -> None:
        here, there = await stage.processes()
        chat = await here.chat()
        same = await there.chat(chat)
        mine: Messages = []
        for number in range(4):
            mine.append(user(f"q{number}"))
            turn = await send((chat, same)[number % 2], mine, f"a{number}")
            mine.append({"role": "assistant", "content": turn.text})
        assert await shown(chat) == mine
        assert len(await chat.turns()) == 4
        await sound(here)

    async def test_the_last_question_again_asks_for_another_answer(self, stage: Stage) -> None:
        here = await stage.process()
        chat = await here.chat()
        turns = await chain(chat, 2)
        again = await send(chat, talk("q1", "a1", "q2"), "other")
        assert await message_texts(chat) == ["q1", "a1", "q2", "other"]
        assert [each.turn.id for each in await chat.siblings(again.id)] == [turns[1].id, again.id]
        await sound(here)

    async def test_an_edited_question_goes_on_a_branch_of_its_own(self, stage: Stage) -> None:
        here = await stage.process()
        chat = await here.chat()
        await chain(chat, 3)
        old = (await chat.info()).branch
        await send(chat, talk("q1", "a1", "other"))
        assert await message_texts(chat) == ["q1", "a1", "other", "ok"]
        await chat.switch(old)
        assert await message_texts(chat) == ["q1", "a1", "q2", "a2", "q3", "a3"]
        await sound(here)

    async def test_an_edited_answer_is_kept_as_its_client_tells_it(self, chat: Chat) -> None:
        await chain(chat, 2)
        mine = talk("q1", "a1", "q2", "edited", "q3")
        await send(chat, mine)
        assert await shown(chat) == [*mine, *talk("", "ok")[1:]]
        mine = [*mine, *talk("", "ok")[1:], user("q4")]
        await send(chat, mine)
        assert await shown(chat) == [*mine, *talk("", "ok")[1:]]

    async def test_new_says_that_all_of_it_is_input(self, chat: Chat) -> None:
        await chain(chat, 1)
        await send(chat, talk("q1", "a1", "q2"), sent="new")
        assert await message_texts(chat) == ["q1", "a1", "q1", "a1", "q2", "ok"]

    async def test_full_says_that_it_is_the_history_though_no_assistant_speaks(self, chat: Chat) -> None:
        await chain(chat, 2)
        await send(chat, talk("q1"), "other", sent="full")
        assert await message_texts(chat) == ["q1", "other"]

    async def test_rejected_it_changes_nothing(self, chat: Chat) -> None:
        await chain(chat, 2)
        await refused(chat, talk("q1", "edited", "q2"), HistoryDiverged, on_divergence="reject")
        await send(chat, talk("q1", "a1", "q2", "a2", "q3"), on_divergence="reject")
        await send(chat, talk("q1", "a1", "q2", "a2", "q3"), "other", on_divergence="reject")
        assert await message_texts(chat) == ["q1", "a1", "q2", "a2", "q3", "other"]

    @pytest.mark.parametrize("key", [None, "i"])
    async def test_nothing_new_is_refused(self, chat: Chat, key: str | None) -> None:
        await chain(chat, 2)
        for mine in (talk("q1", "a1", "q2", "a2"), [], [SYSTEM], [*talk("q1", "a1", "q2", "a2"), user(" ")]):
            await refused(chat, mine, NoNewInput, idempotency_key=key)

    @pytest.mark.parametrize(
        "bad",
        [
            {"content": "q"},
            {"role": "nobody", "content": "q"},
            {"role": "user", "content": 7},
            {"role": "user", "content": "\ud800"},
            {"role": "tool", "content": "r"},
            "q",
        ],
    )
    @pytest.mark.parametrize("key", [None, "i"])
    async def test_malformed_messages_are_refused(self, chat: Chat, bad: Any, key: str | None) -> None:
        await chain(chat, 1)
        await refused(chat, [*talk("q1", "a1"), user("q"), bad], MalformedItems, idempotency_key=key)

    async def test_what_cannot_be_written_down_is_refused(self, chat: Chat) -> None:
        bad = {"role": "user", "content": "q", "tag": object()}
        for key in (None, "i"):
            await refused(chat, [bad], MalformedItems, idempotency_key=key)

    async def test_bounds_hold_for_what_is_new(self, stage: Stage) -> None:
        here = await stage.process()
        chat = await here.chat()
        many = [user("q")] * (LIMITS.input_items + 1)
        await refused(chat, many, MalformedItems)
        await refused(chat, [SYSTEM] * (LIMITS.input_items + 1) + [user("q")], MalformedItems)

    async def test_a_list_that_its_client_goes_on_with_is_read_as_it_was(
        self, stage: Stage, chat: Chat
    ) -> None:
        holder = await stage.hold_lane(chat, "q1")
        mine = talk("q1", "Working done.", "q2")
        waiting = await stage.line_up(chat, play(chat.resent(mine), ScriptedModel(["a2"])))
        mine.append({"role": "assistant", "content": "not yet"})
        await holder.finish()
        await soon(waiting)
        assert await message_texts(chat) == ["q1", "Working done.", "q2", "a2"]

    async def test_a_first_request_may_bring_a_history_of_its_own(self, chat: Chat) -> None:
        mine = talk("q1", "a1", "q2")
        await send(chat, mine, "a2")
        mine += talk("", "a2")[1:]
        assert await shown(chat) == mine
        await send(chat, [*mine, user("q3")], "a3")
        assert await message_texts(chat) == ["q1", "a1", "q2", "a2", "q3", "a3"]


class TestResentTools:
    async def test_results_answer_the_calls_of_the_last_turn(self, stage: Stage) -> None:
        here = await stage.process()
        chat = await here.chat()
        await send(chat, [user("q1")], Ask("look", call_id="c"))
        mine = [user("q1"), calling("c"), result("c")]
        await send(chat, mine, "a1")
        assert await shown(chat) == [*mine, *talk("", "a1")[1:]]
        assert len(await chat.turns()) == 2
        await sound(here)

    async def test_results_of_a_custom_tool_answer_it_too(self, chat: Chat) -> None:
        async with chat.turn("q1") as turn:
            await turn.add({"type": "custom_tool_call", "call_id": "c", "name": "look", "input": "x"})
        await send(chat, [user("q1"), calling("c", kind="custom"), result("c")], "a1")
        assert [item.type for item in (await chat.turns())[1].input] == ["custom_tool_call_output"]
        again = [user("q1"), calling("c", kind="custom"), result("c", "other")]
        await send(chat, again, "a2")
        assert [item.text for item in await chat.history() if item.type == "message"] == ["q1", "a2"]

    async def test_some_results_name_the_missing_ones(self, chat: Chat) -> None:
        await send(chat, [user("q1")], Ask("look", call_id="c"), Ask("look", call_id="d"))
        mine = [user("q1"), calling("c", "d"), result("d")]
        await refused(chat, mine, MissingToolResults)
        await send(chat, [*mine, user("never mind")])
        outputs = {item.call_id: item.fields["output"] for item in await chat.history() if item.is_result}
        assert outputs == {"c": NOT_ANSWERED, "d": "found"}

    async def test_a_message_moves_on_from_calls_that_wait(self, stage: Stage) -> None:
        here = await stage.process()
        chat = await here.chat()
        await send(chat, [user("q1")], Ask("look", call_id="c"))
        mine = [user("q1"), calling("c"), user("q2")]
        await send(chat, mine, "a2")
        assert await shown(chat) == [*mine[:2], result("c", NOT_ANSWERED), mine[2], *talk("", "a2")[1:]]
        await send(chat, [*mine, *talk("", "a2")[1:], user("q3")], "a3")
        assert await message_texts(chat) == ["q1", "q2", "a2", "q3", "a3"]
        await sound(here)

    async def test_an_edit_may_hold_calls_with_their_results(self, stage: Stage) -> None:
        here = await stage.process()
        chat = await here.chat()
        await chain(chat, 2)
        mine = [*talk("q1", "a1", "edited"), calling("c", "d"), result("c"), result("d"), user("q3")]
        await send(chat, mine)
        mine += talk("", "ok")[1:]
        assert await shown(chat) == mine
        await send(chat, [*mine, user("q4")])
        assert await shown(chat) == [*mine, *talk("q4", "ok")]
        await sound(here)

    async def test_an_edit_may_hold_a_call_that_was_never_answered(self, stage: Stage) -> None:
        here = await stage.process()
        chat = await here.chat()
        await chain(chat, 2)
        mine = [*talk("q1", "a1", "edited"), calling("c"), user("q3")]
        await send(chat, mine)
        await send(chat, [*mine, *talk("", "ok", "q4")[1:]])
        assert await message_texts(chat) == ["q1", "a1", "edited", "q3", "ok", "q4", "ok"]
        await refused(chat, [*talk("q1", "a1", "more"), calling("c")], MissingToolResults)
        await sound(here)

    async def test_a_client_keeps_its_own_calls_and_not_those_made_here(self, stage: Stage) -> None:
        here = await stage.process()
        chat = await here.chat()
        await chain(chat, 2)
        mine = [*talk("q1", "a1", "edited"), calling("c"), result("c"), user("q3")]
        await send(chat, mine, Tool("pay"), "a3")
        mine += talk("", "a3")[1:]
        for first, question in ((0, "q4"), (4, "q5")):
            mine.append(user(question))
            await send(chat, mine[first:], "ok")
            mine += talk("", "ok")[1:]
        assert len(await chat.turns()) == 4
        assert [item.fields["name"] for item in await chat.history() if item.is_call] == ["look", "pay"]
        await sound(here)

    async def test_an_edit_with_calls_that_acted_and_failed_is_told_whole(self, stage: Stage) -> None:
        here = await stage.process()
        chat = await here.chat()
        await chain(chat, 2)
        mine = [*talk("q1", "a1", "edited"), calling("c"), result("c"), user("q3")]
        await fail(chat, mine)
        await send(chat, talk("q1", "a1", "q2", "a2", "q4"))
        settled = (await chat.turns())[2]
        assert settled.kind is TurnKind.SETTLED
        assert [item.type for item in settled.input] == [
            "message",
            "function_call",
            "function_call_output",
            "message",
        ]
        await sound(here)

    async def test_a_turn_whose_input_holds_calls_is_asked_again_whole(self, stage: Stage) -> None:
        here = await stage.process()
        chat = await here.chat()
        await chain(chat, 1)
        mine = [*talk("q1", "edited", "q2"), calling("c"), result("c"), user("q3")]
        turn = await send(chat, mine)
        await fail(chat, [*mine, *talk("", "ok", "q4")[1:]])
        again = await soon(run_block(chat.regenerate(turn.id), "other"))
        assert again.input == turn.input
        assert [each.kind for each in await chat.turns()] == [TurnKind.SETTLED, TurnKind.COMPLETED]
        await sound(here)

    async def test_results_told_by_a_settled_turn_are_not_told_again(self, stage: Stage) -> None:
        here = await stage.process()
        chat = await here.chat()
        await send(chat, [user("q1")], Ask("look", call_id="c"))
        mine = [user("q1"), calling("c"), result("c")]
        await fail(chat, mine)
        await refused(chat, mine, NoNewInput)
        await send(chat, [*mine, user("q2")], "a2")
        assert [each.kind for each in await chat.turns()][1:] == [TurnKind.SETTLED, TurnKind.COMPLETED]
        assert [item.call_id for item in await chat.history() if item.is_result].count("c") == 1
        await send(chat, [*mine, *talk("q2", "a2", "q3")], "a3")
        assert len(await chat.turns()) == 4
        await sound(here)

    @pytest.mark.parametrize("is_settled", [False, True])
    async def test_an_edit_behind_results_keeps_them_though_settled_turns_come_along(
        self, stage: Stage, is_settled: bool
    ) -> None:
        here = await stage.process()
        chat = await here.chat()
        await send(chat, [user("q1")], Ask("look", call_id="c"))
        mine = [user("q1"), calling("c"), result("c")]
        await send(chat, mine, "a1")
        await fail(chat, [*mine, *talk("", "a1", "pay")[1:]])
        if is_settled:
            await send(chat, [*mine, *talk("", "a1", "q2")[1:]], "a2")
        await send(chat, [*mine, *talk("", "edited", "q3")[1:]], "a3")
        last = (await chat.turns())[-1]
        assert messages_of(last.items) == [*mine, *talk("", "edited", "q3", "a3")[1:]]
        await sound(here)


class TestResentInstructions:
    async def test_they_are_recorded_once_and_when_they_change(self, chat: Chat) -> None:
        mine: Messages = []
        for number, system in enumerate(([SYSTEM], [SYSTEM], [], [OTHER], [OTHER], [SYSTEM])):
            mine.append(user(f"q{number}"))
            async with chat.resent([*system, *mine]) as turn:
                turn.emit("ok")
            mine += talk("", "ok")[1:]
            in_force = system or [SYSTEM]
            assert messages_of(turn.instructions) == in_force
        assert await instructed(chat) == [["Be brief."], None, None, ["Be kind."], None, ["Be brief."]]
        assert await shown(chat) == mine

    async def test_those_of_a_turn_settled_in_between_do_not_win(self, chat: Chat) -> None:
        await send(chat, [SYSTEM, user("q1")], "a1")
        await fail(chat, [OTHER, *talk("q1", "a1", "q2")])
        async with chat.resent([SYSTEM, *talk("q1", "a1", "q3")]) as turn:
            turn.emit("a3")
        assert messages_of(turn.instructions) == [SYSTEM]
        assert await instructed(chat) == [["Be brief."], ["Be kind."], ["Be brief."]]

    @pytest.mark.parametrize("trimmed", [0, 1])
    async def test_one_that_is_inserted_in_the_middle_is_told_with_what_is_new_and_once(
        self, chat: Chat, trimmed: int
    ) -> None:
        await send(chat, talk("q1"), "a1")
        await send(chat, talk("q1", "a1", "q2"), "a2")
        copy = [*talk("q1", "a1"), NOTE, *talk("q2", "a2", "q3")][trimmed:]
        model = ScriptedModel(["a3"], ["a4"])
        await soon(play(chat.resent(copy), model))
        await soon(play(chat.resent([*copy, *talk("-", "a3", "q4")[1:]]), model))
        assert model.seen[0] == [*talk("q1", "a1", "q2", "a2"), NOTE, *talk("q3")]
        assert model.seen[1] == [*model.seen[0], *talk("-", "a3", "q4")[1:]]
        assert [turn.number for turn in await chat.turns()] == [1, 2, 3, 4]

    async def test_one_that_is_inserted_before_a_stored_question_is_told_with_it(self, chat: Chat) -> None:
        await send(chat, talk("q1"), "a1")
        await send(chat, talk("q1", "a1", "q2"), "a2")
        model = ScriptedModel(["a3"])
        await soon(play(chat.resent([*talk("q1", "a1"), NOTE, *talk("-", "-", "q2")[2:]]), model))
        assert model.seen[0] == [*talk("q1", "a1"), NOTE, *talk("q2")]

    async def test_one_that_is_inserted_before_results_leaves_them_with_their_calls(self, chat: Chat) -> None:
        await send(chat, talk("q1"), Ask("look", call_id="c1"))
        model = ScriptedModel(["a"])
        sent = [*talk("q1"), NOTE, calling("c1"), result("c1"), *talk("q2")]
        await soon(play(chat.resent(sent), model))
        assert model.seen[0] == [*talk("q1"), calling("c1"), result("c1"), NOTE, *talk("q2")]

    async def test_instructions_that_are_repeated_in_the_middle_are_nothing_new(self, chat: Chat) -> None:
        await send(chat, [NOTE, *talk("q1")], "a1")
        model = ScriptedModel(["a2"])
        await soon(play(chat.resent([*talk("q1"), NOTE, *talk("-", "a1", "q2")[1:]]), model))
        assert model.seen[0] == [NOTE, *talk("q1", "a1", "q2")]

    @pytest.mark.parametrize("option", ["instructions", "instructions_once"])
    async def test_they_cannot_be_given_beside_the_messages(self, chat: Chat, option: str) -> None:
        await refused(chat, [user("q1")], InvalidInput, **{option: "Sing."})


class TestResentOnce:
    async def test_a_committed_turn_is_replayed_though_the_history_holds_it(self, stage: Stage) -> None:
        here, there = await stage.processes()
        chat = await here.chat()
        same = await there.chat(chat)
        await chain(chat, 1)
        mine = talk("q1", "a1", "q2")
        turn = await send(chat, mine, "a2", idempotency_key="i")
        for each in (chat, same):
            with pytest.raises(TurnReplayed) as replay:
                await send(each, mine, idempotency_key="i")
            assert replay.value.turn == turn
        assert await message_texts(chat) == ["q1", "a1", "q2", "a2"]

    async def test_another_body_is_another_request(self, chat: Chat) -> None:
        await send(chat, [user("q1")], idempotency_key="i")
        await refused(chat, [user("q2")], IdempotencyMismatch, idempotency_key="i")
        await refused(chat, [SYSTEM, user("q1")], IdempotencyMismatch, idempotency_key="i")
        await refused(chat, [user("q1")], IdempotencyMismatch, idempotency_key="i", sent="new")
        await refused(chat, [user("q1")], IdempotencyMismatch, idempotency_key="i", primer="Hello")

    async def test_an_edit_is_resumed_on_its_branch(self, chat: Chat) -> None:
        await chain(chat, 2)
        mine = talk("q1", "a1", "edited")
        model = ScriptedModel([Tool("pay"), BROKEN], [Tool("pay"), "Paid."])
        with pytest.raises(ValueError, match="broken"):
            await soon(play(chat.resent(mine, idempotency_key="i"), model))
        await soon(play(chat.resent(mine, idempotency_key="i"), model))
        assert model.executed["pay"] == 1
        assert await message_texts(chat) == ["q1", "a1", "edited", "Paid."]

    async def test_a_retry_goes_where_it_began_though_the_key_has_moved_on(self, stage: Stage) -> None:
        here = await stage.process()
        chat = await here.chat(conversation_key="k")
        await chain(chat, 1)
        mine = talk("q1", "a1", "q2")
        await fail(chat, mine, "Hm", idempotency_key="i")
        fresh = await here.ledger.reset("k")
        await send(fresh, mine, "a2", idempotency_key="i")
        assert await message_texts(chat) == ["q1", "a1", "q2", "a2"]
        assert await message_texts(fresh) == []

    @pytest.mark.parametrize("key", [None, "i"])
    @pytest.mark.parametrize("fate", Fate)
    async def test_a_begin_whose_answer_is_lost_happens_once(
        self, stage: Stage, fate: Fate, key: str | None
    ) -> None:
        here = await stage.process()
        chat = await here.chat()
        await chain(chat, 2)
        here.store.lose_answer(begin, fate)
        await send(chat, talk("q1", "a1", "edited"), idempotency_key=key)
        assert await message_texts(chat) == ["q1", "a1", "edited", "ok"]
        await sound(here)


class TestResentInBetween:
    @pytest.mark.parametrize("key", [None, "i"])
    @pytest.mark.parametrize("is_elsewhere", [False, True])
    async def test_a_second_message_to_the_same_history_is_an_edit_by_then(
        self, stage: Stage, is_elsewhere: bool, key: str | None
    ) -> None:
        here, there = await stage.processes()
        chat = await here.chat()
        same = await there.chat(chat) if is_elsewhere else chat
        await chain(chat, 1)
        holder = await stage.hold(lambda model: play(chat.resent(talk("q1", "a1", "left")), model))
        right = play(same.resent(talk("q1", "a1", "right"), idempotency_key=key), ScriptedModel(["ok"]))
        waiting = await stage.line_up(chat, right)
        left = await holder.finish()
        turn = await soon(waiting)
        assert await message_texts(chat) == ["q1", "a1", "right", "ok"]
        assert {each.turn.id for each in await chat.siblings(turn.id)} == {left.id, turn.id}
        await sound(here)

    @pytest.mark.parametrize("on_divergence", ["branch", "reject"])
    async def test_the_same_message_sent_twice_asks_for_another_answer_by_then(
        self, stage: Stage, on_divergence: str
    ) -> None:
        here, there = await stage.processes()
        chat = await here.chat()
        same = await there.chat(chat)
        await chain(chat, 1)
        mine = talk("q1", "a1", "q2")
        holder = await stage.hold(lambda model: play(chat.resent(mine), model))
        block = same.resent(mine, on_divergence=on_divergence)
        waiting = await stage.line_up(chat, play(block, ScriptedModel(["again"])))
        first = await holder.finish()
        turn = await soon(waiting)
        assert await message_texts(chat) == ["q1", "a1", "q2", "again"]
        assert {each.turn.id for each in await chat.siblings(turn.id)} == {first.id, turn.id}

    async def test_what_is_new_in_both_is_kept_in_both_if_only_that_is_sent(
        self, stage: Stage, chat: Chat
    ) -> None:
        await chain(chat, 1)
        holder = await stage.hold(lambda model: play(chat.resent(talk("left"), sent="new"), model))
        right = play(chat.resent(talk("right"), sent="new"), ScriptedModel(["ok"]))
        waiting = await stage.line_up(chat, right)
        await holder.finish()
        await soon(waiting)
        assert await message_texts(chat) == ["q1", "a1", "left", "Working done.", "right", "ok"]

    async def test_the_line_moves_between_reading_and_beginning(self, stage: Stage) -> None:
        here, there = await stage.processes()
        chat = await here.chat()
        same = await there.chat(chat)
        await chain(chat, 1)
        with here.store.hold(begin) as gate:
            late = stage.start(send(chat, talk("q1", "a1", "q2", "a2", "q3"), "a3"))
            await stage.reach(gate, late)
            await exchange(same, "q2", "a2")
        await soon(late)
        assert await message_texts(chat) == ["q1", "a1", "q2", "a2", "q3", "a3"]

    async def test_the_branch_changes_while_it_waits(self, stage: Stage) -> None:
        chat, same = await stage.shared_chat()
        await chain(chat, 3)
        holder = await stage.hold(lambda model: play(chat.resent(talk("q1", "a1", "left")), model))
        mine = talk("q1", "a1", "left", "Working done.", "q3")
        waiting = await stage.line_up(chat, play(same.resent(mine), ScriptedModel(["a3"])))
        await holder.finish()
        await soon(waiting)
        assert await message_texts(chat) == ["q1", "a1", "left", "Working done.", "q3", "a3"]

    async def test_a_window_that_the_running_turn_will_complete_is_not_refused(
        self, stage: Stage, chat: Chat
    ) -> None:
        await chain(chat, 1)
        holder = await stage.hold_lane(chat, "q2")
        mine = talk("q2", "Working done.", "q3")
        block = chat.resent(mine, on_divergence="reject")
        waiting = await stage.line_up(chat, play(block, ScriptedModel(["a3"])))
        await holder.finish()
        await soon(waiting)
        assert await message_texts(chat) == ["q1", "a1", "q2", "Working done.", "q3", "a3"]

    async def test_what_is_refused_after_waiting_leaves_nothing_behind(self, stage: Stage) -> None:
        here = await stage.process()
        chat = await here.chat()
        await chain(chat, 1)
        holder = await stage.hold_lane(chat, "q2")
        block = chat.resent(talk("q1", "a1", "right"), on_divergence="reject")
        waiting = await stage.line_up(chat, play(block, ScriptedModel(["no"])))
        await holder.finish()
        with pytest.raises(HistoryDiverged):
            await soon(waiting)
        assert await stage.tickets(chat) == []
        assert await message_texts(chat) == ["q1", "a1", "q2", "Working done."]

    async def test_one_that_interrupts_continues_behind_what_was_kept(self, stage: Stage, chat: Chat) -> None:
        await chain(chat, 1)
        holder = await stage.hold_lane(chat, "q2")
        await send(chat, talk("q1", "a1", "q2", "Work", "q3"), "a3", on_busy="interrupt")
        await asyncio.wait([holder.task])
        assert await message_texts(chat) == ["q1", "a1", "q2", "Working", "q3", "a3"]

    async def test_one_that_rolls_back_takes_the_place(self, stage: Stage, chat: Chat) -> None:
        await chain(chat, 1)
        holder = await stage.hold_lane(chat, "q2")
        await send(chat, talk("q1", "a1", "q3"), "a3", on_busy="rollback")
        await asyncio.wait([holder.task])
        assert await message_texts(chat) == ["q1", "a1", "q3", "a3"]

    @pytest.mark.parametrize("key", [None, "i"])
    async def test_a_rollback_that_is_refused_where_it_goes_stops_nothing(
        self, stage: Stage, chat: Chat, key: str | None
    ) -> None:
        await send(chat, [user("q1")], Ask("look", call_id="c"), Ask("look", call_id="d"))
        holder = await stage.hold_lane(chat, "q2")
        mine = [user("q1"), calling("c", "d"), result("d")]
        with pytest.raises(MissingToolResults):
            await send(chat, mine, on_busy="rollback", idempotency_key=key)
        await holder.finish()
        assert await message_texts(chat) == ["q1", "q2", "Working done."]

    @pytest.mark.parametrize("key", [None, "i"])
    @pytest.mark.parametrize("policy", ["keep", "settle", "forget"])
    async def test_it_takes_over_from_a_dead_process(
        self, stage: Stage, policy: str, key: str | None
    ) -> None:
        here, there = await stage.processes()
        chat = await here.chat()
        await chain(chat, 1)
        await stage.hold_lane(chat, "q2", [Tool("pay"), "Wor"], on_failure=policy)
        same = await there.chat(chat)
        mine = talk("q1", "a1", "q3")
        waiting = await stage.line_up(
            same, play(same.resent(mine, idempotency_key=key), ScriptedModel(["a3"]))
        )
        stage.clock.advance(LIMITS.lease_time)
        there.ledger._process.waiters.notify_all()
        await soon(waiting)
        kept = {"keep": ["q2"], "settle": ["q2"], "forget": []}[policy]
        texts = await message_texts(same)
        assert texts[:2] + texts[-2:] == ["q1", "a1", "q3", "a3"]
        assert texts[2:3] == (kept or ["q3"])
        await sound(there)

    async def test_a_settled_turn_stays_for_clients_that_never_saw_it(self, stage: Stage) -> None:
        here = await stage.process()
        chat = await here.chat()
        await chain(chat, 2)
        await fail(chat, talk("q1", "a1", "q2", "a2", "pay"))
        mine = talk("q1", "a1", "q2", "a2", "q3")
        await send(chat, mine, "a3")
        await send(chat, [*mine, *talk("", "a3", "q4")[1:]], "a4")
        kinds = [each.kind for each in await chat.turns()]
        assert kinds == [*[TurnKind.COMPLETED] * 2, TurnKind.SETTLED, *[TurnKind.COMPLETED] * 2]
        await send(chat, talk("q1", "a1", "edited"), "b2")
        texts = await message_texts(chat)
        assert texts[:2] + texts[-2:] == ["q1", "a1", "edited", "b2"]
        assert [each.kind for each in await chat.turns()].count(TurnKind.SETTLED) == 1
        await sound(here)

    async def test_it_goes_on_after_an_interruption(self, chat: Chat) -> None:
        await chain(chat, 1)
        async with chat.resent(talk("q1", "a1", "q2")) as turn:
            turn.emit("Let me see")
            turn.stop()
        for mine in (
            talk("q1", "a1", "q2", "Let me", "q3"),
            talk("q1", "a1", "q3"),
            [*talk("", "a1")[1:], user("q3")],
        ):
            await send(chat, mine, "a3")
            texts = await message_texts(chat)
            assert texts == ["q1", "a1", "q2", "Let me see", "q3", "a3"]
