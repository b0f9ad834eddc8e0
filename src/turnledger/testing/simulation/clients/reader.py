"""A listener: one who reads the events of one turn, dies, and comes again after the last number it heard."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from turnledger.model import codec
from turnledger.model.event import Event, TurnFinished
from turnledger.model.ids import ConversationId, TurnId


@dataclass
class Listener:
    """What was heard, and whether that was in the very process that ran the turn: what is told there and not
    yet written down dies with it."""

    conversation: ConversationId
    turn: TurnId
    heard: list[tuple[Event, bool]] = field(default_factory=list)
    is_over: bool = False
    misses: int = 0
    """How often there was no such turn, or not yet."""
    was_sent_away: bool = False
    """Whether the conversation was deleted, or expired, before the end was heard. What was deleted may have
    been restored since."""
    was_taken_over: bool = False
    """Whether somebody else than its holder ended the turn."""

    def hear(self, event: Event, *, in_its_process: bool) -> None:
        self.heard.append((event, in_its_process))
        self.is_over = isinstance(event, TurnFinished)

    @property
    def last(self) -> int:
        """The number of the last event that was heard."""
        return self.heard[-1][0].number if self.heard else 0

    def broken_by(self, events: Sequence[Event]) -> Iterator[str]:
        """What is wrong with what was heard, of a turn of which these events can be read at the end."""
        numbers = [event.number for event, _ in self.heard]
        *told, last = [event for event, _ in self.heard]
        if any(isinstance(event, TurnFinished) for event in told):
            yield f"something was heard of {self.turn} after its end"
        has_end = isinstance(last, TurnFinished)
        # Who heard what was never written down is beyond the end when it comes.
        is_beyond = has_end and self.was_taken_over and last.number <= len(told)
        if numbers != list(range(1, len(numbers) + 1)) and not (is_beyond and numbers[:-1] == _count(told)):
            yield f"what was heard of {self.turn} has gaps: {numbers}"
        if not has_end and not self.was_sent_away:
            yield f"the end of {self.turn} was not heard"
        for event, in_its_process in self.heard:
            is_known = event.number <= len(events)
            same = is_known and codec.encode(event) == codec.encode(events[event.number - 1])
            if not same and not (in_its_process and self.was_taken_over):
                yield f"event {event.number} of {self.turn} was heard otherwise than it is read"
                return


def _count(events: Sequence[Event]) -> list[int]:
    return list(range(1, len(events) + 1))
