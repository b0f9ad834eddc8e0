"""The limits of a share link hold for all visitors together: following it again gives no fresh ones."""

from __future__ import annotations

import msgspec
import pytest

from tests.guarded.test_limits import House, house
from turnledger.model.conversation import BLOCK


async def visitors(here: House, count: int, **limits: int) -> list[str]:
    """Follow a new link so many times; the names of the visitors."""
    _, code = await here.ledger.shares.create(scope="shop", **limits)  # type: ignore[arg-type]
    for number in range(count):
        visit = await here.ledger.shares.exchange(code, nonce=f"made-up-by-the-page-of-{number}")
        here._tokens[f"visitor {number}"] = visit.text
    return [f"visitor {number}" for number in range(count)]


@pytest.mark.parametrize(
    ("of_owner", "of_link"), [({"owner_turns": 2}, {}), ({"owner_turns": 9}, {"turns": 2})]
)
async def test_turns_of_all_visitors_at_once_are_bounded(
    of_owner: dict[str, int], of_link: dict[str, int]
) -> None:
    async with house(**of_owner) as here:
        one, two, three = await visitors(here, 3, **of_link)
        first, second = await here.begin(one, "chat"), await here.begin(two, "chat")
        refused = await here.ask(three, "chat")
        assert (refused.status, refused.code) == (429, "too_many_turns")
        most = "2" if of_link else "no more"
        assert f"All visitors of this link may have {most} turns at once together." in refused.body.decode()
        anns = await here.begin("ann", "chat")
        here.model.gate.release()
        assert [(await each).status for each in (first, second, anns)] == [200, 200, 200]
        assert (await here.ask(three, "chat")).status == 200


@pytest.mark.parametrize(
    ("of_owner", "of_link"), [({"owner_turns_per_minute": 2}, {}), ({}, {"turns_per_minute": 2})]
)
async def test_turns_of_all_visitors_within_a_minute_are_bounded(
    of_owner: dict[str, int], of_link: dict[str, int]
) -> None:
    async with house(**of_owner) as here:
        here.model.gate.release()
        asked = [await here.ask(who, "chat") for who in await visitors(here, 4, **of_link)]
        assert [each.status for each in asked] == [200, 200, 429, 429]
        assert ("may ask for 2 turns a minute" in asked[3].body.decode()) == bool(of_link)
        assert "owner" not in asked[3].body.decode()
        assert (await here.ask("ann", "chat")).status == 200
        here.clock.advance(120)
        assert (await here.ask("visitor 3", "chat")).status == 200


async def test_what_all_visitors_store_is_bounded() -> None:
    async with house() as here:
        here.model.gate.release()
        asked = [await here.ask(who, "chat") for who in await visitors(here, 3, bytes=2 * BLOCK)]
        assert [each.status for each in asked] == [200, 200, 507]
        assert asked[2].code == "storage_full"
        assert f"Storage quota of {2 * BLOCK} bytes" in asked[2].body.decode()
        asked = [await here.ask(who, "chat") for who in await visitors(here, 2, chats=1)]
        assert [each.status for each in asked] == [200, 507]


@pytest.mark.parametrize(
    ("limits", "before"),
    [
        ({"owner_turns": 1}, 1),
        ({"owner_turns_per_minute": 1}, 1),
        ({"owner_bytes": 1}, 1),
        ({"owner_chats": 1}, 1),
        ({"turns": 6}, 5),
    ],
)
async def test_refused_visitor_is_told_nothing_of_the_limits_of_owners(
    limits: dict[str, int], before: int
) -> None:
    async with house(**limits) as here:
        [visitor] = await visitors(here, 1)
        begun = [await here.begin(visitor, f"chat {number}") for number in range(before)]
        if limits.keys() & {"owner_bytes", "owner_chats"}:
            here.model.gate.release()
            await begun[0]
        refused = await here.ask(visitor, "another chat")
        here.model.gate.release()
        assert [(await each).status for each in begun] == [200] * before
    assert refused.status in (429, 507), refused.body
    told, _, _ = msgspec.json.decode(refused.body)["error"]["message"].partition("Try again in")
    assert "owner" not in told
    assert not any(character.isdigit() for character in told), told
