"""The draft: what an attempt has produced so far, in memory, and whether it is fit to be history."""

from __future__ import annotations

from collections.abc import Sequence

from turnledger.errors import EmptyTurn, MalformedItems
from turnledger.model.item import Item, is_unicode, message
from turnledger.model.journal import Journal
from turnledger.model.pairing import check_turn, without_open_reasoning


class Draft:
    """Finished items, which calls were started, and the text emitted since.

    `pending` are the calls that the head left open, `input` what the turn answers.
    """

    def __init__(
        self, pending: tuple[Item, ...], input: tuple[Item, ...], journal: Journal, max_bytes: int
    ) -> None:
        self._pending = pending
        self._input = input
        self._journal = journal
        self._max_bytes = max_bytes
        self._chunks: list[str] = []
        self._half = ""

    @property
    def text(self) -> str:
        return "".join(self._chunks)

    @property
    def steps(self) -> tuple[Item, ...]:
        return tuple(self._journal.items)

    @property
    def open_calls(self) -> tuple[Item, ...]:
        return tuple(self._journal.items[place] for place in self._journal.unanswered())

    def emit(self, text: str) -> str:
        """Take text; return what can be shown of it now. Half a character waits for its other half, since
        models that count UTF-16 cut where they like; one that never comes is replaced."""
        text = self._half + text
        self._half = ""
        if not is_unicode(text):
            if "\ud800" <= text[-1] <= "\udbff":
                text, self._half = text[:-1], text[-1]
            text = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
        if text:
            self._chunks.append(text)
        return text

    def next_items(self, items: Sequence[Item]) -> tuple[list[Item], int]:
        """What adding these items means: the text before them as a message of its own, then they; and how
        many chunks of text that takes. Raises MalformedItems for what would break the history."""
        chunks = len(self._chunks)
        added = [message("assistant", self.text, status="completed")] if chunks else []
        added += items
        steps = [*self._journal.items, *added]
        self._check_size(sum(len(item.raw) for item in steps))
        check_turn(self._pending, (*self._input, *without_open_reasoning(steps)))
        return added, chunks

    def take(self, items: Sequence[Item], chunks: int) -> None:
        """The items are recorded: they are steps now, and so is the text they took."""
        self._journal.items.extend(items)
        del self._chunks[:chunks]

    def start(self, place: int, *, read_only: bool) -> None:
        """That the call at this place starts is recorded."""
        self._journal.started[place] = read_only

    def waiting_place(self, call: Item) -> int | None:
        """The place of this call among the steps, if it is there and neither started nor answered."""
        for place in self._journal.unanswered():
            if self._journal.items[place] == call and place not in self._journal.started:
                return place
        return None

    def whole(self) -> tuple[tuple[Item, ...], tuple[Item, ...]]:
        """The output of the whole turn, and the calls it leaves to its client; raises EmptyTurn or
        MalformedItems if it is not whole."""
        output = (*self._journal.items, *([message("assistant", self.text)] if self._chunks else ()))
        if not output:
            raise EmptyTurn
        started = self._journal.started
        if started and any(place in started for place in self._journal.unanswered()):
            raise MalformedItems("A call was started, but no result was added for it.")
        self._check_size(sum(len(item.raw) for item in output))
        return output, check_turn(self._pending, (*self._input, *output))

    def _check_size(self, size: int) -> None:
        if size > self._max_bytes:
            raise MalformedItems(f"The turn has grown past {self._max_bytes} bytes.")
