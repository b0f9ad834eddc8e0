"""Well-formed histories: each call has its result, per occurrence and in order, and reasoning stays with
the item it belongs to. Call ids repeat in practice, so nothing here treats them as unique."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from turnledger.errors import MalformedItems, MissingToolResults, NoNewInput
from turnledger.model.item import Item, result_of

NOT_ANSWERED = "Not answered: the conversation moved on before a result was given for this call."
NOT_STARTED = "Not started: the turn ended before this call was run. It has had no effect."


def open_calls(items: Iterable[Item]) -> tuple[Item, ...]:
    """Return the calls that no later item answers, in order. Raises MalformedItems for a stray result, a call
    id reused while its call is open, or reasoning without the item it belongs to."""
    waiting: dict[str, Item] = {}
    reasoning: Item | None = None
    for item in items:
        if reasoning is not None and not item.is_reasoning and not can_follow_reasoning(item):
            raise MalformedItems(f"A reasoning item is followed by a {item.type}, not by what it led to.")
        reasoning = item if item.is_reasoning else None
        if item.type == "message":
            continue
        call_id = item.call_id or ""
        if item.is_call:
            if call_id in waiting:
                raise MalformedItems(f"The call id {call_id} is reused before its result has arrived.")
            waiting[call_id] = item
        elif item.is_result:
            call = waiting.pop(call_id, None)
            if call is None:
                raise MalformedItems(f"There is a result for {call_id}, but no such call is pending.")
            if f"{call.type}_output" != item.type:
                raise MalformedItems(f"The result for {call_id} is a {item.type}, the call a {call.type}.")
    if reasoning is not None:
        raise MalformedItems("A reasoning item at the end lacks the item it led to.")
    return tuple(waiting.values())


def calls_left_open(turn: Iterable[Item]) -> tuple[Item, ...]:
    """Return the calls that a committed turn leaves open, whatever it answered of the turn before."""
    waiting: dict[str | None, Item] = {}
    for item in turn:
        if item.type == "message":
            continue
        if item.is_call:
            waiting[item.call_id] = item
        elif item.is_result:
            waiting.pop(item.call_id, None)
    return tuple(waiting.values())


def pair_places(items: Iterable[Item]) -> list[tuple[int, int]]:
    """Return the places of each answered call and its result, per occurrence."""
    found: list[tuple[int, int]] = []
    waiting: dict[str | None, int] = {}
    for place, item in enumerate(items):
        if item.is_call:
            waiting[item.call_id] = place
        elif item.is_result and item.call_id in waiting:
            found.append((waiting.pop(item.call_id), place))
    return found


def started_calls(output: Sequence[Item]) -> tuple[int, ...]:
    """Return the places of calls with a result in the same output, except those reported as not started."""
    ran = (call for call, result in pair_places(output) if output[result].fields.get("output") != NOT_STARTED)
    return tuple(sorted(ran))


def closing_results(pending: Iterable[Item]) -> tuple[Item, ...]:
    """Return the filled-in result for each of these calls, when the conversation moves on without one."""
    return tuple(result_of(call, NOT_ANSWERED) for call in pending)


def adapt_input(pending: Iterable[Item], input: Iterable[Item]) -> tuple[Item, ...]:
    """Adapt the input of a turn to another place, where these calls wait: it closes them, and answers
    none."""
    return (*closing_results(pending), *without_answers(input))


def without_answers(input: Iterable[Item]) -> tuple[Item, ...]:
    """Return the input of a turn without results for calls of the turn before. Calls with their results, as
    in a client's copy of a history, stay."""
    open_here: set[str | None] = set()
    kept: list[Item] = []
    for item in input:
        if item.is_call:
            open_here.add(item.call_id)
        elif item.is_result:
            if item.call_id not in open_here:
                continue
            open_here.remove(item.call_id)
        kept.append(item)
    return tuple(kept)


def without_repeated_answers(earlier: Iterable[Item], new: Sequence[Item]) -> tuple[Item, ...]:
    """Return new input without results that `earlier` already gave to calls of the turn before."""
    answered = {item.call_id for item in earlier if item.is_result}
    stays = set(without_answers(new) if answered else new)
    return tuple(item for item in new if item in stays or item.call_id not in answered)


def can_follow_reasoning(item: Item) -> bool:
    """Return whether a model makes such items: results and messages of others never follow reasoning."""
    return not item.is_result and item.role in (None, "assistant")


def check_input(new: Sequence[Item]) -> None:
    """Reject input that no head could admit: nothing new, or items that only a model makes."""
    has_result = False
    for item in new:
        if item.type == "message":
            continue
        if item.is_call or item.is_reasoning:
            raise MalformedItems(f"A {item.type} cannot be input: only models produce it.")
        has_result = has_result or item.is_result
    if not has_result and not _has_user_message(new):
        raise NoNewInput


def check_resent(new: Sequence[Item]) -> None:
    """Reject a history without new input. Unlike input, it may contain what models made, calls included."""
    if not _has_user_message(new) and not any(item.is_result for item in new):
        raise NoNewInput


def _has_user_message(new: Sequence[Item]) -> bool:
    return any(item.is_user_message and not item.is_blank for item in new)


def admit(pending: Sequence[Item], new: Sequence[Item]) -> tuple[Item, ...]:
    """Return the input of a turn after a head with `pending` calls, completed if necessary. It has passed
    `check_input`, which needs no head.

    A user message while calls are pending closes the unanswered ones with a filled-in result. Raises
    MissingToolResults or MalformedItems before anything changed.
    """
    if not pending and all(item.type == "message" for item in new):
        return tuple(new)
    if any(item.is_call for item in new):
        return _admit_history(pending, new)
    answered = {item.call_id for item in new if item.is_result}
    if not pending and not answered:
        return tuple(new)
    has_user_message = _has_user_message(new)
    missing = [call for call in pending if call.call_id not in answered]
    if missing and not has_user_message:
        raise MissingToolResults(tuple(call.call_id or "" for call in missing))
    # Results come before the message: models require them directly after their calls.
    results = [item for item in new if item.is_result] + list(closing_results(missing))
    admitted = (*results, *(item for item in new if not item.is_result))
    open_calls((*pending, *admitted))
    return admitted


def _admit_history(pending: Sequence[Item], new: Sequence[Item]) -> tuple[Item, ...]:
    """Admit input that has calls with their results, as a client's copy of a history does. Pending calls are
    answered or closed first. Calls that a later message moved on from are closed before it; no other may
    stay open."""
    waiting = {call.call_id: call for call in pending}
    answers: list[Item] = []
    rest: list[Item] = []
    open_here: set[str | None] = set()
    lost: dict[str | None, Item] = {}
    unanswered = _unanswered(new)
    for place, item in enumerate(new):
        if item.is_result and item.call_id in waiting and item.call_id not in open_here:
            del waiting[item.call_id]
            answers.append(item)
            continue
        if item.is_call:
            open_here.add(item.call_id)
            if place in unanswered:
                lost[item.call_id] = item
            else:
                lost.pop(item.call_id, None)
        elif item.is_result:
            open_here.discard(item.call_id)
        elif lost and _has_user_message((item,)):
            rest += closing_results(lost.values())
            open_here -= lost.keys()
            lost.clear()
        rest.append(item)
    admitted = (*answers, *closing_results(waiting.values()), *rest)
    left = open_calls((*pending, *admitted))
    if left:
        raise MissingToolResults(tuple(call.call_id or "" for call in left))
    return admitted


def _unanswered(items: Sequence[Item]) -> set[int]:
    """Return the places of calls whose id occurs next in no result."""
    found: set[int] = set()
    is_result_next: dict[str | None, bool] = {}
    for place in range(len(items) - 1, -1, -1):
        item = items[place]
        if item.is_call and not is_result_next.get(item.call_id, False):
            found.add(place)
        if item.is_call or item.is_result:
            is_result_next[item.call_id] = item.is_result
    return found


def without_open_reasoning(draft: Sequence[Item]) -> Sequence[Item]:
    """Return the draft without reasoning at its end, whose item may still follow."""
    end = len(draft)
    while end and draft[end - 1].is_reasoning:
        end -= 1
    return draft[:end]


def check_turn(pending: Sequence[Item], items: Sequence[Item]) -> tuple[Item, ...]:
    """Check a whole turn on a head with `pending` calls; return the calls it leaves open."""
    return open_calls((*pending, *items))
