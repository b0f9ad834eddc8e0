"""Chats as files over HTTP: /api/chats/{id}/export, /api/export and /api/import."""

from __future__ import annotations

import asyncio
from collections import Counter
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import msgspec
from starlette.requests import Request
from starlette.types import Receive, Scope, Send

from turnledger.errors import InvalidInput, TurnledgerError
from turnledger.model.access.token import TokenScope
from turnledger.model.text.plain import content_disposition, file_name
from turnledger.model.transfer import Did, ImportReport
from turnledger.server.access.audit_log import note
from turnledger.server.access.auth import Principal
from turnledger.server.errors import error_body, shutting_down
from turnledger.server.openapi.endpoint import Endpoint, Parameter
from turnledger.server.openapi.schemas import TEXT
from turnledger.server.requests.body import body_pieces
from turnledger.server.routes.chats import CHAT
from turnledger.server.service import Service
from turnledger.server.wire.sse import Stream, StreamEndpoint

NDJSON = "application/x-ndjson"
MARKDOWN = "text/markdown"
FORMATS = ("jsonl", "markdown")
ALL_CHATS = "chats.jsonl"
AUDITED = 1_000
"""Chats of one import that the audit log lists."""
HELD_BACK = 16 * 1024 * 1024
"""Bytes of reports held until the body ends: most clients read nothing before they have sent everything."""
PIECE = 64 * 1024
"""Bytes of an export sent at once: a message per line would cost more than the line."""
GONE = {404: "There is none.", 410: "It was deleted or has expired."}
FILE_NAME = {"Content-Disposition": Parameter("A name to save the file under.", TEXT)}


def endpoints(service: Service) -> list[Endpoint]:
    return [_export_one(service), _export_all(service), _import(service)]


def _export_one(service: Service) -> Endpoint:
    return Endpoint(
        method="GET",
        path="/api/chats/{chat}/export",
        answer=StreamEndpoint(service.streams, Exports(service).one),
        needs=TokenScope.CHATS_READ,
        summary="A conversation as a file: lines of JSON that can be imported, or Markdown for people.",
        tag="transfer",
        in_path=CHAT,
        query={
            "format": Parameter(
                "What kind of file; `jsonl` if it is left out.", {"type": "string", "enum": list(FORMATS)}
            )
        },
        is_stream=True,
        content={200: {NDJSON: {}, MARKDOWN: {}}},
        answer_headers=FILE_NAME,
        answers={200: "The file. An answer that is cut off is not whole.", **GONE},
    )


def _export_all(service: Service) -> Endpoint:
    return Endpoint(
        method="GET",
        path="/api/export",
        answer=StreamEndpoint(service.streams, Exports(service).all),
        needs=TokenScope.CHATS_READ,
        summary="All conversations that lists show, as one file of lines of JSON, the longest unused first.",
        tag="transfer",
        query={"scope": Parameter("Those of this scope only.", TEXT)},
        is_stream=True,
        content={200: {NDJSON: {}}},
        answer_headers=FILE_NAME,
        answers={200: "The file. An answer that is cut off is not whole."},
    )


def _import(service: Service) -> Endpoint:
    return Endpoint(
        method="POST",
        path="/api/import",
        answer=ImportChats(service),
        needs=TokenScope.CHATS_WRITE,
        summary="Take in conversations from a file of an export. What is there is never changed.",
        tag="transfer",
        query={"scope": Parameter("Put them into this scope, whatever the file says.", TEXT)},
        body={},
        needs_body=False,
        body_type=NDJSON,
        is_unbounded=True,
        content={200: {NDJSON: {}}},
        answers={
            200: "What was done, line by line; the last line counts it, or tells the error that ended it."
        },
    )


class Exports:
    """Conversations as files, sent while they are read."""

    def __init__(self, service: Service) -> None:
        self._service = service

    @asynccontextmanager
    async def one(self, who: Principal, request: Request) -> AsyncIterator[Stream]:
        asked = request.query_params.get("format", FORMATS[0])
        if asked not in FORMATS:
            raise InvalidInput(f"format is {asked[:40]!r}; it must be one of {', '.join(FORMATS)}.")
        chats = self._service.chats(who)
        chat = await chats.conversation(request.path_params["chat"])
        title = (await chat.info()).title
        if asked == "markdown":
            parts = (part.encode() async for part in chats.markdown(chat.id))
            yield _file(file_name(title, chat.id, "md"), f"{MARKDOWN}; charset=utf-8", parts)
        else:
            yield _file(file_name(title, chat.id, "jsonl"), NDJSON, chats.export(chat.id))

    @asynccontextmanager
    async def all(self, who: Principal, request: Request) -> AsyncIterator[Stream]:
        chats = self._service.chats(who, request.query_params.get("scope"))
        yield _file(ALL_CHATS, NDJSON, chats.export_all())


def _file(name: str, kind: str, parts: AsyncIterator[bytes]) -> Stream:
    disposition = (b"content-disposition", content_disposition(name).encode())
    return Stream(_gathered(parts), file=[(b"content-type", kind.encode()), disposition])


async def _gathered(parts: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    waiting: list[bytes] = []
    size = 0
    async for part in parts:
        waiting.append(part)
        size += len(part)
        if size >= PIECE:
            yield b"".join(waiting)
            waiting, size = [], 0
    if waiting:
        yield b"".join(waiting)


class ImportChats:
    """The import, as a plain ASGI application that reads the body as it arrives.

    Most clients read nothing before they have sent everything, and would deadlock if the response filled the
    connection. So it is held until the body ends, up to a bound.
    """

    def __init__(self, service: Service) -> None:
        self._service = service

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        who: Principal = request.state.principal
        answer = _Answer(send)
        place = self._service.quotas.importing(who.owner, is_tokenless=who.token is None, link=who.link)
        try:
            with self._service.streams.stay(who):
                await self._take_in(who, request, receive, answer)
        except TurnledgerError as problem:
            await answer.fail(problem)
        except asyncio.CancelledError:
            if self._service.shutting_down.is_set():
                await answer.fail(shutting_down())
            raise
        finally:
            place.leave()

    async def _take_in(self, who: Principal, request: Request, receive: Receive, answer: _Answer) -> None:
        service = self._service
        pieces = body_pieces(receive, service.settings.limits.body_wait)
        reports = service.chats(who, request.query_params.get("scope")).import_lines(
            self._readmitted(pieces, request),
            refuses=service.keeping.why_not,
            # A caller who cannot reach the chats of others must not learn their ids.
            keep_ids=who.token is None or (who.has(TokenScope.ADMIN) and not who.is_narrowed),
        )
        chats: list[str] = []
        async for report in reports:
            if report.did is Did.IMPORTED and len(chats) < AUDITED:
                chats.append(str(report.chat))
                note(request.scope, imported=chats)
            await answer.tell(report)
        await answer.end()

    async def _readmitted(self, pieces: AsyncIterator[bytes], request: Request) -> AsyncIterator[bytes]:
        """Look the caller up again after the first piece: the token may have ended meanwhile."""
        is_first = True
        async for piece in pieces:
            if is_first:
                await self._service.admission.admit(request.state.head)
            is_first = False
            yield piece


class _Answer:
    def __init__(self, send: Send) -> None:
        self._send = send
        self._held = bytearray()
        self._done: Counter[Did] = Counter()
        self._has_begun = False

    async def tell(self, report: ImportReport) -> None:
        self._done[report.did] += 1
        self._held += msgspec.json.encode(report) + b"\n"
        if len(self._held) > HELD_BACK or self._has_begun:
            await self._begin()
            await self._send({"type": "http.response.body", "body": bytes(self._held), "more_body": True})
            self._held.clear()

    async def end(self) -> None:
        counted = {did.value: self._done[did] for did in Did}
        await self._finish(msgspec.json.encode({"done": counted}))

    async def fail(self, problem: BaseException) -> None:
        """Report why the import ended early; as the response, if none has begun."""
        if not self._has_begun and not self._held:
            raise problem
        await self._finish(error_body(problem))

    async def _begin(self) -> None:
        if not self._has_begun:
            self._has_begun = True
            headers = [(b"content-type", NDJSON.encode())]
            await self._send({"type": "http.response.start", "status": 200, "headers": headers})

    async def _finish(self, last: bytes) -> None:
        await self._begin()
        body = bytes(self._held) + last + b"\n"
        await self._send({"type": "http.response.body", "body": body, "more_body": False})
