"""Rows of other owners do not exist: no read finds them, and no write changes them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import dataclass
from typing import Any, TypeAlias

import pytest
from msgspec.structs import replace

from turnledger.engine.ports import Store
from turnledger.errors import StoreError
from turnledger.model.catalogue import ChatFilter
from turnledger.model.conversation import (
    Branch,
    Claim,
    Conversation,
    ConversationState,
    NewBranch,
    Origin,
    Stretch,
    Ticket,
    Usage,
    guest_of,
)
from turnledger.model.flags import Flags
from turnledger.model.ids import BranchId, LeaseId, TokenId, TurnId
from turnledger.model.item import Item
from turnledger.model.job import TurnJob
from turnledger.model.text.search import Phrase
from turnledger.model.turn import Attempt, Turn, TurnKind
from turnledger.testing.store_contract.rows.kit import (
    IDS,
    LATE,
    TableStep,
    add_ticket,
    branch_off,
    change,
    claim,
    conversation,
    do,
    do_whole,
    ended_attempt,
    full_attempt,
    insert_all,
    job,
    link,
    read,
    read_together,
    save_branch,
    ticket,
    turn,
    write,
)
from turnledger.testing.store_contract.stage import Contract

LINK = link(name="belongs to ann")
ANN = guest_of(LINK.id, IDS.new(TokenId))
"""A visitor of a link, so that every method finds something of hers."""
BOB = "bob"
Arguments: TypeAlias = tuple[Any, ...]


@dataclass(frozen=True)
class PreparedRows:
    """PreparedRows of one owner, of every kind."""

    chat: Conversation
    branch: Branch
    made: Branch
    """Made from the first turn; empty."""
    turns: list[Turn]
    running: Attempt
    ended: Attempt
    ticket: Ticket
    claim: Claim
    job: TurnJob

    @property
    def line(self) -> list[Stretch]:
        return [Stretch(self.chat.branch, 0, 9)]


async def insert_rows(store: Store, owner: str, text: str) -> PreparedRows:
    """Insert rows of every kind, each with this text if it has one."""
    details: list[dict[str, Any]] = [
        {"conversation_key": text, "tags": ("work",)},
        {"expires_after": 1, "scope": "shop"},
        {},
        {"state": ConversationState.DELETED, "purge_at": 1},
        {"is_listed": False},
        {"internal": True},
        {"pinned": True},
    ]
    chats = await insert_all(store, [conversation(owner=owner, title=text, **each) for each in details])
    chat, named, purged = chats[:3]
    turns = [turn(chat.branch, 1, text=text)]
    turns += [turn(chat.branch, 2, turns[0].id, text)]
    turns += [replace(turn(chat.branch, 3, turns[1].id, text), kind=TurnKind.SETTLED)]
    running = full_attempt(chat, input=(Item.of(text * 100),))
    ended = ended_attempt(chat, input=(Item.of(text),), partial=text)
    request = job(chat, body=text.encode())
    claimed = claim(owner=owner, idempotency_key=text, conversation=chat.id, attempt=running.id)

    def own(method: str, *arguments: Any) -> Any:
        return do(method, *arguments, owner=owner)

    await write(
        store,
        own("add_turn", turns[0], text.encode()),
        own("add_turn", turns[1]),
        own("add_turn", turn(purged.branch, 1, text=text)),
        own("save_conversation", replace(purged, state=ConversationState.PURGED)),
        own("save_flags", turns[0].id, {7: Flags(False, True)}),
        own("save_switches", chat.id, (turns[0].id,)),
        own("save_forgotten", chat.id, (b"f" * 16,)),
        own("add_attempt", running),
        own("add_attempt", ended),
        own("add_records", running.id, 0, [text.encode()]),
        own("add_log_chunk", running.id, 0, text.encode()),
        own("save_claim", claimed),
        own("add_job", request),
        own("add_change", change(owner, detail=text)),
        do("raise_admission", owner),
        do("beat", running.lease),
    )
    while (await write(store, do_whole("index_texts", 9)))[0]:
        pass
    # Not indexed, if the store has an index.
    await write(store, own("add_turn", turns[2]), own("save_conversation", replace(named, title=text * 2)))
    made, _ = await branch_off(store, chat, turns[0], Stretch(chat.branch, 0, 1))
    waiting = await add_ticket(store, chat, idempotency_key=text)
    branch = await save_branch(store, chat, length=3, head=turns[2].id, preview=text)
    return PreparedRows(chat, branch, made, turns, running, ended, waiting, claimed, request)


@dataclass(frozen=True)
class Reads:
    """A method that finds rows of its owner only."""

    calls: Callable[[PreparedRows], list[Arguments]]
    nothing: Any
    """Its answer to another owner."""
    is_list: bool = False
    """Whether the arguments name no row: it finds everything of its owner."""


@dataclass(frozen=True)
class ReadsAny:
    """A method about rows of all owners."""

    calls: Callable[[PreparedRows], list[Arguments]]


@dataclass(frozen=True)
class Writes:
    """A method that changes rows of its owner only. Given are the rows of another, and own ones."""

    calls: Callable[[PreparedRows, PreparedRows], list[Arguments]]


FILTERS: list[dict[str, Any]] = [
    {},
    {"scope": "shop"},
    {"tag": "work"},
    {"pinned": True},
    {"deleted": True},
    {"archived": None, "tag": "work", "scope": ""},
]

METHODS: Mapping[str, Reads | ReadsAny | Writes] = {
    # Conversations.
    "conversation": Reads(lambda p: [(p.chat.id,)], None),
    "conversation_by_key": Reads(lambda p: [("", p.chat.conversation_key)], None),
    "listed_chats": Reads(lambda p: [(ChatFilter(**each), None, 9) for each in FILTERS], [], is_list=True),
    "least_recent_conversations": Reads(
        lambda p: [(scope, None, 9) for scope in (None, "", "shop")], [], is_list=True
    ),
    "switches": Reads(lambda p: [(p.chat.id,)], ()),
    "forgotten": Reads(lambda p: [(p.chat.id,)], ()),
    "oldest_conversations": Reads(lambda p: [(99, 9)], [], is_list=True),
    "oldest_deleted": Reads(lambda p: [(9,)], [], is_list=True),
    "usage": Reads(lambda p: [()], Usage(bytes=0), is_list=True),
    "bytes_of": Reads(lambda p: [(p.chat.id,)], 0),
    "link": Reads(lambda p: [()], None, is_list=True),
    "add_conversation": Writes(
        lambda p, own: [
            (conversation(owner=ANN),),
            (conversation(owner=BOB, id=p.chat.id),),
            (conversation(owner=BOB, branch=p.chat.branch),),
        ]
    ),
    "save_conversation": Writes(
        lambda p, own: [
            (replace(p.chat, title="bob's", tags=("bob's",)),),
            (replace(p.chat, owner=BOB, title="bob's"),),
            (replace(p.chat, state=ConversationState.DELETED),),
            (replace(own.chat, branch=p.chat.branch),),
        ]
    ),
    "touch_conversation": Writes(lambda p, own: [(p.chat.id, LATE)]),
    "move_conversation": Writes(
        lambda p, own: [
            (p.chat.id, p.chat.branch, p.made.id),
            (p.chat.id, p.chat.branch, own.made.id),
            (own.chat.id, own.chat.branch, p.chat.branch),
        ]
    ),
    "save_switches": Writes(lambda p, own: [(p.chat.id, ())]),
    "save_forgotten": Writes(lambda p, own: [(p.chat.id, ())]),
    "purge_ended": Writes(lambda p, own: [(9,)]),
    "count_bytes": Writes(lambda p, own: [(7,)]),
    # Branches, turns and flags.
    "branch": Reads(lambda p: [(p.chat.branch,)], None),
    "first_branch": Reads(lambda p: [(p.chat.id,)], None),
    "branches": Reads(lambda p: [(p.chat.id, before, 9) for before in (None, p.made.id)], []),
    "origin": Reads(lambda p: [(p.made.id,)], None),
    "origins": Reads(lambda p: [(p.chat.id, p.turns[0].id, 9)], []),
    "has_offshoots": Reads(lambda p: [(p.chat.branch,)], False),
    "drop_turns": Writes(lambda p, own: [(p.chat.branch, 0), (p.made.id, 0)]),
    "drop_branch": Writes(lambda p, own: [(p.made.id,), (p.chat.branch,)]),
    "empty_branches_at": Reads(lambda p: [(p.turns[0], 9)], []),
    "turn": Reads(lambda p: [(p.turns[0].id,)], None),
    "turns": Reads(lambda p: [(p.chat.branch, 0, 9, 9)], []),
    "turns_in": Reads(lambda p: [(p.line,)], []),
    "effects_in": Reads(lambda p: [(p.line,)], []),
    "turn_log": Reads(lambda p: [(p.turns[0].id,)], b""),
    "flags": Reads(lambda p: [([p.turns[0].id],)], {}),
    "flags_in": Reads(lambda p: [(p.line,)], {}),
    "flag_version": Reads(lambda p: [()], 0, is_list=True),
    "add_branch": Writes(
        lambda p, own: [
            (Branch(id=IDS.new(BranchId), conversation=p.chat.id),),
            (Branch(id=p.chat.branch, conversation=own.chat.id),),
        ]
    ),
    "add_branches": Writes(
        lambda p, own: [
            ([NewBranch(Branch(id=IDS.new(BranchId), conversation=p.chat.id), None, ())],),
            ([NewBranch(Branch(id=p.chat.branch, conversation=own.chat.id), None, ())],),
        ]
    ),
    "save_branch": Writes(lambda p, own: [(replace(p.branch, preview="bob's", fence=99),)]),
    "add_origin": Writes(
        lambda p, own: [
            (Origin(branch=p.chat.branch, conversation=p.chat.id, base=p.turns[0].id),),
            (Origin(branch=p.made.id, conversation=own.chat.id, base=None),),
            (
                Origin(
                    branch=own.chat.branch,
                    conversation=own.chat.id,
                    base=p.turns[0].id,
                    line=(Stretch(p.chat.branch, 0, 1),),
                ),
            ),
        ]
    ),
    "add_turn": Writes(
        lambda p, own: [
            (turn(p.chat.branch, 4),),
            (replace(turn(own.chat.branch, 4), id=p.turns[0].id),),
        ]
    ),
    "save_flags": Writes(lambda p, own: [(p.turns[0].id, {}), (p.turns[1].id, {0: Flags(False, False)})]),
    # Lanes.
    "lane": Reads(lambda p: [(p.chat.id, p.running.lease)], None),
    "admission": Reads(lambda p: [()], 0, is_list=True),
    "attempt": Reads(lambda p: [(p.running.id,)], None),
    "attempts": Reads(lambda p: [(p.chat.id, 9)], []),
    "running_in": Reads(lambda p: [(p.chat.id,)], []),
    "journal": Reads(lambda p: [(p.running.id,)], []),
    "log_chunks": Reads(lambda p: [(p.running.id, 0, 9)], []),
    "tickets": Reads(lambda p: [(p.chat.branch,)], []),
    "ticket_for": Reads(lambda p: [(p.ticket.idempotency_key,)], None),
    "ticket": Reads(lambda p: [(p.ticket.attempt,)], None),
    "job": Reads(lambda p: [(p.job.id,)], None),
    "jobs": Reads(lambda p: [(None, 9)], [], is_list=True),
    "count_jobs": Reads(lambda p: [()], 0, is_list=True),
    "add_job": Writes(
        lambda p, own: [
            (job(p.chat),),
            (job(p.chat, owner=BOB),),
            (job(own.chat, owner=ANN),),
            (job(own.chat, id=p.job.id),),
        ]
    ),
    "count_resume": Writes(lambda p, own: [(p.job.id,)]),
    "drop_job": Writes(lambda p, own: [(p.job.id,)]),
    "lease": ReadsAny(lambda p: [(p.running.lease,)]),
    "add_attempt": Writes(
        lambda p, own: [
            (full_attempt(p.chat),),
            (full_attempt(p.chat, owner=BOB),),
            (full_attempt(own.chat, id=p.running.id),),
            (ended_attempt(own.chat, id=p.running.id),),
        ]
    ),
    "save_attempt": Writes(
        lambda p, own: [
            (replace(each, owner=owner, partial="bob's", journaled=9),)
            for each in (p.running, p.ended)
            for owner in (ANN, BOB)
        ]
    ),
    "drop_attempt": Writes(lambda p, own: [(p.running.id,), (p.ended.id,)]),
    "add_records": Writes(lambda p, own: [(p.running.id, 1, [b"bob's"]), (p.ended.id, 0, [b"bob's"])]),
    "drop_journal": Writes(lambda p, own: [(p.running.id,)]),
    "add_log_chunk": Writes(lambda p, own: [(p.running.id, 1, b"bob's"), (p.ended.id, 0, b"bob's")]),
    "drop_log": Writes(lambda p, own: [(p.running.id,)]),
    "add_ticket": Writes(
        lambda p, own: [
            (ticket(p.chat),),
            (ticket(own.chat, conversation=p.chat.id),),
            (ticket(own.chat, attempt=p.ticket.attempt),),
        ]
    ),
    "drop_ticket": Writes(lambda p, own: [(p.ticket.attempt,)]),
    "move_tickets": Writes(
        lambda p, own: [
            (p.chat.branch, p.made.id),
            (p.chat.branch, own.chat.branch),
            (own.chat.branch, p.chat.branch),
        ]
    ),
    "beat": Writes(lambda p, own: [(IDS.new(LeaseId),)]),
    # Claims, texts, changes and ids.
    "claim": Reads(lambda p: [(p.claim.idempotency_key,)], None),
    "save_claim": Writes(lambda p, own: [(replace(p.claim, attempt=IDS.new(TurnId)),)]),
    "drop_claim": Writes(lambda p, own: [(p.claim.idempotency_key,)]),
    "search": Reads(lambda p: [(None, [Phrase((p.turns[0].input[0].text.split()[-1],))], None, 9)], []),
    "forks_showing": Reads(lambda p: [(p.chat.branch, 1, 9)], []),
    "is_index_complete": ReadsAny(lambda p: [()]),
    "index_texts": Writes(lambda p, own: [(9,)]),
    "changes": Reads(lambda p: [(None, 9)], [], is_list=True),
    "add_change": Writes(lambda p, own: [(change(ANN),)]),
    "newest_position": ReadsAny(lambda p: [()]),
    "is_kept": ReadsAny(lambda p: [("",)]),
    "is_id_taken": ReadsAny(lambda p: [(p.chat.id,)]),
    "taken_turns": ReadsAny(lambda p: [([p.turns[0].id, p.running.id, p.ticket.attempt],)]),
    "taken_branches": ReadsAny(lambda p: [([p.chat.branch],)]),
}
"""The methods of `Tables`, with arguments that name rows of another owner."""

READS = {name: method for name, method in METHODS.items() if isinstance(method, Reads)}
READS_ANY = {name: method for name, method in METHODS.items() if isinstance(method, ReadsAny)}
WRITES = {name: method for name, method in METHODS.items() if isinstance(method, Writes)}


async def view(
    stores: list[Store], owner: str, named: PreparedRows, methods: Iterable[str] = READS
) -> dict[str, list[Any]]:
    """Call methods that read, as an owner, with arguments that name these rows; the answers are the same
    inside a transaction that writes."""
    found: dict[str, list[Any]] = {}
    repeated: list[TableStep] = []
    for name in methods:
        steps = [do(name, *arguments, owner=owner) for arguments in READS[name].calls(named)]
        try:
            found[name] = await read_together(stores[1], *steps)
        except StoreError:  # an own row refers to a foreign one
            found[name] = []
            continue
        repeated += steps
    assert await write(stores[0], *repeated) == [each for answers in found.values() for each in answers]
    return found


class ForeignRows(Contract):
    @pytest.mark.parametrize("method", READS)
    async def test_foreign_rows_are_not_found(self, stores: list[Store], method: str) -> None:
        await write(stores[0], do("add_share", LINK))
        rows = await insert_rows(stores[0], ANN, "belongs to ann")
        found = [(await view(stores, owner, rows, [method]))[method] for owner in (ANN, BOB)]
        nothing = READS[method].nothing
        assert nothing not in found[0]
        assert found[1] == [nothing] * len(found[0])

    @pytest.mark.parametrize("method", READS_ANY)
    async def test_rows_of_all_owners_are_found_by_any(self, stores: list[Store], method: str) -> None:
        rows = await insert_rows(stores[0], ANN, "belongs to ann")
        if method == "is_index_complete":
            await write(stores[0], do_whole("index_texts", 99))
        for arguments in READS_ANY[method].calls(rows):
            found = [await read(stores[1], do(method, *arguments, owner=owner)) for owner in (ANN, BOB)]
            assert found[0] == found[1]

    async def test_attempt_in_an_own_chat_is_not_added_to_another_owner(self, stores: list[Store]) -> None:
        own = await insert_rows(stores[0], BOB, "mine")
        added = full_attempt(own.chat, owner=ANN)
        with suppress(StoreError):
            await write(stores[0], do("add_attempt", added, owner=BOB))
        assert await read(stores[1], do("attempt", added.id, owner=ANN)) is None
        assert await read(stores[1], do("running_attempts", added.lease)) == []

    @pytest.mark.parametrize("method", WRITES)
    async def test_foreign_rows_are_not_changed(self, stores: list[Store], method: str) -> None:
        await write(stores[0], do("add_share", LINK))
        own = await insert_rows(stores[0], BOB, "mine")
        rows = await insert_rows(stores[0], ANN, "belongs to ann")
        before = await view(stores, ANN, rows)
        for number, arguments in enumerate(WRITES[method].calls(rows, own)):
            try:
                [answer] = await write(stores[0], do(method, *arguments, owner=BOB))
            except StoreError:
                answer = None
            where = f"call {number}"
            if method not in ("purge_ended", "index_texts"):  # which change own rows
                assert not answer, where
            assert await view(stores, ANN, rows) == before, where
            seen = await view(stores, BOB, rows)
            for name, each in READS.items():
                assert each.is_list or all(one == each.nothing for one in seen[name]), (where, name)
            assert "ann" not in repr([seen, await view(stores, BOB, own)]), where
