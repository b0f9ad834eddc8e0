"""Find where in a line a request could begin whose client has trimmed it, edited it, or both.

Line and request are compared message by message, approximately; match.py then reads the places found in full.
The place also shows which part of its turn the client has trimmed.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from heapq import nlargest
from itertools import islice
from typing import NamedTuple, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from turnledger.engine.resend.transcript import FORWARDS, ClientTranscript
from turnledger.model.item import Item, without_open_reasoning
from turnledger.model.messages.projection import (
    Call,
    ClientForm,
    Entry,
    ShownTurn,
    canonicalize,
    count_before,
    items_before,
    remove_spaces,
    remove_thoughts,
)
from turnledger.model.turn import Turn

MOST_WINDOWS = 4
"""Places tried as the beginning of a trimmed request."""
MOST_SPOTS = 16
"""Places tried for one message."""
MOST_ANSWERS = 4
"""Consecutive answers at the beginning of a request tried as one."""
COMPARED_CHARACTERS = 32
"""Characters compared at the beginning and at the end of an answer in a search."""
CERTAIN_MATCHES = 2
"""Matching messages at the same distance that rule out chance."""
DISTINCTIVE = 16
"""Characters of a single message that rule out chance."""

Words: TypeAlias = tuple[str, str, tuple[Call, ...]]


class Spot(NamedTuple):
    """A message of the line: its turn, the form, and the entry and piece within it."""

    turn: int
    form: ClientForm
    place: int
    piece: int

    def before(self, turns: Sequence[Turn]) -> tuple[Item, ...]:
        """Return the items of its turn before it, without hidden ones."""
        if not self.place and not self.piece:
            return ()
        turn = turns[self.turn]
        found = items_before(turn.input, turn.output, turn.shown.hidden, self[1:])
        return tuple(without_open_reasoning(found))

    def count_before(self, turns: Sequence[Turn]) -> int:
        """Return how many items of its turn stand before it, hidden ones included."""
        if not self.place and not self.piece:
            return 0
        turn = turns[self.turn]
        return count_before(turn.input, turn.output, turn.shown.hidden, self[1:])

    def cut(self, turns: Sequence[Turn], pieces: tuple[str, ...] | None = None) -> ShownTurn:
        """Return its turn from this message on; `pieces`, if given, replace the rest of its entry."""
        shown = turns[self.turn].shown
        entries = shown.entries_in(self.form)
        entry = entries[self.place]
        left = entry.pieces[self.piece :] if pieces is None else pieces
        begins = replace(entry, pieces=left, call_ids=entry.call_ids[self.piece :])
        input_count = len(shown.input_in(self.form))
        if self.place < input_count:
            return ShownTurn(
                (begins, *entries[self.place + 1 : input_count]), entries[input_count:], None, None
            )
        return ShownTurn((), (begins, *entries[self.place + 1 :]), None, None)


class Window(NamedTuple):
    """Where a request could begin, and the approximate length of the match from there."""

    spot: Spot
    length: int


class MessageLine(Struct, frozen=True):
    """The messages of turns, where each stands, and the ends of answers of several messages."""

    words: list[Words]
    spots: list[Spot]
    ends: dict[Words, tuple[Words, int]]

    @classmethod
    def of(cls, turns: Sequence[Turn], form: ClientForm = ClientForm.SEEN) -> MessageLine:
        line = cls([], [], {})
        for index, turn in enumerate(turns):
            for place, entry in enumerate(turn.shown.entries_in(form)):
                for piece, words in enumerate(_words_of_entry(entry)):
                    line.words.append(words)
                    line.spots.append(Spot(index, form, place, piece))
                line.ends.update(_ends_of_answer(entry))
        return line


def windows(turns: Sequence[Turn], request: ClientTranscript) -> Iterable[Window]:
    """Yield where the request could begin: at the beginning, and at the longest matches."""
    readings = list(_readings(request))
    for form in _forms(turns):
        line = MessageLine.of(turns, form)
        for sent in readings:
            yield from _windows_in(line, sent, form)


def _windows_in(line: MessageLine, sent: list[Words], form: ClientForm) -> Iterable[Window]:
    begins, skipped = sent[:1], 0
    if sent and sent[0] in line.ends and sent[0] not in line.words:
        begins[0], skipped = line.ends[sent[0]]
    lengths = common_lengths(begins + sent[1:], line.words)
    best = nlargest(MOST_WINDOWS, ((length, at) for at, length in enumerate(lengths) if length and at))
    yield Window(Spot(0, form, 0, 0), lengths[0] if lengths and not skipped else 0)
    for length, at in best:
        spot = line.spots[at]
        yield Window(spot._replace(piece=spot.piece + skipped), length)
    if skipped and lengths[0]:
        yield Window(line.spots[0]._replace(piece=skipped), lengths[0])


def spot_in(turns: Sequence[Turn], request: ClientTranscript, index: int) -> Spot:
    """Return where in this turn the request begins; at its beginning if that is not found."""
    turn, found = turns[index], request.next(request.first, FORWARDS)
    begin = Spot(index, ClientForm.SEEN, 0, 0)
    if found is None or request.read_turn(turn.kind, turn.shown, request.first, FORWARDS):
        return begin
    first = _words(found[0].role, found[0].text, found[0].calls)
    for form in _forms([turn]):
        line = MessageLine.of([turn], form)
        same = (spot for spot, words in zip(line.spots, line.words, strict=True) if words == first)
        for spot in islice(same, MOST_SPOTS):
            if request.read_turn(turn.kind, spot.cut([turn]), request.first, FORWARDS):
                return spot._replace(turn=index)
    return begin


def find_spot(turns: Sequence[Turn], request: ClientTranscript, within: int | None) -> Spot | None:
    """Return where the first message of the request stands in the line, or in one turn of it, judged by what
    follows: messages between those that match may have been edited. Of several places the first; None if the
    match may be chance."""
    best: tuple[int, int, Spot] | None = None
    readings = list(_readings(request))
    for form in _forms(turns):
        line = MessageLine.of(turns, form)
        for sent in readings:
            same = (
                (length, -at)
                for at, length in enumerate(common_lengths(sent, line.words))
                if length and within in (None, line.spots[at].turn)
            )
            for _, back in nlargest(MOST_SPOTS, same):
                agree = sum(one == other for one, other in zip(sent, line.words[-back:], strict=False))
                if best is None or (agree, back) > best[:2]:
                    best = (agree, back, line.spots[-back])
    if best is None or (best[0] < CERTAIN_MATCHES and within is None and not is_distinctive(request)):
        return None
    return best[2]


def _readings(request: ClientTranscript) -> Iterable[list[Words]]:
    """Yield the messages of the request, consecutive answers as one; and, if it begins with several, the
    first of them apart from the rest: messages in between may have been deleted."""
    yield words_of_request(request)
    text, place = "", request.first
    calls: tuple[Call, ...] = ()
    for _ in range(MOST_ANSWERS):
        found = request.next(place, FORWARDS)
        if found is None or found[0].role != "assistant":
            return
        text, calls, place = text + found[0].text, calls + found[0].calls, found[1]
        following = request.next(place, FORWARDS)
        if following is not None and following[0].role == "assistant":
            yield [
                _words("assistant", text, calls),
                *words_of_request(ClientTranscript(request.messages, place)),
            ]


def is_distinctive(request: ClientTranscript) -> bool:
    """Return whether the first message is long enough to rule out chance."""
    found = request.next(request.first, FORWARDS)
    if found is None:
        return False
    calls = "".join(name + arguments for name, arguments in found[0].calls)
    return len(remove_spaces(found[0].text + calls)) >= DISTINCTIVE


def _forms(turns: Sequence[Turn]) -> list[ClientForm]:
    forms = [ClientForm.SEEN]
    if any(turn.shown.whole for turn in turns):
        forms.append(ClientForm.WHOLE)
    if any(turn.shown.held for turn in turns):
        forms.append(ClientForm.HELD)
    return forms


def _ends_of_answer(entry: Entry) -> Iterable[tuple[Words, tuple[Words, int]]]:
    """Yield the ends of an answer of several messages, with which a request may begin, and what they lack."""
    if entry.role == "assistant" and len(entry.pieces) + bool(entry.calls) > 1:
        whole = _words(entry.role, "".join(entry.pieces), entry.calls)
        for piece in range(1, len(entry.pieces) + bool(entry.calls)):
            yield _words(entry.role, "".join(entry.pieces[piece:]), entry.calls), (whole, piece)


def _words_of_entry(entry: Entry) -> list[Words]:
    if entry.role == "assistant":
        return [_words(entry.role, "".join(entry.pieces), entry.calls)]
    return [_words(entry.role, piece, ()) for piece in entry.pieces or ("",)]


def words_of_request(request: ClientTranscript) -> list[Words]:
    """Return the words of a request, with consecutive answers joined as in a turn."""
    words: list[Words] = []
    place = request.first
    answer: tuple[str, tuple[Call, ...]] = ("", ())
    while (found := request.next(place, FORWARDS)) is not None:
        message, place = found
        if message.role == "assistant":
            answer = (answer[0] + message.text, answer[1] + message.calls)
            continue
        if answer != ("", ()):
            words.append(_words("assistant", *answer))
            answer = ("", ())
        words.append(_words(message.role, message.text, ()))
    if answer != ("", ()):
        words.append(_words("assistant", *answer))
    return words


def _words(role: str, text: str, calls: Sequence[Call]) -> Words:
    """Return what is compared in a search: of answers, which clients split and join, only the two ends."""
    if role == "assistant":
        text = remove_thoughts(text)
        text = (
            remove_spaces(text[: 2 * COMPARED_CHARACTERS])[:COMPARED_CHARACTERS]
            + remove_spaces(text[-2 * COMPARED_CHARACTERS :])[-COMPARED_CHARACTERS:]
        )
    return role, text, tuple((name, canonicalize(arguments)) for name, arguments in calls) if calls else ()


def common_lengths(sent: Sequence[Words], line: Sequence[Words]) -> list[int]:
    """Return the length of the match at each place of the line, in linear time (the Z algorithm)."""
    both: list[Words | None] = [*sent, None, *line]
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
