"""What a chat-completions request means, whose client sends the whole history each time.

A request that ends where the branch ends, with something new behind it, continues it, however much of the
beginning was trimmed. One that ends at an earlier question asks for another answer. Anything else is an edit,
and goes on from the last turn that both sides have. Where repeated messages leave a choice, reading up to the
head wins over reading from the beginning, and the longer agreement over the shorter.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from enum import StrEnum
from heapq import nlargest
from operator import itemgetter
from typing import Any, NamedTuple, TypeAlias, TypeVar

import msgspec

from turnledger.engine.resent import BACKWARDS, FORWARDS, Resent
from turnledger.errors import NoNewInput
from turnledger.model.ids import TurnId
from turnledger.model.projection import SILENT, Call, Entry, Said, Shown, bare, canonical, said
from turnledger.model.turn import Turn, TurnKind

MOST_PLACES = 16
"""So many ways of reading are followed at once."""
MOST_WINDOWS = 4
"""So many places in the line are tried as the beginning of a trimmed request."""
GLANCE = 32
"""So many letters of the beginning and of the end of an answer are compared when it is searched for."""
NO_CHANCE = 2
"""So many messages in a row that agree are no chance."""
ABSENT_TURNS = 64
"""So many turns may be absent from a client's copy before it is searched for in the whole line."""


class Sent(StrEnum):
    """What a client says its messages are."""

    NEW = "new"  # all of them are input
    FULL = "full"  # the whole history from its beginning, even where no assistant speaks in it


class Continuation(msgspec.Struct, frozen=True):
    """The request ends at the head: messages[new:] are input, messages[:instructions] instructions."""

    new: int
    instructions: int = 0


class Regeneration(msgspec.Struct, frozen=True):
    """The request ends with the input of this turn, and asks for another answer to it."""

    turn: TurnId
    instructions: int = 0


class Divergence(msgspec.Struct, frozen=True):
    """An edit: messages[new:] are input on a new branch after this turn, or from the very beginning."""

    after: TurnId | None
    new: int
    instructions: int = 0


Meaning: TypeAlias = Continuation | Regeneration | Divergence
_Way = TypeVar("_Way")
_Words: TypeAlias = tuple[str, str, tuple[Call, ...]]
_Form: TypeAlias = Callable[[Shown], tuple[Entry, ...]]
_EXCHANGED = (("user", "assistant"), ("assistant", "user"))


class _Origin(NamedTuple):
    """Where a way of reading back began: at a place of the request, maybe with the question of a turn."""

    place: int
    asked: int = -1


class _Reach(msgspec.Struct, frozen=True):
    """How far a request and the line agree: up to a place in the one, and so many turns of the other."""

    place: int
    common: int
    regenerated: int | None = None


class _Window(NamedTuple):
    """Where a request could begin: in a turn, maybe only in what is left of it; and how much it has in common
    with the line from there, as far as that is seen at a glance."""

    turn: int
    cut: Shown | None
    length: int


def decide(turns: Sequence[Turn], messages: Sequence[Mapping[str, Any]], sent: Sent | None = None) -> Meaning:
    """Say what these messages mean to a branch of these turns; raise NoNewInput when they bring nothing new,
    MalformedItems when one is not a message."""
    request = Resent(messages)
    first = request.first
    answered = _end_of_answers(request)
    if sent is Sent.NEW or not turns or (sent is None and answered == first):
        return _continuation(request, first)
    if sent is Sent.FULL:
        return _meaning(turns, request, _read_on(turns, request, 0, None))
    found = _ending_at_head(turns, request, answered)
    if found is None:
        return _meaning(turns, request, _longest_agreement(turns, request))
    origin, _ = found
    if origin.asked >= 0:
        return Regeneration(turns[origin.asked].id, first)
    return _continuation(request, origin.place)


def _continuation(request: Resent, new: int) -> Continuation:
    if not _has_input(request, new):
        raise NoNewInput
    return Continuation(new, request.first)


def _meaning(turns: Sequence[Turn], request: Resent, reach: _Reach) -> Meaning:
    if reach.regenerated is not None:
        return Regeneration(turns[reach.regenerated].id, request.first)
    if _is_head(turns, reach.common):
        return _continuation(request, reach.place)
    if not _has_input(request, reach.place):
        raise NoNewInput
    common = _with_settled(turns, reach.common)
    return Divergence(turns[common - 1].id if common else None, reach.place, request.first)


def _end_of_answers(request: Resent) -> int:
    """The place behind the last assistant message that says something; `first` when there is none."""
    for place in range(request.end, request.first, -1):
        message = request.messages[place - 1]
        if message.get("role") == "assistant" and said(message).role == "assistant":
            return place
    return request.first


def _has_input(request: Resent, new: int) -> bool:
    """Whether there is a user message that says something, or a result, from here on."""
    return any(_is_input(request.messages[place]) for place in range(new, request.end))


def _is_input(message: Mapping[str, Any]) -> bool:
    what = said(message)
    if what.role != SILENT or message.get("role") != "user":
        return what.role in ("user", "tool")
    content = message.get("content")
    # A part of a kind not known here is still something.
    return isinstance(content, list) and any(
        isinstance(part, Mapping) and "text" not in part and "refusal" not in part for part in content
    )


def _is_head(turns: Sequence[Turn], common: int) -> bool:
    """Whether nothing follows but what a client may not know of."""
    return all(turns[index].kind is not TurnKind.COMPLETED for index in range(len(turns) - 1, common - 1, -1))


def _with_settled(turns: Sequence[Turn], common: int) -> int:
    """A branch never leaves out a settled turn that its client could not have seen."""
    index = common
    while index < len(turns) and turns[index].kind is not TurnKind.COMPLETED:
        index += 1
        if turns[index - 1].kind is TurnKind.SETTLED:
            common = index
    return common


def _ending_at_head(turns: Sequence[Turn], request: Resent, answered: int) -> tuple[_Origin, int] | None:
    """Read backwards from the head. Returns where the history ends in the request, and the turn in which the
    request begins."""
    last = request.end
    while last > answered and not _is_input(request.messages[last - 1]):
        last -= 1
    likely = {answered, *range(max(answered, last - MOST_PLACES), last)}
    # Instructions in the middle belong to the message behind them, and are input where that is.
    origins = [place for place in sorted(likely) if place < last and request.is_behind_something(place)]
    # A request of few messages needs few turns, however long the line is.
    before = max(0, len(turns) - request.end - ABSENT_TURNS)
    return _read_back(turns[before:], before, request, origins)


def _read_back(
    turns: Sequence[Turn], before: int, request: Resent, origins: Sequence[int]
) -> tuple[_Origin, int] | None:
    """Follow all ways of reading the request back: from its origins at the head, and from its end as the
    question of a turn that counts as the head. The first to arrive wins, of several the one that leaves least
    over."""
    places = {place: _Origin(place) for place in origins}
    may_ask = True
    left = len(turns)
    while left and (places or may_ask):
        if len(places) == 1 and not may_ask:
            ((place, origin),) = places.items()
            left, place = request.past_echoes(turns, left, place)
            places = {place: origin}
            if request.is_over(place, BACKWARDS):
                return origin, before + left
            if not left:
                break
        left -= 1
        turn = turns[left]
        reached = _step(request, turn, places)
        if may_ask and turn.kind is not TurnKind.SETTLED:
            question = request.past(turn.shown.input, request.end, BACKWARDS)
            if question is not None and question < request.end:
                reached[question] = _Origin(request.end, before + left)
            may_ask = turn.kind is not TurnKind.COMPLETED
        arrived = [origin for place, origin in reached.items() if request.is_over(place, BACKWARDS)]
        if arrived:
            return max(arrived), before + left
        places = _fewer(reached)
    return None


def _step(request: Resent, turn: Turn, places: Mapping[int, _Origin]) -> dict[int, _Origin]:
    reached: dict[int, _Origin] = {}
    for place, origin in places.items():
        for found in request.through(turn.kind, turn.shown, place, BACKWARDS):
            reached[found] = max(origin, reached.get(found, origin))
    return reached


def _fewer(places: dict[int, _Way]) -> dict[int, _Way]:
    """Keep the number of ways bounded, those that took most and the one that took nothing among them."""
    if len(places) <= MOST_PLACES:
        return places
    ordered = sorted(places.items(), key=itemgetter(0))
    return dict([*ordered[: MOST_PLACES - 1], ordered[-1]])


def _read_on(turns: Sequence[Turn], request: Resent, begin: int, cut: Shown | None) -> _Reach:
    """Read forwards from a turn, or from what `cut` leaves of it, as far as line and request agree."""
    best = (request.first, begin)
    places = {request.first: begin}
    for index in range(begin, len(turns)):
        turn = turns[index]
        shown = cut if cut is not None and index == begin else turn.shown
        reached: dict[int, int] = {}
        for place, common in places.items():
            leads = request.through(turn.kind, shown, place, FORWARDS)
            ends = {found for found in leads if found > place and request.is_over(found, FORWARDS)}
            if (ends or not leads) and _asks_again(request, turn, shown, place):
                return _Reach(request.end, index, index)
            # A question that was settled and is asked again is new, and not the end of the history.
            for found in leads - ends if turn.kind is TurnKind.SETTLED else leads:
                reached[found] = max(index + 1 if found > place else common, reached.get(found, 0))
        if not reached:
            break
        places = _fewer(reached)
        best = max(best, max(places.items()))
        if all(request.is_over(place, FORWARDS) for place in places):
            break
    return _Reach(*best)


def _asks_again(request: Resent, turn: Turn, shown: Shown, place: int) -> bool:
    """Whether the request ends with the input of this turn."""
    if turn.kind is TurnKind.SETTLED or request.is_over(place, FORWARDS):
        return False
    found = request.past(shown.input, place, FORWARDS)
    return found is not None and found > place and request.is_over(found, FORWARDS)


def _longest_agreement(turns: Sequence[Turn], request: Resent) -> _Reach:
    """Read forwards from the beginning and from where a trimmed request could begin; the longest wins."""
    ranked = [
        (_read_on(turns, request, window.turn, window.cut), window.length)
        for window in _windows(turns, request)
    ]
    reach, length = max(ranked, key=lambda each: (each[0].place, each[1]))
    if reach.place == request.first and not length:
        return _begun_with_a_cut(turns, request) or _edited_at_the_edge(turns, request) or reach
    return reach


def _begun_with_a_cut(turns: Sequence[Turn], request: Resent) -> _Reach | None:
    """Read on from the answer that a trimmed request begins with a part of: clients trim by letters, too, and
    whoever pressed stop saw less of it, or more. Of several such answers the one with most behind it wins,
    then the last."""
    heard, behind = _first_in_a_row(request)
    text = bare("".join(each.text for each in heard))
    if not text or heard[0].role != "assistant":
        return None
    line, origins, _ = _line_of(turns, _visible)
    lengths = [*_common_lengths(list(_words_of_request(Resent(request.messages, behind))), line), 0]
    begins = (
        (lengths[at + 1], at)
        for at, (index, place, _) in enumerate(origins)
        if line[at][0] == "assistant" and _is_part(turns[index], turns[index].shown.entries[place], text)
    )
    best, furthest = None, (request.first, 0)
    for length, at in nlargest(MOST_PLACES, begins):
        index, place, _ = origins[at]
        cut = _cut(turns[index].shown, _visible, place, 0, tuple(each.text for each in heard if each.text))
        reach = _read_on(turns, request, index, cut)
        if (reach.place, length) > furthest:
            best, furthest = reach, (reach.place, length)
    return best if furthest[0] > request.first else None


def _first_in_a_row(request: Resent) -> tuple[list[Said], int]:
    """What one role says at the beginning of a request, and the place behind it."""
    heard: list[Said] = []
    place = request.first
    while (found := request.next(place, FORWARDS)) and (not heard or heard[0].role == found[0].role):
        heard.append(found[0])
        place = found[1]
    return heard, place


def _is_part(turn: Turn, answer: Entry, text: str) -> bool:
    """Whether this is how an answer begins or ends; of one that was stopped, a client may have seen more."""
    whole = answer.bare
    is_longer = turn.kind is not TurnKind.COMPLETED and bool(whole) and text.startswith(whole)
    return whole.startswith(text) or whole.endswith(text) or is_longer


def _edited_at_the_edge(turns: Sequence[Turn], request: Resent) -> _Reach | None:
    """A trimmed request whose first message was edited still shows, by what follows it, where it stands."""
    heard, place = _first_in_a_row(request)
    following = request.next(place, FORWARDS)
    if following is None or (heard[0].role, following[0].role) not in _EXCHANGED:
        return None
    rest = Resent(request.messages, place)
    back = _ending_at_head(turns, rest, _end_of_answers(rest))
    begin = _begin_of_longest(turns, rest) if back is None else back[1]
    if begin is None:
        return None
    # An answer stands in the turn before the question that follows it.
    return _Reach(request.first, begin if heard[0].role == "user" else max(0, begin - 1))


def _begin_of_longest(turns: Sequence[Turn], request: Resent) -> int | None:
    """The turn where most of the request stands, of several the first; None when that is so little that it
    may be chance."""
    length, turn = max((window.length, -window.turn) for window in _windows(turns, request))
    return -turn if length >= NO_CHANCE else None


def _windows(turns: Sequence[Turn], request: Resent) -> Iterable[_Window]:
    """Where in the line the request could begin: at the beginning, and where most of it stands in a row."""
    sent = list(_words_of_request(request))
    for form in (_visible, _whole) if any(turn.shown.whole for turn in turns) else (_visible,):
        line, origins, ends = _line_of(turns, form)
        begins, skipped = sent[:1], 0
        if sent and sent[0] in ends and sent[0] not in line:
            begins[0], skipped = ends[sent[0]]
        lengths = _common_lengths(begins + sent[1:], line)
        best = nlargest(MOST_WINDOWS, ((length, at) for at, length in enumerate(lengths) if length and at))
        yield _Window(0, None, lengths[0] if lengths else 0)
        for length, at in best:
            index, place, piece = origins[at]
            piece += skipped
            cut = _cut(turns[index].shown, form, place, piece) if place or piece else None
            yield _Window(index, cut, length)


def _line_of(
    turns: Sequence[Turn], form: _Form
) -> tuple[list[_Words], list[tuple[int, int, int]], dict[_Words, tuple[_Words, int]]]:
    """What the turns say, message by message; the turn, entry and piece of each; and the ends of answers."""
    line: list[_Words] = []
    origins: list[tuple[int, int, int]] = []
    ends: dict[_Words, tuple[_Words, int]] = {}
    for index, turn in enumerate(turns):
        for place, entry in enumerate(form(turn.shown)):
            for piece, words in enumerate(_words_of_entry(entry)):
                line.append(words)
                origins.append((index, place, piece))
            ends.update(_ends_of_answer(entry))
    return line, origins, ends


def _ends_of_answer(entry: Entry) -> Iterable[tuple[_Words, tuple[_Words, int]]]:
    """The ends of an answer of several messages, and how many are missing: a request may begin with one."""
    if entry.role == "assistant" and len(entry.pieces) > 1:
        whole = _words(entry.role, "".join(entry.pieces), entry.calls)
        for piece in range(1, len(entry.pieces)):
            yield _words(entry.role, "".join(entry.pieces[piece:]), entry.calls), (whole, piece)


def _visible(shown: Shown) -> tuple[Entry, ...]:
    return shown.entries


def _whole(shown: Shown) -> tuple[Entry, ...]:
    return shown.whole or shown.entries


def _cut(shown: Shown, form: _Form, place: int, piece: int, pieces: tuple[str, ...] | None = None) -> Shown:
    """What is left of a turn from a piece of an entry on; `pieces`, if given, are what is left of that."""
    entries = form(shown)
    entry = entries[place]
    left = entry.pieces[piece:] if pieces is None else pieces
    begins = msgspec.structs.replace(entry, pieces=left, call_ids=entry.call_ids[piece:])
    asked = len(shown.input)
    if place < asked:
        return Shown((begins, *entries[place + 1 : asked]), entries[asked:], None, None)
    return Shown((), (begins, *entries[place + 1 :]), None, None)


def _words_of_entry(entry: Entry) -> list[_Words]:
    if entry.role == "assistant":
        return [_words(entry.role, "".join(entry.pieces), entry.calls)]
    return [_words(entry.role, piece, ()) for piece in entry.pieces or ("",)]


def _words_of_request(request: Resent) -> Iterable[_Words]:
    """The same for a request, whose answers are joined like those of a turn."""
    place = request.first
    answer: tuple[str, tuple[Call, ...]] = ("", ())
    while (found := request.next(place, FORWARDS)) is not None:
        what, place = found
        if what.role == "assistant":
            answer = (answer[0] + what.text, answer[1] + what.calls)
            continue
        if answer != ("", ()):
            yield _words("assistant", *answer)
            answer = ("", ())
        yield _words(what.role, what.text, ())
    if answer != ("", ()):
        yield _words("assistant", *answer)


def _words(role: str, text: str, calls: Sequence[Call]) -> _Words:
    """What is compared at a glance: of answers, which clients split and join, how they begin and end."""
    if role == "assistant":
        text = bare(text[: 2 * GLANCE])[:GLANCE] + bare(text[-2 * GLANCE :])[-GLANCE:]
    return role, text, tuple((name, canonical(arguments)) for name, arguments in calls) if calls else ()


def _common_lengths(sent: Sequence[_Words], line: Sequence[_Words]) -> list[int]:
    """For each place of the line, how much of the request stands there: linear, however often messages
    repeat (the Z algorithm)."""
    both: list[_Words | None] = [*sent, None, *line]
    lengths = [0] * len(both)
    left = right = 0
    for place in range(1, len(both)):
        length = min(right - place, lengths[place - left]) if place < right else 0
        while (
            place + length < len(both) and both[length] is not None and both[length] == both[place + length]
        ):
            length += 1
        lengths[place] = length
        if place + length > right:
            left, right = place, place + length
    return lengths[len(sent) + 1 :]
