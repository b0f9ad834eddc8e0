"""Match a chat-completions request, whose client sends the whole history each time, to a branch.

A request that ends where the branch ends, with new messages after that, continues it, however much of the
beginning was trimmed. One that ends at an earlier question asks for another answer. Any other is an edit,
from the last turn that both sides have. Answers at its end are not matched, but continued. Where repeated
messages are ambiguous, a reading up to the head wins over one from the beginning, and a longer match over a
shorter one.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from enum import StrEnum
from heapq import nlargest
from operator import itemgetter
from typing import Any, NamedTuple, TypeAlias, TypeVar

import msgspec

from turnledger.engine.resend.transcript import BACKWARDS, FORWARDS, ClientTranscript
from turnledger.engine.resend.window import (
    MessageLine,
    Spot,
    common_lengths,
    find_spot,
    is_distinctive,
    spot_in,
    windows,
    words_of_request,
)
from turnledger.errors import NoNewInput
from turnledger.model.ids import TurnId
from turnledger.model.item import Item, calls_left_open
from turnledger.model.messages.messages import items_of_messages
from turnledger.model.messages.projection import (
    UNMATCHED,
    ClientForm,
    Entry,
    ReducedMessage,
    ShownTurn,
    reduce_message,
    remove_spaces,
)
from turnledger.model.turn import Turn, TurnKind

MOST_PLACES = 16
"""Readings followed in parallel."""
NOTE_ROLES = ("system", "developer")
"""Of messages that are never matched."""
ABSENT_TURNS = 64
"""Turns that may be missing from a client's copy before the whole line is searched."""


class SentMessages(StrEnum):
    """How a client declares its messages."""

    NEW = "new"  # all of them are input
    FULL = "full"  # the whole history from its beginning, even without an assistant message


class Trimmed(msgspec.Struct, frozen=True):
    """What a client has left out at the beginning of its copy: turns, and items of the next one; and what it
    has in their place."""

    turns: int
    items: int = 0
    preamble: tuple[Item, ...] = ()


class Continuation(msgspec.Struct, frozen=True):
    """The request ends at the head: messages[new:] are input, messages[:instructions] instructions."""

    new: int
    instructions: int = 0
    trimmed: Trimmed | None = None


class Regeneration(msgspec.Struct, frozen=True):
    """The request ends with the input of this turn, and asks for another answer to it."""

    turn: TurnId
    instructions: int = 0
    trimmed: Trimmed | None = None


class MatchedEdit(msgspec.Struct, frozen=True):
    """An edit: messages[new:] are input on a new branch after this turn, or from the beginning; preceded by
    `kept`, the part of the edited turn that the client has trimmed."""

    after: TurnId | None
    new: int
    instructions: int = 0
    kept: tuple[Item, ...] = ()
    trimmed: Trimmed | None = None


Meaning: TypeAlias = Continuation | Regeneration | MatchedEdit
_Way = TypeVar("_Way")


class _Origin(NamedTuple):
    """Where a backward reading began: at a place of the request, maybe with the question of a turn."""

    place: int
    regenerated: int = -1


class _Reach(msgspec.Struct, frozen=True):
    """How far a request and the line match: up to a place of the request, and a number of turns. `kept` is
    the part of the next turn that stays, if the request begins within that turn."""

    place: int
    common: int
    regenerated: int | None = None
    kept: tuple[Item, ...] | None = None
    is_edited: bool = False
    """Whether the next turn matches, too, up to a different answer."""
    begin: Spot | None = None
    """Where in the line the request begins, if not at its beginning."""


def decide(
    turns: Sequence[Turn], messages: Sequence[Mapping[str, Any]], sent: SentMessages | None = None
) -> Meaning:
    """Decide what these messages mean for a branch of these turns. Raises NoNewInput if they add nothing, and
    MalformedItems if one is not a message."""
    asked = messages[: begin_of_prefill(messages)]
    request = ClientTranscript(asked)
    first = request.first
    answered = _end_of_answers(request)
    if sent is SentMessages.NEW or not turns:
        return _continuation(request, first)
    if sent is None and answered == first:
        if _asks_again(turns, request):
            return Regeneration(turns[0].id, first)
        if len(asked) < len(messages) and (last := _last_turn_sent(turns, messages)) is not None:
            begin = Spot(last.number - 1, ClientForm.SEEN, 0, 0)
            return _trimmed_at(turns, begin, Regeneration(last.id, first))
        return _continuation(request, _place_after_questions(turns, request))
    if sent is SentMessages.FULL:
        return _meaning(turns, request, _read_forwards(turns, request, 0, None))
    found = _match_at_head(turns, request, answered)
    if found is not None:
        return _at_head(turns, request, *found)
    meaning = _match_behind_preamble(turns, request, answered)
    if meaning is not None:
        return meaning
    reach = _longest_match(turns, request)
    return _trimmed_at(turns, reach.begin, _meaning(turns, request, reach))


def _at_head(
    turns: Sequence[Turn],
    request: ClientTranscript,
    origin: _Origin,
    index: int,
    begin: Spot | None = None,
) -> Meaning:
    meaning = (
        Regeneration(turns[origin.regenerated].id, request.first)
        if origin.regenerated >= 0
        else _continue_at(turns, request, origin.place)
    )
    return _trimmed_at(turns, begin or spot_in(turns, request, index), meaning)


def _match_behind_preamble(turns: Sequence[Turn], request: ClientTranscript, answered: int) -> Meaning | None:
    """Match a request that has other messages than the line before the first question, such as the files of a
    program, which change from turn to turn. The model is shown them; the line keeps those it has."""
    place = request.place_behind_preamble(turns[0].shown.input)
    if place is None or place >= answered or turns[0].kind is not TurnKind.COMPLETED:
        return None
    rest = ClientTranscript(request.messages, place)
    found = _match_at_head(turns, rest, answered)
    if found is None or found[1] or found[0].regenerated == 0:
        return None
    sent = [each for each in request.messages[request.first : place] if each.get("role") not in NOTE_ROLES]
    preamble = items_of_messages(sent)
    meaning = msgspec.structs.replace(
        _at_head(turns, rest, *found, _question_at(turns[0], rest)), instructions=request.first
    )
    trimmed = msgspec.structs.replace(meaning.trimmed or Trimmed(0), preamble=preamble)
    return msgspec.structs.replace(meaning, trimmed=trimmed)


def _question_at(first: Turn, rest: ClientTranscript) -> Spot | None:
    """Return where the question of the first turn stands, if this request begins with it."""
    sent, question = rest.next(rest.first, FORWARDS), first.shown.input[-1].pieces
    if sent is None or sent[0].role != "user" or question[-1:] != (sent[0].text,):
        return None
    return Spot(0, ClientForm.SEEN, len(first.shown.input) - 1, len(question) - 1)


def _trimmed_at(turns: Sequence[Turn], begin: Spot | None, meaning: Meaning) -> Meaning:
    """Return the meaning with what stands in the line before the request. Turns that the client could not
    have belong to its copy."""
    if begin is None:
        return meaning
    before, items = begin.turn, begin.count_before(turns)
    while before and not items and may_be_absent(turns[before - 1]):
        before -= 1
    return msgspec.structs.replace(meaning, trimmed=Trimmed(before, items)) if before or items else meaning


def begin_of_prefill(messages: Sequence[Mapping[str, Any]]) -> int:
    """Return where the answers at the end of these messages begin, which the model is to continue: a stored
    answer, or a beginning that the client chose. At their end, if the last message is no plain answer."""
    begin = len(messages)
    while begin and messages[begin - 1].get("role") == "assistant":
        answer = reduce_message(messages[begin - 1])
        if not answer.text or answer.calls or answer.media or messages[begin - 1].get("refusal"):
            break
        begin -= 1
    return begin


def _continuation(request: ClientTranscript, new: int) -> Continuation:
    if not _has_input(request, new):
        raise NoNewInput
    return Continuation(new, request.first)


def _meaning(turns: Sequence[Turn], request: ClientTranscript, reach: _Reach) -> Meaning:
    if reach.regenerated is not None:
        return Regeneration(turns[reach.regenerated].id, request.first)
    common, kept = reach.common, reach.kept
    if reach.is_edited:
        kept = kept or ()
    elif kept is None or turns[common].kind is TurnKind.SETTLED:
        if _is_head(turns, common):
            return _continue_at(turns, request, reach.place)
        common, kept = _with_unseen(turns, common, is_answer=request.is_result_next(reach.place)), ()
    if not _has_input(request, reach.place):
        raise NoNewInput
    return MatchedEdit(turns[common - 1].id if common else None, reach.place, request.first, kept)


def _continue_at(turns: Sequence[Turn], request: ClientTranscript, place: int) -> Meaning:
    """Return a continuation at the head, or an edit if the results differ from those that an interrupted turn
    there received: they go where the calls are open."""
    meaning = _continuation(request, place)
    left = len(turns)
    while left > 1 and request.is_result_next(place) and may_be_absent(turns[left - 1]):
        left -= 1
        is_answered = any(item.is_result for item in turns[left].input)
        if (
            turns[left].kind is TurnKind.INTERRUPTED
            and is_answered
            and calls_left_open(turns[left - 1].items)
        ):
            return MatchedEdit(turns[left - 1].id, place, request.first)
    return meaning


def _end_of_answers(request: ClientTranscript) -> int:
    """Return the place after the last assistant message with content; `first` if there is none."""
    for place in range(request.end, request.first, -1):
        message = request.messages[place - 1]
        if message.get("role") == "assistant" and reduce_message(message).role == "assistant":
            return place
    return request.first


def _asks_again(turns: Sequence[Turn], request: ClientTranscript) -> bool:
    """Return whether the request is the question of the only turn, and nothing else. After several turns, the
    same words may be a new answer to what was said last."""
    if len(turns) > 1 or request.end - request.first > 1 or turns[0].kind is TurnKind.SETTLED:
        return False
    found = request.next(request.first, FORWARDS)
    if found is None:
        return False
    question = Entry(found[0].role, (found[0].text,) if found[0].text else (), (), found[0].media)
    return turns[0].shown.input == (question,)


def _last_turn_sent(turns: Sequence[Turn], messages: Sequence[Mapping[str, Any]]) -> Turn | None:
    """Return the last turn that a client can have, if the messages are its end, or as much of its answer as
    the client received."""
    request = ClientTranscript(messages)
    for turn in reversed(turns):
        ends = request.read_turn(turn.kind, turn.shown, request.end, BACKWARDS)
        if turn.kind is not TurnKind.SETTLED and any(request.is_over(end, BACKWARDS) for end in ends):
            return turn
        if not may_be_absent(turn):
            break
    return None


def _place_after_questions(turns: Sequence[Turn], request: ClientTranscript) -> int:
    """Return where a request without answers is new: at its beginning, unless the line ends with questions
    whose answers the client may not have, and the request begins with these."""
    left = len(turns)
    while left and not _is_answered(turns[left - 1]):
        left -= 1
    if left == len(turns):
        return request.first
    found = _match_at_head(turns[left:], request, request.first)
    return request.first if found is None or found[0].regenerated >= 0 else found[0].place


def _is_answered(turn: Turn) -> bool:
    """Return whether every client has received an answer in the turn: some strip thoughts from it."""
    if turn.kind is not TurnKind.COMPLETED:
        return False
    if turn.is_plain_answer:  # avoids projecting the turn
        return True
    return any(entry.role == "assistant" and not entry.may_be_absent for entry in turn.shown.entries)


def _has_input(request: ClientTranscript, new: int) -> bool:
    """Return whether there is a user message with content, or a result, from here on."""
    return any(_is_input(request.messages[place]) for place in range(new, request.end))


def _is_input(message: Mapping[str, Any]) -> bool:
    reduced = reduce_message(message)
    if reduced.role != UNMATCHED or message.get("role") != "user":
        return reduced.role in ("user", "tool")
    content = message.get("content")
    # A content part of an unknown kind counts as content.
    return isinstance(content, list) and any(
        isinstance(part, Mapping) and "text" not in part and "refusal" not in part for part in content
    )


def may_be_absent(turn: Turn) -> bool:
    """Return whether a client may not have the turn: it did not complete, or is not shown at all."""
    return turn.kind is not TurnKind.COMPLETED or not turn.shown.entries


def _is_head(turns: Sequence[Turn], common: int) -> bool:
    """Return whether only turns follow that a client may not have."""
    return all(may_be_absent(turns[index]) for index in range(len(turns) - 1, common - 1, -1))


def _with_unseen(turns: Sequence[Turn], common: int, *, is_answer: bool) -> int:
    """Extend the common turns by those that the client could not have seen, settled or hidden ones, so that a
    branch never leaves them out; except those that have answered the calls that are to be answered again."""
    index = common
    while index < len(turns) and may_be_absent(turns[index]):
        kind = turns[index].kind
        index += 1
        if kind is TurnKind.SETTLED or (kind is TurnKind.COMPLETED and not is_answer):
            common = index
    return common


def _match_at_head(
    turns: Sequence[Turn], request: ClientTranscript, answered: int
) -> tuple[_Origin, int] | None:
    """Read backwards from the head. Return where the history ends in the request, and its first turn."""
    last = request.end
    while last > answered and not _is_input(request.messages[last - 1]):
        last -= 1
    likely = {answered, *range(max(answered, last - MOST_PLACES), last)}
    # Instructions in the middle belong to the message after them, and are input if that is.
    origins = [place for place in sorted(likely) if place < last and request.follows_content(place)]
    # A short request needs few turns, however long the line is.
    before = max(0, len(turns) - request.end - ABSENT_TURNS)
    return _read_backwards(turns[before:], before, request, origins)


def _read_backwards(
    turns: Sequence[Turn], before: int, request: ClientTranscript, origins: Sequence[int]
) -> tuple[_Origin, int] | None:
    """Follow all backward readings: from the origins at the head, and from the end of the request as the
    question of a turn counted as the head. The first to arrive wins, then the one that leaves least
    unread."""
    places = {place: _Origin(place) for place in origins}
    may_regenerate = True
    left = len(turns)
    while left and (places or may_regenerate):
        if len(places) == 1 and not may_regenerate:
            ((place, origin),) = places.items()
            left, place = request.skip_echoes(turns, left, place)
            places = {place: origin}
            if request.is_over(place, BACKWARDS):
                return origin, before + left
            if not left:
                break
        left -= 1
        turn = turns[left]
        reached = _step(request, turn, places)
        if may_regenerate and turn.kind is not TurnKind.SETTLED:
            for way in turn.shown.variants:
                question = request.read_entries(way.input, request.end, BACKWARDS)
                if question is not None and question < request.end:
                    reached[question] = _Origin(request.end, before + left)
            may_regenerate = may_be_absent(turn)
        arrived = [origin for place, origin in reached.items() if request.is_over(place, BACKWARDS)]
        if arrived:
            return max(arrived), before + left
        places = _bound(reached)
    return None


def _step(request: ClientTranscript, turn: Turn, places: Mapping[int, _Origin]) -> dict[int, _Origin]:
    reached: dict[int, _Origin] = {}
    for place, origin in places.items():
        for found in request.read_turn(turn.kind, turn.shown, place, BACKWARDS):
            reached[found] = max(origin, reached.get(found, origin))
    return reached


def _bound(places: dict[int, _Way]) -> dict[int, _Way]:
    """Bound the number of readings; keep those that consumed most, and the one that consumed nothing."""
    if len(places) <= MOST_PLACES:
        return places
    ordered = sorted(places.items(), key=itemgetter(0))
    return dict([*ordered[: MOST_PLACES - 1], ordered[-1]])


def _read_forwards(
    turns: Sequence[Turn], request: ClientTranscript, begin: int, cut: ShownTurn | None
) -> _Reach:
    """Read forwards from a turn, or from the part of it in `cut`, as far as line and request match."""
    best = (request.first, begin)
    edited: tuple[int, int] | None = None
    places = {request.first: begin}
    for index in range(begin, len(turns)):
        turn = turns[index]
        shown = cut if cut is not None and index == begin else turn.shown
        reached: dict[int, int] = {}
        for place, common in places.items():
            leads = request.read_turn(turn.kind, shown, place, FORWARDS)
            ends = {found for found in leads if found > place and request.is_over(found, FORWARDS)}
            if (ends or not leads) and _ends_with_input(request, turn, shown, place):
                return _Reach(request.end, index, index)
            is_stopped = turn.kind is TurnKind.INTERRUPTED and leads
            if is_stopped and request.has_other_answer(shown, place, leads):
                edited = max(edited or (place, index), (place, index))
                leads = {place}  # the turn may be absent, and a later one have that answer
            # A settled question that is asked again is new, not the end of the history.
            for found in leads - ends if turn.kind is TurnKind.SETTLED else leads:
                reached[found] = max(index + 1 if found > place else common, reached.get(found, 0))
        if not reached:
            break
        places = _bound(reached)
        best = max(best, max(places.items()))
        if all(request.is_over(place, FORWARDS) for place in places):
            break
    if edited is not None and edited[0] >= best[0]:
        return _Reach(*edited, is_edited=True)
    return _Reach(*best)


def _ends_with_input(request: ClientTranscript, turn: Turn, shown: ShownTurn, place: int) -> bool:
    """Return whether the request ends with the input of this turn."""
    if turn.kind is TurnKind.SETTLED or request.is_over(place, FORWARDS):
        return False
    ends = (request.read_entries(way.input, place, FORWARDS) for way in shown.variants)
    return any(end is not None and end > place and request.is_over(end, FORWARDS) for end in ends)


def _longest_match(turns: Sequence[Turn], request: ClientTranscript) -> _Reach:
    """Read forwards from the beginning and from where a trimmed request may begin; the longest match wins."""
    ranked = [(_read_from(turns, request, spot), length) for spot, length in windows(turns, request)]
    # Within the turn where they diverge, the match is only approximate.
    reach, length = max(ranked, key=lambda each: (max(each[0].place - request.first, each[1]), each[0].place))
    if reach.place == request.first and not length:
        return _match_cut_answer(turns, request) or _match_edited_start(turns, request) or reach
    return reach


def _read_from(turns: Sequence[Turn], request: ClientTranscript, spot: Spot) -> _Reach:
    """Read forwards from a place in the line. If they diverge within its turn, the trimmed part of that turn
    is kept before what was sent."""
    cut = spot.cut(turns) if spot.place or spot.piece else None
    reach = msgspec.structs.replace(_read_forwards(turns, request, spot.turn, cut), begin=spot)
    if cut is None or reach.common > spot.turn:
        return reach
    return msgspec.structs.replace(reach, kept=spot.before(turns))


def _match_cut_answer(turns: Sequence[Turn], request: ClientTranscript) -> _Reach | None:
    """Read on from an answer of which a trimmed request begins with a part. Of several, the one with the
    longest match after it wins, then the last."""
    messages, behind = _first_messages(request)
    best, furthest = None, (request.first, 0)
    divergence: _Reach | None = None
    for length, spot in _cut_answers(turns, request):
        cut = spot.cut(turns, tuple(each.text for each in messages if each.text))
        reach = _read_forwards(turns, request, spot.turn, cut)
        if reach.place == behind and _is_continued(turns, spot, request, messages, behind):
            divergence = divergence or _Reach(request.first, spot.turn, kept=spot.before(turns), begin=spot)
        if reach.place == request.first and (length or is_distinctive(request)):
            reach = _diverge_after(turns, spot, request.first, behind)
        if (reach.place, length) > furthest or (best is None and reach.kept is not None):
            best, furthest = msgspec.structs.replace(reach, begin=spot), (reach.place, length)
    return best if divergence is None or furthest[0] > behind else divergence


def _is_continued(
    turns: Sequence[Turn],
    spot: Spot,
    request: ClientTranscript,
    messages: Sequence[ReducedMessage],
    behind: int,
) -> bool:
    """Return whether the answer continues after an insertion, if the request begins with its beginning."""
    begun = remove_spaces("".join(each.text for each in messages))
    whole = turns[spot.turn].shown.entries[spot.place].compact_text
    place, continued = behind, ""
    while (found := request.next(place, FORWARDS)) is not None:
        message, place = found
        if message.role == "assistant":
            continued += remove_spaces(message.text)
        elif continued:
            break
    return bool(continued) and whole.startswith(begun + continued)


def _diverge_after(turns: Sequence[Turn], spot: Spot, first: int, behind: int) -> _Reach:
    """Diverge within the turn of a cut answer: the stored answer stays, and what follows it is new. Without
    the calls that end the turn, it is a different answer."""
    following = spot._replace(place=spot.place + 1)
    if following.place < len(turns[spot.turn].shown.entries):
        return _Reach(behind, spot.turn, kept=following.before(turns))
    return _Reach(first, spot.turn, kept=spot.before(turns))


def _cut_answers(turns: Sequence[Turn], request: ClientTranscript) -> list[tuple[int, Spot]]:
    """Return the answers with a part of which a request may begin, and the length of the match after each,
    longest first. Clients trim by characters, too, and after a stop they have less of an answer, or more."""
    messages, behind = _first_messages(request)
    text = remove_spaces("".join(each.text for each in messages))
    if not text or messages[0].role != "assistant":
        return []
    line = MessageLine.of(turns)
    lengths = [*common_lengths(words_of_request(ClientTranscript(request.messages, behind)), line.words), 0]
    begins = (
        (lengths[at + 1], at)
        for at, spot in enumerate(line.spots)
        if line.words[at][0] == "assistant" and _is_part(turns[spot.turn], spot, text)
    )
    return [(length, line.spots[at]) for length, at in nlargest(MOST_PLACES, begins)]


def _first_messages(request: ClientTranscript) -> tuple[list[ReducedMessage], int]:
    """Return the messages of one role that a request begins with, and the place after them."""
    messages: list[ReducedMessage] = []
    place = request.first
    while (found := request.next(place, FORWARDS)) and (not messages or messages[0].role == found[0].role):
        messages.append(found[0])
        place = found[1]
    return messages, place


def _is_part(turn: Turn, answer: Spot, text: str) -> bool:
    """Return whether the text begins or ends an answer; of a stopped one, a client may have seen more."""
    whole = turn.shown.entries[answer.place].compact_text
    is_longer = turn.kind is not TurnKind.COMPLETED and bool(whole) and text.startswith(whole)
    return whole.startswith(text) or whole.endswith(text) or is_longer


def _match_edited_start(turns: Sequence[Turn], request: ClientTranscript) -> _Reach | None:
    """Locate a trimmed request whose first messages were edited, by what follows them."""
    messages, behind = _first_messages(request)
    first = request.next(request.first, FORWARDS)
    if first is None:
        return None
    for count, place in {1: first[1], len(messages): behind}.items():
        rest = ClientTranscript(request.messages, place)
        if rest.next(place, FORWARDS) is None:
            break
        back = _match_at_head(turns, rest, _end_of_answers(rest))
        spot = find_spot(turns, rest, None if back is None else back[1])
        if spot is None and back is None:
            spot = next(
                (cut for length, cut in _cut_answers(turns, rest) if length or is_distinctive(rest)), None
            )
        if spot is not None:
            edited = _messages_before(turns, spot, messages[0].role, count)
            return _Reach(request.first, edited.turn, kept=edited.before(turns), begin=edited)
        if back is not None and place == behind:
            return _Reach(request.first, back[1], begin=Spot(back[1], ClientForm.SEEN, 0, 0))
    return None


def _messages_before(turns: Sequence[Turn], spot: Spot, role: str, count: int) -> Spot:
    """Return where the last `count` messages of this role before a message begin; the message itself if
    another role precedes it. An answer of several messages is shown as one."""
    if spot.piece:
        before = spot._replace(piece=0)
    elif spot.place:
        before = spot._replace(place=spot.place - 1)
    else:
        before = _last_entry_before(turns, spot)
    entry = turns[before.turn].shown.entries_in(before.form)[before.place]
    if entry.role != role or before == spot:
        return spot
    if before.place >= len(turns[before.turn].shown.input_in(before.form)):
        return before
    return before._replace(piece=max(0, (spot.piece or len(entry.pieces)) - count))


def _last_entry_before(turns: Sequence[Turn], spot: Spot) -> Spot:
    """Return the last entry of the earlier turns, as far as a client has these."""
    for index in range(spot.turn - 1, -1, -1):
        entries = turns[index].shown.entries_in(spot.form)
        if entries and not (may_be_absent(turns[index]) and entries[-1].role == "user"):
            return Spot(index, spot.form, len(entries) - 1, 0)
        if not may_be_absent(turns[index]):
            break
    return spot
