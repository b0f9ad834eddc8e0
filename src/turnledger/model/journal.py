"""The journal: what a running attempt has durably recorded of itself, step by step.

A record is a finished item, or the start of a call, written before the tool acts. Calls are identified by
their place among the journaled items, since call ids repeat.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

import msgspec

from turnledger.errors import StoreCorrupt
from turnledger.model import codec
from turnledger.model.item import Item, checked_items, pair_places, without_open_reasoning


class JournalRecord(codec.Document, frozen=True):
    """One record, with either `item` or `started`."""

    item: msgspec.Raw | msgspec.UnsetType = msgspec.UNSET
    started: int | msgspec.UnsetType = msgspec.UNSET
    read_only: bool = False
    emitted: bool | msgspec.UnsetType = msgspec.UNSET


@dataclass
class Journal:
    """The journal read back: finished items in order, and which calls were started."""

    items: list[Item] = field(default_factory=list)
    started: dict[int, bool] = field(default_factory=dict)
    """Place of the call among the items → whether its tool is declared read-only."""
    emitted: frozenset[int] = frozenset()
    """Places of the items that were made of emitted text."""

    @classmethod
    def of(cls, records: Sequence[bytes]) -> Journal:
        journal = cls()
        for raw in records:
            record = codec.decode(JournalRecord, raw)
            if isinstance(record.item, msgspec.Raw):
                if record.emitted is True:
                    journal.emitted |= {len(journal.items)}
                journal.items += checked_items((record.item,))
            elif isinstance(record.started, int) and 0 <= record.started < len(journal.items):
                journal.started[record.started] = record.read_only
            else:
                raise StoreCorrupt("A stored journal record is empty. Restore the store from a backup.")
        return journal

    @classmethod
    def for_retry(cls, records: Sequence[bytes]) -> Journal:
        """Read the journal for a retry: without reasoning at its end, whose item never came, and with no item
        marked as emitted, since the retry has emitted none."""
        journal = cls.of(records)
        journal.emitted = frozenset()
        journal.items = list(without_open_reasoning(journal.items))
        return journal

    @property
    def records(self) -> list[bytes]:
        records: list[bytes] = []
        for place, item in enumerate(self.items):
            records.append(item_record(item, emitted=place in self.emitted))
            if place in self.started:
                records.append(start_record(place, read_only=self.started[place]))
        return records

    @property
    def has_effects(self) -> bool:
        """Whether a tool that is not read-only was started: it may have had effects."""
        return any(not read_only for read_only in self.started.values())

    def answers(self) -> dict[int, Item]:
        """Return the result of each answered call, by place. A call id means the last open call with it."""
        return {call: self.items[result] for call, result in pair_places(self.items)}

    def unanswered_calls(self) -> list[int]:
        answers = self.answers()
        return [place for place, item in enumerate(self.items) if item.is_call and place not in answers]


def item_record(item: Item, *, emitted: bool = False) -> bytes:
    return codec.encode(JournalRecord(item=msgspec.Raw(item.raw), emitted=emitted or msgspec.UNSET))


def start_record(place: int, *, read_only: bool) -> bytes:
    """Encode the record that the call at this place is about to act."""
    return codec.encode(JournalRecord(started=place, read_only=read_only))
