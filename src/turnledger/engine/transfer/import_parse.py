"""Parse the bytes of a file, in any chunks, into the lines of one chat after another.

Holds only one chat in memory, and no line beyond its limit. Raises nothing: what cannot be read is reported
with its line, and parsing continues at the next line.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import msgspec
from msgspec import UNSET

from turnledger.engine.limits import MOST_VALUES, Limits, has_more_values
from turnledger.model.transfer import LONGEST_NAME as SHOWN
from turnledger.model.transfer import (
    SCHEMA_VERSION,
    ChatLine,
    ImportOutcome,
    ImportReport,
    Notes,
    TurnLine,
    unknown_fields,
)

_objects = msgspec.json.Decoder(dict[str, msgspec.Raw])
_MARK = b"\xef\xbb\xbf"
"""The byte order mark with which some editors begin a UTF-8 file."""
ITEM_BYTES = 72
"""Memory of an item, a flag or an effect beside its text: small ones take many times their length."""
_KNOWN: dict[str, type[ChatLine] | type[TurnLine]] = {"chat": ChatLine, "turn": TurnLine}


@dataclass
class ParsedChat:
    """The lines of one chat. Without a header it cannot be imported."""

    line: int
    id: str | None
    header: ChatLine | None
    turns: list[tuple[int, TurnLine]] = field(default_factory=list)
    size: int = 0
    held: int = 0
    """Memory they take."""
    notes: Notes = field(default_factory=Notes)
    refused: str | None = None
    """Why it is not imported."""


class ChatReader:
    """Takes bytes and yields complete chats and reports; `close` yields the rest."""

    def __init__(self, limits: Limits) -> None:
        self._limits = limits
        self._rest = bytearray()
        self._skipped = 0
        """Bytes of a line beyond its limit, which are skipped."""
        self._line = 0
        self._chat: ParsedChat | None = None

    def feed(self, piece: bytes) -> Iterator[ParsedChat | ImportReport]:
        """Yield what these bytes complete."""
        *whole, rest = piece.split(b"\n")
        for part in whole:
            self._take(part)
            yield from self._end_line(is_last=False)
        self._take(rest)

    def close(self) -> Iterator[ParsedChat | ImportReport]:
        """Yield what is left at the end of the bytes."""
        if self._rest or self._skipped:
            yield from self._end_line(is_last=True)
        if self._chat is not None:
            yield self._chat
            self._chat = None

    def _take(self, part: bytes) -> None:
        if self._skipped or len(self._rest) + len(part) > self._limits.import_line_bytes:
            self._skipped += len(self._rest) + len(part)
            self._rest.clear()
        else:
            self._rest += part

    def _end_line(self, *, is_last: bool) -> Iterator[ParsedChat | ImportReport]:
        self._line += 1
        raw, skipped = bytes(self._rest), self._skipped
        if self._line == 1:
            raw = raw.removeprefix(_MARK)
        self._rest.clear()
        self._skipped = 0
        if skipped:
            most = self._limits.import_line_bytes
            yield from self._refuse(f"The line has {skipped} bytes; the limit is {most}.")
        elif has_more_values(raw, MOST_VALUES):
            yield from self._refuse(f"The line holds more than {MOST_VALUES} JSON values.")
        elif raw.strip():
            yield from self._read(raw, is_last=is_last)

    def _read(self, raw: bytes, *, is_last: bool) -> Iterator[ParsedChat | ImportReport]:
        try:
            fields = _objects.decode(raw)
            kind = msgspec.json.decode(fields["type"]) if "type" in fields else None
            version = msgspec.json.decode(fields["schema_version"]) if "schema_version" in fields else None
        except (ValueError, RecursionError) as problem:
            is_cut = is_last and not raw.rstrip().endswith(b"}")
            why = "The line is cut off" if is_cut else "The line is not a JSON object"
            yield from self._refuse(f"{why}: {problem}.")
            return
        line = _KNOWN.get(kind) if isinstance(kind, str) else None
        if line is ChatLine and self._chat is not None:
            yield self._chat
            self._chat = None
        if (
            not isinstance(version, int)
            or isinstance(version, bool)
            or version > SCHEMA_VERSION
            or version < 1
        ):
            yield from self._refuse_version(raw, version, is_chat=line is ChatLine)
        elif line is None:
            shown = repr(kind)[:SHOWN]
            yield from self._refuse(f"Its type is {shown}; it must be one of {', '.join(_KNOWN)}.")
        elif line is ChatLine or not self._is_in_refused(fields):
            yield from self._keep(raw, line, fields)

    def _is_in_refused(self, fields: dict[str, msgspec.Raw]) -> bool:
        """Return whether a turn belongs to a refused chat, so that it need not be parsed."""
        chat = self._chat
        if chat is None or chat.refused is None:
            return False
        return chat.header is None or bytes(fields.get("chat", b"")) == msgspec.json.encode(chat.header.id)

    def _refuse(self, why: str) -> Iterator[ImportReport]:
        if self._chat is None:
            yield ImportReport(line=self._line, did=ImportOutcome.REFUSED, why=why)
        else:
            self._chat.notes.add(self._line, ImportOutcome.REFUSED, why, chat=self._chat.id)

    def _refuse_version(self, raw: bytes, version: object, *, is_chat: bool) -> Iterator[ImportReport]:
        shown = repr(version)[:SHOWN]
        why = f"Its schema_version is {shown}; this Turnledger reads {SCHEMA_VERSION}."
        if isinstance(version, int) and version > SCHEMA_VERSION:
            why += " A newer version made it; import it there."
        if is_chat:
            self._chat = ParsedChat(self._line, _id_in(raw), None, refused=why)
        elif self._chat is None or self._chat.refused is None:
            yield from self._refuse(why)

    def _keep(
        self, raw: bytes, kind: type[ChatLine] | type[TurnLine], fields: dict[str, msgspec.Raw]
    ) -> Iterator[ParsedChat | ImportReport]:
        try:
            line = msgspec.json.decode(raw, type=kind)
        except (ValueError, RecursionError) as problem:
            if kind is ChatLine:
                why = f"It cannot be read: {problem}."
                self._chat = ParsedChat(self._line, _id_in(raw), None, refused=why)
            else:
                yield from self._refuse(f"It cannot be read: {problem}.")
            return
        if isinstance(line, ChatLine):
            self._chat = ParsedChat(self._line, line.id[:SHOWN], line)
        elif self._chat is None or (self._chat.header is not None and line.chat != self._chat.header.id):
            chat, turn = line.chat[:SHOWN], line.id[:SHOWN]
            why = "The turn does not follow the line of its chat."
            yield ImportReport(line=self._line, did=ImportOutcome.REFUSED, chat=chat, turn=turn, why=why)
            return
        else:
            self._add_turn(self._chat, line)
            self._chat.held += len(raw) + ITEM_BYTES * _count(line)
        self._chat.size += len(raw)
        if unknown := unknown_fields(fields, kind):
            names = ", ".join(unknown)[:SHOWN]
            why = f"Unknown fields were dropped: {names}."
            named = line.id if isinstance(line, TurnLine) else None
            self._chat.notes.add(self._line, ImportOutcome.DROPPED, why, chat=self._chat.id, turn=named)

    def _add_turn(self, chat: ParsedChat, line: TurnLine) -> None:
        limits = self._limits
        is_large = chat.size > limits.import_chat_bytes or chat.held > 2 * limits.import_chat_bytes
        if chat.refused is None and (is_large or len(chat.turns) >= limits.import_turns):
            bound = f"{limits.import_chat_bytes} bytes and {limits.import_turns} turns"
            chat.refused = f"The chat is too large; the limit is {bound}."
            chat.turns.clear()
        if chat.refused is None:
            chat.turns.append((self._line, line))


def _count(line: TurnLine) -> int:
    lists = (line.input, line.output, line.flags, line.instructions, line.effects)
    return sum(len(each) for each in lists if each is not UNSET)


def _id_in(raw: bytes) -> str | None:
    """Return the id in a line that cannot be parsed as a whole."""
    try:
        found = msgspec.json.decode(raw, type=dict[str, msgspec.Raw])
        return str(msgspec.json.decode(found["id"], type=str))[:SHOWN]
    except (ValueError, KeyError, RecursionError):
        return None
