"""Where in a line a request could begin whose client has trimmed it, edited it, or both.

Line and request are compared message by message, at a glance: what is found is then read in full. The place
where a request was found says, too, what of its turn the client has trimmed.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from heapq import nlargest
from typing import NamedTuple, TypeAlias

from msgspec import Struct
from msgspec.structs import replace

from turnledger.engine.resend.transcript import FORWARDS, ClientTranscript
from turnledger.model.item import Item
from turnledger.model.messages.calls import without_open_reasoning
from turnledger.model.messages.projection import Call, ClientForm, Entry, Shown, bare, canonical, items_before
from turnledger.model.turn import Turn

MOST_WINDOWS = 4
"""So many places in the line are tried as the beginning of a trimmed request."""
MOST_SPOTS = 16
"""So many places in the line are tried as that of one message."""
MOST_ANSWERS = 4
"""So many answers in a row, at the beginning of a request, are tried as one."""
GLANCE = 32
"""So many letters of the beginning and of the end of an answer are compared when it is searched for."""
NO_CHANCE = 2
"""So many messages that agree at the same distance are no chance."""
TELLING = 16
"""Nor is a single one of so many letters."""

Words: TypeAlias = tuple[str, str, tuple[Call, ...]]


class Spot(NamedTuple):
    """A message of the line: its turn, how that is told, and the entry and piece of it."""

    turn: int
    form: ClientForm
    place: int
    piece: int

    def before(self, turns: Sequence[Turn]) -> tuple[Item, ...]:
        """What its turn says before it, without what is hidden."""
        if not self.place and not self.piece:
            return ()
        turn = turns[self.turn]
        found = items_before(turn.input, turn.output, turn.shown.hidden, self[1:])
        return tuple(without_open_reasoning(found))

    def cut(self, turns: Sequence[Turn], pieces: tuple[str, ...] | None = None) -> Shown:
        """What is left of its turn from it on; `pieces`, if given, are what is left of its entry."""
        shown = turns[self.turn].shown
        entries = shown.told(self.form)
        entry = entries[self.place]
        left = entry.pieces[self.piece :] if pieces is None else pieces
        begins = replace(entry, pieces=left, call_ids=entry.call_ids[self.piece :])
        asked = len(shown.asked(self.form))
        if self.place < asked:
            return Shown((begins, *entries[self.place + 1 : asked]), entries[asked:], None, None)
        return Shown((), (begins, *entries[self.place + 1 :]), None, None)


class Window(NamedTuple):
    """Where a request could begin, and how much it has in common with the line from there, as far as that is
    seen at a glance."""

    spot: Spot
    length: int


class MessageLine(Struct, frozen=True):
    """What turns say, message by message, where each stands; and the ends of answers of several messages."""

    words: list[Words]
    spots: list[Spot]
    ends: dict[Words, tuple[Words, int]]

    @classmethod
    def of(cls, turns: Sequence[Turn], form: ClientForm = ClientForm.SEEN) -> MessageLine:
        line = cls([], [], {})
        for index, turn in enumerate(turns):
            for place, entry in enumerate(turn.shown.told(form)):
                for piece, words in enumerate(_words_of_entry(entry)):
                    line.words.append(words)
                    line.spots.append(Spot(index, form, place, piece))
                line.ends.update(_ends_of_answer(entry))
        return line


def windows(turns: Sequence[Turn], request: ClientTranscript) -> Iterable[Window]:
    """Where in the line the request could begin: at the beginning, and where most of it stands in a row."""
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


def find(turns: Sequence[Turn], request: ClientTranscript, within: int | None) -> Spot | None:
    """Where the first message of the request stands in the line, or in one turn of it, as far as what follows
    tells: messages may have been edited between those that agree. Of several places the first; None when so
    little agrees that it may be chance."""
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
    if best is None or (best[0] < NO_CHANCE and within is None and not is_telling(request)):
        return None
    return best[2]


def _readings(request: ClientTranscript) -> Iterable[list[Words]]:
    """What the request says, message by message, answers in a row as one; and, where it begins with several,
    the first of them apart from the rest: what was between may have been deleted."""
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


def is_telling(request: ClientTranscript) -> bool:
    """Whether the first message says so much that nobody else would say the same."""
    found = request.next(request.first, FORWARDS)
    if found is None:
        return False
    calls = "".join(name + arguments for name, arguments in found[0].calls)
    return len(bare(found[0].text + calls)) >= TELLING


def _forms(turns: Sequence[Turn]) -> list[ClientForm]:
    forms = [ClientForm.SEEN]
    if any(turn.shown.whole for turn in turns):
        forms.append(ClientForm.WHOLE)
    if any(turn.shown.held for turn in turns):
        forms.append(ClientForm.HELD)
    return forms


def _ends_of_answer(entry: Entry) -> Iterable[tuple[Words, tuple[Words, int]]]:
    """The ends of an answer of several messages, and how many are missing: a request may begin with one."""
    if entry.role == "assistant" and len(entry.pieces) + bool(entry.calls) > 1:
        whole = _words(entry.role, "".join(entry.pieces), entry.calls)
        for piece in range(1, len(entry.pieces) + bool(entry.calls)):
            yield _words(entry.role, "".join(entry.pieces[piece:]), entry.calls), (whole, piece)


def _words_of_entry(entry: Entry) -> list[Words]:
    if entry.role == "assistant":
        return [_words(entry.role, "".join(entry.pieces), entry.calls)]
    return [_words(entry.role, piece, ()) for piece in entry.pieces or ("",)]


def words_of_request(request: ClientTranscript) -> list[Words]:
    """The same for a request, whose answers are joined like those of a turn."""
    words: list[Words] = []
    place = request.first
    answer: tuple[str, tuple[Call, ...]] = ("", ())
    while (found := request.next(place, FORWARDS)) is not None:
        what, place = found
        if what.role == "assistant":
            answer = (answer[0] + what.text, answer[1] + what.calls)
            continue
        if answer != ("", ()):
            words.append(_words("assistant", *answer))
            answer = ("", ())
        words.append(_words(what.role, what.text, ()))
    if answer != ("", ()):
        words.append(_words("assistant", *answer))
    return words


def _words(role: str, text: str, calls: Sequence[Call]) -> Words:
    """What is compared at a glance: of answers, which clients split and join, how they begin and end."""
    if role == "assistant":
        text = bare(text[: 2 * GLANCE])[:GLANCE] + bare(text[-2 * GLANCE :])[-GLANCE:]
    return role, text, tuple((name, canonical(arguments)) for name, arguments in calls) if calls else ()


def common_lengths(sent: Sequence[Words], line: Sequence[Words]) -> list[int]:
    """For each place of the line, how much of the request stands there: linear, however often messages
    repeat (the Z algorithm)."""
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
