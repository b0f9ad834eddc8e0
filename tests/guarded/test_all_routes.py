"""Everything that the description lists is asked for with every kind of wrong token. To whoever has one that is
not valid there is nothing; to another owner, and to one who is narrowed, what is Alice's does not exist."""

from __future__ import annotations

import asyncio

from tests.guarded.walking import ALL, SECRETS, Operation, Town, town
from tests.unit.server.asgi import Reply


def shows_nothing(reply: Reply, place: Town, operation: Operation) -> None:
    """Nothing of what is Alice's, but for the ids that were asked for."""
    told = reply.body.decode() + str(reply.headers)
    for secret in SECRETS:
        assert secret not in told, operation.name
    if "{chat}" not in operation.path:
        assert place.ids["chat"] not in told, operation.name


async def test_without_a_valid_token_nothing_is_answered() -> None:
    async with town() as place:
        await asyncio.sleep(0.002)  # the one that expires has done so
        before = await place.alices()
        for who, code in (
            (None, "missing_token"),
            ("garbage", "invalid_token"),
            ("unknown", "invalid_token"),
            ("revoked", "token_revoked"),
            ("expired", "token_expired"),
        ):
            for operation in place.operations():
                reply = await place.walk(operation, who)
                if operation.is_public:
                    assert reply.status in (200, 503), operation.name
                else:
                    assert (reply.status, reply.code) == (401, code), f"{operation.name} for {who}"
                    assert reply.header(b"www-authenticate") == b"Bearer"
                shows_nothing(reply, place, operation)
        assert await place.alices() == before
