"""The draft: what an attempt has produced so far, in memory, and whether it is fit to be history."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from turnledger.engine.events.live_log import EmittedText
from turnledger.errors import EmptyTurn, InvalidInput, MalformedItems
from turnledger.model.item import Item, is_unicode, message
from turnledger.model.journal import Journal
from turnledger.model.messages.pairing import check_turn, without_open_reasoning


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
        self._not_redone = [place for place, item in enumerate(journal.items) if item.is_call]
        """Places of the calls of earlier attempts that this one has not come to again."""
        self._max_bytes = max_bytes
        self.emitted = EmittedText()
        """All text, also that which steps were made of."""
        self._taken = 0
        self._half = ""
        self.last: tuple[Item, ...] = ()
        """The items that end the answer, once it is ended."""

    @property
    def text(self) -> str:
        return self.emitted.between(self._taken, self.emitted.length)

    @property
    def steps(self) -> tuple[Item, ...]:
        return tuple(self._journal.items)

    @property
    def open_calls(self) -> tuple[Item, ...]:
        return tuple(self._journal.items[place] for place in self._journal.unanswered())

    def emit(self, text: str) -> str:
        """Take text; return what can be shown of it now. Half a character waits for its other half, since
        models that count UTF-16 cut where they like; one that never comes is replaced."""
        if self.last:
            self.check_unended()
        text = self._half + text
        self._half = ""
        if not text.isascii() and not is_unicode(text):
            if "\ud800" <= text[-1] <= "\udbff":
                text, self._half = text[:-1], text[-1]
            text = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
        if text:
            if self.emitted.length + len(text) > self._max_bytes:
                self._check_size(self.emitted.length + len(text))
            self.emitted.append(text)
        return text

    def next_items(self, items: Sequence[Item]) -> tuple[list[Item], int]:
        """What adding these items means: the text before them as a message of its own, then they; and how
        far that takes the text. Raises MalformedItems for what would break the history."""
        self.check_unended()
        reaches = self.emitted.length
        added = [message("assistant", self.text, status="completed")] if reaches > self._taken else []
        added += items
        steps = [*self._journal.items, *added]
        self._check_size(sum(len(item.raw) for item in steps))
        check_turn(self._pending, (*self._input, *without_open_reasoning(steps)))
        return added, reaches

    def takes_text(self, reaches: int) -> bool:
        """Whether the first of the items that take the text so far is made of it."""
        return reaches > self._taken

    def take(self, items: Sequence[Item], reaches: int) -> None:
        """The items are recorded: they are steps now, and so is the text they took."""
        self._journal.items.extend(items)
        self._taken = reaches

    def end_with(self, items: tuple[Item, ...]) -> None:
        """Take the items that end the answer, behind all text and steps. Raises MalformedItems if it is not
        whole with them; then it goes on."""
        self.check_unended()
        self.last = items
        try:
            self.whole()
        except BaseException:
            self.last = ()
            raise

    def check_unended(self) -> None:
        """Refuse to go on behind the items that end the answer."""
        if self.last:
            raise InvalidInput(
                "The answer was ended by put(): nothing can follow. Put all last items at once."
            )

    def start(self, place: int, *, read_only: bool) -> None:
        """That the call at this place starts is recorded."""
        self._journal.started[place] = read_only

    def taken_up(self, call: Item) -> tuple[Item, Item | None]:
        """Return a call as an earlier attempt recorded it, and its result if there is one: a runner may begin
        anew. The same call that repeats stands for its next occurrence each time; one that came from the
        steps is that very one."""
        items = self._journal.items
        is_step = any(item is call for item in items)
        for place in self._not_redone:
            if items[place] is call if is_step else _is_same(items[place], call):
                self._not_redone.remove(place)
                return items[place], self._journal.answers().get(place)
        return call, None

    def waiting_place(self, call: Item) -> int | None:
        """The place of this call among the steps, if it is there and neither started nor answered."""
        for place in self._journal.unanswered():
            if self._journal.items[place] == call and place not in self._journal.started:
                return place
        return None

    def whole(self) -> tuple[tuple[Item, ...], tuple[Item, ...]]:
        """The output of the whole turn, and the calls it leaves to its client; raises EmptyTurn or
        MalformedItems if it is not whole."""
        text = self.text
        output = (*self._journal.items, *([message("assistant", text)] if text else ()), *self.last)
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


def _is_same(recorded: Item, call: Item) -> bool:
    return recorded.call_id == call.call_id and _essence(recorded) == _essence(call)


def _essence(call: Item) -> dict[str, Any]:
    """What is called with what; the id and the status of the item itself may differ."""
    return {name: value for name, value in call.fields.items() if name not in ("id", "status")}
