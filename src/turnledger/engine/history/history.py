"""The history of a branch in memory: immutable views, shared and never copied, in one cache.

A cached turn is one string of bytes, decoded on each read: the decoded form takes several times the memory.
The chat JSON of a turn continues the bytes of the turn before it, so a long history costs one copy. One cache
entry holds every form of one branch: its turns, their chat JSON, the turns as clients see them, flags, and
the state in which the branch was last left. All entries share one bound; the least recently used branch is
dropped first. The cache never decides: begin and the store do.
"""

from __future__ import annotations

import asyncio
from bisect import bisect_left
from collections import OrderedDict
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import accumulate, islice, zip_longest
from struct import Struct
from typing import NamedTuple, TypeAlias, overload

import msgspec

from turnledger.engine.history import line
from turnledger.engine.history.context import estimate
from turnledger.engine.ports import Tables
from turnledger.errors import ConversationDeleted, StoreCorrupt
from turnledger.model.conversation import Branch, Conversation, Origin, Stretch
from turnledger.model.flags import FlagsByTurn, HiddenPlaces, hidden_in_parts
from turnledger.model.ids import BranchId, TurnId
from turnledger.model.item import Item, calls_left_open, without_empty_answers
from turnledger.model.messages.messages import messages_of
from turnledger.model.turn import Turn, TurnKind

_HEADER = Struct(">16s16sqqB")
"""Of a packed turn: id, branch, times and kind; its place gives its number and its parent."""
_KINDS = tuple(TurnKind)
_NUMBER_OF = {kind: number for number, kind in enumerate(_KINDS)}

DEEPEST = 32
"""The most nodes between a history and its first turn; beyond that they are copied into one."""


class Pieces(NamedTuple):
    """The chat JSON and the estimated tokens of consecutive turns, each encoded by itself.

    Threads share it, so it is replaced rather than changed. Pieces with more turns may share its lists, which
    are then longer than it: an element depends on the turn at its place alone.
    """

    first: int
    """The place of the first turn in the line."""
    end: int
    """The place after the last one."""
    chat_json: list[bytes]
    sums: list[int]
    """Their differences are the tokens of each turn."""
    size: int
    """Bytes in memory."""

    @classmethod
    def of(cls, first: int, chat_json: list[bytes], sums: list[int]) -> Pieces:
        size = len(chat_json) * PIECE_BYTES + sum(map(len, chat_json))
        return cls(first, first + len(chat_json), chat_json, sums, size)

    def with_piece(self, tokens: int, chat_json: bytes) -> Pieces:
        """Return these with the piece of the next turn, at a cost independent of their number."""
        count, size = self.end - self.first, self.size + PIECE_BYTES + len(chat_json)
        self.chat_json[count : count + 1] = [chat_json]  # the same, if another thread was faster
        self.sums[count + 1 : count + 2] = [self.sums[count] + tokens]
        return Pieces(self.first, self.end + 1, self.chat_json, self.sums, size)

    def followed_by(self, others: Pieces) -> Pieces:
        count, more = self.end - self.first, others.end - others.first
        shift = self.sums[count] - others.sums[0]
        sums = [*self.sums[: count + 1], *(each + shift for each in others.sums[1 : more + 1])]
        return Pieces.of(self.first, self.chat_json[:count] + others.chat_json[:more], sums)

    def since(self, place: int) -> Pieces:
        """Return those from this place on."""
        left, count = place - self.first, self.end - self.first
        return Pieces.of(place, self.chat_json[left:count], self.sums[left : count + 1])


class _Node:
    """Consecutive turns that several histories share, mostly those of one branch. Only grows."""

    __slots__ = ("before", "bytes", "depth", "packed", "pieces", "start")

    def __init__(self, before: _Node | None, start: int) -> None:
        self.before = before
        """The node with the turns before `start`."""
        self.start = start
        self.depth: int = before.depth + 1 if before else 0
        self.packed: list[bytes] = []
        self.bytes = 0
        self.pieces: Pieces | None = None
        """Of the turns here that were shown last to a model with a limited context, and those after them."""

    def add(self, turns: Iterable[Turn]) -> None:
        for turn in turns:
            index = self.start + len(self.packed)
            header = _HEADER.pack(
                turn.id.raw, turn.branch.raw, turn.created_at, turn.committed_at, _NUMBER_OF[turn.kind]
            )
            self.packed.append(header + turn.body)
            self.bytes += len(turn.body)
            pieces = self.pieces
            if pieces is not None and pieces.end == index:
                piece = _piece_of(turn)  # its items are decoded now
                if piece is not None:
                    self.pieces = pieces.with_piece(*piece)

    def add_pieces(self, end: int, turns: Iterable[Turn], tokens: int) -> Pieces | None:
        """Add what turns show: backwards from a place, up to those known, or the first that does not fit into
        so many tokens. Return None if what the first one shows depends on the turns around it."""
        known, chat_json, counts = self.pieces, [], []
        for turn in turns:
            piece = _piece_of(turn)
            if piece is None:
                break
            counts.append(piece[0])
            chat_json.append(piece[1])
            tokens -= piece[0]
            if tokens < 0 or (known is not None and end - len(counts) == known.end):
                break
        if not counts:
            return None
        sums = [*accumulate(reversed(counts), initial=0)]
        found = Pieces.of(end - len(counts), chat_json[::-1], sums)
        if known is not None and known.first == end:
            found = found.followed_by(known)
        elif known is not None and known.end == found.first:
            found = known.followed_by(found)
        self.pieces = found
        return found


def _piece_of(turn: Turn) -> tuple[int, bytes] | None:
    """Return the tokens and the chat JSON of a turn; None if what it shows depends on the turns around it."""
    items = turn.items
    if not items or items[0].is_result or begins_with_output(turn) or calls_left_open(items):
        return None
    shown = without_empty_answers(items)
    return sum(map(estimate, shown)), encode_messages(shown)


class History(Sequence[Turn]):
    """The first `length` turns of a line. Views of one branch share one list that only grows."""

    __slots__ = ("_length", "_node")

    def __init__(self, turns: Iterable[Turn] = ()) -> None:
        self._node = _Node(None, 0)
        self._node.add(turns)
        self._length = len(self._node.packed)

    @classmethod
    def _view(cls, node: _Node, length: int) -> History:
        while node.before is not None and length <= node.start:
            node = node.before
        view = cls.__new__(cls)
        view._node, view._length = node, length
        return view

    @overload
    def __getitem__(self, at: int) -> Turn: ...
    @overload
    def __getitem__(self, at: slice) -> tuple[Turn, ...]: ...
    def __getitem__(self, at: int | slice) -> Turn | tuple[Turn, ...]:
        if isinstance(at, slice):
            return tuple(self[index] for index in range(*at.indices(self._length)))
        if not -self._length <= at < self._length:
            raise IndexError(at)
        index = at if at >= 0 else self._length + at
        parent = TurnId.trusted(self._packed_turn(index - 1)[:16]) if index else None
        return _unpack(self._packed_turn(index), index + 1, parent)

    def __len__(self) -> int:
        return self._length

    def __iter__(self) -> Iterator[Turn]:
        parent: TurnId | None = None
        for number, packed in enumerate(self._all_packed(), 1):
            turn = _unpack(packed, number, parent)
            parent = turn.id
            yield turn

    @property
    def head(self) -> TurnId | None:
        return TurnId.trusted(self._packed_turn(self._length - 1)[:16]) if self._length else None

    def ends_with(self, turn: TurnId | None) -> bool:
        return turn is not None and self.raw_id(self._length - 1) == turn.raw

    def raw_id(self, index: int) -> bytes:
        """Return the bytes of a turn's id without unpacking the turn."""
        return self._packed_turn(index)[:16]

    @property
    def size(self) -> int:
        """The bytes of the turns in memory, at least those of the view."""
        total, node = self._node.bytes, self._node.before
        while node is not None:  # a generator would cost each turn more
            total, node = total + node.bytes, node.before
        return total

    @property
    def memory(self) -> int:
        """All bytes held in memory."""
        return sum(node.bytes + (node.pieces.size if node.pieces else 0) for node in self._nodes())

    def _nodes(self) -> Iterator[_Node]:
        node: _Node | None = self._node
        while node is not None:
            yield node
            node = node.before

    def count_unknown_pieces(self, oldest: int, tokens: int) -> int:
        """Return about how many turns `last_pieces` has to encode, apart from the last one: as many as fit if
        they are as long as those known."""
        known, count, end = 0, 0, self._length - 1
        while end > oldest:
            pieces = self._node_of(end - 1).pieces
            if pieces is None or not pieces.first < end <= pieces.end:
                break
            first = max(oldest, pieces.first)
            known += pieces.sums[end - pieces.first] - pieces.sums[first - pieces.first]
            count, end = count + end - first, first
        unknown = max(0, end - oldest)
        return min(unknown, max(0, tokens - known) * count // known) if known else unknown

    def last_pieces(self, oldest: int, tokens: int) -> list[bytes] | None:
        """Return the chat JSON of the last turns that fit into so many tokens, none before the one at
        `oldest`. None if what one of them shows depends on the turns around it."""
        found: list[bytes] = []
        end = self._length
        while end > oldest:
            node = self._node_of(end - 1)
            pieces = node.pieces
            if pieces is None or not pieces.first < end <= pieces.end:
                earlier = range(end - 1, max(oldest, node.start) - 1, -1)
                pieces = node.add_pieces(end, (self[place] for place in earlier), tokens)
                if pieces is None:
                    return None
            first, sums = pieces.first, pieces.sums
            limit = sums[end - first]
            earliest = max(0, oldest - first)
            begin = bisect_left(sums, limit - tokens, earliest, end - first)
            found[:0] = pieces.chat_json[begin : end - first]
            if begin > end - begin - first:  # more than are shown: a chat that grows does not show them again
                node.pieces = pieces.since(first + begin - 1)
            if begin > earliest:
                break  # the turn before does not fit
            tokens -= limit - sums[begin]
            end = first + begin
        return found

    def last_piece(self, turn: TurnId) -> bytes | None:
        """Return the chat JSON of this turn, if it is the last one and has been encoded by itself."""
        pieces = self._node.pieces
        is_known = pieces is not None and pieces.end == self._length and self.ends_with(turn)
        return pieces.chat_json[pieces.end - pieces.first - 1] if pieces is not None and is_known else None

    def _node_of(self, index: int) -> _Node:
        node = self._node
        while index < node.start and node.before is not None:
            node = node.before
        return node

    def _packed_turn(self, index: int) -> bytes:
        node = self._node_of(index)
        return node.packed[index - node.start]

    def _all_packed(self) -> Iterator[bytes]:
        nodes = [*self._nodes()][::-1]
        for node, following in zip_longest(nodes, nodes[1:]):
            end = self._length if following is None else following.start
            yield from islice(node.packed, end - node.start)

    def first(self, length: int) -> History:
        return self if length == self._length else History._view(self._node, length)

    def followed_by(self, turns: Sequence[Turn]) -> History:
        """Return this history with these turns appended, at a cost independent of its length."""
        node = self._node
        if node.start + len(node.packed) != self._length:
            # Another view has appended different turns here.
            node = self._fresh_node()
        node.add(turns)
        return History._view(node, self._length + len(turns))

    def _fresh_node(self) -> _Node:
        if self._node.depth < DEEPEST:
            return _Node(self._node, self._length)
        node = _Node(None, 0)
        node.packed = list(self._all_packed())
        node.bytes = sum(map(len, node.packed))
        return node


def _unpack(packed: bytes, number: int, parent: TurnId | None) -> Turn:
    id, branch, created_at, committed_at, kind = _HEADER.unpack_from(packed)
    return Turn(
        TurnId.trusted(id),
        BranchId.trusted(branch),
        number,
        parent,
        _KINDS[kind],
        created_at,
        committed_at,
        packed[_HEADER.size :],
    )


@dataclass(frozen=True)
class TurnsRequest:
    branch: Branch
    after: int
    through: int


async def read_turns(tables: Tables, request: TurnsRequest) -> list[Turn]:
    """Return the turns of a line numbered after < number <= through, in order. Raises ConversationDeleted if
    they were removed since the branch was read, and StoreCorrupt if they are missing."""
    branch, after, through = request.branch, request.after, request.through
    try:
        return await line.turns_of(tables, branch, after, through, through - after)
    except StoreCorrupt:
        reason = await line.missing_reason(tables, branch.conversation)
        if isinstance(reason, ConversationDeleted):
            raise reason from None
        raise


async def read_origin(tables: Tables, branch: BranchId) -> Origin | None:
    return await tables.origin(branch)


class ShownTurns:
    """Turns with a cache of how they are shown.

    Flags may change at any time, and what they hide depends on neighbouring turns. So the turns are kept as
    they are, and beside them the shown form of those with hidden items.
    """

    __slots__ = ("_turns", "_with_hidden", "bytes")

    def __init__(self, turns: Sequence[Turn] = ()) -> None:
        self._turns = list(turns)
        self._with_hidden: dict[int, Turn] = {}
        self.bytes = sum(len(turn.body) for turn in turns)
        """The size of their bodies."""

    def __len__(self) -> int:
        return len(self._turns)

    @property
    def first(self) -> bytes | None:
        return self._turns[0].id.raw if self._turns else None

    def is_prefix_of(self, history: History) -> bool:
        turns = self._turns
        return len(turns) <= len(history) and (
            not turns or turns[-1].id.raw == history.raw_id(len(turns) - 1)
        )

    def extend(self, history: History) -> None:
        """Append the rest of a history that begins with these turns."""
        for turn in history[len(self._turns) :]:
            self._add(turn)

    def follow(self, turn: Turn) -> bool:
        """Append the turn if it directly follows these; return whether it does."""
        follows = bool(self._turns) and self._turns[-1].id == turn.parent
        if follows:
            self._add(turn)
        return follows

    def _add(self, turn: Turn) -> None:
        self._turns.append(turn)
        self.bytes += len(turn.body)

    def common(self, history: History) -> ShownTurns:
        """Return the turns shared with a history that has the same first turn."""
        # Two lines that share a turn share all turns before it, so bisect.
        same, other = 1, min(len(self._turns), len(history)) + 1
        while other - same > 1:
            middle = (same + other) // 2
            is_same = self._turns[middle - 1].id.raw == history.raw_id(middle - 1)
            same, other = (middle, other) if is_same else (same, middle)
        return ShownTurns(self._turns[:same])

    def without(self, hidden: HiddenPlaces | None) -> Sequence[Turn]:
        """Return the turns without hidden items and their counterparts; a copy, since the list may grow."""
        turns = self._turns
        flagged = [index for index, turn in enumerate(turns) if turn.id in hidden] if hidden else []
        if not hidden or not flagged:
            return tuple(turns)
        # The other half of a hidden item is in the same turn or a neighbour.
        first = max(0, flagged[0] - 1)
        near = turns[first : flagged[-1] + 2]
        hidden_places = hidden_in_parts(
            [turn.items for turn in near], [hidden.get(turn.id, ()) for turn in near]
        )
        before, self._with_hidden = self._with_hidden, {}
        for index, places in enumerate(map(frozenset, hidden_places), first):
            if places:
                known = before.get(index)
                is_same = known and known.id == turns[index].id and known.shown.hidden == places
                self._with_hidden[index] = known if known and is_same else turns[index].with_hidden(places)
        return tuple(self._with_hidden.get(index, turn) for index, turn in enumerate(turns))


CACHE_LOOKBACK = 4
"""Turns before the end searched for cached JSON: for a retry, an edit, or a turn of another process."""

LONG = 500
"""Turns from which on they are decoded in a thread."""

_encode = msgspec.json.Encoder().encode


def encode_messages(items: Iterable[Item]) -> bytes:
    """Encode items as chat messages for a model in JSON, separated by commas, without brackets."""
    items = tuple(items)
    plain: list[dict[str, str | None]] = []
    for item in items:
        text = item.only_text
        if text is None:
            return _encode(messages_of(without_empty_answers(items)))[1:-1]
        if not text.strip() and item.is_empty_answer:
            continue
        plain.append({"role": item.role, "content": text})
    return _encode(plain)[1:-1]  # the fast path of most turns


def join_json(*parts: bytes) -> bytes:
    """Join such parts, skipping empty ones."""
    return b",".join([part for part in parts if part])


def begins_with_output(turn: Turn) -> bool:
    """Return whether a turn begins with output of the model, as a settled one without input does. Chat
    messages merge that with the output before it."""
    first = turn.items[0] if turn.items else None
    if first is None or first.type == "function_call_output":
        return False
    return first.type != "message" or first.role == "assistant"


def chat_json_from(
    history: History, start: int, chat_json: bytes
) -> tuple[bytes, Turn | None, Sequence[Turn]]:
    """Return the chat JSON up to the last turn that left no call open, that turn, and the turns after it.
    `chat_json` is the JSON of the first `start` turns."""
    # One by one: a long history decoded at once takes many times its bytes.
    turns = (history[at] for at in range(start, len(history)))
    parts = [chat_json]
    waiting: list[Turn] = []
    last: Turn | None = None
    turn = next(turns, None)
    while turn is not None:
        following = next(turns, None)
        waiting.append(turn)
        if not calls_left_open(turn.items) and not (following is not None and begins_with_output(following)):
            parts.append(encode_messages(item for each in waiting for item in each.items))
            last, waiting = turn, []
        turn = following
    return join_json(*parts), last, waiting


ENTRY_BYTES = 500
"""Memory of an entry besides its parts."""
PIECE_BYTES = 200
"""Memory of a piece besides its JSON."""
LINE_BYTES = 2_000
"""Memory of a line besides open calls."""
FLAG_BYTES = 200
"""Memory of the flags of one turn."""

Name: TypeAlias = tuple[str, str, str]
"""Of a conversation: owner, an empty scope, and id; or owner, scope, and conversation_key."""


class LatestLine(NamedTuple):
    """What a conversation showed when this process last left it. A guess for matching the next resent history
    without reading the store; begin detects when it was wrong."""

    branch: Branch
    flag_version: int
    is_answered: bool
    """Whether every client has seen the answer of its last turn, unless it was hidden since."""
    scope: str = ""

    @property
    def is_plain(self) -> bool:
        """Whether added messages can only be new: no turn is open, hidden, or unknown to the client."""
        branch = self.branch
        return self.is_answered and not self.flag_version and not branch.pending and branch.unsettled is None


class _Entry:
    __slots__ = ("bytes", "chat_json", "chat_json_end", "flags", "history", "line", "names", "shown")

    def __init__(self) -> None:
        self.bytes = 0
        self.history: History | None = None
        self.chat_json = b""
        """The chat JSON of a prefix of the history."""
        self.chat_json_end: bytes | None = None
        """The id of the last turn of that prefix."""
        self.shown: ShownTurns | None = None
        self.flags: tuple[int, int, FlagsByTurn] | None = None
        """The flag version, the number of the first turn, and the flags read."""
        self.line: LatestLine | None = None
        self.names: tuple[Name, ...] = ()

    def measure(self) -> int:
        size = ENTRY_BYTES + len(self.chat_json)
        if self.history is not None:
            size += self.history.memory
        if self.shown is not None:
            size += self.shown.bytes
        if self.flags is not None:
            size += FLAG_BYTES * len(self.flags[2])
        if self.line is not None:
            size += LINE_BYTES + sum(len(item.raw) for item in self.line.branch.pending)
        return size


class BranchCache:
    """The branches used last, bounded by their bytes; the one in use stays, however large it is.

    A branch only grows, so a cached history is a prefix of the true one, or all of it.
    """

    def __init__(self, max_bytes: int) -> None:
        self._max_bytes = max_bytes
        self._bytes = 0
        self._entries: OrderedDict[BranchId, _Entry] = OrderedDict()
        self._chat_json_ends: dict[bytes, BranchId] = {}
        """By the last turn of cached chat JSON: its branch."""
        self._named: dict[Name, BranchId] = {}
        self._shown: dict[bytes, dict[BranchId, None]] = {}
        """By the first turn of shown turns: their branches."""

    def forget(self, branch: BranchId) -> None:
        """Drop a branch from the cache: it was deleted, or its room is needed."""
        entry = self._entries.pop(branch, None)
        if entry is None:
            return
        self._bytes -= entry.bytes
        if entry.chat_json_end is not None:
            self._chat_json_ends.pop(entry.chat_json_end, None)
        if entry.shown is not None:
            self._unlist_shown(branch, entry.shown)
        self._unname(branch, entry)

    def _entry(self, branch: BranchId) -> _Entry:
        entry = self._entries.get(branch)
        if entry is None:
            entry = self._entries[branch] = _Entry()
        else:
            self._entries.move_to_end(branch)
        return entry

    def _weigh(self, entry: _Entry) -> None:
        """Measure a changed entry and make room for it."""
        size = entry.measure()
        self._bytes += size - entry.bytes
        entry.bytes = size
        while self._bytes > self._max_bytes and len(self._entries) > 1:
            self.forget(next(iter(self._entries)))

    # The turns.

    def prefix(self, branch: BranchId, head: TurnId | None, length: int) -> History:
        """Return what is cached of the first `length` turns of a branch, which end with `head`."""
        history = self._history(branch)
        if length == 0 or history is None:
            return History()
        self._entries.move_to_end(branch)
        if len(history) < length:
            return history
        history = history.first(length)
        return history if history.ends_with(head) else History()

    def shared_prefix(self, line: Iterable[Stretch], length: int) -> History:
        """Return what is cached under other branches of the first `length` turns of a line."""
        for stretch in line:
            history = self._history(stretch.branch)
            if history is not None and stretch.after < length:
                return history.first(min(len(history), stretch.through, length))
        return History()

    def keep(self, branch: BranchId, history: History) -> None:
        entry = self._entry(branch)
        entry.history = history
        self._weigh(entry)

    def _history(self, branch: BranchId) -> History | None:
        entry = self._entries.get(branch)
        return None if entry is None else entry.history

    def follow(self, turn: Turn) -> None:
        """Extend the cached forms by a committed turn: its client will send it again."""
        if turn.parent is None:
            return
        entry = self._entries.get(turn.branch)
        if entry is not None and entry.shown is not None and entry.shown.follow(turn):
            self._weigh(self._entry(turn.branch))
        chat_json = self._chat_json_until(turn.parent.raw)
        if chat_json is None:
            return
        history = entry.history if entry is not None else None
        piece = history.last_piece(turn.id) if history is not None else None
        if piece is None and not calls_left_open(turn.items) and not begins_with_output(turn):
            piece = encode_messages(turn.items)
        if piece is not None:
            self._keep_chat_json(turn, join_json(chat_json, piece))

    # The chat JSON sent to models. It ends with a turn that left no call open, since results may belong
    # between messages of that turn, and no later turn continues its last message.

    def chat_json_through(self, history: History) -> tuple[bytes, Sequence[Turn]]:
        """Return the chat JSON up to the last turn that left no call open, and the turns after it."""
        start, chat_json = self._nearest(history)
        return self._keep_through(chat_json_from(history, start, chat_json))

    async def load_chat_json_through(self, history: History) -> tuple[bytes, Sequence[Turn]]:
        """As chat_json_through; decodes long histories in a thread."""
        start, chat_json = self._nearest(history)
        if len(history) - start < LONG:
            return self.chat_json_through(history)
        return self._keep_through(await asyncio.to_thread(chat_json_from, history, start, chat_json))

    def _keep_through(self, found: tuple[bytes, Turn | None, Sequence[Turn]]) -> tuple[bytes, Sequence[Turn]]:
        chat_json, last, waiting = found
        if last is not None:
            self._keep_chat_json(last, chat_json)
        return chat_json, waiting

    def _nearest(self, history: History) -> tuple[int, bytes]:
        """Return how many turns of a history are cached as chat JSON, and that JSON."""
        length = len(history)
        for end in range(length, max(length - CACHE_LOOKBACK, 0), -1):
            chat_json = self._chat_json_until(history.raw_id(end - 1))
            if chat_json is not None and not (end < length and begins_with_output(history[end])):
                return end, chat_json
        return 0, b""

    def _chat_json_until(self, turn: bytes) -> bytes | None:
        branch = self._chat_json_ends.get(turn)
        return None if branch is None else self._entries[branch].chat_json

    def _keep_chat_json(self, last: Turn, chat_json: bytes) -> None:
        entry = self._entry(last.branch)
        if entry.chat_json_end is not None:
            self._chat_json_ends.pop(entry.chat_json_end, None)
        entry.chat_json, entry.chat_json_end = chat_json, last.id.raw
        self._chat_json_ends[last.id.raw] = last.branch
        self._weigh(entry)

    # The turns as chat clients see them.

    def shown(self, branch: BranchId, history: History, hidden: HiddenPlaces | None = None) -> Sequence[Turn]:
        """Return the turns of a history as their user sees them, without hidden items and counterparts; the
        same objects as last time."""
        entry = self._entry(branch)
        shown = entry.shown
        if shown is not None and not shown.is_prefix_of(history):
            self._unlist_shown(branch, shown)
            shown = None
        if shown is None:
            shown = entry.shown = self._longest_common(history)
        shown.extend(history)
        if shown.first is not None:
            self._shown.setdefault(shown.first, {})[branch] = None
        self._weigh(entry)
        return shown.without(hidden)

    def extend_shown(self, branch: BranchId, history: History) -> bool:
        """Extend the shown turns to the end of this history; return whether any were missing. Lets a caller
        extend a long one in parts."""
        entry = self._entries.get(branch)
        if entry is not None and entry.shown is not None and len(entry.shown) >= len(history):
            return False
        self.shown(branch, history)
        return True

    def _longest_common(self, history: History) -> ShownTurns:
        """Return the longest prefix that another branch has: an edit keeps all turns before it."""
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

    # Flags, under the version that a begin read while it held the lane. Every later change raises the
    # version: while it is unchanged, turns appended since have no flags.

    def flags(self, branch: BranchId, version: int, turns: Sequence[Turn]) -> FlagsByTurn | None:
        """Return the flags of these turns, the last of a branch up to its head; None if not cached."""
        entry = self._entries.get(branch)
        kept = None if entry is None else entry.flags
        if kept is None or kept[0] != version or (turns and turns[0].number < kept[1]):
            return None
        self._entries.move_to_end(branch)
        return kept[2]

    def keep_flags(self, branch: BranchId, version: int, turns: Sequence[Turn], flags: FlagsByTurn) -> None:
        if turns:
            entry = self._entry(branch)
            entry.flags = (version, turns[0].number, flags)
            self._weigh(entry)

    # The state in which conversations were last left.

    def line(self, name: Name) -> LatestLine | None:
        branch = self._named.get(name)
        return None if branch is None else self._entries[branch].line

    def keep_line(self, conversation: Conversation, line: LatestLine) -> None:
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
