"""What is shown of an unfinished turn: pure functions over its journal, and over what its readers received.

The wording matters. A model that reads "cancelled" runs finished tools again, so each result states what is
known: the call was not started, or it was started and its outcome is unknown.
"""

from __future__ import annotations

from collections.abc import Sequence

from turnledger.engine.attempt.sent_log import SentLog
from turnledger.model import event_log
from turnledger.model.event_log import REASONING, REFUSAL, TEXT
from turnledger.model.item import NOT_STARTED, OUTCOME_UNKNOWN, Item, message, reasoning, refusal, result_of
from turnledger.model.journal import Journal
from turnledger.model.turn import Failure, Turn, TurnKind


def kept_output(journal: Journal, partial: Sequence[Item]) -> tuple[Item, ...]:
    """Return the output of an interrupted turn: finished items, a true result for each unanswered call, and
    what was made of the unfinished rest."""
    return _without_stranded_reasoning([*journal.items, *_true_results(journal), *partial])


def settled_output(journal: Journal, failure: Failure | None) -> tuple[Item, ...]:
    """Return the output of a settled turn: the calls that may have acted, their results, and a note."""
    acted = {place for place, read_only in journal.started.items() if not read_only}
    answers = {id(answer) for place, answer in journal.answers().items() if place in acted}
    output = [
        item
        for place, item in enumerate(journal.items)
        if place in acted or id(item) in answers or (item.is_reasoning and _leads_to(journal, place, acted))
    ]
    output += [
        result_of(journal.items[place], OUTCOME_UNKNOWN)
        for place in journal.unanswered_calls()
        if place in acted
    ]
    reason = failure.message if failure else "it was stopped"
    note = (
        f"The turn above did not finish: {reason.rstrip('.')}. The calls shown were started; their results "
        "say what is known of them. The rest of the turn was not kept."
    )
    return (*output, message("developer", note))


def effect_places(journal: Journal, output: Sequence[Item]) -> tuple[int, ...]:
    """Return the places in the output of the calls that may have acted."""
    acted = {id(journal.items[place]) for place, read_only in journal.started.items() if not read_only}
    return tuple(place for place, item in enumerate(output) if id(item) in acted)


def carried_output(turn: Turn) -> tuple[Item, ...]:
    """Return the output of a turn for a branch that leaves the turn out: the calls that may have acted, their
    results, and a note. Depends on the turn alone, so all copies are equal."""
    if turn.kind is TurnKind.SETTLED:
        return turn.output
    return settled_output(Journal(list(turn.output), dict.fromkeys(turn.effects, False)), CARRIED_OVER)


CARRIED_OVER = Failure("interrupted", "it was interrupted, and taken back later")


def resume_results(journal: Journal) -> tuple[Item, ...]:
    """Return what a retry adds to the journal it resumes: a stated outcome for each call that was started and
    not answered. Such a call is never run again."""
    return tuple(
        result_of(journal.items[place], OUTCOME_UNKNOWN)
        for place in journal.unanswered_calls()
        if place in journal.started
    )


def _true_results(journal: Journal) -> list[Item]:
    return [
        result_of(journal.items[place], OUTCOME_UNKNOWN if place in journal.started else NOT_STARTED)
        for place in journal.unanswered_calls()
    ]


def _leads_to(journal: Journal, place: int, acted: set[int]) -> bool:
    """Return whether one of the calls directly after this reasoning item is shown."""
    after = place + 1
    while after < len(journal.items) and journal.items[after].is_reasoning:
        after += 1
    while after < len(journal.items) and journal.items[after].is_call:
        if after in acted:
            return True
        after += 1
    return False


def _without_stranded_reasoning(output: Sequence[Item]) -> tuple[Item, ...]:
    """Drop reasoning whose item is missing: models reject it."""
    remaining: list[Item] = []
    for item in reversed(output):
        follows_well = bool(remaining) and (remaining[-1].is_reasoning or not remaining[-1].is_result)
        if not item.is_reasoning or follows_well:
            remaining.append(item)
    return tuple(reversed(remaining))


def unfinished_text(sent: SentLog, journal: Journal) -> str:
    """Return the text that belongs to no item, journaled or sent."""
    return _without_unsent(sent.tail, TEXT, sent, journal)


def unfinished_items(sent: SentLog, journal: Journal) -> tuple[Item, ...]:
    """Return what belongs to no item, journaled or sent, as items: reasoning, then text and a refusal, marked
    incomplete. Open calls are left out: half of the arguments cannot be answered."""
    text = unfinished_text(sent, journal)
    found = [message("assistant", text, status="incomplete")] if text else []
    if sent.more:
        rest = event_log.unfinished(sent.log, journal.items[: sent.items], sent.more)
        thought, refused = (
            _without_unsent(rest.get(event_log.spare_source(kind), ""), kind, sent, journal)
            for kind in (REASONING, REFUSAL)
        )
        found[:0] = [reasoning(thought)] if thought else []
        found += [refusal(refused, status="incomplete")] if refused else []
    return tuple(found)


def _without_unsent(text: str, kind: int, sent: SentLog, journal: Journal) -> str:
    """Return the text without that of journaled items which were not sent."""
    unsent = [journal.items[place] for place in sorted(journal.emitted) if place >= sent.items]
    return text[sum(len(item.body) for item in unsent if event_log.kind_of(item) == kind) :]
