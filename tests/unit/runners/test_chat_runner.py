"""A complete answer becomes a turn; the end of the stream is held back until the commit."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import msgspec
import pytest

from tests.unit.runners.conftest import Canned, whole
from turnledger import ArgumentsDelta, Chat, Item, ItemAdded, Ledger, Limits, RefusalDelta, Turn
from turnledger.errors import (
    MalformedAnswer,
    MalformedItems,
    ModelError,
    ModelRefused,
    ModelUnavailable,
    TurnStopped,
)
from turnledger.model.item import refusal
from turnledger.model.turn import TurnKind
from turnledger.runners.chat_model import ChatModel, ModelRequest
from turnledger.runners.chat_runner import ChatRunner
from turnledger.testing.gates import Gate


def chunk(delta: dict[str, Any] | None = None, finish_reason: str | None = None, **others: Any) -> bytes:
    choice = {"index": 0, "delta": delta or {}, "finish_reason": finish_reason}
    return msgspec.json.encode({"id": "c", "model": "m-1", "choices": [choice], **others})


def text_chunk(text: str) -> bytes:
    return chunk({"content": text})


def called(index: int, call_id: str, arguments: str = "{}") -> bytes:
    call = {"index": index, "id": call_id, "function": {"name": "look", "arguments": arguments}}
    return chunk({"tool_calls": [call]})


STOP = chunk({}, "stop")


def runner(*batches: list[bytes] | ModelError, **options: Any) -> ChatRunner:
    model: ChatModel = Canned(*batches)
    return ChatRunner(model, {"model": "m"}, **options)


def kinds(turn: Turn) -> list[str]:
    return [item.text or item.type for item in turn.output]


def sent_in(request: ModelRequest) -> Any:
    """The messages of a model request."""
    return msgspec.json.decode(request.body(stream=False))["messages"]


async def test_runner_emits_text_as_it_arrives(chat: Chat) -> None:
    events: list[str] = []
    run = runner([text_chunk("Hel"), text_chunk("lo")], [text_chunk("!"), STOP])
    turn = await chat.run(run, "Hi", on_event=lambda event: events.append(getattr(event, "text", "-")))
    assert turn.text == "Hello!"
    assert events[1:4] == ["Hel", "lo", "!"]


async def test_runner_sends_messages_settings_and_stream_options_to_the_model() -> None:
    model = Canned([text_chunk("Yes."), STOP])
    async with await Ledger.open("memory:") as ledger:
        run = ChatRunner(model, {"model": "m", "top_k": 3}, stream_options={"include_usage": True})
        await ledger.run(run, "Hi", instructions="Be brief.")
    [request] = model.received
    assert sent_in(request) == [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "Hi"},
    ]
    assert (request.settings, request.stream_options) == ({"model": "m", "top_k": 3}, {"include_usage": True})


async def test_turn_details_hold_model_finish_reason_and_usage(chat: Chat) -> None:
    usage = {"prompt_tokens": 1, "completion_tokens": 2, "total_tokens": 3}
    tail = msgspec.json.encode({"id": "c", "model": "m-1", "choices": [], "usage": usage})
    turn = await chat.run(runner([text_chunk("Hi"), chunk({}, "length"), tail]), "Hi")
    assert turn.details == {"model": "m-1", "finish_reason": "length", "usage": usage}
    turn = await chat.run(runner([b'{"choices":[{"delta":{"content":"a"},"finish_reason":"stop"}]}']), "Hi")
    assert turn.details == {"model": "m", "finish_reason": "stop"}  # the requested name


async def test_runner_holds_back_the_payloads_from_the_finish_reason_on(chat: Chat) -> None:
    passed: list[bytes] = []
    tail = b'{"choices": [], "usage": {"total_tokens": 1}}'
    last = chunk({"content": "!"}, "stop")
    run = runner([text_chunk("Hel")], [text_chunk("lo"), last, tail], on_payloads=passed.extend)
    turn = await chat.run(run, "Hi")
    assert turn.text == "Hello!"
    assert passed == [text_chunk("Hel"), text_chunk("lo")]
    assert run.held == [last, tail]


@pytest.mark.parametrize("words", [text_chunk("Hi"), called(0, "a"), chunk({"refusal": "No."})])
async def test_runner_has_spoken_only_after_the_first_content(chat: Chat, words: bytes) -> None:
    spoken: list[bool] = []
    announced = chunk({"role": "assistant", "content": ""})
    run = runner([announced], [words], [STOP], on_payloads=lambda _: spoken.append(run.has_output))
    assert not run.has_output
    await chat.run(run, "Hi")
    assert spoken == [False, True]


async def test_runner_used_for_two_turns_resets_its_held_payloads(chat: Chat) -> None:
    run = runner([text_chunk("Hi"), STOP])
    for _ in range(2):
        await chat.run(run, "Hi")
        assert run.held == [STOP]


async def test_tool_calls_follow_the_text_in_the_turn_output(chat: Chat) -> None:
    end = chunk({}, "tool_calls")
    turn = await chat.run(runner([text_chunk("I look."), called(0, "a"), called(1, "b"), end]), "Hi")
    assert kinds(turn) == ["I look.", "function_call", "function_call"]
    assert [item.call_id for item in turn.output[1:]] == ["a", "b"]
    assert turn.details["finish_reason"] == "tool_calls"


async def test_tool_results_are_sent_to_the_model_with_their_calls(chat: Chat) -> None:
    model = Canned([called(0, "a", '{"at": 1}'), chunk({}, "tool_calls")])
    await chat.run(ChatRunner(model, {}), "Hi")
    model.batches = ([text_chunk("Done."), STOP],)
    await chat.run(
        ChatRunner(model, {}), [{"type": "function_call_output", "call_id": "a", "output": "found"}]
    )
    call = {"id": "a", "type": "function", "function": {"name": "look", "arguments": '{"at": 1}'}}
    assert sent_in(model.received[1]) == [
        {"role": "user", "content": "Hi"},
        {"role": "assistant", "content": None, "tool_calls": [call]},
        {"role": "tool", "tool_call_id": "a", "content": "found"},
    ]


async def test_refusal_in_pieces_is_stored_as_one_refusal_item(chat: Chat) -> None:
    turn = await chat.run(runner([chunk({"refusal": "I will"}), chunk({"refusal": " not."}), STOP]), "Hi")
    [item] = turn.output
    assert item.fields["content"] == [{"type": "refusal", "refusal": "I will not."}]


async def test_surrogate_halves_in_two_chunks_become_one_character(chat: Chat) -> None:
    halves = [
        rb'{"choices":[{"delta":{"content":"\ud83d","reasoning":"\ud83d"}}]}',
        rb'{"choices":[{"delta":{"content":"\ude00","reasoning":"\ude00"}}]}',
    ]
    turn = await chat.run(runner(halves, [STOP]), "Hi")
    assert (turn.text, thoughts_in(turn)) == ("\N{GRINNING FACE}", ["\N{GRINNING FACE}"])


@pytest.mark.parametrize(
    "batch",
    [
        [],
        [text_chunk("Hel")],
        [text_chunk("Hel"), chunk({}, "")],
        [text_chunk("Hel"), b"{", STOP],
        [text_chunk("Hel"), b'{"choices": [{"index": 1, "delta": {"content": "x"}}]}', STOP],
        [text_chunk("Hel"), b'{"choices": [{"index": 0}, {"index": 1}]}', STOP],
        [chunk({"function_call": {"name": "f"}}), STOP],
        [called(0, "a"), called(0, "b"), STOP],
        [text_chunk("Hel"), chunk({"tool_calls": [{"index": 0, "id": 7, "function": {"name": "f"}}]}), STOP],
        [chunk({"tool_calls": [{"index": 0}]}), STOP],
    ],
)
async def test_incomplete_or_malformed_stream_fails_the_turn(chat: Chat, batch: list[bytes]) -> None:
    with pytest.raises(MalformedAnswer):
        await chat.run(runner(batch), "Hi")
    assert await chat.history() == []
    [attempt] = await chat.attempts()
    assert attempt.attempt.state == "failed"


async def test_error_object_in_the_stream_fails_the_turn(chat: Chat) -> None:
    passed: list[bytes] = []
    error = b'{"error": {"message": "Overloaded.", "code": 529}}'
    run = runner([text_chunk("Hel"), error, STOP], on_payloads=passed.extend)
    with pytest.raises(ModelUnavailable, match=r"with an error: Overloaded\. Try again\.$"):
        await chat.run(run, "Hi")
    assert passed == [text_chunk("Hel")]
    assert await chat.history() == []


@pytest.mark.parametrize("stream", [True, False])
@pytest.mark.parametrize(
    ("reason", "error", "message"),
    [
        ("error", ModelUnavailable, "stopped early"),  # OpenRouter, Mistral
        ("abort", ModelUnavailable, "stopped early"),  # vLLM, SGLang
        ("STOP", MalformedAnswer, "add it to `finish_reasons`"),
        ("x\x1b[2J", MalformedAnswer, r"'x\\+x1b\[2J'"),
    ],
)
async def test_answer_with_an_unknown_finish_reason_fails_the_turn(
    chat: Chat, reason: str, error: type[ModelError], message: str, stream: bool
) -> None:
    passed: list[bytes] = []
    model = Canned([text_chunk("Hi"), chunk({}, reason)], completion=whole({"content": "Hi"}, reason))
    with pytest.raises(error, match=message):
        await chat.run(ChatRunner(model, {}, stream=stream, on_payloads=passed.extend), "Hi")
    assert await chat.history() == []
    assert passed == ([text_chunk("Hi")] if stream else [])


async def test_finish_reason_listed_by_the_model_completes_the_turn(chat: Chat) -> None:
    model = Canned([text_chunk("Hi"), chunk({}, "COMPLETE")])
    model.finish_reasons = {"COMPLETE"}  # type: ignore[attr-defined]
    turn = await chat.run(ChatRunner(model, {}), "Hi")
    assert turn.details["finish_reason"] == "COMPLETE"


async def test_error_object_beside_a_finish_reason_is_raised(chat: Chat) -> None:
    broken = chunk({"content": "H"}, "error", error={"message": "Overloaded.", "code": 502})
    with pytest.raises(ModelUnavailable, match="Overloaded"):
        await chat.run(runner([broken]), "Hi")


@pytest.mark.parametrize(
    "endless",
    [
        called(0, "a", "x" * 200),
        chunk({"tool_calls": [{"index": 0, "id": "a", "type": "function", "extra": "x" * 200}]}),
        chunk({"content": ""}, "stop", padding="x" * 200),
    ],
)
async def test_endless_answer_fails_the_turn_at_its_byte_limit(endless: bytes) -> None:
    count = 0

    class Endless(Canned):
        async def _batches(self) -> AsyncIterator[list[bytes]]:
            nonlocal count
            for count in range(1, 10_000):
                number = str(count)
                yield [endless.replace(b"xxxx", number.encode().rjust(4, b"x"), 1)]

    async with await Ledger.open("memory:", limits=Limits(turn_bytes=20_000)) as ledger:
        with pytest.raises(MalformedAnswer, match="longer than 20000 bytes"):
            await ledger.run(ChatRunner(Endless(), {}), "Hi")
    assert count < 200


@pytest.mark.parametrize("field", ["content", "refusal", "reasoning"])
async def test_endless_text_fails_the_turn_at_its_byte_limit(field: str) -> None:
    async with await Ledger.open("memory:", limits=Limits(turn_bytes=20_000)) as ledger:
        with pytest.raises(MalformedItems, match="past 20000 bytes"):
            await ledger.run(runner([chunk({field: "x" * 200})] * 200), "Hi")


async def test_endless_tool_calls_fail_the_turn_at_its_byte_limit() -> None:
    calls = [called(number, str(number)) for number in range(100)]
    async with await Ledger.open("memory:", limits=Limits(turn_bytes=20_000)) as ledger:
        with pytest.raises(MalformedAnswer, match="longer than 20000 bytes"):
            await ledger.run(runner(calls), "Hi")


async def test_stream_that_breaks_off_behind_its_finish_reason_fails_the_turn(chat: Chat) -> None:
    with pytest.raises(ModelUnavailable):
        await chat.run(runner([text_chunk("Hi"), STOP], ModelUnavailable()), "Hi")
    assert await chat.history() == []


async def test_unstreamed_answer_with_text_and_calls_becomes_a_turn(chat: Chat) -> None:
    call = {"id": "a", "type": "function", "function": {"name": "look", "arguments": "{}"}, "sig": "s"}
    other = {**call, "id": "b"}
    answer = whole(
        {"content": "I look.", "tool_calls": [call, other]}, "tool_calls", usage={"total_tokens": 1}
    )
    run = ChatRunner(Canned(completion=answer), {}, stream=False)
    turn = await chat.run(run, "Hi")
    assert kinds(turn) == ["I look.", "function_call", "function_call"]
    assert turn.output[1].fields["chat_only"] == {"call": {"sig": "s"}}
    assert turn.details == {"model": "m-1", "finish_reason": "tool_calls", "usage": {"total_tokens": 1}}
    assert run.completion == answer


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (b"", MalformedAnswer),
        (b"<html>", MalformedAnswer),
        (b"{}", MalformedAnswer),
        (b'{"choices": []}', MalformedAnswer),
        (b'{"choices": [{"finish_reason": "stop"}]}', MalformedAnswer),
        (whole({"content": "Hi"}, None), MalformedAnswer),
        (msgspec.json.encode({"choices": [{"message": {"content": "a"}}] * 2}), MalformedAnswer),
        (b'{"error": {"message": "no"}}', ModelUnavailable),
    ],
)
async def test_unstreamed_answer_that_is_malformed_fails_the_turn(
    chat: Chat, answer: bytes, error: type[ModelError]
) -> None:
    with pytest.raises(error):
        await chat.run(ChatRunner(Canned(completion=answer), {}, stream=False), "Hi")
    assert await chat.history() == []


def thought(text: str, **more: object) -> bytes:
    return chunk({"content": None, "reasoning_content": text, **more})


def thoughts_in(turn: Turn) -> list[str]:
    return [item.fields["content"][0]["text"] for item in turn.output if item.is_reasoning]


@pytest.mark.parametrize("word", ["reasoning_content", "reasoning"])
async def test_reasoning_is_stored_as_one_item_before_the_text(chat: Chat, word: str) -> None:
    pieces = [
        chunk({"content": "", word: "Hm, "}),
        chunk({word: "a child."}),
        text_chunk("Hel"),
        text_chunk("lo."),
        STOP,
    ]
    payloads: list[bytes] = []
    turn = await chat.run(runner(pieces[:2], pieces[2:], on_payloads=payloads.extend), "Hi")
    assert kinds(turn) == ["reasoning", "Hello."]
    assert turn.output[0].fields == {
        "type": "reasoning",
        "summary": [],
        "content": [{"type": "reasoning_text", "text": "Hm, a child."}],
    }
    events = [type(event).__name__ async for event in chat.events(turn.id)]
    assert events[1:] == [*["ReasoningDelta"] * 2, *["TextDelta"] * 2, *["ItemDone"] * 2, "TurnFinished"]
    assert payloads == pieces[:-1]  # as the model sent them


@pytest.mark.parametrize(
    ("delta", "stored"),
    [
        ({"reasoning": "Hm.", "reasoning_content": "Hm."}, ["Hm."]),
        ({"reasoning": "Hm.", "reasoning_content": ""}, ["Hm."]),
        *(({"reasoning": odd}, []) for odd in ({"effort": "low"}, ["Hm."], 1, True, "", None)),
    ],
)
async def test_reasoning_under_both_names_is_stored_once_and_only_as_text(
    chat: Chat, delta: dict[str, object], stored: list[str]
) -> None:
    turn = await chat.run(runner([chunk(delta), text_chunk("Hello."), STOP]), "Hi")
    assert thoughts_in(turn) == stored


async def test_reasoning_of_an_earlier_turn_is_not_sent_to_the_model(chat: Chat) -> None:
    model = Canned([thought("Hm."), text_chunk("Hello."), STOP])
    for text in ("Hi", "Again"):
        await chat.run(ChatRunner(model, {"model": "m"}), text)
    earlier = [
        {"role": "user", "content": "Hi"},
        {"role": "assistant", "content": "Hello."},
        {"role": "user", "content": "Again"},
    ]
    assert sent_in(model.received[1]) == earlier


CALLS_END = chunk({}, "tool_calls")


@pytest.mark.parametrize(
    ("pieces", "stored", "reasoning"),
    [
        (
            [thought("First. "), called(0, "a"), thought("Then."), called(1, "b"), CALLS_END],
            ["reasoning", "function_call", "function_call"],
            "First. Then.",
        ),
        (
            [text_chunk("I look."), thought("Hm."), called(0, "a"), CALLS_END],
            ["reasoning", "I look.", "function_call"],
            "Hm.",
        ),
        (
            [thought("Hm.", content="Hel"), thought("Hm?"), text_chunk("lo."), thought("Done."), STOP],
            ["reasoning", "Hello."],
            "Hm.Hm?Done.",
        ),
    ],
    ids=["calls", "text and a call", "text"],
)
async def test_reasoning_becomes_one_item_before_the_calls_and_the_text(
    chat: Chat, pieces: list[bytes], stored: list[str], reasoning: str
) -> None:
    turn = await chat.run(runner(pieces), "Hi")
    assert (kinds(turn), thoughts_in(turn)) == (stored, [reasoning])


async def test_arguments_of_calls_are_emitted_as_they_arrive(chat: Chat) -> None:
    def piece(index: int, **body: Any) -> bytes:
        call_id = {"id": body.pop("id")} if "id" in body else {}
        return chunk({"tool_calls": [{"index": index, **call_id, "function": body}]})

    pieces = [
        text_chunk("I look."),
        piece(0, arguments="{"),  # before its id and name
        piece(0, id="a", name="look", arguments=""),
        piece(0, arguments="}"),
        piece(1, id="b", name="find", arguments="[1"),
        piece(0, arguments=" "),
        piece(1, id="b", name="find", arguments="]"),
        chunk({"tool_calls": [{"index": 1, "sig": "s"}]}),
        chunk({}, "tool_calls"),
    ]
    turn = await chat.run(runner(pieces), "Hi")
    assert [item.body for item in turn.output] == ["I look.", "{} ", "[1]"]
    assert turn.output[2].fields["chat_only"]["call"] == {"sig": "s"}
    events = [event async for event in chat.events(turn.id)]
    assert [
        (event.call_id, event.text) if isinstance(event, ArgumentsDelta) else Item(event.item).call_id
        for event in events
        if isinstance(event, ItemAdded | ArgumentsDelta)
    ] == ["a", ("a", "{"), ("a", "}"), "b", ("b", "[1"), ("a", " "), ("b", "]")]


async def test_refusal_is_emitted_as_it_arrives(chat: Chat) -> None:
    turn = await chat.run(runner([chunk({"refusal": "I can"}), chunk({"refusal": "not."}), STOP]), "Hi")
    assert turn.output == (refusal("I cannot."),)
    events = [event async for event in chat.events(turn.id)]
    assert [event.text for event in events if isinstance(event, RefusalDelta)] == ["I can", "not."]


async def test_calls_of_a_stopped_answer_are_dropped_and_its_text_and_reasoning_kept(chat: Chat) -> None:
    gate = Gate()

    class Waiting(Canned):
        async def _batches(self) -> AsyncIterator[list[bytes]]:
            yield [thought("Hm."), text_chunk("I look."), called(0, "a", '{"ci')]
            await gate.pass_through()

    running = asyncio.create_task(chat.run(ChatRunner(Waiting(), {}), "Hi"))
    await gate.arrived()
    await chat.stop()
    with pytest.raises(TurnStopped):
        await running
    [turn] = await chat.turns()
    assert turn.kind is TurnKind.INTERRUPTED
    assert [item.body for item in turn.output] == ["Hm.", "I look."]


@pytest.mark.parametrize("word", ["reasoning_content", "reasoning"])
async def test_unstreamed_answer_stores_its_reasoning(chat: Chat, word: str) -> None:
    model = Canned(completion=whole({"content": "Hello.", word: "Hm."}))
    turn = await chat.run(ChatRunner(model, {"model": "m"}, stream=False), "Hi")
    assert (kinds(turn), thoughts_in(turn)) == (["reasoning", "Hello."], ["Hm."])


EMPTY_ANSWERS = [
    ([STOP], whole({"content": ""}), ["message"]),
    ([text_chunk(""), chunk({}, "content_filter")], whole({"content": None}, "content_filter"), ["message"]),
    (
        [thought("Hm."), chunk({}, "length")],
        whole({"reasoning": "Hm."}, "length"),
        ["reasoning", "message"],
    ),
]


@pytest.mark.parametrize("is_streamed", [True, False])
@pytest.mark.parametrize(("chunks", "completion", "stored"), EMPTY_ANSWERS, ids=["stop", "filter", "length"])
async def test_empty_answer_with_a_finish_reason_ends_the_turn_and_is_not_shown_later(
    chat: Chat, chunks: list[bytes], completion: bytes, stored: list[str], is_streamed: bool
) -> None:
    model = Canned(chunks, completion=completion)
    turn = await chat.run(ChatRunner(model, {"model": "m"}, stream=is_streamed), "Hi", idempotency_key="k")
    assert (turn.kind, turn.text, kinds(turn)) == (TurnKind.COMPLETED, "", stored)
    assert turn.details["finish_reason"] in ("stop", "content_filter", "length")
    assert await chat.run(runner(), "Hi", idempotency_key="k") == turn
    last = Canned([text_chunk("Yes."), STOP])
    await chat.run(ChatRunner(last, {}), "And now?")
    assert sent_in(last.received[0]) == [{"role": "user", "content": each} for each in ("Hi", "And now?")]
    assert await chat.turns() == [turn, *(await chat.turns())[1:]]


@pytest.mark.parametrize(
    ("pieces", "kept"), [([thought("Hm.")], []), ([thought("Hm."), text_chunk("Hel")], ["reasoning", "Hel"])]
)
async def test_turn_stopped_during_reasoning_or_text_is_well_formed(
    chat: Chat, pieces: list[bytes], kept: list[str]
) -> None:
    async with chat.turn("Hi") as turn:
        with pytest.raises(ModelUnavailable):
            await runner(pieces, ModelUnavailable())(turn)
        turn.stop("keep")
    [interrupted] = await chat.turns()
    assert kinds(interrupted) == kept
    again = await chat.run(runner([text_chunk("Yes."), STOP]), "Still there?")
    assert kinds(again) == ["Yes."]


async def test_retry_of_a_turn_that_failed_after_its_reasoning_starts_afresh(chat: Chat) -> None:
    broken = runner([thought("Hm."), text_chunk("Hel")], ModelUnavailable())
    with pytest.raises(ModelUnavailable):
        await chat.run(broken, "Hi", idempotency_key="k")
    turn = await chat.run(runner([thought("Oh."), text_chunk("Hello."), STOP]), "Hi", idempotency_key="k")
    assert (kinds(turn), thoughts_in(turn)) == (["reasoning", "Hello."], ["Oh."])


class Strict(Canned):
    """Refuses what it does not know."""

    @asynccontextmanager
    async def stream(self, request: ModelRequest) -> AsyncIterator[AsyncIterator[list[bytes]]]:
        if request.stream_options is not None:
            self.received.append(request)
            raise ModelRefused(400, {"message": "Unrecognized request argument supplied: stream_options"})
        async with super().stream(request) as batches:
            yield batches


USAGE = {"prompt_tokens": 1, "completion_tokens": 2, "total_tokens": 3}


async def test_stream_with_asks_usage_requests_usage_unless_options_are_given() -> None:
    model = Canned([text_chunk("Hi"), STOP, msgspec.json.encode({"choices": [], "usage": USAGE})])
    async with await Ledger.open() as ledger:
        turn = await ledger.run(ChatRunner(model, {"model": "m"}, asks_usage=True), "Hi")
        assert turn.details == {"model": "m-1", "finish_reason": "stop", "usage": USAGE}
        for options in ({}, {"asks_usage": True, "stream_options": {"include_usage": False}}):
            await ledger.run(ChatRunner(model, {"model": "m"}, **options), "Hi")
    assert [request.stream_options for request in model.received] == [
        {"include_usage": True},
        None,
        {"include_usage": False},
    ]


async def test_model_that_refuses_the_usage_option_is_called_again_without_it() -> None:
    model = Strict([text_chunk("Hi"), STOP])
    async with await Ledger.open() as ledger:
        turn = await ledger.run(ChatRunner(model, {"model": "m"}, asks_usage=True), "Hi")
        assert turn.text == "Hi"
        assert [request.stream_options for request in model.received] == [{"include_usage": True}, None]
        with pytest.raises(ModelRefused):  # options of the caller are not dropped
            await ledger.run(ChatRunner(model, {}, stream_options={"include_usage": True}), "Hi")
