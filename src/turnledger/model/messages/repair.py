"""Repair of foreign histories, so that models accept them: well formed as in `open_calls`.

Repair only removes and moves items, and never invents a result: what became of a call without one is unknown.
Everything keeps its order, except moved results.

- A result answers the latest earlier call of its id and type; of parallel calls that share an id, the first
  without a result. When a later step reuses an id, earlier calls with it stop waiting.
- A call without a result is dropped. Those after the last message of the other side may still be answered by
  a client, and are kept unless `pending` is "drop"; of several with one id, the last.
- A result without a call is dropped: stray, before its call, of another type, or a second one.
- An empty assistant message is dropped. Blank messages of others stay: they were sent.
- Reasoning is dropped with the item it led to, the next one (of parallel calls: all of them), and where there
  is no such item. It never moves before an item that it did not lead to.
- A result moves directly after its call if it stands between reasoning and the item that led to, or if the id
  of its call is reused before it.

`fit_turn` repairs a foreign turn so that it can follow another, by the same rules, without changing the turn
before. A call that the turn before left unanswered is closed with the ledger's own words, since siblings may
answer it.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable, Iterator, Sequence
from enum import StrEnum

import msgspec

from turnledger.errors import InvalidInput, MalformedItems
from turnledger.model.item import Item, calls_left_open, can_follow_reasoning, closing_results, open_calls


class PendingPolicy(StrEnum):
    """How to treat unanswered calls after the last message of the other side."""

    KEEP = "keep"  # a client may still answer them
    DROP = "drop"  # no client will


class RepairAction(StrEnum):
    DROPPED = "dropped"
    MOVED = "moved"  # directly after its call


class RepairChange(msgspec.Struct, frozen=True):
    """One change: `place` is the index of the given item, `why` a sentence for people."""

    place: int
    action: RepairAction
    why: str


class RepairedHistory(msgspec.Struct, frozen=True):
    """A well-formed history, and the changes that made it so, ordered by place."""

    items: tuple[Item, ...]
    changes: tuple[RepairChange, ...]


def repair(items: Iterable[Item], *, pending: PendingPolicy | str = PendingPolicy.KEEP) -> RepairedHistory:
    """Return the items as a history that a model accepts, with the reason of each change.

    Deterministic and idempotent. Raises InvalidInput for an unknown `pending`, and nothing else.
    """
    if pending not in tuple(PendingPolicy):
        raise InvalidInput(f"pending is {pending!r}; it must be one of {', '.join(PendingPolicy)}.")
    return _Repair(tuple(items), PendingPolicy(pending)).result()


class _Repair:
    """The decisions about the places of a history. Each step builds on the decisions of those before."""

    def __init__(self, given: Sequence[Item], pending: PendingPolicy) -> None:
        self._given = given
        self._changes: dict[int, RepairChange] = {}
        self._answers: dict[int, int] = {}  # the place of a call -> the place of its result
        self._drop_empty_messages()
        self._pair()
        self._drop_unanswered(pending)
        self._part_calls_of_one_id()
        self._keep_reasoning_with_its_item()

    def result(self) -> RepairedHistory:
        items: list[Item] = []
        for place, item in enumerate(self._given):
            if place not in self._changes:
                items.append(item)
                answer = self._answers.get(place)
                if answer is not None and answer in self._changes:
                    items.append(self._given[answer])
        return RepairedHistory(tuple(items), tuple(self._changes[place] for place in sorted(self._changes)))

    def _backwards(self) -> Iterator[tuple[int, Item]]:
        return zip(range(len(self._given) - 1, -1, -1), reversed(self._given), strict=True)

    def _drop(self, place: int, why: str) -> None:
        self._changes[place] = RepairChange(place, RepairAction.DROPPED, why)

    def _move(self, place: int, why: str) -> None:
        self._changes.setdefault(place, RepairChange(place, RepairAction.MOVED, why))

    def _drop_empty_messages(self) -> None:
        for place, item in enumerate(self._given):
            if item.is_empty_answer:
                self._drop(place, "This assistant message says nothing.")

    def _pair(self) -> None:
        waiting: dict[tuple[str | None, str], deque[int]] = {}
        called: dict[str | None, str] = {}
        steps = _steps(self._given)
        for place, item in enumerate(self._given):
            if item.is_call:
                calls = waiting.setdefault((item.call_id, f"{item.type}_output"), deque())
                if calls and steps[calls[-1]] != steps[place]:
                    calls.clear()  # else a second result of this call would count as one of theirs
                calls.append(place)
                called[item.call_id] = item.type
            elif item.is_result:
                calls = waiting.get((item.call_id, item.type), deque())
                if calls:
                    self._answers[calls.popleft()] = place
                else:
                    self._drop(place, _stray_reason(item, called.get(item.call_id)))

    def _drop_unanswered(self, pending: PendingPolicy) -> None:
        later: set[str | None] = set()  # the ids of the calls that stay
        has_moved_on = pending is PendingPolicy.DROP
        for place, item in self._backwards():
            has_moved_on = has_moved_on or _is_from_others(item)
            if not item.is_call:
                continue
            if place in self._answers or not (has_moved_on or item.call_id in later):
                later.add(item.call_id)
            else:
                self._drop(place, f"This {item.type} of the id {item.call_id} has no result.")

    def _part_calls_of_one_id(self) -> None:
        next_call: dict[str | None, int] = {}
        for place, item in self._backwards():
            if not item.is_call or place in self._changes:
                continue
            answer = self._answers.get(place)
            if answer is not None and next_call.get(item.call_id, answer) < answer:
                self._move(answer, f"Another call uses the id {item.call_id} before this result.")
            next_call[item.call_id] = place

    def _keep_reasoning_with_its_item(self) -> None:
        """Drop reasoning whose item is dropped; move results that stand between reasoning and its item."""
        stays = False  # the item that reasoning at this place would lead to
        call_stays = False  # one of the calls directly after this place
        between: list[int] = []  # the results between this place and that item
        for place, item in self._backwards():
            if item.is_reasoning:
                call_stays = False
                if not stays:
                    self._drop(place, "What this reasoning led to is not there.")
                while stays and between:
                    self._move(between.pop(), "This result stands between reasoning and what that led to.")
            elif item.is_result:
                call_stays = False
                between.append(place)
            elif item.is_call:
                stays = call_stays = call_stays or place not in self._changes
                between.clear()
            elif place not in self._changes:
                stays, call_stays = can_follow_reasoning(item), False
                between.clear()


def _steps(items: Sequence[Item]) -> list[int]:
    """Number the steps: a step is what a model made at once, without a result or a message of others."""
    steps: list[int] = []
    step = 0
    for item in items:
        step += not can_follow_reasoning(item)
        steps.append(step)
    return steps


def _is_from_others(item: Item) -> bool:
    return not item.is_result and not can_follow_reasoning(item)


def _stray_reason(result: Item, call_type: str | None) -> str:
    if call_type is None:
        return f"No call of the id {result.call_id} stands before this result."
    if f"{call_type}_output" != result.type:
        return f"This result for {result.call_id} is a {result.type}, the call a {call_type}."
    return f"The call {result.call_id} has a result already."


class FittedTurn(msgspec.Struct, frozen=True):
    """A turn that is well formed after the one before it, and the changes as sentences."""

    input: tuple[Item, ...]
    output: tuple[Item, ...]
    changes: tuple[str, ...] = ()

    @property
    def items(self) -> tuple[Item, ...]:
        return (*self.input, *self.output)


def fit_turn(pending: Sequence[Item], input: Sequence[Item], output: Sequence[Item]) -> FittedTurn:
    """Make a turn fit after one that left these calls open. A turn that fits is not changed; one that cannot
    be saved comes back empty."""
    items = (*input, *output)
    if fits(pending, items):
        return FittedTurn(tuple(input), tuple(output))
    by_id: dict[str | None, list[Item]] = {}
    for item in items:
        by_id.setdefault(item.call_id, []).append(item)
    missing = [call for call in pending if not _is_answered(call, by_id.get(call.call_id, ()))]
    filled = closing_results(missing)
    changes = [f"The call {call.call_id} of the turn before has no result: it is closed." for call in missing]
    items = (*filled, *items)
    if not fits(pending, items):
        repaired = repair((*pending, *items))
        changes += _sentences(repaired, len(pending) + len(filled))
        before = {id(call) for call in pending}
        items = tuple(item for item in repaired.items if id(item) not in before)
    if not fits(pending, items):
        return FittedTurn((), (), (*changes, "It does not fit behind the turn before."))
    input_ids = {id(item) for item in (*filled, *input)}
    count = max((place + 1 for place, item in enumerate(items) if id(item) in input_ids), default=0)
    return FittedTurn(items[:count], items[count:], tuple(changes))


def fits(pending: Sequence[Item], items: Sequence[Item]) -> bool:
    """Return whether a turn answers all calls open before it, and is well formed itself."""
    try:
        left = open_calls((*pending, *items))
    except MalformedItems:
        return False
    if not left:
        return True
    return set(calls_left_open(items)).issuperset(left)


def _is_answered(call: Item, items: Sequence[Item]) -> bool:
    """Return whether the next item with the id of this call is its result."""
    for item in items:
        if item.is_call:
            return False
        if item.type == f"{call.type}_output":
            return True
    return False


def _sentences(repaired: RepairedHistory, first: int) -> list[str]:
    return [
        f"Item {change.place - first} was {change.action.value}: {change.why}"
        for change in repaired.changes
        if change.place >= first
    ]
