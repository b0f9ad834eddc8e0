"""The contract of every chat backend of the terminal."""

from __future__ import annotations

import asyncio

import pytest

from turnledger.cli.chat.backend import (
    AnyHandle,
    ChatBackend,
    ChatState,
    NewTurn,
    TurnInProgress,
    TurnUpdate,
    output_of,
    question_of,
)
from turnledger.errors import ConversationNotFound, InvalidId, ModelUnavailable, TurnStopped
from turnledger.model.event import TextDelta, TurnFinished
from turnledger.model.turn import AttemptState, TurnKind

STALLING = "scripted"
"""A model that stalls after `You said`."""


def new_turn(text: str, key: str = "", model: str = "demo", **more: str) -> NewTurn:
    return NewTurn(model=model, text=text, idempotency_key=key or text, **more)  # type: ignore[arg-type]


async def collect(answering: TurnInProgress) -> list[TurnUpdate]:
    return [event async for event in answering]


async def answer_of(talk: AnyHandle, question: NewTurn) -> str:
    events = await collect(talk.start(question))
    assert isinstance(events[-1], TurnFinished)
    return "".join(event.text for event in events if isinstance(event, TextDelta))


def questions(seen: ChatState) -> list[str]:
    return list(map(question_of, seen.turns))


class BackendContract:
    """Subclass it with a fixture `backend` that has the models `demo` and `scripted`."""

    async def test_backend_creates_a_chat_with_its_first_turn(self, backend: ChatBackend) -> None:
        talk = backend.new()
        assert talk.id is None
        with pytest.raises(ConversationNotFound):
            await talk.read()
        assert await answer_of(talk, new_turn("Hello")) == 'You said "Hello". I remember nothing before that.'
        seen = await talk.read()
        assert [(turn.number, question_of(turn), turn.kind) for turn in seen.turns] == [
            (1, "Hello", TurnKind.COMPLETED)
        ]
        assert (seen.chat.id, seen.chat.title, seen.chat.turn_count) == (talk.id, "Hello", 1)
        assert [chat.id for chat in await backend.chats()] == [talk.id]
        again = await (await backend.open(str(talk.id))).read()
        assert [turn.id for turn in again.turns] == [turn.id for turn in seen.turns]
        assert "demo" in await backend.models()

    async def test_backend_with_an_unknown_key_or_invalid_id_raises(self, backend: ChatBackend) -> None:
        with pytest.raises(ConversationNotFound):
            await (await backend.open("no-such-key")).read()
        with pytest.raises(InvalidId):
            await (await backend.open("conv_nonsense")).read()

    async def test_backend_failed_turn_raises_after_its_last_event_and_a_repeated_key_runs_once(
        self, backend: ChatBackend
    ) -> None:
        talk = backend.new()
        events = []
        with pytest.raises(ModelUnavailable):
            async for event in talk.start(new_turn("/fail after 2", "k")):
                events.append(event)
        assert isinstance(events[-1], TurnFinished)
        assert events[-1].state is AttemptState.FAILED
        assert await answer_of(talk, new_turn("Hello", "once")) == await answer_of(
            talk, new_turn("Hello", "once")
        )
        assert questions(await talk.read()) == ["Hello"]

    async def test_backend_running_turn_can_be_followed_and_is_kept_when_stopped(
        self, backend: ChatBackend
    ) -> None:
        talk = backend.new()
        answering = talk.start(new_turn("Stall", model=STALLING))
        text = ""
        async for event in answering:
            if isinstance(event, TextDelta):
                text += event.text
            if text == "You said":
                seen = await talk.read()
                assert seen.running is not None
                assert (seen.running.id, question_of(seen.running)) == (answering.turn, "Stall")
                followed = talk.follow(seen.running.id)
                await followed.stop()
                assert isinstance([event async for event in followed][-1], TurnFinished)
                text = "stopped"
        (turn,) = (await talk.read()).turns
        assert turn.kind is TurnKind.INTERRUPTED
        assert "".join(item.text for item in output_of(turn)) == "You said"

    async def test_backend_queued_turn_that_is_stopped_raises_and_is_not_stored(
        self, backend: ChatBackend
    ) -> None:
        talk = backend.new()
        await answer_of(talk, new_turn("Hello"))
        first, waiting = (
            talk.start(new_turn("Stall", model=STALLING)),
            talk.start(new_turn("Waits", model=STALLING)),
        )
        running = asyncio.ensure_future(collect(first))
        while (await talk.read()).running is None:
            await asyncio.sleep(0)
        stopped = asyncio.ensure_future(collect(waiting))
        while not waiting.is_requested:
            await asyncio.sleep(0)
        await waiting.stop()
        await first.stop()
        await asyncio.wait((running,))
        with pytest.raises(TurnStopped):
            await stopped
        assert "Waits" not in questions(await talk.read())

    async def test_backend_switches_versions_undoes_turns_and_forks_chats(self, backend: ChatBackend) -> None:
        talk = backend.new()
        await answer_of(talk, new_turn("One"))
        await answer_of(talk, new_turn("Two"))
        first, second = (await talk.read()).turns
        await answer_of(talk, new_turn("Two and a half", replaces=second.id))
        await answer_of(talk, new_turn("", "again", regenerates=(await talk.read()).turns[-1].id))
        versions = await talk.versions((await talk.read()).turns[-1].id)
        assert [question_of(version.turn) for version in versions] == [
            "Two",
            "Two and a half",
            "Two and a half",
        ]
        await talk.existing.switch(versions[0].branch)
        assert questions(await talk.read()) == ["One", "Two"]
        assert questions(await talk.read(before=2)) == ["One"]
        assert [branch.turns for branch in await talk.branches()] == [2, 2, 2]
        assert [branch.is_current for branch in await talk.branches()] == [False, False, True]
        await talk.existing.undo(second.id)
        assert questions(await talk.read()) == ["One"]
        forked = await talk.fork(first.id, "Another")
        assert forked.id != talk.id
        assert (await forked.read()).chat.title == "Another"
        assert questions(await forked.read()) == ["One"]

    async def test_backend_searches_renames_pins_exports_and_deletes_chats(
        self, backend: ChatBackend
    ) -> None:
        talk, other = backend.new(), backend.new()
        await answer_of(talk, new_turn("Cats and dogs"))
        await answer_of(other, new_turn("The weather"))
        (found,) = await backend.chats("dogs")
        assert (found.id, found.snippet[slice(*found.marks[0])]) == (talk.id, "dogs")
        await talk.existing.update(title="Animals")
        await talk.existing.update(pinned=True)
        seen = (await talk.read()).chat
        assert (seen.title, seen.pinned) == ("Animals", True)
        markdown = b"".join([piece async for piece in talk.export(is_markdown=True)])
        assert markdown.startswith(b"# Animals")
        lines = b"".join([piece async for piece in talk.export(is_markdown=False)])
        assert lines.count(b"\n") == 2
        await other.existing.update(archived=True)
        assert [chat.id for chat in await backend.chats()] == [talk.id]
        await talk.existing.delete()
        assert await backend.chats() == []

    async def test_backend_changes_yield_the_id_of_a_changed_chat(self, backend: ChatBackend) -> None:
        talk = backend.new()
        await answer_of(talk, new_turn("Hello"))
        changes = backend.changes()
        collect = asyncio.ensure_future(anext(changes))
        number = 0
        while not collect.done():  # the first may arrive before a subscriber does
            number += 1
            await answer_of(talk, new_turn(f"Again {number}"))
        assert collect.result() == talk.id
