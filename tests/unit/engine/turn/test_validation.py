"""Requests are validated before a turn begins."""

from collections.abc import AsyncIterator, Sequence
from random import Random
from typing import Any

import pytest

from tests.unit.model.shapes import assistant, call, result, user
from turnledger import Chat, Context, Ledger, Limits
from turnledger.engine.attempt.client_retries import retry_within
from turnledger.engine.attempt.idempotency import claim_name, fingerprint
from turnledger.engine.process import Process
from turnledger.engine.turn.validation import scope_in, target_of, turn_request
from turnledger.errors import IdempotencyMismatch, InvalidInput, LedgerClosed, MalformedItems, NoNewInput
from turnledger.hosting import Retry
from turnledger.model.conversation import Within
from turnledger.model.item import Item, message
from turnledger.model.reset_policy import NEVER
from turnledger.model.retention import Lifetime, Lifetimes
from turnledger.model.turn import Instructions
from turnledger.stores.memory import MemoryStore
from turnledger.testing.fake_clock import FakeClock
from turnledger.types import ResetPolicy

LIMITS = Limits(input_items=3, turn_bytes=400)


@pytest.fixture
async def chat() -> AsyncIterator[Chat]:
    async with await Ledger.over(MemoryStore(), clock=FakeClock(), random=Random(1), limits=LIMITS) as ledger:
        yield await ledger.conversation()


async def test_turn_request_carries_instructions_primer_context_and_fingerprint(chat: Chat) -> None:
    context = Context.last(3)
    request = turn_request(
        chat._process,
        chat._target,
        None,
        "Hello",
        instructions_once="Sing.",
        primer=[user(), assistant()],
        context=context,
        idempotency_key="i",
    )
    given = Instructions((message("system", "Sing."),), is_lasting=False)
    assert (request.begin.content.instructions, request.primer) == (given, (user(), assistant()))
    assert request.context is context
    assert request.begin.key.fingerprint == fingerprint(
        (user(),), instructions=given, primer=(user(), assistant())
    )


@pytest.mark.parametrize(
    ("options", "error", "match"),
    [
        ({"instructions": "x" * 400}, MalformedItems, "instructions is too large"),
        ({"instructions_once": ["a"] * 4}, MalformedItems, "instructions is too large"),
        ({"instructions": "a", "instructions_once": "b"}, InvalidInput, "not both"),
        ({"instructions": user()}, MalformedItems, "system or developer"),
        ({"primer": ["a"] * 4}, MalformedItems, "primes the turn is too large"),
        ({"primer": [call()]}, MalformedItems, "result for each"),
        ({"primer": [result()]}, MalformedItems, "no such call"),
        ({"input": ["a"] * 4}, MalformedItems, "input is too large"),
        ({"input": " ", "instructions": "Be brief."}, NoNewInput, "user message"),
        ({"idempotency_key": ""}, InvalidInput, "idempotency_key"),
        ({"on_busy": "maybe"}, InvalidInput, "queue, reject"),
        ({"context": "last"}, InvalidInput, "'last'; give .* Context.last"),
        ({"context": 10}, InvalidInput, "10; give .* Context.last"),
        ({"context": None}, InvalidInput, "give Context.all"),
    ],
)
async def test_turn_with_invalid_options_is_refused_before_it_begins(
    chat: Chat, options: dict[str, Any], error: type[Exception], match: str
) -> None:
    with pytest.raises(error, match=match):
        chat.turn(**{"input": "Hello", **options})


async def test_fingerprint_depends_on_the_body_digest(chat: Chat) -> None:
    digests = (b"", b"one", b"other", b"one")
    requests = [
        turn_request(
            chat._process,
            chat._target,
            None,
            "Hello",
            idempotency_key="i",
            retry=Retry(digest) if digest else None,
        )
        for digest in digests
    ]
    plain, one, other, again = [
        key and key.fingerprint for key in (request.begin.key for request in requests)
    ]
    assert plain == fingerprint((user(),))
    assert one == again
    assert len({plain, one, other}) == 3


def test_fingerprint_depends_on_instructions_and_primer() -> None:
    items = (message("system", "a"),)
    lasting, once = Instructions(items), Instructions(items, is_lasting=False)
    prints = [
        fingerprint((user(),)),
        fingerprint((user(), *items)),
        fingerprint((user(),), None, None),
        fingerprint((user(),), instructions=Instructions(())),
        fingerprint((user(),), instructions=lasting),
        fingerprint((user(),), instructions=once),
        fingerprint((user(),), primer=items),
        fingerprint((user(),), instructions=lasting, primer=items),
        fingerprint((user(),), instructions=Instructions((*items, *items))),
    ]
    assert len(set(prints)) == len(prints)


@pytest.fixture
def process(ledger: Ledger) -> Process:
    return ledger._process


@pytest.mark.parametrize(
    ("arguments", "reason"),
    [
        ({"owner": ""}, "owner"),
        ({"conversation_key": "k" * 513}, "conversation_key"),
        ({"conversation_key": "\ud800"}, "Unicode"),
        ({"id": "conv_1", "conversation_key": "k"}, "not both"),
        ({"reset": ResetPolicy.idle(1)}, "conversation_key"),
        ({"id": "conv_1", "reset": NEVER}, "conversation_key"),
    ],
)
async def test_target_with_invalid_arguments_is_refused(
    process: Process, arguments: dict[str, Any], reason: str
) -> None:
    given = {"id": None, "conversation_key": None, "owner": "ann", **arguments}
    with pytest.raises(InvalidInput, match=reason):
        target_of(process, given.pop("id"), given.pop("conversation_key"), given.pop("owner"), **given)


async def test_reset_policy_applies_to_the_target_and_the_conversation_created_for_it(
    process: Process,
) -> None:
    policy = ResetPolicy.daily(4)
    target = target_of(process, None, "k", "ann", reset=policy)
    assert target.reset_policy == target.fresh.reset_policy == policy
    plain = target_of(process, None, "k", "ann")
    assert (plain.reset_policy, plain.fresh.reset_policy) == (None, NEVER)


async def test_new_conversation_has_the_lifetime_of_its_scope_unless_the_caller_chooses() -> None:
    daily, idle = ResetPolicy.daily(4), ResetPolicy.idle(60)
    lifetimes = Lifetimes(expires_after=60, reset=daily, scopes={"desk": Lifetime(expires_after=1.5)})
    async with await Ledger.open("memory:", limits=Limits(lifetimes=lifetimes)) as ledger:
        process = ledger._process

        def lifetime(key: str | None, scope: str = "", **given: Any) -> tuple[int | None, ResetPolicy]:
            fresh = target_of(process, None, key, "ann", scope=scope, **given).fresh
            return fresh.expires_after, fresh.reset_policy

        assert lifetime("k") == (60_000, daily)
        assert lifetime("k", "desk") == (1_500, daily)
        assert lifetime(None, "desk") == (1_500, NEVER)
        assert lifetime("k", expires_after=7, reset=idle) == (7, idle)
        assert lifetime("k", reset=NEVER) == (60_000, NEVER)
        assert target_of(process, None, "k", "ann").reset_policy is None  # it changes no existing policy
        fork = await (await ledger.for_owner("ann", scope="desk").conversation()).fork()
        assert (await fork.info()).expires_after == 1_500


async def test_retry_of_a_creation_is_the_same_request_after_another_default() -> None:
    store, made = MemoryStore(), []
    for seconds in (60, 70):
        limits = Limits(lifetimes=Lifetimes(expires_after=seconds, reset=ResetPolicy.idle(seconds)))
        ledger = await Ledger.over(store, limits=limits)
        chat = await ledger.conversation(conversation_key="k", idempotency_key="once")
        fork = await chat.fork(conversation_key="f", idempotency_key="fork")
        made.append((chat.id, fork.id))
        with pytest.raises(IdempotencyMismatch):
            await ledger.conversation(
                conversation_key="k", reset=ResetPolicy.daily(4), idempotency_key="once"
            )
    assert made[0] == made[1]


@pytest.mark.parametrize(
    ("details", "reason"),
    [
        ({"title": "t" * 513}, "title"),
        ({"metadata": {"a": "\ud800"}}, "Unicode"),
        ({"expires_after": 0}, "above 0"),
        ({"expires_after": 1e10}, "at most"),
    ],
)
async def test_conversation_details_beyond_their_limits_are_refused_on_create_and_fork(
    chat: Chat, details: dict[str, Any], reason: str
) -> None:
    with pytest.raises(InvalidInput, match=reason):
        await Ledger(chat._process).conversation(**details)
    with pytest.raises(InvalidInput, match=reason):
        await chat.fork(**details)


async def test_target_without_create_has_no_new_conversation(process: Process) -> None:
    assert target_of(process, None, "k", "ann", create=False).fresh is None


async def test_turn_is_an_interaction_by_default(process: Process) -> None:
    target = target_of(process, None, "k", "ann")
    assert turn_request(process, target, None, "q").begin.policy.is_interaction
    assert not turn_request(process, target, None, "q", interaction=False).begin.policy.is_interaction


async def test_target_of_a_closed_ledger_raises_ledger_closed() -> None:
    ledger = await Ledger.open("memory:")
    await ledger.close()
    with pytest.raises(LedgerClosed):
        target_of(ledger._process, None, "k", "ann")


@pytest.mark.parametrize(
    ("scope", "within", "meant"),
    [("", None, ""), ("shop", None, "shop"), ("", "shop", "shop"), ("shop", "shop", "shop"), ("", "", "")],
)
def test_scope_in_returns_the_scope_given_or_the_one_confined_to(
    scope: str, within: str | None, meant: str
) -> None:
    assert scope_in(scope, Within(within)) == meant


@pytest.mark.parametrize(
    ("scope", "within", "match"),
    [
        ("desk", "shop", "restricted to 'shop'"),
        ("shop", "", "restricted to ''"),
        ("x" * 513, None, "scope must be"),
        ("\ud800", None, "Unicode"),
        ("a\x02b", None, "control characters"),
        ("", "a\nb", "within must be"),
    ],
)
def test_scope_in_refuses_an_invalid_scope_or_one_outside_the_confinement(
    scope: str, within: str | None, match: str
) -> None:
    with pytest.raises(InvalidInput, match=match):
        scope_in(scope, Within(within))


async def test_request_within_a_scope_claims_under_names_of_that_scope(chat: Chat) -> None:
    options: dict[str, Any] = {"scope": "", "within": Within("shop")}
    target = target_of(chat._process, None, "k", "ann", **options)
    assert (target.scope, target.within) == ("shop", Within("shop"))
    assert target.fresh.scope == "shop"
    request = turn_request(chat._process, target, None, "Hello", idempotency_key="i").begin
    assert request.key.text == claim_name("i", Within("shop"))
    request = turn_request(chat._process, target, None, "Hello", retry=Retry(b"digest")).begin
    assert request.retry == retry_within(Retry(b"digest"), Within("shop"))


async def test_idempotency_key_that_looks_like_one_of_a_scope_is_refused(chat: Chat) -> None:
    with pytest.raises(InvalidInput, match="control character"):
        turn_request(
            chat._process, chat._target, None, "Hello", idempotency_key=claim_name("i", Within("shop"))
        )


@pytest.mark.parametrize("field", ["input", "primer", "instructions", "instructions_once"])
async def test_items_beyond_the_limit_are_refused_before_any_is_created(
    field: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def never(*_: object) -> None:
        raise AssertionError("an item was made")

    async with await Ledger.open(limits=Limits(input_items=3)) as ledger:
        with monkeypatch.context() as patch:
            patch.setattr(Item, "of", never)
            given: dict[str, Any] = {"input": "x", field: [{"role": "user", "content": "x"}] * 4}
            with pytest.raises(MalformedItems, match="too large"):
                ledger.turn(**given)


async def test_resent_messages_and_calls_beyond_the_limit_are_refused_before_any_is_created(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def never(messages: Sequence[object], *_: object) -> tuple[()]:
        assert not messages, "an item was made"
        return ()

    one = {"id": "a", "type": "function", "function": {"name": "f", "arguments": "{}"}}
    question, calls = {"role": "user", "content": "x"}, {"role": "assistant", "tool_calls": [one] * 4}
    async with await Ledger.open(limits=Limits(input_items=3)) as ledger:
        for messages in (
            [question] * 4,
            [question, calls],
            [{"role": "system", "content": "x"}] * 4 + [question],
        ):
            with monkeypatch.context() as patch, pytest.raises(MalformedItems, match="too large"):
                patch.setattr("turnledger.engine.turn.resent_request.items_of_messages", never)
                async with ledger.resent(messages):
                    pass
