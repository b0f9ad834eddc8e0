"""The messages of a request, read along the turns of a branch, forwards or backwards.

A place is a number between two messages; reading moves it. Messages are projected only when reached, and most
turns are compared without that.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import cached_property
from typing import Any, NamedTuple

from turnledger.model.item import NOT_ANSWERED
from turnledger.model.messages.projection import (
    UNMATCHED,
    Entry,
    ReducedMessage,
    ShownTurn,
    plain_text,
    reduce_message,
    remove_spaces,
    remove_thoughts,
    same_calls,
    without_thoughts,
)
from turnledger.model.turn import Turn, TurnKind

MOST_PIECES = 64
"""The most messages in a row tried as pieces of one text."""
FRAME = 64
"""Characters that the newest question must share with the text added to an older one."""
REMINDER = 16
"""The same for a paragraph that both have as a whole: a person's greeting is shorter."""
FORWARDS, BACKWARDS = 1, -1


class ClientTranscript:
    """A request, as its client's copy of the history. `first` is the end of its instructions."""

    def __init__(self, messages: Sequence[Mapping[str, Any]], first: int = 0) -> None:
        self.messages = messages
        self.end = len(messages)
        while first < self.end and messages[first].get("role") in ("system", "developer"):
            first += 1
        self.first = first
        self._next: dict[tuple[int, int], tuple[ReducedMessage, int] | None] = {}
        begins, ends = self.next(first, FORWARDS), self.next(self.end, BACKWARDS)
        self._begin = self.end if begins is None else begins[1] - 1
        self._end = first if ends is None else ends[1] + 1

    def next(self, place: int, step: int) -> tuple[ReducedMessage, int] | None:
        """Return the next message with content, and the place after it; None at the end."""
        try:
            return self._next[place, step]
        except KeyError:
            found = self._next[place, step] = self._find(place, step)
            return found

    def _find(self, place: int, step: int) -> tuple[ReducedMessage, int] | None:
        while self.first < place if step < 0 else place < self.end:
            message = reduce_message(self.messages[place - 1 if step < 0 else place])
            place += step
            if message.role != UNMATCHED:
                return message, place
        return None

    def is_over(self, place: int, step: int) -> bool:
        """Return whether no message with content follows in this direction."""
        return place <= self._begin if step < 0 else place >= self._end

    def follows_content(self, place: int) -> bool:
        """Return whether the message before this place has content."""
        found = self.next(place, BACKWARDS)
        return found is not None and found[1] == place - 1

    def is_result_next(self, place: int) -> bool:
        """Return whether the next message is a result."""
        found = self.next(place, FORWARDS)
        return found is not None and found[0].role == "tool"

    def place_behind_preamble(self, input: Sequence[Entry]) -> int | None:
        """Return the place of the question at the end of this input, if other messages precede it, as many as
        here, and each is the same or begins alike: a program sends them anew each time, with other files."""
        place = self.first
        before = [(entry, piece) for entry in input for piece in entry.pieces][:-1]
        for entry, piece in before:
            found = self.next(place, FORWARDS)
            if found is None or found[0].role != entry.role or entry.calls or found[0].calls:
                return None
            message, place = found
            if message.text != piece and not (entry.role == "user" and _begin_alike(message.text, piece)):
                return None
        return place if before else None

    def skip_echoes(self, turns: Sequence[Turn], left: int, place: int) -> tuple[int, int]:
        """Read backwards while turns match exactly as shown: the common case, without projection. Return the
        turns left and the place."""
        messages, first = self.messages, self.first
        while left:
            shown = turns[left - 1].shown
            echo = shown.echo
            if echo is None:
                break
            begin = place - len(echo)
            if begin < first or (messages[begin:place] != echo and not self._is_plain(shown, begin)):
                break
            place = begin
            left -= 1
        return left, place

    def _is_plain(self, shown: ShownTurn, place: int) -> bool:
        """Return whether question and answer match in another JSON form, the next most common case; also
        without what a tool added to the question, and the model's reasoning in the answer."""
        if shown.plain is None:
            return False
        question, answer = shown.plain
        sent = plain_text(self.messages[place], "user")
        if sent is None or (sent != question and not self._is_framed_by(_known_frame(shown, sent), sent)):
            return False
        sent = plain_text(self.messages[place + 1], "assistant")
        return sent is not None and sent in (answer, shown.bare_answer)

    def read_turn(self, kind: TurnKind, shown: ShownTurn, place: int, step: int) -> set[int]:
        """Return where reading this turn may lead; empty if it does not match. Of a turn that did not
        complete, the client may have any part, or none."""
        if shown.echo is not None:
            size = len(shown.echo)
            begin = place if step > 0 else place - size
            if (
                begin >= self.first
                and begin + size <= self.end
                and (self.messages[begin : begin + size] == shown.echo or self._is_plain(shown, begin))
            ):
                return {place + step * size}
        forms = shown.forms
        if kind is TurnKind.COMPLETED:
            return {found for form in forms if (found := self.read_entries(form, place, step)) is not None}
        return set().union(*(self._read_parts(form, place, step) for form in forms))

    def has_other_answer(self, shown: ShownTurn, place: int, ends: set[int]) -> bool:
        """Return whether a turn that did not complete matches up to a different answer; `ends` is where
        reading it may lead. If the turn has no text after that, any answer may belong to it."""
        end = max(ends)
        last, follows = self.next(end, BACKWARDS), self.next(end, FORWARDS)
        if end == place or last is None or follows is None:
            return False
        if last[0].role == "assistant" or follows[0].role != "assistant":
            return False
        places = [
            at
            for at, entry in enumerate(shown.entries)
            if entry.role == last[0].role and last[0].text in entry.pieces
        ]
        behind = shown.entries[max(places, default=-1) + 1 :]
        return any(entry.role == "assistant" and entry.pieces for entry in behind)

    def read_entries(self, entries: Sequence[Entry], place: int, step: int) -> int | None:
        """Read all of these entries. Backwards, the request may begin anywhere among them."""
        for entry in entries if step > 0 else reversed(entries):
            found = self._read_entry(entry, place, step)
            if found is not None:
                place = found
            elif step < 0 and self.is_over(place, step):
                return place
            elif not entry.may_be_absent:
                return None
        return place

    def _read_parts(self, entries: Sequence[Entry], place: int, step: int) -> set[int]:
        places = {place}
        parts = [part for entry in entries for part in entry.parts]
        for entry in parts[::step]:
            for each in tuple(places):
                found = self._read_entry(entry, each, step)
                if found is None:
                    found = self._read_partial_answer(entry, each, step)
                if found is not None:
                    places.add(found)
        return places

    def _read_partial_answer(self, entry: Entry, place: int, step: int) -> int | None:
        """Match a partial answer: after a stop, the client saw less than was kept, or a little more."""
        found = self.next(place, step)
        if found is None or entry.role != "assistant" or found[0].role != "assistant" or not entry.pieces:
            return None
        stored, sent = "".join(entry.pieces), found[0].text
        stored, sent = map(remove_spaces, without_thoughts(stored, sent) or (stored, sent))
        return found[1] if stored and sent and (stored.startswith(sent) or sent.startswith(stored)) else None

    def _read_entry(self, entry: Entry, place: int, step: int) -> int | None:
        found = self.next(place, step)
        if found is None or found[0].role != entry.role:
            return None
        if entry.role == "tool":
            return self._read_results(entry, place, step)
        if _equals(entry, [found[0]]) or self._lacks_frame(entry, found[0]):
            return found[1]
        return self._read_pieces(entry, place, step)

    def _lacks_frame(self, entry: Entry, message: ReducedMessage) -> bool:
        """Return whether a question lacks only the text that a tool added when it was the newest."""
        if entry.role != "user" or len(entry.pieces) != 1 or not _same_media(entry, [message]):
            return False
        return self._is_framed_by(_frame_of(entry.pieces[0], message.text), message.text)

    def _is_framed_by(self, frame: Frame, sent: str) -> bool:
        """Return whether a tool added this text to a question. The newest one shows the tool: both begin
        alike, or end alike."""
        before, after = frame
        if (before is None and after is None) or sent == self._newest:
            return False
        newest = self._numberless_newest
        return (before is not None and newest.startswith(before)) or (
            after is not None and newest.endswith(after)
        )

    @cached_property
    def _numberless_newest(self) -> str:
        return _without_numbers(self._newest)

    @cached_property
    def _newest(self) -> str:
        place = self.end
        while (found := self.next(place, BACKWARDS)) is not None:
            message, place = found
            if message.role == "user":
                return message.text
        return ""

    def _read_pieces(self, entry: Entry, place: int, step: int) -> int | None:
        """Read several messages as one entry: clients split and join consecutive messages."""
        messages: list[ReducedMessage] = []
        room = len(entry.compact_text)
        while (found := self.next(place, step)) is not None and found[0].role == entry.role:
            message, place = found
            messages.insert(0 if step < 0 else len(messages), message)
            room -= len(remove_spaces(remove_thoughts(message.text)))
            if room < 0 or len(messages) > MOST_PIECES:
                return None
            if _equals(entry, messages):
                return place
        # A trimmed request may begin in the middle of consecutive messages.
        return place if step < 0 and found is None and _ends_with(entry, messages) else None

    def _read_results(self, entry: Entry, place: int, step: int) -> int | None:
        messages: list[ReducedMessage] = []
        places = [place]
        while len(messages) < len(entry.pieces) and (found := self.next(place, step)) is not None:
            if found[0].role != "tool":
                break
            messages.append(found[0])
            place = found[1]
            places.append(place)
        # A trimmed request may begin among the results.
        is_cut = step < 0 and self.is_over(place, step)
        count = _results_in_order(entry.pieces[::step], [each.text for each in messages], is_cut=is_cut)
        if count is None:
            stored = dict(zip(entry.call_ids, entry.pieces, strict=True))
            sent = {each.call_id: each.text for each in messages}
            alike = len(sent) == len(messages) and {**stored, **sent} == stored
            count = len(messages) if alike and _lacks_only_filled_in(stored, sent) else None
        return None if count is None else places[count]


class Frame(NamedTuple):
    """The text that a stored question has and its copy lacks: the beginning of that before the question, and
    the end of that behind it. Each number in it is replaced by 0."""

    before: str | None = None
    after: str | None = None


def _frame_of(stored: str, sent: str) -> Frame:
    added = len(stored) - len(sent)
    if added < REMINDER:
        return Frame()
    is_short = added < FRAME  # then it has to be a paragraph, before the question with the time in it
    before = after = None
    if stored.endswith(sent) and (
        stored[:added].endswith("\n\n" if is_short else "\n")
        or (not is_short and _ends_with_label(stored[added - FRAME : added]))
    ):
        begin = _without_numbers(stored[:added][:FRAME])
        before = begin if "0" in begin or not is_short else None
    if stored.startswith(sent) and stored[-added:].startswith("\n\n" if is_short else "\n"):
        after = _without_numbers(stored[-added:][-FRAME:])
    return Frame(before, after)


_ends_with_label = re.compile(r"\n[^\n:]{1,32}:[ ]?\Z").search
"""Such as `Question: `, in the prompts of many programs."""


def _known_frame(shown: ShownTurn, sent: str) -> Frame:
    """Return the frame of a plain question. A client sends the same copy with each request, so the frame is
    found once."""
    known: tuple[str, Frame] | None = shown.__dict__.get("frame")
    if known is None or known[0] != sent:
        question = shown.plain[0] if shown.plain is not None else ""
        known = sent, _frame_of(question, sent)
        if known[1] != Frame():  # else what was sent may be larger than the turn: it would stay in memory
            shown.__dict__["frame"] = known
    return known[1]


def _without_numbers(text: str) -> str:
    """Return a text in which all numbers are the same: that of a tool may have the time in it."""
    return _numbers.sub("0", text)


_numbers = re.compile(r"\d+")


def _begin_alike(one: str, other: str) -> bool:
    """Return whether two texts differ only in numbers, such as the time, or after a long beginning."""
    begin = one[:FRAME]
    if len(one) > FRAME < len(other) and begin == other[:FRAME] and not _numbers.search(begin):
        return True
    one, other = _without_numbers(one), _without_numbers(other)
    return one == other or (len(one) > FRAME and one[:FRAME] == other[:FRAME])


def _equals(entry: Entry, messages: Sequence[ReducedMessage]) -> bool:
    """Return whether these messages together equal the entry."""
    texts = tuple(each.text for each in messages if each.text)
    if texts != entry.pieces:
        sent, stored = "".join(texts), "".join(entry.pieces)
        bare = without_thoughts(sent, stored) if entry.role == "assistant" else None
        if bare is None and len(texts) < 2 and len(entry.pieces) < 2:
            return False
        one, other = map(remove_spaces, bare or (sent, stored))
        if one != other:
            return False
    return same_calls(entry.calls, [call for each in messages for call in each.calls]) and _same_media(
        entry, messages
    )


def _ends_with(entry: Entry, messages: Sequence[ReducedMessage]) -> bool:
    """Return whether these messages together equal the end of the entry."""
    text = remove_spaces("".join(each.text for each in messages))
    calls = [call for each in messages for call in each.calls]
    ends = {remove_spaces("".join(entry.pieces[begin:])) for begin in range(1, len(entry.pieces))}
    if not text and calls:
        ends.add(text)
    return text in ends and same_calls(entry.calls, calls) and _same_media(entry, messages)


def _same_media(entry: Entry, messages: Sequence[ReducedMessage]) -> bool:
    """Compare images only if both sides have them: clients drop them from old messages."""
    media = tuple(each for one in messages for each in one.media)
    return not media or not entry.media or entry.media[-len(media) :] == media


def _results_in_order(pieces: Sequence[str], texts: Sequence[str], *, is_cut: bool) -> int | None:
    """Return how many of these texts are the results in this order; stated results may be absent."""
    count = 0
    for piece in pieces:
        if count < len(texts) and texts[count] == piece:
            count += 1
        elif piece != NOT_ANSWERED:
            return count if is_cut and 0 < count == len(texts) else None
    return count


def _lacks_only_filled_in(stored: Mapping[str | None, str], sent: Mapping[str | None, str]) -> bool:
    """Return whether only results are absent that were stated for the client."""
    return all(text == NOT_ANSWERED for call_id, text in stored.items() if call_id not in sent)
