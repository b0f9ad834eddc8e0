"""Chats as lines of JSON, exported from a ledger and imported into one; and as Markdown, to read."""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterable, AsyncIterator, Callable, Iterable
from contextlib import nullcontext
from dataclasses import dataclass, replace
from functools import partial
from typing import TypeAlias

import msgspec

from turnledger.engine.limits import Limits
from turnledger.engine.process import Process
from turnledger.engine.transfer.export import (
    PAGE,
    ExportPageRequest,
    ExportRequest,
    OwnedPageRequest,
    ShownRequest,
    begin_export,
    outline,
    owned_page,
    read_page,
    shown_part,
)
from turnledger.engine.transfer.import_parse import ChatReader, ParsedChat
from turnledger.engine.transfer.import_plan import Pause, Plan, plan_import
from turnledger.engine.transfer.import_write import (
    Comparison,
    ExistingRows,
    ImportDraft,
    ImportRequest,
    ImportResult,
    LookUpRequest,
    compare_next,
    draft_of,
    find_place,
    import_chat,
    look_up,
)
from turnledger.engine.turn.validation import check_may_make
from turnledger.errors import ConversationUnavailable, InvalidInput, StorageFull
from turnledger.model.catalogue import ListPosition
from turnledger.model.conversation import Conversation, Within
from turnledger.model.ids import ConversationId
from turnledger.model.text.markdown import markdown_head, markdown_turn
from turnledger.model.transfer import REASON_LENGTH, ChatLine, ImportOutcome, ImportReport

Refuses: TypeAlias = Callable[[str], str | None]
"""Returns the reason why a scope takes no imported chats, or None if it does."""

LONG, LARGE = 200, 1024 * 1024
"""Turns or branches, and bytes, from which planning would visibly block the event loop."""
AHEAD = 24 * 3600 * 1000
"""Milliseconds by which another machine's clock may be ahead. A chat further ahead would stay at the top of
every list, and never be old enough for retention."""
LOOKED_UP = 500
CHATS = 100
WORK, REST = 0.002, 0.001
"""Seconds that a thread works before it rests, and that it rests."""


class Pace:
    """Makes a thread rest between the turns of a long chat, so that others can work. One that computes
    without a rest keeps the interpreter for 5 ms whenever it gets it, and the threads of a store release it
    with every statement: a transaction of a hundred statements could take half a second."""

    def __init__(
        self, now: Callable[[], float] = time.monotonic, sleep: Callable[[float], None] = time.sleep
    ) -> None:
        self._now, self._sleep = now, sleep
        self._due = now() + WORK

    def __call__(self) -> None:
        if self._now() >= self._due:
            self._sleep(REST)
            self._due = self._now() + WORK


@dataclass(frozen=True)
class ImportOptions:
    """Where to import chats, and how."""

    owner: str
    scope: str | None
    within: Within
    refuses: Refuses
    keep_ids: bool


class Transfer:
    """Exports and imports of one ledger; see Chats for what its methods promise."""

    def __init__(self, process: Process) -> None:
        self._process = process
        # One large chat at a time: a store may write everything queued in one transaction.
        self._writing = asyncio.Lock()

    async def export(self, chat: str, owner: str, within: Within) -> AsyncIterator[bytes]:
        process = self._process
        request = ExportRequest(ConversationId(chat), process.clock.due_ms(), within)
        outline, lines = await process.store.read(begin_export, request, owner)
        yield outline.header
        count = 0
        while lines:
            for line in lines:
                yield line
            count += len(lines)
            if len(lines) < PAGE:
                return
            lines = await process.store.read(read_page, ExportPageRequest(outline, count), owner)

    async def markdown(self, chat: str, owner: str, within: Within) -> AsyncIterator[str]:
        process = self._process
        now, after = process.clock.due_ms(), 0
        request = ShownRequest(ConversationId(chat), now, within)
        part = await process.store.read(shown_part, request, owner)
        yield markdown_head(part.conversation)
        while part.turns:
            for turn in part.turns:
                yield markdown_turn(turn, part.hidden.get(turn.id, ()))
            after += len(part.turns)
            request = replace(request, branch=part.branch, after=after)
            part = await process.store.read(shown_part, request, owner)

    async def export_all(self, owner: str, scope: str | None, within: Within) -> AsyncIterator[bytes]:
        seen: set[ConversationId] = set()
        after: ListPosition | None = None
        while True:
            request = OwnedPageRequest(scope, after, CHATS)
            page = await self._process.store.read(owned_page, request, owner)
            for chat in page:
                if chat.id in seen or not within.sees(chat):
                    continue
                seen.add(chat.id)
                try:
                    async for line in self.export(chat.id, owner, within):
                        yield line
                except ConversationUnavailable:
                    continue
            if len(page) < CHATS:
                return
            after = ListPosition(page[-1].touched_at, page[-1].id)

    async def import_lines(
        self, source: AsyncIterable[bytes] | Iterable[bytes], into: ImportOptions
    ) -> AsyncIterator[ImportReport]:
        check_may_make(into.within)
        async for found in _parsed(source, self._process.limits):
            if isinstance(found, ImportReport):
                yield found
                continue
            reports = await self._import(found, into)
            for report in sorted((*found.notes.all(), *reports), key=lambda report: report.line):
                yield report

    async def _import(self, found: ParsedChat, into: ImportOptions) -> list[ImportReport]:
        process = self._process
        if found.header is None or found.refused is not None:
            return [_refused(found, found.refused or "")]
        header, owner = found.header, into.owner
        if into.scope is not None:
            header = msgspec.structs.replace(header, scope=into.scope)
        if (why := into.refuses(header.scope)) is not None:
            return [_refused(found, why)]
        latest = process.clock.now_ms() + AHEAD
        if header.created_at > latest:
            return [_refused(found, "It was made in the future: created_at is more than a day ahead.")]
        if header.touched_at > latest:
            header = msgspec.structs.replace(header, touched_at=header.created_at)
            why = "It was last used in the future: touched_at is created_at."
            found.notes.add(found.line, ImportOutcome.REPAIRED, why, chat=found.id)
        try:
            plan = await _planned(header, found, owner, process.limits)
            now, due = process.clock.now_ms(), process.clock.due_ms()
            quota = process.limits.quota
            request = ImportRequest(plan, now, due, into.within, quota, keeps_ids=into.keep_ids)
            # A read comes first, so that importing the same file again does not hold up the writer.
            imported = await process.store.read(find_place, request, owner)
            if isinstance(imported, ConversationId):
                draft = await self._drafted(request, imported, in_thread=_is_large(found))
                async with self._writing if _is_large(found) else nullcontext():
                    request = replace(request, draft=draft)
                    imported = await process.persist(import_chat, request, owner)
            if isinstance(imported, Conversation):
                imported = await self._compared(plan, imported)
        except (InvalidInput, StorageFull) as problem:
            return [_refused(found, str(problem))]
        except ConversationUnavailable:
            return [_refused(found, "The chat of its id was deleted meanwhile. Import it again.")]
        if _is_large(found):
            await asyncio.to_thread(_free, plan, found, Pace())
        is_new = imported.reports[-1].did is ImportOutcome.IMPORTED
        return [*(plan.reports if is_new else ()), *imported.reports]

    async def _compared(self, plan: Plan, found: Conversation) -> ImportResult:
        read, owner = self._process.store.read, found.owner
        comparison = Comparison(plan, await read(outline, found, owner))
        while (result := await read(compare_next, comparison, owner)) is None:
            pass  # in parts: other readers wait for each
        return result

    async def _drafted(self, request: ImportRequest, chat: ConversationId, *, in_thread: bool) -> ImportDraft:
        plan, known = request.plan, ExistingRows()
        after = 0
        read, owner = self._process.store.read, plan.conversation.owner
        while not await read(look_up, LookUpRequest(plan, known, after, LOOKED_UP), owner):
            after += LOOKED_UP  # in parts: other readers wait for each
        draft = partial(draft_of, plan, chat, known, keeps_ids=request.keeps_ids)
        return await asyncio.to_thread(draft, pause=Pace()) if in_thread else draft()


async def _planned(header: ChatLine, found: ParsedChat, owner: str, limits: Limits) -> Plan:
    """Plan the import of a chat; in a thread if it is long, to keep the event loop free."""
    plan = partial(plan_import, header, found.line, found.turns, owner, limits)
    return await asyncio.to_thread(plan, pause=Pace()) if _is_large(found) else plan()


def _free(plan: Plan, found: ParsedChat, pause: Pause) -> None:
    """Free the turns of an imported chat one by one: all at once, every thread would wait."""
    while plan.turns:
        plan.turns.popitem()
        pause()
    while found.turns:
        found.turns.pop()
        pause()


def _is_large(found: ParsedChat) -> bool:
    branches = len(found.header.branches) if found.header is not None else 0
    return len(found.turns) + branches >= LONG or found.size >= LARGE


def _refused(found: ParsedChat, why: str) -> ImportReport:
    return ImportReport(line=found.line, did=ImportOutcome.REFUSED, chat=found.id, why=why[:REASON_LENGTH])


async def _parsed(
    source: AsyncIterable[bytes] | Iterable[bytes], limits: Limits
) -> AsyncIterator[ParsedChat | ImportReport]:
    reader = ChatReader(limits)
    if isinstance(source, AsyncIterable):
        async for piece in source:
            for found in reader.feed(piece):
                yield found
    else:
        for piece in source:
            for found in reader.feed(piece):
                yield found
    for found in reader.close():
        yield found
