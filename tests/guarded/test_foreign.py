"""A foreign id and one that never was get the same answer, on every route; `make proof` has more of them."""

from __future__ import annotations

import pytest

from tests.guarded.foreign import ROLES, add_roles, differences, ids_of, own_of
from tests.guarded.walking import town


@pytest.mark.parametrize("who", ROLES)
async def test_foreign_id_is_answered_as_one_that_never_was(who: str) -> None:
    async with town() as place:
        await add_roles(place)
        chat = await place.ledger.conversation(owner="alice", conversation_key="private-of-alice")
        async with chat.turn("Hi") as turn:
            turn.emit("Hello.")
        theirs, own = await ids_of(place, chat, turn.id), await own_of(place, who)
        before = await place.alices()
        assert await differences(place, who, theirs, own) == []
        assert await place.alices() == before
