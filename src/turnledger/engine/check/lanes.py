"""Checks that branches, attempts, tickets and leases agree, and that no token exceeds its parent."""

from __future__ import annotations

from turnledger.engine.check.audit import UNREADABLE, Audit, Location, is_live, is_whole
from turnledger.model.access.token import Token
from turnledger.model.check import Rule
from turnledger.model.conversation import Branch, Conversation, Ticket
from turnledger.model.ids import LeaseId, TokenId
from turnledger.model.journal import Journal
from turnledger.model.turn import Attempt, AttemptState, Turn, TurnKind

SET_ASIDE = (AttemptState.FAILED, AttemptState.DISCARDED)


async def check_lane(audit: Audit, place: Location, branch: Branch, conversation: Conversation) -> None:
    with audit.skipping_unreadable():
        await _check_running(audit, place, branch, live=is_live(conversation))
    if is_whole(conversation):
        with audit.skipping_unreadable():
            await _check_unsettled(audit, place, branch)


async def _check_running(audit: Audit, place: Location, branch: Branch, *, live: bool) -> None:
    if branch.running is None:
        return
    attempt = await audit.tables.attempt(place.owner or "", branch.running)
    if attempt is None:
        wrong = "which is not there"
    elif attempt.state is not AttemptState.RUNNING:
        wrong = f"which is {attempt.state}"
    elif attempt.branch != branch.id:
        wrong = f"which runs on {attempt.branch}"
    elif attempt.fence > branch.fence:
        wrong = f"with the fence {attempt.fence}, above its own {branch.fence}"
    elif not live:
        wrong = "though its conversation has ended"
    else:
        return
    audit.report(Rule.LANE, place, f"Its lane is held by {branch.running}, {wrong}: it does not come free.")


async def _check_unsettled(audit: Audit, place: Location, branch: Branch) -> None:
    if branch.unsettled is None:
        return
    attempt = await audit.tables.attempt(place.owner or "", branch.unsettled)
    if attempt is None:
        wrong = "which is not there: what its tools did is lost"
    elif attempt.state not in SET_ASIDE:
        wrong = f"which is {attempt.state}: the model would see them twice, or not at all"
    elif attempt.branch != branch.id:
        wrong = f"which held the lane of {attempt.branch}: the model would see them in the wrong place"
    elif not Journal.of(await audit.tables.journal(attempt.id)).has_effects:
        wrong = "whose journal has none: the next turn settles nothing"
    else:
        return
    audit.report(Rule.EFFECT, place, f"It waits to settle the effects of {branch.unsettled}, {wrong}.")


async def check_attempt(audit: Audit, place: Location, attempt: Attempt) -> None:
    tables = audit.tables
    conversation = await tables.conversation(attempt.owner, attempt.conversation)
    if conversation is None:
        audit.report(Rule.ORPHAN, place, "This attempt belongs to a conversation that is not there: drop it.")
        return
    branch = await tables.branch(attempt.branch)
    if branch is None or branch.conversation != attempt.conversation:
        audit.report(
            Rule.ORPHAN,
            place,
            f"This attempt was made on {attempt.branch}, which its conversation does not have: its effects "
            "are not settled.",
        )
        return
    turn = await tables.turn(attempt.owner, attempt.id)
    _check_against_turn(audit, place, attempt, turn, conversation)
    if attempt.state is AttemptState.RUNNING:
        if branch.running != attempt.id:
            audit.report(Rule.LANE, place, f"It runs, but the lane is held by {branch.running or 'nobody'}.")
        await _check_lease(audit, place, attempt.lease, "attempt runs")
    await _check_journal(audit, place, attempt, branch, conversation)


def _check_against_turn(
    audit: Audit, place: Location, attempt: Attempt, turn: Turn | None, conversation: Conversation
) -> None:
    is_settled = attempt.state is AttemptState.SETTLED
    if turn is None and is_settled and is_whole(conversation):
        audit.report(
            Rule.EFFECT, place, "It is settled, but not in the history: what its tools did is hidden."
        )
    elif turn is not None and not (is_settled and turn.kind is TurnKind.SETTLED):
        audit.report(
            Rule.ATTEMPT,
            place,
            f"It is in the history as {turn.kind}, and set aside as {attempt.state}: only one can be true.",
        )
    elif turn is None and attempt.state in (AttemptState.COMPLETED, AttemptState.KEPT):
        audit.report(
            Rule.ATTEMPT, place, f"It is {attempt.state}, but not in the history: its answer is lost."
        )


async def _check_journal(
    audit: Audit, place: Location, attempt: Attempt, branch: Branch, conversation: Conversation
) -> None:
    records = await audit.tables.journal(attempt.id)
    if len(records) != attempt.journaled:
        audit.report(
            Rule.EFFECT,
            place,
            f"It has recorded {attempt.journaled} steps, but its journal holds {len(records)}: what tools "
            "did may be lost.",
        )
        return
    try:
        has_effects = Journal.of(records).has_effects
    except UNREADABLE as problem:
        audit.report_unreadable(place, "Its journal", problem)
        return
    is_waiting = branch.unsettled == attempt.id or not is_whole(conversation)
    if attempt.state in SET_ASIDE and has_effects and not is_waiting:
        audit.report(
            Rule.EFFECT,
            place,
            "Its tools have acted, and it does not wait to be settled: the model will not hear of it.",
        )


async def check_ticket(audit: Audit, place: Location, ticket: Ticket, conversation: Conversation) -> None:
    """Check that a ticket waits for an existing branch, and that recovery finds it if its process dies."""
    branch = await audit.tables.branch(ticket.branch)
    if branch is None or branch.conversation != conversation.id:
        audit.report(
            Rule.ORPHAN,
            place,
            f"A ticket waits for {ticket.branch}, which its conversation does not have: it waits in vain.",
        )
    if not is_live(conversation):
        audit.report(
            Rule.ORPHAN, place, f"A ticket waits for a conversation that is {conversation.state}: in vain."
        )
    await _check_lease(audit, place, ticket.lease, "ticket waits")


async def _check_lease(audit: Audit, place: Location, lease: LeaseId, action: str) -> None:
    if await audit.tables.lease(lease) is None:
        audit.report(
            Rule.LANE, place, f"This {action} under {lease}, which is not there: nobody finds it and ends it."
        )
    elif audit.at_rest:
        audit.report(
            Rule.NOT_AT_REST, place, f"This {action} under {lease}: a process is at work, or has died."
        )


async def check_token(audit: Audit, owner: str, id: TokenId) -> None:
    place = Location(owner=owner)
    try:
        token = await audit.tables.token(owner, id)
    except UNREADABLE as problem:
        audit.report_unreadable(place, id, problem)
        return
    if token is None:
        return
    with audit.skipping_unreadable():
        await _check_text(audit, place, token)
    with audit.skipping_unreadable():
        await _check_parent(audit, place, token)
    with audit.skipping_unreadable():
        await _check_share(audit, place, token)
    with audit.skipping_unreadable():
        if token.revoked_at is not None and not await audit.tables.admission(owner):
            audit.report(
                Rule.TOKEN,
                place,
                f"{id} is revoked, but its owner's admission did not move: it may still work.",
            )


async def _check_text(audit: Audit, place: Location, token: Token) -> None:
    found = await audit.tables.token_by_digest(token.digest)
    if found is None or found[0].id != token.id:
        audit.report(Rule.TOKEN, place, f"{token.id} is not found by its text: it lets nobody in.")


async def _check_share(audit: Audit, place: Location, token: Token) -> None:
    if token.share is None or token.revoked_at is not None:
        return
    share = await audit.tables.share(None, token.share)
    if share is None:
        if token.expires_at is None:
            text = f"{token.id} was got by {token.share}, which is not there: it cannot be ended with it."
            audit.report(Rule.TOKEN, place, text)
    elif share.revoked_at is not None:
        text = f"{token.id} was got by {share.id}, which is revoked: it still works."
        audit.report(Rule.TOKEN, place, text)
    elif not share.within.covers(token.within):
        text = f"{token.id} was got by {share.id}, and gives other conversations than that does."
        audit.report(Rule.TOKEN, place, text)


async def _check_parent(audit: Audit, place: Location, token: Token) -> None:
    if token.parent is None or token.revoked_at is not None:
        return
    parent = await audit.tables.token(None, token.parent)
    if parent is None:
        # A token that expires may outlast its parent's row for a while; it grants nothing then.
        if token.expires_at is None:
            text = f"{token.id} was made by {token.parent}, which is not there: it cannot be ended with it."
            audit.report(Rule.TOKEN, place, text)
        return
    if parent.revoked_at is not None:
        text = f"{token.id} was made by {parent.id}, which is revoked: it still works."
        audit.report(Rule.TOKEN, place, text)
    beyond = token.excess_over(parent)
    if beyond:
        text = f"{token.id} gives what {parent.id}, which made it, does not: {'; '.join(beyond)}."
        audit.report(Rule.TOKEN, place, text)
