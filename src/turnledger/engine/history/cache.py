"""What a process remembers of branches, so that a turn need not read and decode its history again.

One entry holds every form of one branch: its turns, their chat JSON, the turns as clients see them, flags,
and how the branch was last left. All entries share one bound; the branch used longest ago goes first. Nothing
here is the truth: begin and the store decide.
"""

from __future__ import annotations

import asyncio
from collections import OrderedDict
from collections.abc import Iterable, Sequence
from typing import NamedTuple, TypeAlias

from turnledger.engine.history.chat_messages import LONG, LOOK_BACK, goes_on, joined, said_from, said_in
from turnledger.engine.history.history import History
from turnledger.engine.history.shown_turns import ShownTurns
from turnledger.model.conversation import Branch, Conversation, Stretch
from turnledger.model.flags import FlagsOf, Hidden
from turnledger.model.ids import BranchId, TurnId
from turnledger.model.messages.pairing import left_open
from turnledger.model.turn import Turn

ENTRY_BYTES = 500
"""What an entry takes in memory besides its parts."""
LINE_BYTES = 2_000
"""What a line takes in memory, besides open calls."""
FLAG_BYTES = 200
"""What the flags of one turn take in memory."""

Name: TypeAlias = tuple[str, str, str]
"""Of a conversation: its owner, and an empty scope with its id or its scope with its conversation_key."""


class LatestLine(NamedTuple):
    """What a conversation showed when this process last left it. A guess, to read the next resent history by
    without asking the store: begin says when it was wrong."""

    branch: Branch
    flagged: int
    """The flag version of its owner."""
    is_answered: bool
    """Whether its last turn is one whose answer every client has seen, unless it was hidden since."""
    scope: str = ""
    """Of its conversation."""

    @property
    def is_plain(self) -> bool:
        """Whether words that a client adds can only be new: nothing is open, hidden, or unknown to it."""
        branch = self.branch
        return self.is_answered and not self.flagged and not branch.pending and branch.unsettled is None


class _Entry:
    """The forms in which one branch is kept."""

    __slots__ = ("bytes", "flags", "history", "line", "names", "said", "said_end", "shown")

    def __init__(self) -> None:
        self.bytes = 0
        self.history: History | None = None
        self.said = b""
        """The chat JSON of a beginning of the history."""
        self.said_end: bytes | None = None
        """The id of the last turn of that beginning."""
        self.shown: ShownTurns | None = None
        self.flags: tuple[int, int, FlagsOf] | None = None
        """The flag version under which they were read, and the number of the first turn they were read of."""
        self.line: LatestLine | None = None
        self.names: tuple[Name, ...] = ()

    def measure(self) -> int:
        """Bytes that it takes in memory, more or less."""
        size = ENTRY_BYTES + len(self.said)
        if self.history is not None:
            size += self.history.size
        if self.shown is not None:
            size += self.shown.bytes
        if self.flags is not None:
            size += FLAG_BYTES * len(self.flags[2])
        if self.line is not None:
            size += LINE_BYTES + sum(len(item.raw) for item in self.line.branch.pending)
        return size


class BranchCache:
    """The branches used last, bounded by their bytes; the one in use stays, however large it is.

    A branch only ever grows, so a cached history is a prefix of the true one, or all of it.
    """

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._bytes = 0
        self._entries: OrderedDict[BranchId, _Entry] = OrderedDict()
        self._said: dict[bytes, BranchId] = {}
        """Where the chat JSON is kept that ends with a turn."""
        self._named: dict[Name, BranchId] = {}
        self._shown: dict[bytes, dict[BranchId, None]] = {}
        """The branches whose shown turns begin with a turn."""

    def forget(self, branch: BranchId) -> None:
        """Keep nothing of a branch: it was deleted, or others need the room."""
        entry = self._entries.pop(branch, None)
        if entry is None:
            return
        self._bytes -= entry.bytes
        if entry.said_end is not None:
            self._said.pop(entry.said_end, None)
        if entry.shown is not None:
            self._unlist_shown(branch, entry.shown)
        self._unname(branch, entry)

    def _entry(self, branch: BranchId) -> _Entry:
        """The entry of a branch that is in use, made where there is none."""
        entry = self._entries.get(branch)
        if entry is None:
            entry = self._entries[branch] = _Entry()
        else:
            self._entries.move_to_end(branch)
        return entry

    def _weigh(self, entry: _Entry) -> None:
        """The entry of the branch in use has changed: make room for it."""
        size = entry.measure()
        self._bytes += size - entry.bytes
        entry.bytes = size
        while self._bytes > self._max_bytes and len(self._entries) > 1:
            self.forget(next(iter(self._entries)))

    # The turns.

    def prefix(self, branch: BranchId, head: TurnId | None, length: int) -> History:
        """What is cached of the first `length` turns of a branch, which end with `head`; maybe nothing."""
        history = self._history(branch)
        if length == 0 or history is None:
            return History()
        self._entries.move_to_end(branch)
        if len(history) < length:
            return history
        history = history.first(length)
        return history if history.ends_with(head) else History()

    def shared(self, line: Iterable[Stretch], length: int) -> History:
        """What is cached, under other branches, of the first `length` turns of a line that goes so."""
        for stretch in line:
            history = self._history(stretch.branch)
            if history is not None and stretch.after < length:
                return history.first(min(len(history), stretch.through, length))
        return History()

    def keep(self, branch: BranchId, history: History) -> None:
        """Remember the turns of a branch."""
        entry = self._entry(branch)
        entry.history = history
        self._weigh(entry)

    def _history(self, branch: BranchId) -> History | None:
        entry = self._entries.get(branch)
        return None if entry is None else entry.history

    def follow(self, turn: Turn) -> None:
        """A turn was committed, and its client will send all of it again: go on from what is kept."""
        if turn.parent is None:
            return
        entry = self._entries.get(turn.branch)
        if entry is not None and entry.shown is not None and entry.shown.follow(turn):
            self._weigh(self._entry(turn.branch))
        said = self._said_until(turn.parent.raw)
        if said is not None and not left_open(turn.items) and not goes_on(turn):
            self._keep_said(turn, joined(said, said_in(turn.items)))

    # The chat JSON that models are sent. It ends with a turn that left no call open: where one did, its
    # results may belong between messages of that turn. No turn goes on with its last message.

    def said_through(self, history: History) -> tuple[bytes, Sequence[Turn]]:
        """What was said in a history up to its last turn that left no call open, and the turns behind it."""
        start, said = self._nearest(history)
        return self._kept_through(said_from(history, start, said))

    async def read_said_through(self, history: History) -> tuple[bytes, Sequence[Turn]]:
        """The same; what takes long is done beside the event loop."""
        start, said = self._nearest(history)
        if len(history) - start < LONG:
            return self.said_through(history)
        return self._kept_through(await asyncio.to_thread(said_from, history, start, said))

    def _kept_through(self, found: tuple[bytes, Turn | None, Sequence[Turn]]) -> tuple[bytes, Sequence[Turn]]:
        said, last, waiting = found
        if last is not None:
            self._keep_said(last, said)
        return said, waiting

    def _nearest(self, history: History) -> tuple[int, bytes]:
        """How many turns of a history are kept as chat JSON already, and the JSON."""
        length = len(history)
        for end in range(length, max(length - LOOK_BACK, 0), -1):
            said = self._said_until(history.raw_id(end - 1))
            if said is not None and not (end < length and goes_on(history[end])):
                return end, said
        return 0, b""

    def _said_until(self, turn: bytes) -> bytes | None:
        branch = self._said.get(turn)
        return None if branch is None else self._entries[branch].said

    def _keep_said(self, last: Turn, said: bytes) -> None:
        entry = self._entry(last.branch)
        if entry.said_end is not None:
            self._said.pop(entry.said_end, None)
        entry.said, entry.said_end = said, last.id.raw
        self._said[last.id.raw] = last.branch
        self._weigh(entry)

    # The turns as chat clients see them.

    def shown(self, branch: BranchId, history: History, hidden: Hidden | None = None) -> Sequence[Turn]:
        """The turns of a history as their user sees them, without what is hidden and its halves; those
        that were asked for before as the same objects."""
        entry = self._entry(branch)
        shown = entry.shown
        if shown is not None and not shown.begins(history):
            self._unlist_shown(branch, shown)
            shown = None
        if shown is None:
            shown = entry.shown = self._longest_common(history)
        shown.go_on(history)
        if shown.first is not None:
            self._shown.setdefault(shown.first, {})[branch] = None
        self._weigh(entry)
        return shown.without(hidden)

    def reach(self, branch: BranchId, history: History) -> bool:
        """Go on up to the end of this history with what is shown; return whether there was anything to do.
        For a long one, of which a part is asked for at a time."""
        entry = self._entries.get(branch)
        if entry is not None and entry.shown is not None and len(entry.shown) >= len(history):
            return False
        self.shown(branch, history)
        return True

    def _longest_common(self, history: History) -> ShownTurns:
        """As much as another branch has of this history: an edit leaves all before it as it was."""
        others = self._shown.get(history.raw_id(0), ()) if history else ()
        kept = (self._entries[branch].shown for branch in others)
        return max((shown.common(history) for shown in kept if shown), key=len, default=ShownTurns())

    def _unlist_shown(self, branch: BranchId, shown: ShownTurns) -> None:
        first = shown.first
        if first is not None:
            branches = self._shown[first]
            branches.pop(branch, None)
            if not branches:
                del self._shown[first]

    # Flags, under the version that a begin saw while it held the lane. That version stands for all turns then
    # there, and every later change raises it: while it is unchanged, turns that were added behind have none.

    def flags(self, branch: BranchId, version: int, turns: Sequence[Turn]) -> FlagsOf | None:
        """The flags of these turns, if they are known: the last of a branch up to its head."""
        entry = self._entries.get(branch)
        kept = None if entry is None else entry.flags
        if kept is None or kept[0] != version or (turns and turns[0].number < kept[1]):
            return None
        self._entries.move_to_end(branch)
        return kept[2]

    def keep_flags(self, branch: BranchId, version: int, turns: Sequence[Turn], flags: FlagsOf) -> None:
        """Remember the flags of these turns."""
        if turns:
            entry = self._entry(branch)
            entry.flags = (version, turns[0].number, flags)
            self._weigh(entry)

    # How conversations were last left.

    def line(self, name: Name) -> LatestLine | None:
        """How the conversation of this name was left; None if it is not known."""
        branch = self._named.get(name)
        return None if branch is None else self._entries[branch].line

    def keep_line(self, conversation: Conversation, line: LatestLine) -> None:
        """The conversation shows this now."""
        owner, key, branch = conversation.owner, conversation.conversation_key, line.branch.id
        entry = self._entry(branch)
        self._unname(branch, entry)
        entry.line = line
        by_id: Name = (owner, "", conversation.id)
        entry.names = (by_id,) if key is None else (by_id, (owner, conversation.scope, key))
        for name in entry.names:
            self._named[name] = branch
        self._weigh(entry)

    def _unname(self, branch: BranchId, entry: _Entry) -> None:
        for name in entry.names:
            if self._named.get(name) == branch:
                del self._named[name]
