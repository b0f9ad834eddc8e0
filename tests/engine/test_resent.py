"""Resent histories: a client sends its whole copy each time, and no message is duplicated or lost."""

from __future__ import annotations

import asyncio
import json
from dataclasses import replace
from typing import Any

import pytest

from turnledger.chat import Chat
from turnledger.engine.history.context import Context
from turnledger.engine.turn.begin import begin
from turnledger.engine.turn.resent_request import MOST_PARTS
from turnledger.errors import (
    EmptyTurn,
    HistoryDiverged,
    IdempotencyMismatch,
    InvalidInput,
    MalformedItems,
    MissingToolResults,
    NoNewInput,
    TurnReplayed,
)
from turnledger.model.event import TextDelta
from turnledger.model.item import NOT_ANSWERED
from turnledger.model.messages.messages import items_of_messages, messages_of
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


async def send_behind(
    stage: Stage, chat: Chat, messages: Messages, *script: Step, **options: Any
) -> asyncio.Task[Turn]:
    """Send a history that waits for the lane."""
    return await stage.line_up(chat, play(chat.resent(messages, **options), ScriptedModel([*script])))


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
    async def test_resent_history_with_a_new_message_continues_the_conversation(
        self, here: StageProcess, chat: Chat, same: Chat
    ) -> None:
        mine: Messages = []
        for number in range(4):
            mine.append(user(f"q{number}"))
            turn = await send((chat, same)[number % 2], mine, f"a{number}")
            mine.append({"role": "assistant", "content": turn.text})
        assert await shown(chat) == mine
        assert len(await chat.turns()) == 4
        await sound(here)

    async def test_resent_history_ending_with_the_last_question_regenerates_the_answer(
        self, here: StageProcess, chat: Chat
    ) -> None:
        turns = await chain(chat, 2)
        again = await send(chat, talk("q1", "a1", "q2"), "other")
        assert await message_texts(chat) == ["q1", "a1", "q2", "other"]
        assert [each.turn.id for each in await chat.siblings(again.id)] == [turns[1].id, again.id]
        await sound(here)

    async def test_resent_history_ending_with_an_answer_continues_that_answer(self, stage: Stage) -> None:
        here = await stage.process()
        chat = await here.chat()
        turns = await chain(chat, 2)
        mine = talk("q1", "a1", "q2", "a2")
        async with chat.resent(mine, on_divergence="reject") as turn:
            assert (turn.messages, turn.text) == (mine, "a2")
            assert json.loads(turn.messages_json) == mine
            turn.emit(", and more")
        assert await message_texts(chat) == ["q1", "a1", "q2", "a2, and more"]
        assert [each.turn.id for each in await chat.siblings(turn.id)] == [turns[1].id, turn.id]
        texts = [event.text async for event in chat.events(turn.id) if isinstance(event, TextDelta)]
        assert "".join(texts) == "a2, and more"
        await send(chat, talk("q1", "a1", "q2", "a2, and more", "q3"))
        assert len(await chat.turns()) == 3
        await sound(here)

    async def test_resent_answer_that_is_not_continued_raises_empty_turn_and_stays(self, chat: Chat) -> None:
        await chain(chat, 1)
        before = await chat.turns()
        with pytest.raises(EmptyTurn):
            async with chat.resent(talk("q1", "a1")):
                pass
        assert await chat.turns() == before

    async def test_resent_answer_that_is_stopped_is_continued_once_more(self, chat: Chat) -> None:
        for mine, more in ((talk("q1"), "One, "), (talk("q1", "One, "), "two, ")):
            async with chat.resent(mine) as turn:
                turn.emit(more)
                turn.stop()
        await send(chat, talk("q1", "One, two, "), "three.")
        assert [each.text for each in await chat.turns()] == ["One, two, three."]

    async def test_resent_edited_question_continues_on_a_new_branch(self, stage: Stage) -> None:
        here = await stage.process()
        chat = await here.chat()
        await chain(chat, 3)
        old = (await chat.info()).branch
        await send(chat, talk("q1", "a1", "other"))
        assert await message_texts(chat) == ["q1", "a1", "other", "ok"]
        await chat.switch(old)
        assert await message_texts(chat) == ["q1", "a1", "q2", "a2", "q3", "a3"]
        await sound(here)

    async def test_resent_edited_answer_is_stored_as_the_client_sent_it(self, chat: Chat) -> None:
        await chain(chat, 2)
        mine = talk("q1", "a1", "q2", "edited", "q3")
        await send(chat, mine)
        assert await shown(chat) == [*mine, *talk("", "ok")[1:]]
        mine = [*mine, *talk("", "ok")[1:], user("q4")]
        await send(chat, mine)
        assert await shown(chat) == [*mine, *talk("", "ok")[1:]]

    async def test_resent_messages_with_sent_new_are_all_input(self, chat: Chat) -> None:
        await chain(chat, 1)
        await send(chat, talk("q1", "a1", "q2"), sent="new")
        assert await message_texts(chat) == ["q1", "a1", "q1", "a1", "q2", "ok"]

    async def test_resent_messages_with_sent_full_are_the_whole_history(self, chat: Chat) -> None:
        await chain(chat, 2)
        await send(chat, talk("q1"), "other", sent="full")
        assert await message_texts(chat) == ["q1", "other"]

    async def test_resent_divergence_with_reject_is_refused_and_changes_nothing(self, chat: Chat) -> None:
        await chain(chat, 2)
        await refused(chat, talk("q1", "edited", "q2"), HistoryDiverged, on_divergence="reject")
        await send(chat, talk("q1", "a1", "q2", "a2", "q3"), on_divergence="reject")
        await send(chat, talk("q1", "a1", "q2", "a2", "q3"), "other", on_divergence="reject")
        assert await message_texts(chat) == ["q1", "a1", "q2", "a2", "q3", "other"]

    @pytest.mark.parametrize("key", [None, "i"])
    async def test_resent_history_without_new_input_is_refused(self, chat: Chat, key: str | None) -> None:
        await chain(chat, 2)
        for mine in ([], [SYSTEM], talk("", "other")[1:], [*talk("q1", "a1", "q2", "a2"), user(" ")]):
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
    async def test_resent_malformed_messages_are_refused(self, chat: Chat, bad: Any, key: str | None) -> None:
        await chain(chat, 1)
        await refused(chat, [*talk("q1", "a1"), user("q"), bad], MalformedItems, idempotency_key=key)

    async def test_resent_message_that_is_not_json_is_refused(self, chat: Chat) -> None:
        bad = {"role": "user", "content": "q", "tag": object()}
        for key in (None, "i"):
            await refused(chat, [bad], MalformedItems, idempotency_key=key)

    async def test_resent_messages_beyond_the_input_limit_are_refused(self, stage: Stage, chat: Chat) -> None:
        many = [user("q")] * (LIMITS.input_items + 1)
        await refused(chat, many, MalformedItems)
        await refused(chat, [SYSTEM] * (LIMITS.input_items + 1) + [user("q")], MalformedItems)
        await chain(chat, 1)
        there = await stage.process(replace(LIMITS, turn_bytes=1_000))
        await refused(await there.chat(chat), talk("q1", "a1", "x" * 1_000), MalformedItems)

    @pytest.mark.parametrize("name", ["fields", "content", "tool_calls"])
    async def test_resent_message_of_too_many_parts_is_refused(self, chat: Chat, name: str) -> None:
        def message(count: int) -> dict[str, Any]:
            if name == "fields":
                return {**user("q"), **{f"x{number}": 0 for number in range(count - len(user("q")))}}
            return {**user("q"), name: [{"type": "text", "text": "q"}] * count}

        chat.resent([message(MOST_PARTS)])
        with pytest.raises(MalformedItems, match=f"more than {MOST_PARTS} "):
            chat.resent([message(MOST_PARTS + 1)])

    async def test_resent_list_changed_by_its_caller_afterwards_is_read_as_sent(
        self, stage: Stage, chat: Chat
    ) -> None:
        holder = await stage.hold_lane(chat, "q1")
        mine = talk("q1", "Working done.", "q2")
        waiting = await send_behind(stage, chat, mine, "a2")
        mine.append({"role": "assistant", "content": "not yet"})
        await holder.finish()
        await soon(waiting)
        assert await message_texts(chat) == ["q1", "Working done.", "q2", "a2"]

    async def test_resent_history_in_a_first_request_is_stored_as_input(self, chat: Chat) -> None:
        mine = talk("q1", "a1", "q2")
        await send(chat, mine, "a2")
        mine += talk("", "a2")[1:]
        assert await shown(chat) == mine
        await send(chat, [*mine, user("q3")], "a3")
        assert await message_texts(chat) == ["q1", "a1", "q2", "a2", "q3", "a3"]


async def seen(chat: Chat, messages: Messages, **options: Any) -> list[str]:
    """What the model of this request is shown; the turn is then discarded."""
    async with chat.resent(messages, **options) as turn:
        texts = [item.text or item.type for item in turn.items]
        assert texts == [item.text or item.type for item in items_of_messages(turn.messages)]
        turn.stop("discard")
    return texts


class TestTrimmed:
    """A client that trims its copy has its model shown that copy, not all that is stored."""

    @pytest.mark.parametrize("left", range(1, 6))
    async def test_model_is_shown_exactly_what_a_trimming_client_sent(self, stage: Stage, left: int) -> None:
        here, there = await stage.processes()
        chat = await here.chat()
        await chain(chat, 3)
        mine = ["q1", "a1", "q2", "a2", "q3", "a3", "x"]
        sent = [SYSTEM, *talk(*mine)[-left - 1 :]]
        for process in (here, there):
            assert await seen(await process.chat(chat), sent) == ["Be brief.", *mine[-left - 1 :]]
        await send(chat, sent)
        assert await message_texts(chat) == [*mine, "ok"]
        await sound(here)

    async def test_model_is_shown_all_when_the_client_sent_all_or_only_new_messages(self, chat: Chat) -> None:
        await chain(chat, 2)
        for sent in (talk("q1", "a1", "q2", "a2", "x"), talk("x")):
            assert await seen(chat, sent) == ["q1", "a1", "q2", "a2", "x"]

    async def test_context_all_shows_all_that_is_stored_and_others_choose_within(self, chat: Chat) -> None:
        await chain(chat, 4)
        sent = talk("q3", "a3", "q4", "a4", "x")
        assert len(await seen(chat, sent, context=Context.all())) == 9
        assert await seen(chat, sent, context=Context.last(1)) == ["q4", "a4", "x"]
        assert await seen(chat, sent, context=Context.last(3)) == ["q3", "a3", "q4", "a4", "x"]
        assert await seen(chat, sent, context=Context.budget(70)) == ["q4", "a4", "x"]

    async def test_regeneration_and_edit_of_a_trimmed_history_show_what_was_sent(self, chat: Chat) -> None:
        await chain(chat, 4)
        assert await seen(chat, talk("q3", "a3", "q4")) == ["q3", "a3", "q4"]
        for sent in (["a1", "q2", "a2", "other"], ["q2", "a2", "other"], ["a1", "other", "a2", "x"]):
            messages = talk(*sent) if sent[0] == "q2" else talk("-", *sent)[1:]
            assert await seen(chat, messages) == sent

    async def test_answer_to_continue_is_shown_with_what_the_client_sent(self, chat: Chat) -> None:
        await chain(chat, 3)
        for sent in (talk("q3", "a3"), talk("q2", "a2", "q3", "a3")):
            async with chat.resent(sent) as turn:
                assert turn.messages == sent
                turn.stop("discard")

    async def test_turns_that_the_client_could_not_have_are_shown_before_its_copy(self, chat: Chat) -> None:
        await chain(chat, 1)
        await fail(chat, talk("q1", "a1", "q2"))
        await send(chat, talk("q1", "a1", "q3"), "a3")
        texts = await seen(chat, talk("q3", "a3", "x"))
        assert "q1" not in texts
        assert texts[:2] == ["q2", "function_call"]

    async def test_call_is_never_shown_without_its_result(self, chat: Chat) -> None:
        await send(chat, talk("q1"), "look", Tool("find"), "a1")
        await send(chat, talk("x"), Ask("look", call_id="c"))
        await send(chat, [user("x"), calling("c"), result("c")], "done")
        full = [calling("c"), result("c"), *talk("done")]
        full[2]["role"] = "assistant"
        for first in range(3):
            texts = await seen(chat, [*full[first:], user("y")])
            assert texts[-2:] == ["done", "y"]
            assert texts.count("function_call") == texts.count("function_call_output")
            assert "q1" not in texts


class TestResentTools:
    async def test_resent_results_answer_the_pending_calls_of_the_last_turn(self, stage: Stage) -> None:
        here = await stage.process()
        chat = await here.chat()
        await send(chat, [user("q1")], Ask("look", call_id="c"))
        mine = [user("q1"), calling("c"), result("c")]
        await send(chat, mine, "a1")
        assert await shown(chat) == [*mine, *talk("", "a1")[1:]]
        assert len(await chat.turns()) == 2
        await sound(here)

    async def test_resent_results_answer_pending_custom_tool_calls(self, chat: Chat) -> None:
        async with chat.turn("q1") as turn:
            await turn.add({"type": "custom_tool_call", "call_id": "c", "name": "look", "input": "x"})
        await send(chat, [user("q1"), calling("c", kind="custom"), result("c")], "a1")
        assert [item.type for item in (await chat.turns())[1].input] == ["custom_tool_call_output"]
        again = [user("q1"), calling("c", kind="custom"), result("c", "other")]
        await send(chat, again, "a2")
        assert [item.text for item in await chat.history() if item.type == "message"] == ["q1", "a2"]

    async def test_resent_results_that_are_incomplete_raise_missing_tool_results(self, chat: Chat) -> None:
        await send(chat, [user("q1")], Ask("look", call_id="c"), Ask("look", call_id="d"))
        mine = [user("q1"), calling("c", "d"), result("d")]
        await refused(chat, mine, MissingToolResults)
        await send(chat, [*mine, user("never mind")])
        outputs = {item.call_id: item.fields["output"] for item in await chat.history() if item.is_result}
        assert outputs == {"c": NOT_ANSWERED, "d": "found"}

    async def test_resent_message_after_pending_calls_closes_them(self, stage: Stage) -> None:
        here = await stage.process()
        chat = await here.chat()
        await send(chat, [user("q1")], Ask("look", call_id="c"))
        mine = [user("q1"), calling("c"), user("q2")]
        await send(chat, mine, "a2")
        assert await shown(chat) == [*mine[:2], result("c", NOT_ANSWERED), mine[2], *talk("", "a2")[1:]]
        await send(chat, [*mine, *talk("", "a2")[1:], user("q3")], "a3")
        assert await message_texts(chat) == ["q1", "q2", "a2", "q3", "a3"]
        await sound(here)

    async def test_resent_edit_with_calls_and_results_is_stored_whole(self, stage: Stage) -> None:
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

    async def test_resent_edit_with_an_unanswered_call_is_accepted_if_a_message_follows(
        self, here: StageProcess, chat: Chat
    ) -> None:
        await chain(chat, 2)
        mine = [*talk("q1", "a1", "edited"), calling("c"), user("q3")]
        await send(chat, mine)
        await send(chat, [*mine, *talk("", "ok", "q4")[1:]])
        assert await message_texts(chat) == ["q1", "a1", "edited", "q3", "ok", "q4", "ok"]
        await refused(chat, [*talk("q1", "a1", "more"), calling("c")], MissingToolResults)
        await sound(here)

    async def test_resent_history_with_only_the_clients_own_calls_continues_the_conversation(
        self, here: StageProcess, chat: Chat
    ) -> None:
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

    async def test_resent_edit_that_failed_after_acting_is_settled_with_its_whole_input(
        self, here: StageProcess, chat: Chat
    ) -> None:
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

    async def test_regeneration_of_a_turn_whose_input_holds_calls_repeats_the_whole_input(
        self, here: StageProcess, chat: Chat
    ) -> None:
        await chain(chat, 1)
        mine = [*talk("q1", "edited", "q2"), calling("c"), result("c"), user("q3")]
        turn = await send(chat, mine)
        await fail(chat, [*mine, *talk("", "ok", "q4")[1:]])
        again = await soon(run_block(chat.regenerate(turn.id), "other"))
        assert again.input == turn.input
        assert [each.kind for each in await chat.turns()] == [TurnKind.SETTLED, TurnKind.COMPLETED]
        await sound(here)

    async def test_resent_results_already_in_a_settled_turn_are_not_stored_again(self, stage: Stage) -> None:
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
    async def test_resent_edit_after_results_keeps_them_next_to_carried_settled_turns(
        self, here: StageProcess, chat: Chat, is_settled: bool
    ) -> None:
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
    async def test_resent_instructions_are_recorded_only_when_they_change(self, chat: Chat) -> None:
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

    async def test_resent_blank_instruction_ends_those_in_force(self, chat: Chat) -> None:
        blank = {"role": "system", "content": " "}
        model = ScriptedModel(["a1"], ["a2"], ["a3"])
        for copy in (
            [SYSTEM, *talk("q1")],
            [blank, *talk("q1", "a1", "q2")],
            talk("q1", "a1", "q2", "a2", "q3"),
        ):
            await soon(play(chat.resent(copy), model))
        assert [seen[0]["content"] for seen in model.seen] == ["Be brief.", "q1", "q1"]
        assert await instructed(chat) == [["Be brief."], [], None]

    async def test_resent_instructions_replace_those_of_a_turn_settled_in_between(self, chat: Chat) -> None:
        await send(chat, [SYSTEM, user("q1")], "a1")
        await fail(chat, [OTHER, *talk("q1", "a1", "q2")])
        async with chat.resent([SYSTEM, *talk("q1", "a1", "q3")]) as turn:
            turn.emit("a3")
        assert messages_of(turn.instructions) == [SYSTEM]
        assert await instructed(chat) == [["Be brief."], ["Be kind."], ["Be brief."]]

    @pytest.mark.parametrize("trimmed", [0, 1])
    async def test_resent_instruction_inserted_in_the_middle_is_shown_once_with_the_new_input(
        self, chat: Chat, trimmed: int
    ) -> None:
        await send(chat, talk("q1"), "a1")
        await send(chat, talk("q1", "a1", "q2"), "a2")
        copy = [*talk("q1", "a1"), NOTE, *talk("q2", "a2", "q3")][trimmed:]
        model = ScriptedModel(["a3"], ["a4"])
        await soon(play(chat.resent(copy), model))
        await soon(play(chat.resent([*copy, *talk("-", "a3", "q4")[1:]]), model))
        assert model.seen[0] == [*talk("q1", "a1", "q2", "a2")[trimmed:], NOTE, *talk("q3")]
        assert model.seen[1] == [*model.seen[0], *talk("-", "a3", "q4")[1:]]
        assert [turn.number for turn in await chat.turns()] == [1, 2, 3, 4]

    async def test_resent_instruction_inserted_before_a_stored_question_is_shown_with_it(
        self, chat: Chat
    ) -> None:
        await send(chat, talk("q1"), "a1")
        await send(chat, talk("q1", "a1", "q2"), "a2")
        model = ScriptedModel(["a3"])
        await soon(play(chat.resent([*talk("q1", "a1"), NOTE, *talk("-", "-", "q2")[2:]]), model))
        assert model.seen[0] == [*talk("q1", "a1"), NOTE, *talk("q2")]

    async def test_resent_instruction_inserted_before_results_leaves_them_next_to_their_calls(
        self, chat: Chat
    ) -> None:
        await send(chat, talk("q1"), Ask("look", call_id="c1"))
        model = ScriptedModel(["a"])
        sent = [*talk("q1"), NOTE, calling("c1"), result("c1"), *talk("q2")]
        await soon(play(chat.resent(sent), model))
        assert model.seen[0] == [*talk("q1"), calling("c1"), result("c1"), NOTE, *talk("q2")]

    async def test_resent_instruction_in_the_middle_that_repeats_those_in_force_is_ignored(
        self, chat: Chat
    ) -> None:
        await send(chat, [NOTE, *talk("q1")], "a1")
        model = ScriptedModel(["a2"])
        await soon(play(chat.resent([*talk("q1"), NOTE, *talk("-", "a1", "q2")[1:]]), model))
        assert model.seen[0] == [NOTE, *talk("q1", "a1", "q2")]

    @pytest.mark.parametrize("option", ["instructions", "instructions_once"])
    async def test_resent_messages_with_an_instructions_option_are_refused(
        self, chat: Chat, option: str
    ) -> None:
        await refused(chat, [user("q1")], InvalidInput, **{option: "Sing."})


class TestResentOnce:
    async def test_resent_request_under_a_committed_key_is_replayed(self, chat: Chat, same: Chat) -> None:
        await chain(chat, 1)
        mine = talk("q1", "a1", "q2")
        turn = await send(chat, mine, "a2", idempotency_key="i")
        for each in (chat, same):
            with pytest.raises(TurnReplayed) as replay:
                await send(each, mine, idempotency_key="i")
            assert replay.value.turn == turn
        assert await message_texts(chat) == ["q1", "a1", "q2", "a2"]

    async def test_resent_request_with_another_body_under_one_key_is_refused(self, chat: Chat) -> None:
        await send(chat, [user("q1")], idempotency_key="i")
        await refused(chat, [user("q2")], IdempotencyMismatch, idempotency_key="i")
        await refused(chat, [SYSTEM, user("q1")], IdempotencyMismatch, idempotency_key="i")
        await refused(chat, [user("q1")], IdempotencyMismatch, idempotency_key="i", sent="new")
        await refused(chat, [user("q1")], IdempotencyMismatch, idempotency_key="i", primer="Hello")

    @pytest.mark.parametrize("last", ["an edit", "an answer to continue"])
    async def test_resent_request_that_failed_after_acting_is_resumed_once_in_its_place(
        self, chat: Chat, last: str
    ) -> None:
        mine = talk("q1", "a1", "edited") if last == "an edit" else talk("q1", "a1")
        await chain(chat, 2 if last == "an edit" else 1)
        model = ScriptedModel([Tool("pay"), BROKEN], [Tool("pay"), "Paid."])
        with pytest.raises(ValueError, match="broken"):
            await soon(play(chat.resent(mine, idempotency_key="i"), model))
        await soon(play(chat.resent(mine, idempotency_key="i"), model))
        assert model.executed["pay"] == 1
        assert await message_texts(chat) == [*(each["content"] for each in mine), "Paid."]

    async def test_resent_retry_runs_in_its_first_conversation_after_the_key_moved(
        self, here: StageProcess
    ) -> None:
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
    async def test_resent_begin_whose_answer_is_lost_is_done_once(
        self, here: StageProcess, chat: Chat, fate: Fate, key: str | None
    ) -> None:
        await chain(chat, 2)
        here.store.lose_answer(begin, fate)
        await send(chat, talk("q1", "a1", "edited"), idempotency_key=key)
        assert await message_texts(chat) == ["q1", "a1", "edited", "ok"]
        await sound(here)


class TestResentInBetween:
    @pytest.mark.parametrize("key", [None, "i"])
    @pytest.mark.parametrize("is_elsewhere", [False, True])
    async def test_resent_message_queued_behind_another_to_the_same_history_becomes_an_edit(
        self, stage: Stage, here: StageProcess, chat: Chat, same: Chat, is_elsewhere: bool, key: str | None
    ) -> None:
        same = same if is_elsewhere else chat
        await chain(chat, 1)
        holder = await stage.hold(lambda model: play(chat.resent(talk("q1", "a1", "left")), model))
        waiting = await send_behind(stage, same, talk("q1", "a1", "right"), "ok", idempotency_key=key)
        left = await holder.finish()
        turn = await soon(waiting)
        assert await message_texts(chat) == ["q1", "a1", "right", "ok"]
        assert {each.turn.id for each in await chat.siblings(turn.id)} == {left.id, turn.id}
        await sound(here)

    @pytest.mark.parametrize("on_divergence", ["branch", "reject"])
    async def test_resent_message_queued_behind_itself_regenerates_the_answer(
        self, stage: Stage, chat: Chat, same: Chat, on_divergence: str
    ) -> None:
        await chain(chat, 1)
        mine = talk("q1", "a1", "q2")
        holder = await stage.hold(lambda model: play(chat.resent(mine), model))
        waiting = await send_behind(stage, same, mine, "again", on_divergence=on_divergence)
        first = await holder.finish()
        turn = await soon(waiting)
        assert await message_texts(chat) == ["q1", "a1", "q2", "again"]
        assert {each.turn.id for each in await chat.siblings(turn.id)} == {first.id, turn.id}

    async def test_resent_messages_queued_with_sent_new_are_both_kept(self, stage: Stage, chat: Chat) -> None:
        await chain(chat, 1)
        holder = await stage.hold(lambda model: play(chat.resent(talk("left"), sent="new"), model))
        waiting = await send_behind(stage, chat, talk("right"), "ok", sent="new")
        await holder.finish()
        await soon(waiting)
        assert await message_texts(chat) == ["q1", "a1", "left", "Working done.", "right", "ok"]

    async def test_resent_history_is_matched_again_when_the_line_grows_before_begin(
        self, stage: Stage, here: StageProcess, chat: Chat, same: Chat
    ) -> None:
        await chain(chat, 1)
        with here.store.hold(begin) as gate:
            late = stage.start(send(chat, talk("q1", "a1", "q2", "a2", "q3"), "a3"))
            await stage.reach(gate, late)
            await exchange(same, "q2", "a2")
        await soon(late)
        assert await message_texts(chat) == ["q1", "a1", "q2", "a2", "q3", "a3"]

    async def test_resent_history_is_matched_again_when_the_branch_changes_while_queued(
        self, stage: Stage, chat: Chat, same: Chat
    ) -> None:
        await chain(chat, 3)
        holder = await stage.hold(lambda model: play(chat.resent(talk("q1", "a1", "left")), model))
        mine = talk("q1", "a1", "left", "Working done.", "q3")
        waiting = await send_behind(stage, same, mine, "a3")
        await holder.finish()
        await soon(waiting)
        assert await message_texts(chat) == ["q1", "a1", "left", "Working done.", "q3", "a3"]

    async def test_resent_window_completed_by_the_running_turn_is_accepted(
        self, stage: Stage, chat: Chat
    ) -> None:
        await chain(chat, 1)
        holder = await stage.hold_lane(chat, "q2")
        waiting = await send_behind(
            stage, chat, talk("q2", "Working done.", "q3"), "a3", on_divergence="reject"
        )
        await holder.finish()
        await soon(waiting)
        assert await message_texts(chat) == ["q1", "a1", "q2", "Working done.", "q3", "a3"]

    async def test_resent_request_refused_after_waiting_leaves_no_ticket(self, stage: Stage) -> None:
        here = await stage.process()
        chat = await here.chat()
        await chain(chat, 1)
        holder = await stage.hold_lane(chat, "q2")
        waiting = await send_behind(stage, chat, talk("q1", "a1", "right"), "no", on_divergence="reject")
        await holder.finish()
        with pytest.raises(HistoryDiverged):
            await soon(waiting)
        assert await stage.tickets(chat) == []
        assert await message_texts(chat) == ["q1", "a1", "q2", "Working done."]

    @pytest.mark.parametrize(
        ("on_busy", "sent", "kept"),
        [("interrupt", ["q2", "Work"], ["q2", "Working"]), ("rollback", [], [])],
    )
    async def test_resent_request_that_stops_the_running_turn_follows_or_replaces_it(
        self, stage: Stage, chat: Chat, on_busy: str, sent: list[str], kept: list[str]
    ) -> None:
        await chain(chat, 1)
        holder = await stage.hold_lane(chat, "q2")
        await send(chat, talk("q1", "a1", *sent, "q3"), "a3", on_busy=on_busy)
        await asyncio.wait([holder.task])
        assert await message_texts(chat) == ["q1", "a1", *kept, "q3", "a3"]

    @pytest.mark.parametrize("key", [None, "i"])
    async def test_resent_rollback_that_is_refused_does_not_stop_the_running_turn(
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
    async def test_resent_request_takes_over_the_lane_of_a_dead_process(
        self, stage: Stage, there: StageProcess, chat: Chat, same: Chat, policy: str, key: str | None
    ) -> None:
        await chain(chat, 1)
        await stage.hold_lane(chat, "q2", [Tool("pay"), "Wor"], on_failure=policy)
        waiting = await send_behind(stage, same, talk("q1", "a1", "q3"), "a3", idempotency_key=key)
        stage.clock.advance(LIMITS.lease_time)
        there.ledger._process.waiters.notify_all()
        await soon(waiting)
        kept = {"keep": ["q2"], "settle": ["q2"], "forget": []}[policy]
        texts = await message_texts(same)
        assert texts[:2] + texts[-2:] == ["q1", "a1", "q3", "a3"]
        assert texts[2:3] == (kept or ["q3"])
        await sound(there)

    async def test_settled_turn_absent_from_a_resent_history_stays_in_the_conversation(
        self, here: StageProcess, chat: Chat
    ) -> None:
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

    async def test_resent_history_with_or_without_an_interrupted_answer_continues_the_conversation(
        self, chat: Chat
    ) -> None:
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
