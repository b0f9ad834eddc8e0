"""Reading a resent history: its conversation, its input, its place, and the line it is matched against."""

from typing import Any

import pytest

from tests.unit.engine.copies import chat as talk
from tests.unit.engine.populated_store import fail, run_turn
from turnledger import Ledger
from turnledger.chat import Chat
from turnledger.engine.turn.begin import AcquireRequest, TurnContent
from turnledger.engine.turn.validation import resent_request, target_of
from turnledger.errors import ConversationNotFound
from turnledger.model.ids import ConversationId
from turnledger.model.turn import TurnKind
from turnledger.testing.scripted_model import Tool


@pytest.fixture
async def chat(ledger: Ledger) -> Chat:
    chat = await ledger.conversation()
    for number in (1, 2):
        async with chat.turn(f"q{number}", instructions="Be brief." if number == 1 else None) as turn:
            turn.emit(f"a{number}")
    return chat


def request(chat: Chat, messages: Any, on_divergence: str = "branch", **options: Any) -> AcquireRequest:
    return resent_request(chat._process, chat._target, None, messages, None, on_divergence, options)  # type: ignore[arg-type]


async def read(acquire: AcquireRequest, conversation: ConversationId | None = None) -> TurnContent:
    return await acquire.resent.read(acquire.begin.target, conversation)


def key(chat: Chat, messages: Any, **options: Any) -> bytes:
    made = request(chat, messages, idempotency_key="i", **options).begin.key
    return made.fingerprint


async def test_resent_history_is_matched_against_the_conversation_that_begin_found(
    ledger: Ledger, chat: Chat
) -> None:
    empty = await ledger.conversation()
    found = await read(request(empty, talk("q1", "a1", "q2", "a2", "q3")), chat.id)
    assert [item.text for item in found.input] == ["q3"]


async def test_resent_history_is_all_input_for_a_new_conversation_and_refused_for_a_missing_one(
    ledger: Ledger,
) -> None:
    process = ledger._process
    target = target_of(process, None, "k", "local")
    assert target.fresh is not None
    acquire = resent_request(process, target, None, talk("q1", "a1", "q2"), None, "branch", {})
    for conversation in (None, target.fresh.id):
        found = await read(acquire, conversation)
        assert [item.text for item in found.input] == ["q1", "a1", "q2"]
        assert (found.seen.branch, found.seen.head) == (target.fresh.branch, None)
    with pytest.raises(ConversationNotFound):
        await read(acquire, process.ids.new(ConversationId))


def calls(*ids: str) -> dict[str, Any]:
    tool_calls = [
        {"id": id, "type": "function", "function": {"name": "look", "arguments": f'{{"at": {number}}}'}}
        for number, id in enumerate(ids)
    ]
    return {"role": "assistant", "content": None, "tool_calls": tool_calls}


def found(call_id: str, text: str) -> dict[str, Any]:
    return {"role": "tool", "tool_call_id": call_id, "content": text}


@pytest.fixture
async def pending(ledger: Ledger) -> Chat:
    chat = await ledger.conversation()
    async with chat.turn("q1") as turn:
        for number, call_id in enumerate(("s1", "s2")):
            arguments = f'{{"at": {number}}}'
            await turn.add(
                {"type": "function_call", "call_id": call_id, "name": "look", "arguments": arguments}
            )
    return chat


@pytest.mark.parametrize(
    "sent",
    [
        [calls("s1", "s2"), found("s1", "one"), found("s2", "two")],
        [calls("c1", "c2"), found("c1", "one"), found("c2", "two")],
        [calls("c1", "c2"), found("c2", "two"), found("c1", "one")],  # the client names the call
        [calls("s2", "s1"), found("s2", "one"), found("s1", "two")],
        [calls("c1", "c2"), found("x", "one"), found("y", "two")],
        [calls("s1", "s2"), found("x", "one"), found("y", "two")],
        [calls("c1", "c2"), found("s2", "two"), found("x", "one")],
        [calls("c", "c"), found("c", "one"), found("c", "two")],
    ],
)
async def test_resent_results_answer_the_pending_calls_under_any_client_ids(
    pending: Chat, sent: list[dict[str, Any]]
) -> None:
    for messages in ([*talk("q1"), *sent], sent):
        read_as = await read(request(pending, [*messages, *talk("q2")]))
        results = {item.call_id: item.fields["output"] for item in read_as.input if item.is_result}
        assert results == {"s1": "one", "s2": "two"}
        assert (read_as.diverge, read_as.input[-1].text) == (None, "q2")


async def test_resent_results_of_new_calls_keep_their_ids(pending: Chat) -> None:
    later = [*talk("q2"), calls("c1"), found("c1", "three"), *talk("q3")]
    first = [*talk("q1"), calls("c1", "c2"), found("c1", "one"), found("c2", "two")]
    read_as = await read(request(pending, [*first, *later]))
    assert [item.call_id for item in read_as.input if item.is_result] == ["s1", "s2", "c1"]


async def test_resent_results_without_their_calls_keep_their_ids(pending: Chat) -> None:
    read_as = await read(request(pending, [found("c1", "one"), found("c2", "two")]))
    assert [item.call_id for item in read_as.input] == ["c1", "c2"]


async def test_resent_edit_after_calls_answers_them_under_the_stored_ids(pending: Chat) -> None:
    async with pending.resent(
        [*talk("q1"), calls("c1", "c2"), found("c1", "one"), found("c2", "two")]
    ) as turn:
        turn.emit("a2")
    sent = [*talk("q1"), calls("c1", "c2"), found("c1", "one"), found("c2", "other"), *talk("q2")]
    read_as = await read(request(pending, sent))
    assert read_as.diverge is not None
    assert [item.call_id for item in read_as.input if item.is_result] == ["s1", "s2"]


async def test_resent_history_with_or_without_items_hidden_from_the_user_continues(chat: Chat) -> None:
    first, second = await chat.turns()
    await chat.flag(first.id, 1, to_user=False)
    for seen in (talk("q1"), talk("q1", "a1")):  # its client may have it still
        found = await read(request(chat, [*seen, *talk("q2", "a2", "q3")]))
        assert ([item.text for item in found.input], found.diverge) == (["q3"], None)
    await chat.flag(first.id, 1, to_user=True)
    without = [*talk("q1"), *talk("q2", "a2", "q3")]
    assert (await read(request(chat, without))).diverge is not None
    await chat.flag(second.id, to_user=False)
    found = await read(request(chat, talk("q1", "a1", "q3")))
    assert ([item.text for item in found.input], found.diverge) == (["q3"], None)


async def test_resent_history_without_items_hidden_only_from_the_model_diverges(chat: Chat) -> None:
    first, _ = await chat.turns()
    await chat.flag(first.id, 1, to_model=False)
    without = [*talk("q1"), *talk("q2", "a2", "q3")]
    assert (await read(request(chat, without))).diverge is not None
    assert (await read(request(chat, talk("q1", "a1", "q2", "a2", "q3")))).diverge is None


async def test_resent_history_reads_the_flags_of_a_line_once_after_each_change(
    chat: Chat, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, _ = await chat.turns()
    await chat.flag(first.id, 1, to_user=False)
    reads: list[str] = []
    store = chat._process.store
    original = type(store).read

    async def counted(self: Any, operation: Any, request: Any, owner: str) -> Any:
        reads.append(operation.__name__)
        return await original(self, operation, request, owner)

    monkeypatch.setattr(type(store), "read", counted)
    for _ in range(2):
        await read(request(chat, talk("q1", "a1", "q2", "a2", "q3")))
    assert reads.count("read_flags") == 1
    await chat.flag(first.id, 0, to_user=False)
    await read(request(chat, talk("q1", "a1", "q2", "a2", "q3")))
    assert reads.count("read_flags") == 2


@pytest.fixture
async def brought(ledger: Ledger) -> Chat:
    """A conversation whose first request brought a history of its own."""
    chat = await ledger.conversation()
    async with chat.resent(talk("q1", "a1", "q2", "a2", "q3")) as turn:
        turn.emit("a3")
    return chat


async def test_resent_edit_within_a_turn_keeps_its_trimmed_part(brought: Chat) -> None:
    async with brought.resent(talk("q2", "a2", "other")) as turn:
        turn.emit("a4")
    (only,) = await brought.turns()
    assert [item.text for item in only.items] == ["q1", "a1", "q2", "a2", "other", "a4"]


async def test_resent_edit_within_a_turn_does_not_bring_back_hidden_items(brought: Chat) -> None:
    (first,) = await brought.turns()
    await brought.flag(first.id, 0, to_user=False)
    found = await read(request(brought, talk("q2", "a2", "other")), brought.id)
    assert [item.text for item in found.input] == ["a1", "q2", "a2", "other"]


async def test_resent_question_after_results_is_regenerated_with_them_next_to_a_settled_turn(
    pending: Chat,
) -> None:
    sent = [*talk("q1"), calls("c1", "c2"), found("c1", "one"), found("c2", "two"), *talk("q2")]
    async with pending.resent(sent) as turn:
        turn.emit("a2")
    await fail(pending, "pay", Tool("pay"))
    await run_turn(pending, "go on")
    async with pending.resent(sent, on_divergence="reject") as turn:  # another answer is no divergence
        turn.emit("another")
    settled, regenerated = await pending.turns()
    assert settled.kind is TurnKind.SETTLED
    results = {item.call_id: item.fields["output"] for item in regenerated.items if item.is_result}
    assert results == {"s1": "one", "s2": "two"}
    assert [item.text for item in regenerated.items if item.type == "message"] == ["q1", "q2", "another"]


async def test_resent_results_that_changed_answer_the_calls_that_a_settled_turn_closed(pending: Chat) -> None:
    sent = [*talk("q1"), calls("c1", "c2"), found("c1", "one"), found("c2", "two"), *talk("q2")]
    async with pending.resent(sent) as turn:
        turn.emit("a2")
    await fail(pending, "pay", Tool("pay"))
    await run_turn(pending, "go on")
    (first, *_) = await pending.turns()
    await pending.flag(first.id, 1, to_user=False)  # its client has the call still, and answers it
    other = [*sent[:2], found("c1", "1"), found("c2", "2"), *talk("q2")]
    for messages in (other, other[1:]):
        read_as = await read(request(pending, [*messages, *talk("q3")]), pending.id)
        assert read_as.diverge.replaces == first.id
        assert [item.text for item in read_as.input if item.type == "message"] == ["q1", "q2", "q3"]
        assert [item.call_id for item in read_as.input if item.is_call] == ["s1", "s2"]
        assert [item.call_id for item in read_as.input if item.is_result] == ["s1", "s2"]


async def test_resent_instruction_that_repeats_replaced_ones_reaches_the_model(ledger: Ledger) -> None:
    def note(text: str) -> dict[str, Any]:
        return {"role": "system", "content": text}

    messages = talk("q1", "a1", "q2", "a2", "q3")
    async with ledger.resent([note("one"), *messages[:1]], conversation_key="k") as turn:
        turn.emit("a1")
    async with ledger.resent([note("two"), *messages[:3]], conversation_key="k") as turn:
        turn.emit("a2")
    async with ledger.resent(
        [note("two"), *messages[:2], note("one"), *messages[2:]], conversation_key="k"
    ) as turn:
        assert [each["content"] for each in turn.messages if each["role"] == "system"] == ["two", "one"]
        turn.emit("a3")
