"""Checks that branches, attempts, tickets and leases agree, and that no token exceeds its parent."""

from __future__ import annotations

from turnledger.engine.check.audit import UNREADABLE, Audit, Location, is_live, is_whole
from turnledger.model.access.share import Share
from turnledger.model.access.token import Token
from turnledger.model.check import Rule
from turnledger.model.conversation import NOBODY, Branch, Conversation, Ticket
from turnledger.model.ids import Id, LeaseId, TokenId
from turnledger.model.job import TurnJob
from turnledger.model.journal import Journal
from turnledger.model.turn import Attempt, AttemptState, Turn, TurnKind

SET_ASIDE = (AttemptState.FAILED, AttemptState.DISCARDED)


async def check_lane(audit: Audit, place: Location, branch: Branch, conversation: Conversation) -> None:
    with audit.skipping_unreadable():
        is_left = conversation.branch != branch.id and not branch.is_side
        await _check_running(audit, place, branch, live=is_live(conversation), is_left=is_left)
    if conversation.branch == branch.id and branch.is_side:
        audit.report(
            Rule.LANE, place, "The conversation shows a side branch; retention would remove its turns."
        )
    if is_whole(conversation):
        with audit.skipping_unreadable():
            await _check_unsettled(audit, place, branch)


async def _check_running(audit: Audit, place: Location, branch: Branch, *, live: bool, is_left: bool) -> None:
    if branch.running is None:
        return
    attempt = await audit.tables.attempt(branch.running)
    if attempt is None:
        wrong = "which is missing"
    elif attempt.state is not AttemptState.RUNNING:
        wrong = f"which is {attempt.state}"
    elif attempt.branch != branch.id:
        wrong = f"which runs on {attempt.branch}"
    elif attempt.fence > branch.fence:
        wrong = f"with fence {attempt.fence}, above the {branch.fence} of the branch"
    elif not live:
        wrong = "although its conversation has ended"
    elif is_left:
        wrong = "although the conversation has left this branch"
    else:
        return
    audit.report(Rule.LANE, place, f"The lane is held by {branch.running}, {wrong}; it is never released.")


async def _check_unsettled(audit: Audit, place: Location, branch: Branch) -> None:
    if branch.unsettled is None:
        return
    attempt = await audit.tables.attempt(branch.unsettled)
    if attempt is None:
        wrong = "which is missing; its tool results are lost"
    elif attempt.state not in SET_ASIDE:
        wrong = f"which is {attempt.state}; the model would see them twice, or not at all"
    elif attempt.branch != branch.id:
        wrong = f"which ran on {attempt.branch}; the model would see them on the wrong branch"
    elif not Journal.of(await audit.tables.journal(attempt.id)).has_effects:
        wrong = "whose journal has none"
    else:
        return
    audit.report(
        Rule.EFFECT, place, f"The branch waits to settle the effects of {branch.unsettled}, {wrong}."
    )


async def check_attempt(audit: Audit, place: Location, attempt: Attempt) -> None:
    tables = audit.tables
    conversation = await tables.conversation(attempt.conversation)
    if conversation is None:
        audit.report(Rule.ORPHAN, place, "The conversation of this attempt is missing.")
        return
    branch = await tables.branch(attempt.branch)
    if branch is None or branch.conversation != attempt.conversation:
        audit.report(
            Rule.ORPHAN,
            place,
            f"The attempt ran on {attempt.branch}, which its conversation lacks; its effects stay unsettled.",
        )
        return
    turn = await tables.turn(attempt.id)
    _check_against_turn(audit, place, attempt, turn, conversation)
    if attempt.state is AttemptState.RUNNING:
        if branch.running != attempt.id:
            audit.report(
                Rule.LANE,
                place,
                f"The attempt is running, but {branch.running or 'no attempt'} holds the lane.",
            )
        if attempt.is_durable and await tables.job(attempt.id) is None:
            audit.report(
                Rule.ORPHAN, place, "The attempt is durable work without its job; no process can resume it."
            )
        if attempt.lease != NOBODY or not attempt.is_durable:
            await _check_lease(audit, place, attempt.lease, "attempt runs")
    await _check_journal(audit, place, attempt, branch, conversation)


def _check_against_turn(
    audit: Audit, place: Location, attempt: Attempt, turn: Turn | None, conversation: Conversation
) -> None:
    is_settled = attempt.state is AttemptState.SETTLED
    if turn is None and is_settled and is_whole(conversation):
        audit.report(
            Rule.EFFECT, place, "The attempt is settled but not in the history; its tool results are hidden."
        )
    elif turn is not None and not (is_settled and turn.kind is TurnKind.SETTLED):
        audit.report(
            Rule.ATTEMPT,
            place,
            f"The history has this attempt as {turn.kind}, but its state is {attempt.state}.",
        )
    elif turn is None and attempt.state in (AttemptState.COMPLETED, AttemptState.KEPT):
        audit.report(
            Rule.ATTEMPT, place, f"The attempt is {attempt.state} but not in the history; its answer is lost."
        )


async def _check_journal(
    audit: Audit, place: Location, attempt: Attempt, branch: Branch, conversation: Conversation
) -> None:
    records = await audit.tables.journal(attempt.id)
    if len(records) != attempt.journaled:
        audit.report(
            Rule.EFFECT,
            place,
            f"The attempt recorded {attempt.journaled} steps, but its journal has {len(records)}; tool "
            "results may be lost.",
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
            "The attempt has tool effects but does not wait to be settled; the model never sees them.",
        )


async def check_ticket(audit: Audit, place: Location, ticket: Ticket, conversation: Conversation) -> None:
    """Check that a ticket waits for an existing branch, and that recovery finds it if its process dies."""
    branch = await audit.tables.branch(ticket.branch)
    if branch is None or branch.conversation != conversation.id:
        audit.report(
            Rule.ORPHAN,
            place,
            f"The ticket waits for {ticket.branch}, which its conversation lacks.",
        )
    if not is_live(conversation):
        audit.report(Rule.ORPHAN, place, f"The ticket waits for a conversation that is {conversation.state}.")
    if ticket.lease != NOBODY:
        await _check_lease(audit, place, ticket.lease, "ticket waits")
    elif await audit.tables.job(ticket.attempt) is None:
        audit.report(
            Rule.ORPHAN, place, "The ticket is for durable work without its job; no process can begin it."
        )


async def check_job(audit: Audit, place: Location, job: TurnJob) -> None:
    """Check that a job belongs to the owner of its conversation, can be read, and waits or runs."""
    tables = audit.tables
    if place.owner != job.owner:
        audit.report(Rule.ORPHAN, place, f"The conversation of this job is not of its owner {job.owner!r}.")
        return
    try:
        _ = job.request.input_items, job.request.details_object, job.request.primer_items
    except UNREADABLE as problem:
        audit.report_unreadable(place, "Its job", problem)
    attempt = await tables.attempt(job.id)
    is_running = attempt is not None and attempt.state is AttemptState.RUNNING and attempt.is_durable
    if not is_running and await tables.ticket(job.id) is None:
        audit.report(Rule.ORPHAN, place, "The job neither waits nor runs; it never ends.")


async def _check_lease(audit: Audit, place: Location, lease: LeaseId, action: str) -> None:
    if await audit.tables.lease(lease) is None:
        audit.report(
            Rule.LANE, place, f"This {action} under {lease}, which is missing; recovery cannot end it."
        )
    elif audit.at_rest:
        audit.report(
            Rule.NOT_AT_REST, place, f"This {action} under {lease}: its process is working, or has crashed."
        )


async def check_token(audit: Audit, owner: str | None, id: TokenId) -> None:
    place = Location(owner=owner)
    try:
        token = await audit.whole.token(owner, id)
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
        if token.revoked_at is not None and not await audit.tables.admission():
            audit.report(
                Rule.TOKEN,
                place,
                f"{id} is revoked, but the admission version of its owner is unchanged; it may work.",
            )


async def _check_text(audit: Audit, place: Location, token: Token) -> None:
    found = await audit.whole.token_by_digest(token.digest)
    if found is None or found.token.id != token.id:
        audit.report(
            Rule.TOKEN, place, f"{token.id} cannot be found by its digest; it authorizes no request."
        )


async def _check_share(audit: Audit, place: Location, token: Token) -> None:
    if token.share is None or token.revoked_at is not None:
        return
    share = await audit.whole.share(None, token.share)
    _check_issuer(audit, place, token, token.share, share)
    if share is not None and share.revoked_at is None and not share.within.covers(token.within):
        text = f"{token.id} grants other conversations than {share.id}, which issued it."
        audit.report(Rule.TOKEN, place, text)


async def _check_parent(audit: Audit, place: Location, token: Token) -> None:
    if token.parent is None or token.revoked_at is not None:
        return
    parent = await audit.whole.token(None, token.parent)
    _check_issuer(audit, place, token, token.parent, parent)
    beyond = () if parent is None else token.excess_over(parent)
    if beyond:
        text = f"{token.id} grants more than {token.parent}, which issued it: {'; '.join(beyond)}."
        audit.report(Rule.TOKEN, place, text)


def _check_issuer(audit: Audit, place: Location, token: Token, id: Id, issuer: Token | Share | None) -> None:
    # A token that expires may outlast its issuer's row for a while; it grants nothing then.
    if issuer is None and token.expires_at is None:
        text = f"{token.id} was issued by {id}, which is missing and cannot revoke it."
        audit.report(Rule.TOKEN, place, text)
    elif issuer is not None and issuer.revoked_at is not None:
        text = f"{token.id} was issued by {id}, which is revoked; the token still works."
        audit.report(Rule.TOKEN, place, text)
