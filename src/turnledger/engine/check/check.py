"""Check that the stored rows keep the ledger's promises. Reads everything once, in pages, on one snapshot.

    conversations   the current branch exists; deleted as far as stated; a conversation_key names one;
                    turns are shared within a scope
    branches        check_line: turns, parents, pairs, instructions, origins; check_log_and_flags: its turns;
                    check_lane: the running attempt, the one to be settled, whether it is a side branch
    attempts        check_lane: known to their branch, not in the history as well, no effect hidden
    tickets, claims refer to existing rows
    tokens          check_tokens: grant nothing beyond their parent
    the store       its own consistency; the storage counted per owner

Bodies are decoded item by item. SQLite keeps a checksum of each turn. In other stores, and in turns from
older versions, a change that leaves the data well formed is not detected.
"""

from __future__ import annotations

from collections.abc import AsyncIterator, Awaitable, Callable
from typing import Any, TypeVar

from msgspec import Struct

from turnledger.engine.attempt.idempotency import claim_restriction
from turnledger.engine.check.audit import PAGE, Audit, Location, TooManyFindings, is_whole
from turnledger.engine.check.lanes import check_attempt, check_job, check_lane, check_ticket, check_token
from turnledger.engine.check.lines import check_line, check_set_aside
from turnledger.engine.ports import Inspection
from turnledger.engine.tables.inspection import Owned
from turnledger.model.check import Finding, Rule
from turnledger.model.conversation import Claim, Conversation, ConversationState, Ticket
from turnledger.model.ids import BranchId, ConversationId, TurnId
from turnledger.model.job import TurnJob
from turnledger.model.turn import AttemptState

Row = TypeVar("Row")


class CheckRequest(Struct, frozen=True, kw_only=True):
    at_rest: bool = False
    """Whether the store should be idle: then running and waiting turns are reported, though not as damage."""
    limit: int = 1_000
    """The most findings to report."""


class Report(Struct, frozen=True, kw_only=True):
    """The findings of a check, and how many rows it read."""

    findings: list[Finding]
    conversations: int
    branches: int
    turns: int
    attempts: int
    turns_without_checksum: int = 0
    """Turns from older versions, in which a well-formed change is not detected."""
    is_whole: bool
    """Whether it reached the end: not if it hit the limit of findings, or damage stopped it."""


async def check(whole: Inspection, request: CheckRequest) -> Report:
    """Read a whole store and report what is wrong. Changes nothing."""
    audit = Audit(whole, request.limit, at_rest=request.at_rest)
    is_whole, unsummed = True, 0
    try:
        for sentence in await whole.inconsistencies(request.limit):
            audit.report(Rule.STORE, Location(), sentence)
        await _check_all(audit)
        unsummed = await whole.turns_without_checksum()
        if not any(finding.is_damage for finding in audit.findings):
            # Damaged rows have other sizes, too: do not report them twice.
            for sentence in await whole.miscounts(request.limit):
                audit.report(Rule.STORE, Location(), sentence)
    except TooManyFindings:
        is_whole = False
    except Exception as problem:
        # A damaged store may raise anything; its own findings are worth more than the error.
        if not audit.findings:
            raise
        is_whole = False
        last = Finding(rule=Rule.STORE, message=f"The check stopped early: {problem}")
        audit.findings.append(last)
    return Report(
        findings=audit.findings,
        conversations=audit.conversations,
        branches=audit.branches,
        turns=audit.turns,
        attempts=audit.attempts,
        turns_without_checksum=unsummed,
        is_whole=is_whole,
    )


async def _check_all(audit: Audit) -> None:
    whole = audit.whole

    async def visit(
        page: Callable[[Any, int], Awaitable[list[Owned[Row]]]],
        check_row: Callable[[Audit, str | None, Row], Awaitable[None]],
        name: Callable[[Row], object] = lambda row: row,
    ) -> None:
        async for each in _each(page, lambda each: name(each.row)):
            audit.tables = whole.of(each.owner or "")
            await check_row(audit, each.owner, each.row)

    await visit(whole.all_conversations, _conversation)
    await visit(whole.all_branches, _branch)
    await visit(whole.all_attempts, _attempt)
    await visit(whole.all_tickets, _ticket, lambda ticket: ticket.attempt)
    await visit(whole.all_jobs, _job, lambda job: job.id)
    await visit(whole.all_tokens, check_token)
    async for claim in _each(whole.all_claims, lambda claim: claim):
        audit.tables = whole.of(claim.owner)
        await _claim(audit, claim)


async def _each(
    page: Callable[[Any, int], Awaitable[list[Row]]], name: Callable[[Row], object]
) -> AsyncIterator[Row]:
    after = None
    while True:
        rows = await page(after, PAGE)
        for row in rows:
            yield row
        if len(rows) < PAGE:
            return
        after = name(rows[-1])


async def _conversation(audit: Audit, owner: str | None, id: ConversationId) -> None:
    audit.conversations += 1
    place = Location(owner=owner, conversation=id)
    found: Conversation | None = None
    with audit.recording(place):
        found = await audit.tables.conversation(id)
    if found is None:
        return
    with audit.skipping_unreadable():
        branch = await audit.tables.branch(found.branch)
        if branch is None or branch.conversation != id:
            problem = "is missing" if branch is None else "belongs to another conversation"
            audit.report(Rule.ORPHAN, place, f"The conversation shows {found.branch}, which {problem}.")
    _check_state(audit, place, found)
    with audit.skipping_unreadable():
        await _check_key(audit, place, found)


def _check_state(audit: Audit, place: Location, found: Conversation) -> None:
    is_restorable = found.state is ConversationState.DELETED
    if is_restorable and found.purge_at is None:
        audit.report(Rule.STATE, place, "The deleted conversation has no purge time; it is never purged.")
    elif not is_restorable and found.purge_at is not None:
        audit.report(Rule.STATE, place, f"The conversation is {found.state} but has a purge time.")
    if not is_whole(found) and (found.title is not None or found.metadata or found.tags):
        audit.report(
            Rule.STATE, place, f"The conversation is {found.state} but still has a title, metadata or tags."
        )


async def _check_key(audit: Audit, place: Location, found: Conversation) -> None:
    if found.conversation_key is None:
        return
    if found.is_deleted:
        audit.report(
            Rule.KEY,
            place,
            f"The deleted conversation still holds the conversation_key {found.conversation_key!r}.",
        )
        return
    named = await audit.tables.conversation_by_key(found.scope, found.conversation_key)
    if named is None or named.id != found.id:
        other = named.id if named else "no conversation"
        audit.report(
            Rule.KEY,
            place,
            f"The conversation_key {found.conversation_key!r} refers to {other}, not to this one.",
        )


async def _branch(audit: Audit, owner: str | None, id: BranchId) -> None:
    audit.branches += 1
    place = Location(owner=owner, branch=id)
    if owner is None:
        audit.report(Rule.ORPHAN, place, "The conversation of this branch is missing.")
        return
    branch = None
    with audit.recording(place):
        branch = await audit.tables.branch(id)
    if branch is None:
        return
    place = Location(owner=owner, branch=id, conversation=branch.conversation)
    with audit.skipping_unreadable():
        conversation = await audit.tables.conversation(branch.conversation)
        if conversation is not None:
            await _check_shared(audit, place, conversation)
            await check_line(audit, place, branch, whole=is_whole(conversation))
            await check_lane(audit, place, branch, conversation)


async def _check_shared(audit: Audit, place: Location, conversation: Conversation) -> None:
    """Check that a branch begins only with turns of its own scope."""
    tables = audit.tables
    with audit.skipping_unreadable():  # an unreadable origin is recorded with its line
        origin = await tables.origin(place.branch) if place.branch else None
        source = await tables.branch(origin.line[0].branch) if origin and origin.line else None
        if source is None or source.conversation == conversation.id:
            return
        other = await tables.conversation(source.conversation)
        if other is not None and other.scope != conversation.scope:
            audit.report(
                Rule.SCOPE,
                place,
                f"The branch has the scope {conversation.scope!r} but shows turns of {other.id}, which has "
                f"{other.scope!r}.",
            )


async def _attempt(audit: Audit, owner: str | None, id: TurnId) -> None:
    audit.attempts += 1
    attempt = None
    with audit.recording(Location(owner=owner, turn=id)):
        attempt = await audit.tables.attempt(id)
        _ = attempt.details if attempt is not None else None  # decoded only when they are read
    if attempt is None:
        return
    place = Location(owner=owner, conversation=attempt.conversation, branch=attempt.branch, turn=id)
    with audit.skipping_unreadable():
        await check_attempt(audit, place, attempt)
        await check_set_aside(audit, place, attempt)


async def _ticket(audit: Audit, owner: str | None, ticket: Ticket) -> None:
    place = Location(owner=owner, conversation=ticket.conversation, branch=ticket.branch, turn=ticket.attempt)
    if owner is None:
        audit.report(Rule.ORPHAN, place, "The conversation of this ticket is missing.")
        return
    with audit.skipping_unreadable():
        conversation = await audit.tables.conversation(ticket.conversation)
        if conversation is not None:
            await check_ticket(audit, place, ticket, conversation)


async def _job(audit: Audit, owner: str | None, job: TurnJob) -> None:
    with audit.skipping_unreadable():
        await check_job(audit, Location(owner=owner, conversation=job.conversation, turn=job.id), job)


async def _claim(audit: Audit, claim: Claim) -> None:
    tables = audit.tables
    place = Location(owner=claim.owner, conversation=claim.conversation, turn=claim.attempt)
    with audit.skipping_unreadable():
        found = await tables.conversation(claim.conversation)
        if found is None:
            audit.report(
                Rule.KEY,
                place,
                f"The idempotency_key {claim.idempotency_key!r} refers to a missing conversation; its "
                "retries are refused.",
            )
            return
        within = claim_restriction(claim.idempotency_key)
        if not within.sees(found):
            audit.report(
                Rule.SCOPE,
                place,
                f"The idempotency_key {claim.idempotency_key!r}, restricted to {within.label!r}, refers to a "
                f"turn in {found.scope!r}; a retry reveals its answer.",
            )
        if claim.expires_at is not None:
            return
        attempt = await tables.attempt(claim.attempt)
        if attempt is None and await tables.job(claim.attempt) is not None:
            return
        if attempt is None or attempt.state is not AttemptState.RUNNING:
            audit.report(
                Rule.KEY,
                place,
                f"The idempotency_key {claim.idempotency_key!r} belongs to a turn that is not running; it "
                "never expires.",
            )
