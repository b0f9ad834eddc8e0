"""Engine operations on SQLite and on the memory reference return the same results, refusals and rows."""

from __future__ import annotations

from dataclasses import replace
from itertools import product
from operator import attrgetter
from typing import Any

import pytest
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, precondition, rule

from tests.stateful import invariants
from tests.stateful.choices import (
    BEGINNING,
    BROKEN,
    ELSEWHERE,
    SUCCESSFUL,
    failures,
    keys,
    late,
    leases,
    narrowed,
    on_stop,
    owners,
    picks,
    places,
    policies,
    reset_policies,
    scopes,
    steps,
    times,
)
from tests.stateful.names import BRANCHES, CONVERSATION_KEYS, CONVERSATIONS, LEASES, OWNERS, TURNS
from tests.stateful.pair import Outcome, Pair, chats_listed, repeatable
from tests.stateful.tracked_request import TrackedRequest
from tests.unit.model.shapes import user
from turnledger.engine.attempt.commit_in_doubt import DoubtRequest, resolve_doubt
from turnledger.engine.attempt.dead_process import (
    AttemptRef,
    BuryRequest,
    TakeOverRequest,
    WithdrawRequest,
    bury,
    held_by,
    take_over,
    withdraw,
)
from turnledger.engine.attempt.end import end
from turnledger.engine.attempt.fork import Divergence
from turnledger.engine.attempt.idempotency import IdempotencyKey, claim_name
from turnledger.engine.attempt.outcome import OutcomeRequest, outcome
from turnledger.engine.attempt.stop import StopRequest, request_stop, stops_for
from turnledger.engine.conversations.catalogue import ListChats
from turnledger.engine.conversations.details import UpdateRequest, update
from turnledger.engine.conversations.flags import FlagRequest, flag
from turnledger.engine.conversations.read import TurnPageRequest, attempts_page, turns_page
from turnledger.engine.conversations.resolve import (
    ResolveRequest,
    Target,
    new_conversation,
    resolve_now,
    resolve_settled,
)
from turnledger.engine.conversations.title import NameRequest, name_by_model
from turnledger.engine.lane.lease_watch import renew
from turnledger.engine.lifecycle.create import ResetRequest, reset
from turnledger.engine.lifecycle.delete import (
    DeleteRequest,
    EndDueRequest,
    FindDueRequest,
    RestoreRequest,
    delete,
    end_due,
    find_due,
    restore,
)
from turnledger.engine.lifecycle.moves import ForkRequest, SiblingsRequest, Switch, Undo, fork, siblings
from turnledger.engine.lifecycle.purge import PurgeRequest, purge
from turnledger.engine.ports import WholeStore
from turnledger.engine.tables.lanes import HeldTicket
from turnledger.engine.turn.begin import MustReachDisk, begin
from turnledger.engine.turn.commit import commit
from turnledger.engine.turn.queue import AbandonRequest, abandon
from turnledger.engine.turn.running_turn import record
from turnledger.model.catalogue import ChatFilter, ListPosition
from turnledger.model.conversation import Conversation, Within
from turnledger.model.ids import ConversationId, LeaseId
from turnledger.model.reset_policy import NEVER, ResetPolicy
from turnledger.model.turn import Failure, OnBusy, OnFailure, OnStop, Turn

pytestmark = pytest.mark.timeout(600)  # a failure is made small before it is shown, which takes a while

has_names_left = precondition(lambda machine: len(machine.requests) < len(TURNS))


def has(what: str) -> Any:
    """Not before there are such requests."""
    return precondition(lambda machine: bool(getattr(machine, what)))


def one_of(requests: list[TrackedRequest], pick: int) -> TrackedRequest:
    """The request that is picked: 0 is the latest."""
    return requests[-1 - pick % len(requests)]


async def left_in_order(whole: WholeStore, lease: LeaseId) -> tuple[list[AttemptRef], list[HeldTicket]]:
    """What `held_by` finds; in which order is the store's choice."""
    attempts, tickets = await held_by(whole, lease)
    return sorted(attempts, key=attrgetter("attempt")), sorted(tickets, key=attrgetter("ticket.attempt"))


async def due_in_order(whole: WholeStore, request: FindDueRequest) -> dict[str, list[ConversationId]]:
    found = await find_due(whole, request)
    return {owner: found[owner] for owner in sorted(found)}


async def purge_all(whole: WholeStore, request: PurgeRequest) -> None:
    """Purge until nothing is left that nobody needs. When each of it is found is the store's choice."""
    for _ in range(len(CONVERSATIONS) + 1):
        await purge(whole, request)


class Operations(RuleBasedStateMachine):
    kind = Pair
    enough = 6
    """Requests after which conversations may be deleted: earlier, little would have happened on them."""

    def __init__(self) -> None:
        super().__init__()
        self.pair = self.kind()
        self.now = 1_000
        self.requests: list[TrackedRequest] = []
        self.branches = list(BRANCHES[len(CONVERSATIONS) :])
        """Those not yet named."""

    @property
    def holders(self) -> list[TrackedRequest]:
        """Those who hold a lane, or believe so."""
        return [each for each in self.requests if each.begun is not None]

    @property
    def waiters(self) -> list[TrackedRequest]:
        return [each for each in self.requests if each.begun is None and each.queued is not None]

    def run(self, operation: Any, request: Any, owner: str | None) -> Outcome:
        """Run an operation on the rows of an owner, or of all (None)."""
        before = self.pair.seen
        found = self.pair.transact(operation, request, owner)
        invariants.check(before, self.pair.seen)
        return found

    def fresh(self, owner: str, **details: Any) -> Conversation | None:
        """A conversation that is not there yet, while there are names left."""
        there = sum(f"branch {number}" in self.pair.seen for number in range(1, len(CONVERSATIONS) + 1))
        if there == len(CONVERSATIONS):
            return None
        return new_conversation(owner, CONVERSATIONS[there], BRANCHES[there], self.now, **details)

    @initialize(expires_after=st.sampled_from([None, None, 3_000]), reset_policy=reset_policies)
    def start(self, expires_after: int | None, reset_policy: ResetPolicy) -> None:
        self.make_conversations(expires_after, reset_policy)

    def make_conversations(self, expires_after: int | None, reset_policy: ResetPolicy = NEVER) -> None:
        for lease in LEASES[:2]:
            self.run(renew, lease, None)
        for owner in OWNERS:
            key = CONVERSATION_KEYS[0]
            details = {"expires_after": expires_after, "reset_policy": reset_policy}
            fresh = self.fresh(owner, conversation_key=key, **details)
            target = Target(owner, None, key, fresh, reset_policy)
            self.run(resolve_now, ResolveRequest(target, self.now), owner)

    # A turn.

    def begins(
        self,
        owner: str,
        where: str | int,
        lease: Any,
        input: Any,
        policies: dict[str, Any],
        key: str | None,
        body: bytes,
        what: list[str],
        then: str,
        scope: str = "",
        within: str | None = None,
        **more: Any,
    ) -> None:
        """Begin, and go on from there for a while."""
        scope = scope if within is None else within
        if isinstance(where, int):
            aim = Target(owner, CONVERSATIONS[where], scope=scope, within=Within(within))
        else:
            fresh = self.fresh(owner, conversation_key=where, scope=scope)
            aim = Target(owner, None, where, fresh, scope=scope, within=Within(within))
        fields = {
            "target": aim,
            "attempt": TURNS[len(self.requests)],
            "lease": lease,
            "input": input,
            "now": self.now,
            "wait_until": self.now + 2_500,
            "queue_limit": 2,
            "key": IdempotencyKey(claim_name(key, Within(within)), body) if key else None,
        }
        request = TrackedRequest({**fields, **policies, **more})
        self.requests.append(request)
        found = self.run(begin, request.first(), owner)
        request.take_answer(found.value)
        if found.error is MustReachDisk:
            self.send_again(request, sees_death=False, is_durable=True)
        if request.begun is not None:
            self.write_journal(request, what, late=0)
            if then == "commit":
                self.run(commit, request.commit(self.now, 0), owner)
            elif then != "leave":
                failure = BROKEN if then == "fail" else None
                self.run(end, request.end(self.now, 0, failure, None), owner)

    # Thrice, so that it is chosen more often than the rest.
    begin_one = has_names_left(rule(**BEGINNING)(begins))
    begin_another = has_names_left(rule(**BEGINNING)(begins))
    begin_a_third = has_names_left(rule(**BEGINNING)(begins))

    # Other branches.

    def line(self, place: int) -> list[Turn]:
        """The turns that a conversation shows."""
        found = [self.pair.seen.get(f"{owner}'s conversation {place + 1}") for owner in OWNERS]
        shown = next((one.branch for one in found if one is not None), None)
        return self.pair.seen.get(f"line of {BRANCHES.index(shown) + 1}", []) if shown else []

    def edits(self, where: Any, back: int, regenerates: bool, shown: bool, **rest: Any) -> None:
        where = where if isinstance(where, int) else 0
        turns = self.line(where if shown else 1 - min(where, 1))
        wish = Divergence(
            branch=self.branches.pop(0),
            replaces=turns[-1 - back % len(turns)].id if turns and not (regenerates and back == 0) else None,
            regenerates=regenerates or not turns,
        )
        if wish.regenerates:
            rest["input"] = ()
        body = repr((wish.replaces, regenerates)).encode() + rest.pop("body")
        self.begins(where=where, body=body, diverge=wish, **rest)

    # Twice, as above.
    edit_one = has_names_left(has("branches")(rule(**ELSEWHERE)(edits)))
    edit_another = has_names_left(has("branches")(rule(**ELSEWHERE)(edits)))

    @has_names_left
    @has("branches")
    @rule(owner=owners, place=places, lease=leases, forget=st.booleans(), policies=policies)
    def undoes(self, owner: str, place: int, lease: Any, forget: bool, policies: dict[str, Any]) -> None:
        self.moves(owner, place, lease, Undo(self.branches.pop(0), forget), policies)

    @has_names_left
    @rule(owner=owners, place=places, lease=leases, pick=picks, own=st.booleans(), policies=policies)
    def switches(
        self, owner: str, place: int, lease: Any, pick: int, own: bool, policies: dict[str, Any]
    ) -> None:
        made = [each for number in range(1, 16) if (each := self.pair.seen.get(f"branch {number}"))]
        there = [each.id for each in made if not own or each.conversation == CONVERSATIONS[place]]
        branch = there[-1 - pick % len(there)] if there else BRANCHES[-1]
        self.moves(owner, place, lease, Switch(branch), policies)

    def moves(self, owner: str, place: int, lease: Any, move: Any, policies: dict[str, Any]) -> None:
        self.begins(
            owner, place, lease, (), {"on_busy": policies["on_busy"]}, None, b"", [], "leave", move=move
        )

    @rule(owner=owners, place=places, back=st.none() | picks, key=keys)
    def is_forked(self, owner: str, place: int, back: int | None, key: str | None) -> None:
        turns = self.line(place)
        turn = turns[-1 - back % len(turns)].id if turns and back is not None else None
        fresh = self.fresh(owner, conversation_key=key)
        if fresh is not None:
            request = ForkRequest(CONVERSATIONS[place], turn, fresh, self.now, self.now)
            self.run(fork, request, owner)
            self.run(fork, request, owner)  # the answer was lost

    @has("requests")
    @rule(pick=picks)
    def begins_again(self, pick: int) -> None:
        self.send_again(one_of(self.requests, pick), sees_death=False)

    @has("waiters")
    @rule(pick=picks, sees_death=st.booleans())
    def looks_again(self, pick: int, sees_death: bool) -> None:
        self.send_again(one_of(self.waiters, pick), sees_death=sees_death)

    def send_again(self, request: TrackedRequest, *, sees_death: bool, is_durable: bool = False) -> None:
        again = request.again(self.now, sees_death=sees_death, is_durable=is_durable)
        found = self.run(begin, again, request.owner)
        request.take_answer(found.value)
        if found.error is MustReachDisk:
            self.send_again(request, sees_death=sees_death, is_durable=True)

    @has("holders")
    @rule(pick=picks, what=steps, late=late)
    def records(self, pick: int, what: list[str], late: int) -> None:
        self.write_journal(one_of(self.holders, pick), what, late)

    def write_journal(self, tracked: TrackedRequest, what: list[str], late: int) -> None:
        for each in what:
            written, journal = tracked.step(each)
            request = tracked.record(written, late)
            if self.run(record, request, tracked.owner).error is not None:
                return
            tracked.journal, tracked.journaled = journal, tracked.journaled + len(written)
        if what:
            self.run(record, request, tracked.owner)  # the last answer was lost

    @has("holders")
    @rule(pick=picks, late=late)
    def commits(self, pick: int, late: int) -> None:
        request = one_of(self.holders, pick)
        self.run(commit, request.commit(self.now, late), request.owner)

    @has("holders")
    @rule(pick=picks, late=late, failure=failures, on_stop=on_stop)
    def ends(self, pick: int, late: int, failure: Failure | None, on_stop: OnStop | None) -> None:
        request = one_of(self.holders, pick)
        self.run(end, request.end(self.now, late, failure, on_stop), request.owner)

    @has("holders")
    @rule(pick=picks)
    def is_in_doubt(self, pick: int) -> None:
        request = one_of(self.holders, pick)
        assert request.begun is not None
        attempt = request.begun.attempt
        found = self.run(
            resolve_doubt, DoubtRequest(attempt.branch, attempt.id, attempt.lease), attempt.owner
        )
        request.fence = found.value.fence or request.fence

    @has("requests")
    @rule(pick=picks)
    def gives_up(self, pick: int) -> None:
        request = one_of(self.requests, pick)
        self.run(abandon, AbandonRequest(request.fields["attempt"], self.now), request.owner)

    # Other processes.

    @has("requests")
    @rule(lease=leases)
    def renews(self, lease: Any) -> None:
        self.run(renew, lease, None)

    @has("requests")
    @rule(pick=picks, late=late, drop_lease=st.booleans())
    def is_taken_over(self, pick: int, late: int, drop_lease: bool) -> None:
        lease = one_of(self.requests, pick).fields["lease"]
        attempts, tickets = self.pair.read(left_in_order, lease, None).value
        for left in attempts:
            seen = replace(left, fence=left.fence - late)
            self.run(take_over, TakeOverRequest(seen, self.now), left.owner)
        for owner in OWNERS:
            names = tuple(each.ticket.attempt for each in tickets if each.owner == owner)
            self.run(withdraw, WithdrawRequest(lease, names, self.now), owner)
        found = self.pair.seen.get(f"lease {LEASES.index(lease) + 1}")
        if drop_lease and found is not None:
            self.run(bury, BuryRequest(lease, {lease: found.beat}), None)

    @has("requests")
    @rule(owner=owners, place=places, pick=picks, policy=on_stop, by_name=st.booleans())
    def stops(self, owner: str, place: int, pick: int, policy: OnStop | None, by_name: bool) -> None:
        name = one_of(self.requests, pick).fields["attempt"] if by_name else None
        request = StopRequest(owner, CONVERSATIONS[place], name, policy, self.now, self.now)
        self.run(request_stop, request, owner)

    # Conversations.

    @has("requests")
    @rule(owner=owners, place=places, pick=picks, item=st.integers(0, 3), to_model=st.none() | st.booleans())
    def is_flagged(self, owner: str, place: int, pick: int, item: int, to_model: bool | None) -> None:
        name = one_of(self.requests, pick).fields["attempt"]
        request = FlagRequest(
            CONVERSATIONS[place],
            name,
            (item,),
            to_model,
            not to_model,
            limit=1,
            now=self.now,
            due=self.now,
        )
        self.run(flag, request, owner)

    @rule(
        owner=owners,
        place=places,
        title=st.none() | st.sampled_from(["T", ""]),
        tags=st.none() | st.sampled_from([(), ("a",), ("b", "a")]),
        marks=st.tuples(st.none() | st.booleans(), st.none() | st.booleans()),
        revision=st.none() | st.integers(1, 3),
    )
    def is_renamed(
        self,
        owner: str,
        place: int,
        title: str | None,
        tags: tuple[str, ...] | None,
        marks: tuple[bool | None, bool | None],
        revision: int | None,
    ) -> None:
        request = UpdateRequest(
            id=CONVERSATIONS[place],
            title=title,
            metadata={"a": "b"},
            tags=tags,
            pinned=marks[0],
            archived=marks[1],
            revision=revision,
            now=self.now,
            due=self.now,
        )
        self.run(update, request, owner)

    @rule(owner=owners, place=places)
    def is_named_by_a_model(self, owner: str, place: int) -> None:
        request = NameRequest(CONVERSATIONS[place], "Made up", self.now, self.now)
        self.run(name_by_model, request, owner)

    @precondition(lambda machine: len(machine.requests) >= machine.enough)
    @rule(
        owner=owners, place=places, key=keys, internal=st.booleans(), kept=st.sampled_from([None, 0, 2_000])
    )
    def is_deleted_and_another_made(
        self, owner: str, place: int, key: str | None, internal: bool, kept: int | None
    ) -> None:
        purge_at = None if kept is None else self.now + kept
        request = DeleteRequest(CONVERSATIONS[place], self.now, purge_at)
        first = self.run(delete, request, owner)
        assert self.run(delete, request, owner) == first  # the first answer was lost
        aim = Target(owner, None, key, self.fresh(owner, conversation_key=key, internal=internal))
        self.run(resolve_now, ResolveRequest(aim, self.now), owner)

    @rule(owner=owners, place=places, within=narrowed, kept=st.none() | st.just(2_000))
    def is_restored(self, owner: str, place: int, within: str | None, kept: int | None) -> None:
        request = RestoreRequest(CONVERSATIONS[place], self.now, self.now, Within(within), kept)
        first = self.run(restore, request, owner)
        assert self.run(restore, request, owner) == first  # the first answer was lost

    @precondition(lambda machine: len(machine.requests) >= machine.enough // 2)
    @rule(owner=owners, key=keys, place=st.none() | places, scope=scopes, within=narrowed)
    def is_reset(
        self, owner: str, key: str | None, place: int | None, scope: str, within: str | None
    ) -> None:
        key = key or CONVERSATION_KEYS[0]
        scope = scope if within is None else within
        fresh = self.fresh(owner, conversation_key=key, scope=scope)
        if fresh is not None:
            replaces = None if place is None else CONVERSATIONS[place]
            request = ResetRequest(scope, key, replaces, fresh, self.now, Within(within))
            first = self.run(reset, request, owner)
            assert self.run(reset, request, owner) == first  # the first answer was lost

    @rule(owner=owners, key=keys, policy=reset_policies)
    def is_opened_with_a_policy(self, owner: str, key: str | None, policy: ResetPolicy) -> None:
        key = key or CONVERSATION_KEYS[0]
        fresh = self.fresh(owner, conversation_key=key, reset_policy=policy)
        request = ResolveRequest(Target(owner, None, key, fresh, policy), self.now)
        settled = self.pair.read(resolve_settled, request, owner)
        found = self.run(resolve_now, request, owner)
        assert settled.value is None or settled == found

    @rule(passed=times, kept=st.none() | st.sampled_from([0, 2_000]))
    def time_passes(self, passed: int, kept: int | None) -> None:
        self.now += passed
        if kept is not None:
            unlisted_by = self.now - 2_000
            due = self.pair.read(due_in_order, FindDueRequest(self.now, unlisted_by, 500), None).value
            for owner, ids in due.items():
                request = EndDueRequest(ids, self.now, self.now, unlisted_by)
                assert self.run(end_due, request, owner).value == len(ids)
            rest = [each for each in CONVERSATIONS if not any(each in ids for ids in due.values())]
            for owner in OWNERS:
                assert not self.run(
                    end_due, EndDueRequest(rest, self.now, self.now, unlisted_by), owner
                ).value
            self.run(purge_all, PurgeRequest(self.now, kept, 500), None)

    # Reading.

    @has("requests")
    @rule(owner=owners, place=places, before=st.sampled_from([None, 1, 2, 9]), pick=picks)
    def is_read(self, owner: str, place: int, before: int | None, pick: int) -> None:
        page = TurnPageRequest(CONVERSATIONS[place], before, 2, self.now)
        self.pair.read(turns_page, page, owner)
        self.pair.read(attempts_page, page, owner)
        behind = ListPosition(self.now, CONVERSATIONS[place])
        for scope, archived in product((None, "app"), (None, False, True)):
            wanted = ChatFilter(scope=scope, archived=archived)
            self.pair.read(chats_listed, ListChats(wanted, behind, 2, self.now), owner)
        tried = one_of(self.requests, pick)
        request = OutcomeRequest(tried.fields["attempt"], CONVERSATIONS[place])
        self.pair.read(outcome, request, tried.owner)
        self.pair.read(stops_for, tried.fields["lease"], None)
        for turn in self.line(place):
            sibling = SiblingsRequest(CONVERSATIONS[place], turn.id, 3, self.now)
            self.pair.read(siblings, sibling, owner)

    def teardown(self) -> None:
        self.pair.close()


class Branched(Operations):
    """The same on a conversation that has a past, where most edits go well."""

    enough = 14

    @initialize(expires_after=st.sampled_from([None] * 4 + [3_000]), acted=st.booleans())
    def start(self, expires_after: int | None, acted: bool) -> None:
        self.make_conversations(expires_after)
        calm = {"on_busy": OnBusy.QUEUE, "on_stop": OnStop.KEEP, "on_failure": OnFailure.SETTLE}
        for then in ("commit", "fail" if acted else "commit", "commit"):
            self.begins(
                OWNERS[0], 0, LEASES[0], (user(),), calm, None, b"", ["call", "start", "result"], then
            )

    edit_one = has_names_left(has("branches")(rule(**SUCCESSFUL)(Operations.edits)))
    edit_another = has_names_left(has("branches")(rule(**SUCCESSFUL)(Operations.edits)))
    begin_one = has_names_left(rule(**{name: SUCCESSFUL[name] for name in BEGINNING})(Operations.begins))


TestOperations = Operations.TestCase
TestOperations.settings = repeatable(examples=5, steps=50)
TestBranched = Branched.TestCase
TestBranched.settings = repeatable(examples=5, steps=40)
