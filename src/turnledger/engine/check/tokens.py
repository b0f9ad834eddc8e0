"""Whether tokens give what they may: nothing beyond the one that made them, nor after that has ended."""

from __future__ import annotations

from turnledger.engine.check.audit import UNREADABLE, Audit, Location
from turnledger.model.access.token import Token
from turnledger.model.finding import Rule
from turnledger.model.ids import TokenId


async def check_token(audit: Audit, owner: str, id: TokenId) -> None:
    """Check one token."""
    place = Location(owner=owner)
    try:
        token = await audit.tables.token(owner, id)
    except UNREADABLE as problem:
        audit.note_unreadable(place, id, problem)
        return
    if token is None:
        return
    with audit.passing_over():
        await _check_text(audit, place, token)
    with audit.passing_over():
        await _check_parent(audit, place, token)
    with audit.passing_over():
        await _check_share(audit, place, token)
    with audit.passing_over():
        if token.revoked_at is not None and not await audit.tables.admission(owner):
            audit.found(
                Rule.TOKEN, place, f"{id} is revoked, but its owner's admission is as ever: it may let in."
            )


async def _check_text(audit: Audit, place: Location, token: Token) -> None:
    found = await audit.tables.token_by_digest(token.digest)
    if found is None or found[0].id != token.id:
        audit.found(Rule.TOKEN, place, f"{token.id} is not found by its text: it lets nobody in.")


async def _check_share(audit: Audit, place: Location, token: Token) -> None:
    if token.share is None or token.revoked_at is not None:
        return
    share = await audit.tables.share(None, token.share)
    if share is None:
        if token.expires_at is None:
            told = f"{token.id} was got by {token.share}, which is not there: it cannot be ended with it."
            audit.found(Rule.TOKEN, place, told)
    elif share.revoked_at is not None:
        told = f"{token.id} was got by {share.id}, which is revoked: it still lets in."
        audit.found(Rule.TOKEN, place, told)
    elif not share.within.covers(token.within):
        told = f"{token.id} was got by {share.id}, and gives other conversations than that does."
        audit.found(Rule.TOKEN, place, told)


async def _check_parent(audit: Audit, place: Location, token: Token) -> None:
    if token.parent is None or token.revoked_at is not None:
        return
    parent = await audit.tables.token(None, token.parent)
    if parent is None:
        # One that expires may outlast the row of its parent for a while, with nothing left to give.
        if token.expires_at is None:
            told = f"{token.id} was made by {token.parent}, which is not there: it cannot be ended with it."
            audit.found(Rule.TOKEN, place, told)
        return
    if parent.revoked_at is not None:
        told = f"{token.id} was made by {parent.id}, which is revoked: it still lets in."
        audit.found(Rule.TOKEN, place, told)
    beyond = token.beyond(parent)
    if beyond:
        told = f"{token.id} gives what {parent.id}, which made it, does not: {'; '.join(beyond)}."
        audit.found(Rule.TOKEN, place, told)
