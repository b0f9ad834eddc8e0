"""Validate what a caller passes for a turn, and make the request to begin."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, TypeAlias, TypedDict, TypeVar, Unpack

from msgspec.structs import replace

from turnledger.engine.admission import Authorization
from turnledger.engine.attempt.client_retries import DERIVED, Retry, check_retry, retry_within
from turnledger.engine.attempt.fork import Divergence
from turnledger.engine.attempt.idempotency import NARROWED, IdempotencyKey, claim_name, fingerprint
from turnledger.engine.attempt.stop import StopRequest
from turnledger.engine.conversations.resolve import Target, new_conversation
from turnledger.engine.history.context import ALL, Context, check_primer
from turnledger.engine.lifecycle.create import CreateChatRequest
from turnledger.engine.lifecycle.moves import ForkRequest, Move, Switch
from turnledger.engine.process import Process
from turnledger.engine.resend.match import SentMessages
from turnledger.engine.turn.begin import (
    AcquireRequest,
    BeginBounds,
    BeginRequest,
    Round,
    TurnContent,
    TurnPolicy,
)
from turnledger.engine.turn.resent_request import ChatMessage, OnDivergence, ResentRequest
from turnledger.errors import InvalidInput, LedgerClosed, NoNewInput
from turnledger.model.conversation import (
    EVERYWHERE,
    KEY_LENGTH,
    Within,
)
from turnledger.model.ids import BranchId, ConversationId, TurnId
from turnledger.model.item import Item, ItemLike, check_input, check_resent, is_unicode, items_of
from turnledger.model.job import job_body
from turnledger.model.reset_policy import NEVER, ResetPolicy
from turnledger.model.turn import Instructions, OnBusy, OnFailure, OnStop, instructions_of

Input: TypeAlias = "ItemLike | Iterable[ItemLike]"

PAGE = 1_000


class TurnOptions(TypedDict, total=False):
    """The options of a turn."""

    instructions: Input | None
    """In force for this turn and all later ones until replaced: a text, or system and developer messages. An
    empty text ends those in force."""
    instructions_once: Input | None
    """In force for this turn only, in place of all others."""
    primer: Input
    """A well-formed history to show before the stored one, in this turn only. Not stored."""
    context: Context
    """How much of the stored history is shown: all of it by default, and of a resent history no more than its
    client has sent, except with Context.all()."""
    details: Mapping[str, Any] | None
    """JSON values to record with the turn when it begins, such as the model and its settings: a running or
    failed attempt shows them. See RunningTurn.details."""
    idempotency_key: str | None
    """Makes the request idempotent."""
    retry: Retry | None
    """The client's request: what must be equal for two requests with one idempotency_key to be the same, and
    the number of the try if the client sends no key."""
    attach: bool
    """Whether to raise TurnAttached at once if an attempt of the same request is running, so that the caller
    can follow its events, instead of waiting for its outcome."""
    on_busy: OnBusy | str
    """What to do while another turn runs: `queue`, `reject`, `interrupt` or `rollback`."""
    on_stop: OnStop | str
    """What to do with the turn when it is stopped: `keep` or `discard`."""
    on_failure: OnFailure | str
    """What to do with the turn when it fails: `settle`, `keep` or `forget`."""
    after: str | None
    """The turn to follow, on any branch: at once, if need be on a side branch. Not for edits."""
    admits_answers: bool
    """Whether the input may contain what models made, such as calls with their results: a client's copy of a
    history."""
    interaction: bool
    """Whether the turn counts as use: if not, it delays neither expiry nor a reset."""
    gives_way: bool
    """Whether it is stopped, and kept, when others wait for its lane and nobody reads it; see
    `hosting.Host.unread`."""


class JobOptions(TypedDict, total=False):
    """The options of durable work: those of a turn that apply."""

    instructions: Input | None
    instructions_once: Input | None
    primer: Input
    context: Context
    """As for a turn; a budget is counted by the estimate."""
    details: Mapping[str, Any] | None
    idempotency_key: str | None
    retry: Retry | None
    on_stop: OnStop | str
    on_failure: OnFailure | str
    after: str | None
    """As for a turn; the side branch is made at once."""
    admits_answers: bool
    interaction: bool


class MoveOptions(TypedDict, total=False):
    """The options of a move between branches: those of a turn that apply."""

    on_busy: OnBusy | str
    idempotency_key: str | None


def target_of(
    process: Process,
    id: str | None,
    conversation_key: str | None,
    owner: str,
    *,
    scope: str = "",
    within: Within = EVERYWHERE,
    create: bool = True,
    reset: ResetPolicy | None = None,
    is_listed: bool = True,
    expires_after: int | None = None,
    **details: Any,
) -> Target:
    """Return the conversation that a caller names, with the row to insert if there is none, by default with
    the lifetime of its scope. A conversation made by a turn is listed only when that is committed."""
    if process.is_closed:
        raise LedgerClosed
    check_name("owner", owner)
    if scope or within.scope is not None:
        scope = scope_in(scope, within)
    if id is not None and conversation_key is not None:
        raise InvalidInput("Give an id or a conversation_key, not both.")
    if reset is not None and conversation_key is None:
        raise InvalidInput("A reset policy needs a conversation_key.")
    if id is not None:
        return Target(owner, ConversationId(id), scope=scope, within=within)
    if conversation_key is not None:
        check_name("conversation_key", conversation_key)
    lifetimes = process.limits.lifetimes
    lifetime = lifetimes.of(scope) if lifetimes.scopes else lifetimes
    default = lifetime.reset if conversation_key is not None else None
    expiry = lifetime.expires_after
    default_expiry = None if expiry is None else round(expiry * 1000)
    fresh = new_conversation(
        owner,
        process.ids.new(ConversationId),
        process.ids.new(BranchId),
        process.clock.now_ms(),
        conversation_key=conversation_key,
        reset_policy=reset or default or NEVER,
        expires_after=default_expiry if expires_after is None else expires_after,
        scope=scope,
        is_listed=is_listed,
        **details,
    )
    creates = create and within.chat is None  # a caller limited to one conversation makes no other
    made = fresh if creates else None
    return Target(owner, None, conversation_key, made, reset, scope, within, expires_after)


def divergence_of(process: Process, replaces: str | None, regenerates: str | bool) -> Divergence | None:
    """Return the place of a turn that replaces another: the named one, or the last one with its input reused.
    None for a turn behind the head."""
    if replaces is None and regenerates is False:
        return None
    if replaces is not None and regenerates is not False:
        raise InvalidInput("Use `replaces` with new input or `regenerates` without input, not both.")
    named = replaces if isinstance(regenerates, bool) else regenerates
    return Divergence(
        branch=process.ids.new(BranchId),
        replaces=TurnId(named) if named is not None else None,
        regenerates=regenerates is not False,
    )


def turn_request(
    process: Process,
    target: Target,
    authorization: Authorization | None,
    input: Input,
    place: Divergence | None = None,
    **options: Unpack[TurnOptions],
) -> AcquireRequest:
    items = _items_of(process, "The input", input)
    if place is None or not place.regenerates:
        _check_new(items, options)
    elif items:
        raise InvalidInput("A regenerated turn reuses its input. Omit the input.")
    return _request(process, target, authorization, items, place, **options)


def _check_new(items: tuple[Item, ...], options: TurnOptions) -> None:
    if options.get("admits_answers"):
        check_resent(items)
    else:
        check_input(items)


def preview_request(
    process: Process, target: Target, input: Input, **options: Unpack[TurnOptions]
) -> AcquireRequest:
    """Make a request that is only previewed: it may lack its input."""
    items = _items_of(process, "The input", input)
    if items:
        _check_new(items, options)
    return _request(process, target, None, items, **options)


def job_request(
    process: Process,
    target: Target,
    authorization: Authorization | None,
    input: Input,
    **options: Unpack[JobOptions],
) -> AcquireRequest:
    """Make a request that stores a turn as durable work."""
    asked, limits = turn_request(process, target, authorization, input, **options), process.limits
    begin, context = asked.begin, asked.context
    if context.count is not ALL.count:
        raise InvalidInput("Durable work cannot store a counter. Use Context.budget(tokens) without one.")
    body = job_body(
        begin.content.input,
        begin.content.instructions,
        begin.raw_details,
        primer=asked.primer,
        turns=context.turns,
        tokens=context.tokens,
        on_stop=begin.policy.on_stop,
        on_failure=begin.policy.on_failure,
        token=authorization.token if authorization is not None else None,
    )
    begin = replace(
        begin,
        job=body,
        retry=None,
        bounds=replace(begin.bounds, queue_limit=limits.lane_jobs, owner_jobs=limits.owner_jobs),
        round=replace(begin.round, is_durable=True),
    )
    return replace(asked, begin=begin)


NO_CONTENT = TurnContent()


def _request(
    process: Process,
    target: Target,
    authorization: Authorization | None,
    items: tuple[Item, ...],
    place: Divergence | None = None,
    resending: ResentRequest | None = None,
    *,
    instructions: Input | None = None,
    instructions_once: Input | None = None,
    primer: Input = (),
    context: Context = ALL,
    details: Mapping[str, Any] | None = None,
    idempotency_key: str | None = None,
    retry: Retry | None = None,
    attach: bool = False,
    on_busy: OnBusy | str = OnBusy.QUEUE,
    on_stop: OnStop | str = OnStop.KEEP,
    on_failure: OnFailure | str = OnFailure.SETTLE,
    after: str | None = None,
    admits_answers: bool = False,  # checked before
    interaction: bool = True,
    gives_way: bool = False,
) -> AcquireRequest:
    limits, busy = process.limits, choice(OnBusy, "on_busy", on_busy)
    follows = None
    if after is not None:
        follows = TurnId(after)
        if place is not None or resending is not None:
            raise InvalidInput("Use `after` with new input only, not with an edit or a resent history.")
        if busy in (OnBusy.INTERRUPT, OnBusy.ROLLBACK):
            raise InvalidInput(f"A turn with `after` waits for no other. Omit `on_busy={busy}`.")
    for each in (instructions, instructions_once):
        if each is not None:
            limits.check_count("What is given as instructions", each)
    given = instructions_of(instructions, instructions_once)
    if given is not None:
        limits.check_size("What is given as instructions", given.items)
    if context is not ALL:
        _check_context(context)
    primes: tuple[Item, ...] = ()
    if primer:
        primes = _items_of(process, "What primes the turn", primer)
        check_primer(primes)
    if retry is not None:
        check_retry(retry)
    key = None
    if idempotency_key is not None:
        key = _key_of(
            idempotency_key,
            target,
            *_where(place, follows),
            input=items,
            instructions=given,
            primer=primes,
            body_digest=b"" if retry is None else retry.request,
        )
    if key is not None and resending is not None:
        key = resending.key(key)
    begin = _begin(
        process,
        target,
        authorization,
        key,
        retry=None if retry is None or key is not None else retry_within(retry, target.within),
        content=TurnContent(items if resending is None else (), given, place, follows),
        raw_details=limits.pack_details(details) if details else b"",
        is_resent=resending is not None,
        policy=TurnPolicy(
            busy,
            choice(OnStop, "on_stop", on_stop),
            choice(OnFailure, "on_failure", on_failure),
            interaction,
            gives_way,
        ),
    )
    return AcquireRequest(begin, context, primes, resending, attach, authorization)


def _begin(
    process: Process,
    target: Target,
    authorization: Authorization | None,
    key: IdempotencyKey | None,
    *,
    policy: TurnPolicy,
    retry: Retry | None = None,
    content: TurnContent = NO_CONTENT,
    raw_details: bytes = b"",
    is_resent: bool = False,
    move: Move | None = None,
    is_durable: bool = False,
) -> BeginRequest:
    """Make the request of a new attempt of this process, with its limits and the current time."""
    (now, due), limits = process.clock.times(), process.limits
    return BeginRequest(
        attempt=process.ids.new(TurnId, now),
        lease=process.lease,
        bounds=BeginBounds(now + round(limits.queue_wait * 1000), limits.queue_length, limits.quota),
        round=Round(now, due, is_durable=is_durable),
        target=target,
        admitted=authorization.version if authorization else None,
        key=key,
        retry=retry,
        content=content,
        raw_details=raw_details,
        is_resent=is_resent,
        move=move,
        policy=policy,
    )


def _where(place: Divergence | None, after: TurnId | None) -> tuple[object, ...]:
    """Return the place of a turn, for its fingerprint: nothing behind the head."""
    if place is not None:
        return place.after, place.replaces
    return () if after is None else ("after", after)


def _check_context(context: Context) -> None:
    if not isinstance(context, Context):
        raise InvalidInput(
            f"context is {context!r}; give Context.all(), Context.last(turns) or Context.budget(tokens)."
        )


def _items_of(process: Process, name: str, input: Input) -> tuple[Item, ...]:
    process.limits.check_count(name, input)
    items = items_of(input)
    process.limits.check_size(name, items)
    return items


def resent_request(
    process: Process,
    target: Target,
    authorization: Authorization | None,
    messages: Sequence[ChatMessage],
    sent: SentMessages | str | None,
    on_divergence: OnDivergence | str,
    options: TurnOptions,
) -> AcquireRequest:
    """Make a request to begin whose input is the new part of a history that its client sends whole."""
    if options.get("instructions") is not None or options.get("instructions_once") is not None:
        raise InvalidInput("Send instructions as leading system or developer messages.")
    how = choice(SentMessages, "sent", sent) if sent is not None else None
    diverging = choice(OnDivergence, "on_divergence", on_divergence)
    resending = ResentRequest(process, messages, how, diverging, shows_all=options.get("context") is ALL)
    return _request(process, target, authorization, PLACEHOLDER, resending=resending, **options)


PLACEHOLDER = items_of("to be read")
"""Stands for the input until the history was read."""


def move_request(
    process: Process,
    target: Target,
    authorization: Authorization | None,
    move: Move,
    *,
    on_busy: OnBusy | str = OnBusy.QUEUE,
    idempotency_key: str | None = None,
) -> AcquireRequest:
    """Make a request that takes the lane as a turn does, but runs none."""
    arguments = ("switch", move.branch) if isinstance(move, Switch) else ("undo", move.turn, move.forget)
    begin = _begin(
        process,
        target,
        authorization,
        _key_of(idempotency_key, target, *arguments),
        move=move,
        policy=TurnPolicy(choice(OnBusy, "on_busy", on_busy)),
    )
    return AcquireRequest(begin, authorization=authorization)


def append_request(
    process: Process,
    target: Target,
    authorization: Authorization | None,
    items: Input,
    *,
    on_busy: OnBusy | str = OnBusy.QUEUE,
    idempotency_key: str | None = None,
    interaction: bool = True,
    details: Mapping[str, Any] | None = None,
) -> AcquireRequest:
    """Make a request for a turn that is whole already."""
    given = _items_of(process, "The turn", items)
    if not given:
        raise NoNewInput("There is nothing to append. Give at least one item.")
    key = _key_of(idempotency_key, target, "append", fingerprint(given))
    policy = TurnPolicy(choice(OnBusy, "on_busy", on_busy), is_interaction=interaction)
    content = TurnContent(given, is_whole=True)
    begin = _begin(
        process,
        target,
        authorization,
        key,
        is_durable=True,
        content=content,
        raw_details=process.limits.pack_details(details),
        policy=policy,
    )
    return AcquireRequest(begin, authorization=authorization)


def make_request(process: Process, target: Target, idempotency_key: str) -> CreateChatRequest:
    fresh = target.fresh
    if target.id is not None or fresh is None:
        raise InvalidInput("This call creates nothing. Omit the idempotency_key.")
    # With the expiry and policy of the caller: a retry under other defaults is the same request.
    details = fresh.title, sorted(fresh.metadata.items()), fresh.tags, fresh.internal, target.expires_after
    policy = () if target.reset_policy is None else (str(target.reset_policy),)
    key = _key_of(idempotency_key, target, "make", target.scope, target.conversation_key, *details, *policy)
    assert key is not None  # noqa: S101 - for the type checker
    clock = process.clock
    return CreateChatRequest(target, key, clock.now_ms(), clock.due_ms(), process.limits.quota)


def fork_request(
    process: Process,
    source: Target,
    authorization: Authorization | None,
    turn: str | None,
    made: Target,
    *,
    idempotency_key: str | None,
) -> ForkRequest:
    fresh = made.fresh
    assert source.id is not None and fresh is not None  # noqa: S101,PT018 - it is that of a Chat, and may be made
    base = TurnId(turn) if turn is not None else None
    details = (fresh.conversation_key, fresh.title, sorted(fresh.metadata.items()), fresh.internal)
    return ForkRequest(
        source.id,
        base,
        fresh,
        process.clock.now_ms(),
        process.clock.due_ms(),
        process.limits.quota,
        _key_of(idempotency_key, source, "fork", source.id, base, *details, made.expires_after),
        authorization.version if authorization else None,
    )


def _key_of(
    idempotency_key: str | None,
    target: Target,
    *arguments: object,
    input: tuple[Item, ...] = (),
    instructions: Instructions | None = None,
    primer: tuple[Item, ...] = (),
    body_digest: bytes = b"",
) -> IdempotencyKey | None:
    """Return the key of a request with its fingerprint: that of its arguments, and of what a turn says."""
    if idempotency_key is None:
        return None
    check_idempotency_key(idempotency_key)
    said = fingerprint(input, *arguments, instructions=instructions, primer=primer)
    answers = frozenset(item.call_id for item in input if item.is_result)
    return IdempotencyKey(claim_name(idempotency_key, target.within), said + body_digest, answers)


def stop_request(
    process: Process,
    owner: str,
    conversation: ConversationId,
    turn: TurnId | None,
    policy: OnStop | str | None,
    key: str | None = None,
) -> StopRequest:
    """Make a request to stop a turn; with the name of a claim, the one under that key."""
    chosen = choice(OnStop, "policy", policy) if policy else None
    if process.is_inside(conversation, turn):
        raise InvalidInput("Use turn.stop() inside the block of the turn.")
    now, due = process.clock.now_ms(), process.clock.due_ms()
    return StopRequest(owner, conversation, turn, chosen, now, due, key)


Policy = TypeVar("Policy", OnBusy, OnStop, OnFailure, OnDivergence, SentMessages)


def choice(kind: type[Policy], name: str, value: Policy | str) -> Policy:
    """Return the policy with this name; raise InvalidInput that lists the valid ones."""
    if isinstance(value, kind):
        return value
    try:
        return kind(value)
    except ValueError:
        known = ", ".join(kind)
        raise InvalidInput(f"{name} is {value!r}; it must be one of {known}.") from None


def check_name(name: str, value: str) -> None:
    """Raise InvalidInput for a name that no store can hold."""
    if not value or len(value) > KEY_LENGTH:
        raise InvalidInput(f"{name} must have 1 to {KEY_LENGTH} characters.")
    if not is_unicode(value):
        raise InvalidInput(f"{name} must be Unicode text.")


def check_scope(name: str, value: str) -> str:
    """Return a valid scope, which may be empty; raise InvalidInput for others."""
    if len(value) > KEY_LENGTH or not is_unicode(value) or any(letter < " " for letter in value):
        raise InvalidInput(
            f"{name} must be Unicode text of at most {KEY_LENGTH} characters, without control characters."
        )
    return value


def scope_in(scope: str, within: Within) -> str:
    """Return the scope of a caller; for one limited to a scope, that one. Raises InvalidInput for another."""
    if within.scope is None:
        return check_scope("scope", scope)
    if scope not in ("", within.scope):
        raise InvalidInput(f"scope is {scope!r}, but this caller is restricted to {within.scope!r}. Omit it.")
    return check_scope("within", within.scope)


def check_may_make(within: Within) -> None:
    """Raise InvalidInput for a caller limited to one conversation."""
    if within.chat is not None:
        raise InvalidInput(
            "This caller is restricted to one chat and cannot create others. Use another token."
        )


def check_idempotency_key(value: str) -> None:
    """Raise InvalidInput for a key that no store can hold, or that is reserved."""
    check_name("idempotency_key", value)
    if value.startswith((DERIVED, NARROWED)):
        raise InvalidInput("idempotency_key must not begin with a control character.")


def check_limit(limit: int) -> int:
    """Return a valid page size; raise InvalidInput for others."""
    if not 1 <= limit <= PAGE:
        raise InvalidInput(f"limit must be 1 to {PAGE}.", param="limit")
    return limit
