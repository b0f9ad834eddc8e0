"""The rows of conversations, and what their owner stores."""

from __future__ import annotations

from itertools import product
from random import Random
from typing import Any

import pytest
from msgspec.structs import replace

from turnledger.engine.ports import Store
from turnledger.errors import StoreError
from turnledger.model.catalogue import ChatEntry, ChatFilter, ListPosition
from turnledger.model.conversation import (
    BLOCK,
    KEY_LENGTH,
    Branch,
    Conversation,
    ConversationState,
    Stretch,
    TitleSource,
    Usage,
    branch_bytes,
    details_bytes,
    guest_of,
)
from turnledger.model.ids import ConversationId, TokenId, TurnId
from turnledger.model.turn import AttemptState, Turn
from turnledger.testing.store_contract.rows.kit import (
    IDS,
    LATE,
    TEXT,
    TableStep,
    add_ticket,
    branch_off,
    claim,
    conversation,
    do,
    ended_attempt,
    full_attempt,
    full_conversation,
    grow,
    insert_all,
    insert_conversation,
    link,
    read,
    read_all,
    save_branch,
    write,
)
from turnledger.testing.store_contract.stage import Contract

LIVE, DELETED = ConversationState.LIVE, ConversationState.DELETED
PURGED, EXPIRED = ConversationState.PURGED, ConversationState.EXPIRED


def position(found: Conversation) -> ListPosition:
    return ListPosition(found.touched_at, found.id)


def longest_name(start: str) -> str:
    """Return a name of the most characters, each of four bytes, that no compression shortens."""
    code = Random(start).randrange
    return start + "".join(chr(code(0x10000, 0x110000)) for _ in range(KEY_LENGTH - len(start)))


class StoredConversations(Contract):
    async def test_longest_names_find_their_rows(self, here: Store, there: Store) -> None:
        owner, scope, key, other = map(longest_name, ("\\", "\\x", "\\\\", "'"))
        made = conversation(owner=owner, scope=scope, conversation_key=key)
        await insert_conversation(here, made)
        waiting = await add_ticket(here, made, idempotency_key=f"\n{scope}\n{key}")
        claimed = claim(owner=owner, idempotency_key=f"\n{scope}\n{key}")
        await write(here, do("save_claim", claimed))
        await write(here, do("save_claim", claimed))

        def of_owner(method: str, *names: str) -> TableStep:
            return do(method, *names, owner=owner)

        assert await read(there, of_owner("conversation_by_key", scope, key)) == made
        assert await read(there, of_owner("conversation_by_key", scope, other)) is None
        assert await read(there, of_owner("conversation_by_key", other, key)) is None
        assert await read(there, of_owner("ticket_for", f"\n{scope}\n{key}")) == waiting
        assert await read(there, of_owner("claim", f"\n{scope}\n{key}")) == claimed
        assert await read(there, of_owner("claim", f"\n{scope}\n{other}")) is None
        for name, expected in ((scope, [made.id]), (other, [])):
            listed = await read(there, do("listed_chats", ChatFilter(scope=name), None, 9, owner=owner))
            assert [each.conversation.id for each in listed] == expected

    async def test_conversation_is_read_as_added(self, here: Store, there: Store) -> None:
        for made in await insert_all(here, [full_conversation(), conversation()]):
            assert await read(there, do("conversation", made.id)) == made
        assert await read(there, do("conversation", IDS.new(ConversationId))) is None

    async def test_conversation_by_key_is_the_one_of_the_scope(self, here: Store, there: Store) -> None:
        plain, scoped, odd = await insert_all(
            here,
            [
                conversation(conversation_key="k"),
                conversation(conversation_key="k", scope="shop"),
                conversation(conversation_key=TEXT, scope=TEXT, former_conversation_key="old"),
            ],
        )
        for scope, key, expected in (
            ("", "k", plain),
            ("shop", "k", scoped),
            (TEXT, TEXT, odd),
            ("desk", "k", None),
            ("", "K", None),
            (TEXT, "old", None),
        ):
            assert await read(there, do("conversation_by_key", scope, key)) == expected

    async def test_listed_chats_are_last_touched_first_with_the_state_of_their_branch(
        self, here: Store, there: Store
    ) -> None:
        made = await insert_all(here, [conversation(touched_at=at) for at in (3, 5, 5, 4)])
        await insert_all(here, [conversation(internal=True), conversation(is_listed=False)])
        await save_branch(here, made[3], length=7, preview=TEXT, running=IDS.new(TurnId))
        latest = sorted((made[1], made[2]), key=lambda each: each.id, reverse=True)
        entries = [ChatEntry(each, 0, "", is_running=False) for each in (*latest, made[0])]
        entries.insert(2, ChatEntry(made[3], 7, TEXT, is_running=True))
        for after, limit, expected in (
            (None, 9, entries),
            (None, 2, entries[:2]),
            (position(latest[0]), 2, entries[1:3]),
            (ListPosition(4, made[3].id), 9, entries[3:]),
            (position(made[0]), 9, []),
        ):
            assert await read(there, do("listed_chats", ChatFilter(), after, limit)) == expected

    async def test_listed_chats_match_the_filter(self, here: Store, there: Store) -> None:
        details: dict[str, dict[str, Any]] = {
            "plain": {},
            "tagged": {"tags": ("a", "b"), "scope": "shop"},
            "pinned": {"pinned": True, "tags": ("b",)},
            "archived": {"archived": True, "tags": ("a",)},
            "deleted": {"state": DELETED, "purge_at": 9, "tags": ("a",)},
            "expired": {"state": EXPIRED},
        }
        for number, (title, each) in enumerate(details.items()):
            await insert_conversation(here, conversation(title=title, touched_at=99 - number, **each))
        live = ["plain", "tagged", "pinned"]
        filters: list[tuple[dict[str, Any], list[str]]] = [
            ({}, live),
            ({"archived": None}, [*live, "archived"]),
            ({"archived": True}, ["archived"]),
            ({"pinned": True}, ["pinned"]),
            ({"pinned": False}, ["plain", "tagged"]),
            ({"scope": "shop"}, ["tagged"]),
            ({"scope": ""}, ["plain", "pinned"]),
            ({"tag": "a"}, ["tagged"]),
            ({"tag": "a", "archived": None}, ["tagged", "archived"]),
            ({"tag": "b", "pinned": True}, ["pinned"]),
            ({"tag": "c"}, []),
            ({"deleted": True}, ["deleted"]),
            ({"deleted": True, "tag": "b"}, []),
        ]
        for wanted, expected in filters:
            found = await read(there, do("listed_chats", ChatFilter(**wanted), None, 9))
            assert [each.conversation.title for each in found] == expected, wanted
            paged: list[ChatEntry] = []
            while page := await read(
                there,
                do("listed_chats", ChatFilter(**wanted), ListPosition.after(paged[-1]) if paged else None, 1),
            ):
                paged += page
            assert paged == found, wanted

    async def test_listed_chats_of_an_owner_match_all_parts_of_a_filter(
        self, here: Store, there: Store
    ) -> None:
        both = (False, True)
        details = product(
            ("ann", "ben"),
            ("", "shop", "desk"),
            ((), ("a",)),
            both,
            both,
            (LIVE, DELETED),
            ({}, {"internal": True}, {"is_listed": False}),
        )
        made = [
            conversation(
                owner=owner,
                scope=scope,
                tags=tags,
                archived=archived,
                pinned=pinned,
                state=state,
                purge_at=9 if state is DELETED else None,
                touched_at=at,
                **changes,
            )
            for at, (owner, scope, tags, archived, pinned, state, changes) in enumerate(details)
        ]
        branches = [(Branch(id=each.branch, conversation=each.id), each.owner) for each in made]
        await write(here, *(do("add_conversation", each) for each in made))
        await write(here, *(do("add_branch", branch, owner=owner) for branch, owner in branches))
        for scope, tag, archived, pinned, deleted in product(
            (None, "", "shop"), (None, "a"), (None, *both), (None, *both), both
        ):
            wanted = ChatFilter(scope=scope, tag=tag, archived=archived, pinned=pinned, deleted=deleted)
            expected = [each for each in made[::-1] if each.owner == "ann" and wanted.matches(each)]
            pages = [(None, 99), (position(expected[0]), 1)]
            whole, second = await read_all(there, "listed_chats", *((wanted, *page) for page in pages))
            assert [each.conversation for each in whole] == expected, wanted
            assert [each.conversation for each in second] == expected[1:2], wanted

    async def test_least_recent_conversations_are_longest_untouched_first(
        self, here: Store, there: Store
    ) -> None:
        made = await insert_all(
            here,
            [
                conversation(touched_at=3),
                conversation(touched_at=1, archived=True, scope="shop"),
                conversation(touched_at=2, pinned=True),
                conversation(touched_at=4, scope="shop"),
            ],
        )
        hidden: list[dict[str, Any]] = [{"internal": True}, {"is_listed": False}, {"state": EXPIRED}]
        await insert_all(here, [conversation(touched_at=1, **each) for each in hidden])
        oldest = [made[1], made[2], made[0], made[3]]
        for scope, after, limit, expected in (
            (None, None, 9, oldest),
            (None, None, 3, oldest[:3]),
            (None, position(made[2]), 9, oldest[2:]),
            ("shop", None, 9, [made[1], made[3]]),
            ("shop", position(made[1]), 9, [made[3]]),
            ("", None, 9, [made[2], made[0]]),
        ):
            found = await read(there, do("least_recent_conversations", scope, after, limit))
            assert found == expected, (scope, after, limit)

    async def test_add_conversation_refuses_a_taken_id(self, stores: list[Store]) -> None:
        found = await insert_conversation(stores[0])
        with pytest.raises(StoreError):
            await write(stores[1], do("add_conversation", conversation(id=found.id)))
        assert await read(stores[1], do("conversation", found.id)) == found

    async def test_add_conversation_refuses_a_key_taken_in_its_scope(self, here: Store, there: Store) -> None:
        await insert_conversation(here, conversation(conversation_key="k"))
        with pytest.raises(StoreError):
            await write(there, do("add_conversation", conversation(conversation_key="k")))
        free = [{"scope": "shop"}, {"owner": "ben"}]
        await insert_all(there, [conversation(conversation_key="k", **each) for each in free])

    async def test_save_conversation_updates_all_but_id_owner_and_scope(
        self, here: Store, there: Store
    ) -> None:
        found, other = await insert_all(here, [conversation(scope="shop"), conversation()])
        saved = replace(full_conversation(), id=found.id, named_by=TitleSource.MODEL)
        await write(here, do("save_conversation", saved, owner="ann"))
        kept = replace(saved, scope="shop")
        assert await read(there, do("conversation", found.id)) == kept
        await write(there, do("save_conversation", replace(kept, owner="eve", title=None), owner="ann"))
        assert await read(here, do("conversation", found.id)) == replace(kept, title=None)
        assert await read(here, do("conversation", other.id)) == other
        with pytest.raises(StoreError):
            await write(here, do("save_conversation", conversation()))

    @pytest.mark.parametrize("state", [DELETED, PURGED])
    async def test_save_conversation_as_deleted_frees_its_key(
        self, here: Store, there: Store, state: ConversationState
    ) -> None:
        found = await insert_conversation(here, conversation(conversation_key="k"))
        await write(there, do("save_conversation", replace(found, state=state, purge_at=9)))
        assert await read(here, do("conversation_by_key", "", "k")) is None
        again = await insert_conversation(here, conversation(conversation_key="k"))
        assert await read(there, do("conversation_by_key", "", "k")) == again

    async def test_save_conversation_as_expired_keeps_its_key(self, here: Store, there: Store) -> None:
        found = await insert_conversation(here, conversation(conversation_key="k"))
        expired = replace(found, state=EXPIRED)
        await write(here, do("save_conversation", expired))
        assert await read(there, do("conversation_by_key", "", "k")) == expired
        with pytest.raises(StoreError):
            await insert_conversation(there, conversation(conversation_key="k"))

    @pytest.mark.parametrize("state", [LIVE, EXPIRED])
    async def test_save_conversation_without_its_key_frees_it(
        self, here: Store, there: Store, state: ConversationState
    ) -> None:
        found = await insert_conversation(here, conversation(conversation_key="k"))
        released = replace(found, conversation_key=None, former_conversation_key="k", state=state)
        successor = conversation(conversation_key="k")
        await write(
            here,
            do("save_conversation", replace(found, state=state)),
            do("save_conversation", released),
            do("add_conversation", successor),
        )
        assert await read(there, do("conversation", found.id)) == released
        assert await read(there, do("conversation_by_key", "", "k")) == successor
        await write(there, do("save_conversation", replace(released, state=DELETED)))
        assert await read(here, do("conversation_by_key", "", "k")) == successor

    async def test_save_conversation_with_a_key_takes_it_if_it_is_free(
        self, here: Store, there: Store
    ) -> None:
        found = await insert_conversation(here, conversation(conversation_key="k"))
        await write(here, do("save_conversation", replace(found, state=DELETED)))
        await write(there, do("save_conversation", found))
        assert await read(here, do("conversation_by_key", "", "k")) == found
        other = await insert_conversation(here)
        with pytest.raises(StoreError):
            await write(there, do("save_conversation", replace(other, conversation_key="k")))
        assert await read(there, do("conversation_by_key", "", "k")) == found

    async def test_touch_conversation_only_advances_its_time(self, here: Store, there: Store) -> None:
        found, other = await insert_all(here, [full_conversation(), conversation(touched_at=5)])
        for at, touched in ((4, 5), (6, 6), (5, 6), (LATE, LATE)):
            await write(here, do("touch_conversation", other.id, at))
            assert await read(there, do("conversation", other.id)) == replace(other, touched_at=touched)
        await write(here, do("touch_conversation", IDS.new(ConversationId), 9))
        assert await read(there, do("conversation", found.id)) == found

    async def test_move_conversation_moves_only_from_the_expected_branch(
        self, here: Store, there: Store
    ) -> None:
        found = await insert_conversation(here)
        made, other = [(await branch_off(here, found, None))[0] for _ in range(2)]
        moves = ((found.branch, made.id, True), (found.branch, other.id, False), (made.id, other.id, True))
        for was, now, expected in moves:
            assert await write(here, do("move_conversation", found.id, was, now)) == [expected]
        assert await read(there, do("conversation", found.id)) == replace(found, branch=other.id)
        unknown = do("move_conversation", IDS.new(ConversationId), made.id, other.id)
        assert await write(here, unknown) == [False]

    async def test_switches_are_those_saved_for_the_conversation(self, here: Store, there: Store) -> None:
        found, other = await insert_all(here, [conversation(), conversation()])
        made = tuple(IDS.new(TurnId) for _ in range(2))
        assert await read(there, do("switches", found.id)) == ()
        await write(here, do("save_switches", found.id, made))
        assert await read_all(there, "switches", (found.id,), (other.id,)) == [made, ()]

    async def test_save_switches_replaces_them_and_nothing_else_does(self, here: Store, there: Store) -> None:
        found = await insert_conversation(here)
        made = tuple(IDS.new(TurnId) for _ in range(3))
        for saved in (made[:2], made[1:], (), made):
            await write(here, do("save_switches", found.id, saved))
            await write(there, do("save_conversation", replace(found, revision=2)))
            assert await read(there, do("switches", found.id)) == saved

    async def test_forgotten_effects_are_those_saved_for_the_conversation(
        self, here: Store, there: Store
    ) -> None:
        found, other = await insert_all(here, [conversation(), conversation()])
        effects = tuple(bytes([number]) * 16 for number in range(3))
        assert await read(there, do("forgotten", found.id)) == ()
        await write(here, do("save_forgotten", found.id, effects))
        assert await read_all(there, "forgotten", (found.id,), (other.id,)) == [effects, ()]

    async def test_save_forgotten_replaces_them_and_nothing_else_does(
        self, here: Store, there: Store
    ) -> None:
        found = await insert_conversation(here)
        effects = tuple(bytes([number]) * 16 for number in range(3))
        for saved in (effects[:2], effects[1:], (), effects):
            await write(here, do("save_forgotten", found.id, saved))
            await write(there, do("save_conversation", replace(found, revision=2)))
            assert await read(there, do("forgotten", found.id)) == saved


async def read_due(store: Store, *arguments: tuple[int, int, int]) -> list[list[ConversationId]]:
    return [[due.id for due in each] for each in await read_all(store, "due_conversations", *arguments)]


async def run_beside(store: Store, found: Conversation) -> None:
    """Add a running attempt on a branch that is not current."""
    made, _ = await branch_off(store, found, None)
    await write(store, do("add_attempt", full_attempt(found, branch=made.id)))


class ConversationsWhoseTimeIsOver(Contract):
    async def test_due_conversations_that_lapsed_come_first_due_first_unless_in_use(
        self, here: Store, there: Store
    ) -> None:
        later, first = await insert_all(
            here,
            [conversation(touched_at=1, expires_after=9), conversation(touched_at=4, expires_after=5)],
        )
        unfit: list[dict[str, Any]] = [
            {"touched_at": 5, "expires_after": 6},
            {"touched_at": 0},
            {"expires_after": 1, "state": DELETED},
        ]
        await insert_all(here, [conversation(**each) for each in unfit])
        running, waiting = await insert_all(here, [conversation(expires_after=1) for _ in range(2)])
        await run_beside(here, running)
        await add_ticket(here, waiting)
        lists = await read_due(there, (10, 0, 9), (10, 0, 1), (9, 0, 9), (8, 0, 9))
        assert lists == [[first.id, later.id], [first.id], [first.id], []]

    async def test_due_conversations_to_purge_are_deleted_ones_in_order(
        self, here: Store, there: Store
    ) -> None:
        made = await insert_all(here, [conversation(state=DELETED, purge_at=at) for at in (7, 5, 9)])
        await insert_all(here, [conversation(), conversation(state=PURGED), conversation(state=EXPIRED)])
        lists = await read_due(there, (7, 0, 9), (7, 0, 1), (4, 0, 9))
        assert lists == [[made[1].id, made[0].id], [made[1].id], []]

    async def test_due_conversations_without_turns_exclude_those_in_use(
        self, here: Store, there: Store
    ) -> None:
        idle, old = await insert_all(here, [conversation(is_listed=False, touched_at=at) for at in (5, 4)])
        unfit: list[dict[str, Any]] = [{"is_listed": True}, {"touched_at": 6}, {"state": DELETED}]
        await insert_all(
            here, [conversation(**{"is_listed": False, "touched_at": 5, **each}) for each in unfit]
        )
        running, unsettled, waiting, tried = await insert_all(
            here, [conversation(is_listed=False, touched_at=5) for _ in range(4)]
        )
        await run_beside(here, running)
        await save_branch(here, unsettled, unsettled=IDS.new(TurnId))
        await add_ticket(here, waiting)
        await write(here, do("add_attempt", ended_attempt(tried, ended_at=6)))
        lists = await read_due(there, (0, 5, 9), (0, 5, 1), (0, 4, 9), (0, 3, 9))
        assert lists == [[old.id, idle.id], [old.id], [old.id], []]

    async def test_oldest_conversations_are_listed_ones_without_pins_and_use(
        self, here: Store, there: Store
    ) -> None:
        made = await insert_all(
            here,
            [
                conversation(touched_at=3),
                conversation(touched_at=1, archived=True),
                conversation(touched_at=2, internal=True),
            ],
        )
        unfit: list[dict[str, Any]] = [
            {"pinned": True},
            {"is_listed": False},
            {"state": DELETED, "purge_at": 9},
            {"touched_at": 4},
        ]
        await insert_all(here, [conversation(**{"touched_at": 1, **each}) for each in unfit])
        running, waiting, used, tried = await insert_all(here, [conversation(touched_at=2) for _ in range(4)])
        await run_beside(here, running)
        await add_ticket(here, waiting)
        for each, is_interaction in ((used, True), (tried, False)):
            ended = ended_attempt(each, ended_at=4, is_interaction=is_interaction)
            await write(here, do("add_attempt", ended))
        oldest = [made[1], *sorted((made[2], tried), key=lambda each: each.id), made[0]]
        assert await read_all(there, "oldest_conversations", (3, 9), (3, 2)) == [oldest, oldest[:2]]

    async def test_oldest_deleted_are_restorable_ones_longest_untouched_first(
        self, here: Store, there: Store
    ) -> None:
        made = await insert_all(
            here, [conversation(state=DELETED, purge_at=9, touched_at=at) for at in (3, 1, 2)]
        )
        await insert_all(here, [conversation(), conversation(state=PURGED), conversation(state=EXPIRED)])
        oldest = [made[1], made[2], made[0]]
        assert await read_all(there, "oldest_deleted", (9,), (2,)) == [oldest, oldest[:2]]

    async def test_purge_ended_removes_turns_of_ended_conversations_only(
        self, here: Store, there: Store
    ) -> None:
        live, restorable, purged, expired = await insert_all(here, [conversation() for _ in range(4)])
        for each in (live, restorable, purged, expired):
            await grow(here, each.branch, 3)
        for each, state in ((restorable, DELETED), (purged, PURGED), (expired, EXPIRED)):
            await write(here, do("save_conversation", replace(each, state=state)))
        removed = 0
        while count := (await write(here, do("purge_ended", 2)))[0]:
            assert count <= 2
            removed += count
            for each in (purged, expired):
                left = await read(here, do("turns", each.branch, 0, 9, 9))
                # Newest first: a turn never outlives its parent.
                assert [one.number for one in left] == [1, 2, 3][: len(left)]
        assert removed == 6
        for each, left in ((live, 3), (restorable, 3), (purged, 0), (expired, 0)):
            assert len(await read(there, do("turns", each.branch, 0, 9, 9))) == left
            assert await read(there, do("conversation", each.id)) is not None

    async def test_purge_ended_removes_attempts_and_previews_of_ended_conversations(
        self, here: Store, there: Store
    ) -> None:
        live, purged = await insert_all(here, [conversation(), conversation()])
        for each in (live, purged):
            await save_branch(here, each, preview=TEXT)
            attempts = [ended_attempt(each, bytes=5), full_attempt(each)]
            await write(here, do("count_bytes", 5), *(do("add_attempt", one) for one in attempts))
            await write(here, do("add_records", attempts[0].id, 0, [b"r"]))
            await write(here, do("add_log_chunk", attempts[0].id, 0, b"c"))
        await write(here, do("save_conversation", replace(purged, state=PURGED)))
        assert (await write(here, do("purge_ended", 9), do("purge_ended", 9)))[0] == 1
        for each, preview, states in ((live, TEXT, 2), (purged, "", 1)):
            assert (await read(there, do("branch", each.branch))).preview == preview
            assert len(await read(there, do("attempts", each.id, 9))) == states
        assert await read(there, do("inconsistencies", 9)) == []
        assert await read(there, do("usage")) == Usage(bytes=branch_bytes(0) + 5, chats=1)
        [running] = await read(there, do("attempts", purged.id, 9))
        await write(here, do("save_attempt", replace(running, state=AttemptState.FAILED, ended_at=9)))
        assert await write(there, do("purge_ended", 9)) == [1]

    @pytest.mark.parametrize("limit", [1, 2, 500])
    async def test_purge_ended_keeps_turns_while_a_line_elsewhere_needs_them(
        self, here: Store, there: Store, limit: int
    ) -> None:
        source, forked = await insert_all(here, [conversation(), conversation()])
        first = await grow(here, source.branch, 5)
        made, second = await branch_off(here, source, first[2], Stretch(source.branch, 0, 3), count=3)
        stretches = (Stretch(made.id, 3, 5), Stretch(source.branch, 0, 3))
        fork, third = await branch_off(here, forked, second[1], *stretches, count=2)
        await _end(here, source, limit)
        needed = [*first[:3], *second[:2]]
        assert await read(there, do("turns_in", stretches)) == needed
        assert await _left(there, [*first, *second, *third]) == [*needed, *third]
        assert (await read(there, do("origin", fork.id))).line == stretches
        await _end(here, forked, limit)
        assert await _left(there, [*first, *second, *third]) == []
        assert await read(there, do("origin", fork.id)) is None

    async def test_purge_ended_clears_empty_branches_in_bounded_steps(self, stores: list[Store]) -> None:
        """Each was created from the one before, as by repeated undo, and has no turns of its own."""
        here, there = stores
        found = await insert_conversation(here)
        [first] = await grow(here, found.branch, 1)
        line = (Stretch(found.branch, 0, 1),)
        made = [(await branch_off(here, found, first, *line))[0].id for _ in range(10)]
        await write(here, do("save_conversation", replace(found, state=PURGED)))
        removed = [(await write(stores[step % 2], do("purge_ended", 3)))[0] for step in range(5)]
        assert removed == [3, 3, 3, 2, 0]
        for branch in made:
            assert await read(there, do("origin", branch)) is None
        assert await read(there, do("turn", first.id)) is None
        assert await read(there, do("usage")) == Usage(bytes=0)


class StoredAmounts(Contract):
    async def test_count_bytes_adds_to_the_owner_and_to_the_link_of_a_visitor(
        self, here: Store, there: Store
    ) -> None:
        share = link()
        guest = guest_of(share.id, IDS.new(TokenId))
        await write(here, do("add_share", share))
        for owner, more in (("ann", 7), (guest, 5), (guest, -2)):
            await write(here, do("count_bytes", more, owner=owner))
        used = [await read(there, do("usage", owner=owner)) for owner in ("ann", guest)]
        assert used == [Usage(bytes=7), Usage(bytes=3)]
        assert (await read(there, do("share", None, share.id))).bytes == 3

    async def test_usage_counts_conversations_details_and_branches_as_saved(
        self, here: Store, there: Store
    ) -> None:
        assert await read(there, do("usage")) == Usage(bytes=0)
        found = await insert_conversation(here, conversation(title="x" * 2_000))
        made = branch_bytes(0)
        assert await read(there, do("usage")) == Usage(bytes=made + details_bytes(found), chats=1)
        await branch_off(here, found, None)
        await write(here, do("save_conversation", replace(found, title="x", state=DELETED)))
        assert await read(there, do("usage")) == Usage(bytes=2 * made, chats=1)
        await write(here, do("save_conversation", replace(found, title=None, state=PURGED)))
        assert await read(there, do("usage")) == Usage(bytes=2 * made)
        assert await read(there, do("miscounts", 9)) == []

    async def test_bytes_of_a_conversation_are_those_of_its_branches_in_whole_blocks(
        self, here: Store, there: Store
    ) -> None:
        found, other = await insert_all(here, [conversation(), conversation()])
        await save_branch(here, found, bytes=BLOCK + 1)
        await branch_off(here, found, None)
        unknown = IDS.new(ConversationId)
        sizes = await read_all(there, "bytes_of", (found.id,), (other.id,), (unknown,))
        assert sizes == [branch_bytes(BLOCK + 1) + branch_bytes(0), branch_bytes(0), 0]

    async def test_link_is_the_one_that_the_owner_visits_by(self, here: Store, there: Store) -> None:
        share = link()
        await write(here, do("add_share", share))
        lost = guest_of(link().id, IDS.new(TokenId))
        for owner, found in ((guest_of(share.id, IDS.new(TokenId)), share), ("ann", None), (lost, None)):
            assert await read(there, do("link", owner=owner)) == found


async def _end(store: Store, found: Conversation, limit: int) -> None:
    await write(store, do("save_conversation", replace(found, state=PURGED)))
    for _ in range(20):
        [removed] = await write(store, do("purge_ended", limit))
        assert removed <= limit


async def _left(store: Store, turns: list[Turn]) -> list[Turn]:
    found = [await read(store, do("turn", each.id)) for each in turns]
    return [each for each in found if each is not None]
