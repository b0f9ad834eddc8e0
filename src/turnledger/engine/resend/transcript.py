"""The messages of a request, read along the turns of a branch, forwards or backwards.

A place is a number between two messages; reading moves it. Messages are projected only when reached, and most
turns are compared without that.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from turnledger.model.messages.calls import NOT_ANSWERED
from turnledger.model.messages.projection import (
    SILENT,
    Entry,
    Said,
    Shown,
    bare,
    plain_text,
    said,
    same_calls,
)
from turnledger.model.turn import Turn, TurnKind

MOST_PIECES = 64
"""The most messages in a row tried as pieces of one text."""
FORWARDS, BACKWARDS = 1, -1


class ClientTranscript:
    """A request, as its client's copy of the history. `first` is the end of its instructions."""

    def __init__(self, messages: Sequence[Mapping[str, Any]], first: int = 0) -> None:
        self.messages = messages
        self.end = len(messages)
        while first < self.end and messages[first].get("role") in ("system", "developer"):
            first += 1
        self.first = first
        self._next: dict[tuple[int, int], tuple[Said, int] | None] = {}
        begins, ends = self.next(first, FORWARDS), self.next(self.end, BACKWARDS)
        self._begin = self.end if begins is None else begins[1] - 1
        self._end = first if ends is None else ends[1] + 1

    def next(self, place: int, step: int) -> tuple[Said, int] | None:
        """Return the next message with content, and the place after it; None at the end."""
        try:
            return self._next[place, step]
        except KeyError:
            found = self._next[place, step] = self._find(place, step)
            return found

    def _find(self, place: int, step: int) -> tuple[Said, int] | None:
        while self.first < place if step < 0 else place < self.end:
            what = said(self.messages[place - 1 if step < 0 else place])
            place += step
            if what.role != SILENT:
                return what, place
        return None

    def is_over(self, place: int, step: int) -> bool:
        """Return whether no message with content follows in this direction."""
        return place <= self._begin if step < 0 else place >= self._end

    def is_behind_something(self, place: int) -> bool:
        """Return whether the message before this place has content."""
        found = self.next(place, BACKWARDS)
        return found is not None and found[1] == place - 1

    def answers(self, place: int) -> bool:
        """Return whether the next message is a result."""
        found = self.next(place, FORWARDS)
        return found is not None and found[0].role == "tool"

    def past_echoes(self, turns: Sequence[Turn], left: int, place: int) -> tuple[int, int]:
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

    def _is_plain(self, shown: Shown, place: int) -> bool:
        """Return whether question and answer match in another JSON form: the next most common case."""
        plain = shown.plain
        return (
            plain is not None
            and plain_text(self.messages[place], "user") == plain[0]
            and plain_text(self.messages[place + 1], "assistant") == plain[1]
        )

    def through(self, kind: TurnKind, shown: Shown, place: int, step: int) -> set[int]:
        """Return where reading this turn may lead; empty if it does not match. Of a turn that did not
        complete, the client may have any part, or none."""
        if shown.echo is not None:
            size = len(shown.echo)
            begin = place if step > 0 else place - size
            if begin >= self.first and self.messages[begin : begin + size] == shown.echo:
                return {place + step * size}
        forms = shown.forms
        if kind is TurnKind.COMPLETED:
            return {found for form in forms if (found := self.past(form, place, step)) is not None}
        return set().union(*(self._past_parts(form, place, step) for form in forms))

    def is_answered_otherwise(self, shown: Shown, place: int, through: set[int]) -> bool:
        """Return whether a turn that did not complete matches up to a different answer; `through` is where
        reading it may lead. If the turn has no text after that, any answer may belong to it."""
        end = max(through)
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

    def past(self, entries: Sequence[Entry], place: int, step: int) -> int | None:
        """Read all of these entries. Backwards, the request may begin anywhere among them."""
        for entry in entries if step > 0 else reversed(entries):
            found = self._past_entry(entry, place, step)
            if found is not None:
                place = found
            elif step < 0 and self.is_over(place, step):
                return place
            elif not entry.may_be_absent:
                return None
        return place

    def _past_parts(self, entries: Sequence[Entry], place: int, step: int) -> set[int]:
        places = {place}
        parts = [part for entry in entries for part in entry.parts]
        for entry in parts[::step]:
            for each in tuple(places):
                found = self._past_entry(entry, each, step)
                if found is None:
                    found = self._past_cut_text(entry, each, step)
                if found is not None:
                    places.add(found)
        return places

    def _past_cut_text(self, entry: Entry, place: int, step: int) -> int | None:
        """Match a partial answer: after a stop, the client saw less than was kept, or a little more."""
        found = self.next(place, step)
        if found is None or entry.role != "assistant" or found[0].role != "assistant" or not entry.pieces:
            return None
        sent = bare(found[0].text)
        alike = sent and (entry.bare.startswith(sent) or sent.startswith(entry.bare))
        return found[1] if alike else None

    def _past_entry(self, entry: Entry, place: int, step: int) -> int | None:
        found = self.next(place, step)
        if found is None or found[0].role != entry.role:
            return None
        if entry.role == "tool":
            return self._past_results(entry, place, step)
        return found[1] if _is(entry, [found[0]]) else self._past_pieces(entry, place, step)

    def _past_pieces(self, entry: Entry, place: int, step: int) -> int | None:
        """Read several messages as one entry: clients split and join consecutive messages."""
        heard: list[Said] = []
        room = len(entry.bare)
        while (found := self.next(place, step)) is not None and found[0].role == entry.role:
            what, place = found
            heard.insert(0 if step < 0 else len(heard), what)
            room -= len(bare(what.text))
            if room < 0 or len(heard) > MOST_PIECES:
                return None
            if _is(entry, heard):
                return place
        # A trimmed request may begin in the middle of consecutive messages.
        return place if step < 0 and found is None and _ends(entry, heard) else None

    def _past_results(self, entry: Entry, place: int, step: int) -> int | None:
        heard: list[Said] = []
        places = [place]
        while len(heard) < len(entry.pieces) and (found := self.next(place, step)) is not None:
            if found[0].role != "tool":
                break
            heard.append(found[0])
            place = found[1]
            places.append(place)
        # A trimmed request may begin among the results.
        is_cut = step < 0 and self.is_over(place, step)
        count = _results_in_order(entry.pieces[::step], [each.text for each in heard], is_cut=is_cut)
        if count is None:
            stored = dict(zip(entry.call_ids, entry.pieces, strict=True))
            sent = {each.call_id: each.text for each in heard}
            alike = len(sent) == len(heard) and {**stored, **sent} == stored
            count = len(heard) if alike and _only_stated(stored, sent) else None
        return None if count is None else places[count]


def _is(entry: Entry, heard: Sequence[Said]) -> bool:
    """Return whether these messages together equal the entry."""
    texts = tuple(each.text for each in heard if each.text)
    if texts != entry.pieces:
        if len(texts) < 2 and len(entry.pieces) < 2:
            return False
        if bare("".join(texts)) != entry.bare:
            return False
    return same_calls(entry.calls, [call for each in heard for call in each.calls]) and _same_media(
        entry, heard
    )


def _ends(entry: Entry, heard: Sequence[Said]) -> bool:
    """Return whether these messages together equal the end of the entry."""
    text = bare("".join(each.text for each in heard))
    calls = [call for each in heard for call in each.calls]
    ends = {bare("".join(entry.pieces[begin:])) for begin in range(1, len(entry.pieces))}
    if not text and calls:
        ends.add(text)
    return text in ends and same_calls(entry.calls, calls) and _same_media(entry, heard)


def _same_media(entry: Entry, heard: Sequence[Said]) -> bool:
    """Compare images only if both sides have them: clients drop them from old messages."""
    media = tuple(each for one in heard for each in one.media)
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


def _only_stated(stored: Mapping[str | None, str], sent: Mapping[str | None, str]) -> bool:
    """Return whether only results are absent that were stated for the client."""
    return all(text == NOT_ANSWERED for call_id, text in stored.items() if call_id not in sent)
