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
from turnledger.model.transfer import ImportOutcome, ImportReport
from turnledger.server.access.audit_log import add_audit_fields
from turnledger.server.access.auth import Principal
from turnledger.server.errors import error_body, shutdown_error
from turnledger.server.openapi.endpoint import Endpoint, Parameter
from turnledger.server.openapi.schemas import STRING
from turnledger.server.requests.body import body_pieces
from turnledger.server.routes.chat_history import CHAT, CHAT_GONE
from turnledger.server.service import Service
from turnledger.server.wire.sse import Stream, StreamEndpoint

NDJSON = "application/x-ndjson"
MARKDOWN = "text/markdown"
FORMATS = ("jsonl", "markdown")
ALL_CHATS = "chats.jsonl"
AUDITED_CHATS = 1_000
"""Chats of one import that the audit log lists."""
HELD_BYTES = 16 * 1024 * 1024
"""Bytes of reports held until the body ends: most clients read nothing before they have sent everything."""
PIECE_BYTES = 64 * 1024
"""Bytes of an export sent at once: a message per line would cost more than the line."""
FILE_NAME = {"Content-Disposition": Parameter("A name to save the file under.", STRING)}


def endpoints(service: Service) -> list[Endpoint]:
    return [
        Endpoint(
            route="GET /api/chats/{chat}/export",
            handler=StreamEndpoint(service.streams, Exports(service).export_chat),
            needs=TokenScope.CHATS_READ,
            summary="Export a chat: lines of JSON that can be imported, or Markdown for people.",
            in_path=CHAT,
            query={
                "format": Parameter(
                    "The format of the file; default `jsonl`.", {"type": "string", "enum": list(FORMATS)}
                )
            },
            is_stream=True,
            content={200: {NDJSON: {}, MARKDOWN: {}}},
            response_headers=FILE_NAME,
            responses={200: "The file. A response that is cut off is incomplete.", **CHAT_GONE},
        ),
        Endpoint(
            route="GET /api/export",
            handler=StreamEndpoint(service.streams, Exports(service).export_all),
            needs=TokenScope.CHATS_READ,
            summary="Export all listed chats as one file of JSON lines, least recently used first.",
            query={"scope": Parameter("Only chats of this scope.", STRING)},
            is_stream=True,
            content={200: {NDJSON: {}}},
            response_headers=FILE_NAME,
            responses={200: "The file. A response that is cut off is incomplete."},
        ),
        Endpoint(
            route="POST /api/import",
            handler=ImportEndpoint(service),
            needs=TokenScope.CHATS_WRITE,
            summary="Import chats from an exported file. Existing chats never change.",
            query={"scope": Parameter("Import into this scope, overriding the file.", STRING)},
            body={},
            needs_body=False,
            body_type=NDJSON,
            is_unbounded=True,
            content={200: {NDJSON: {}}},
            responses={
                200: "One report per chat; the last line has the counts, or the error that ended the import."
            },
        ),
    ]


class Exports:
    """Conversations as files, sent while they are read."""

    def __init__(self, service: Service) -> None:
        self._service = service

    @asynccontextmanager
    async def export_chat(self, principal: Principal, request: Request) -> AsyncIterator[Stream]:
        format = request.query_params.get("format", FORMATS[0])
        if format not in FORMATS:
            raise InvalidInput(
                f"format is {format[:40]!r}; it must be one of {', '.join(FORMATS)}.", param="format"
            )
        chats, chat = self._service.chats(principal), await self._service.chat_in(request)
        title = (await chat.info()).title
        if format == "markdown":
            parts = (part.encode() async for part in chats.markdown(chat.id))
            yield _file(file_name(title, chat.id, "md"), f"{MARKDOWN}; charset=utf-8", parts)
        else:
            yield _file(file_name(title, chat.id, "jsonl"), NDJSON, chats.export(chat.id))

    @asynccontextmanager
    async def export_all(self, principal: Principal, request: Request) -> AsyncIterator[Stream]:
        chats = self._service.chats(principal, request.query_params.get("scope"))
        yield _file(ALL_CHATS, NDJSON, chats.export_all())


def _file(name: str, kind: str, parts: AsyncIterator[bytes]) -> Stream:
    disposition = (b"content-disposition", content_disposition(name).encode())
    return Stream(_gather(parts), file=[(b"content-type", kind.encode()), disposition])


async def _gather(parts: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    buffer: list[bytes] = []
    size = 0
    async for part in parts:
        buffer.append(part)
        size += len(part)
        if size >= PIECE_BYTES:
            yield b"".join(buffer)
            buffer, size = [], 0
    if buffer:
        yield b"".join(buffer)


class ImportEndpoint:
    """The import, as a plain ASGI application that reads the body as it arrives.

    Most clients read nothing before they have sent everything, and would deadlock if the response filled the
    connection. So it is held until the body ends, up to a bound.
    """

    def __init__(self, service: Service) -> None:
        self._service = service

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        request = Request(scope, receive)
        principal: Principal = request.state.principal
        response = _ReportStream(send)
        with self._service.quotas.admit_import(principal.caller):
            try:
                with self._service.token_watch.while_authorized(principal):
                    await self._import_chats(principal, request, receive, response)
            except TurnledgerError as problem:
                await response.fail(problem)
            except asyncio.CancelledError:
                if self._service.shutting_down.is_set():
                    await response.fail(shutdown_error())
                raise

    async def _import_chats(
        self, principal: Principal, request: Request, receive: Receive, response: _ReportStream
    ) -> None:
        service = self._service
        pieces = body_pieces(receive, service.settings.limits.body_wait)
        reports = service.chats(principal, request.query_params.get("scope")).import_lines(
            self._check_token(pieces, request),
            refuses=service.persistence.import_refusal,
            # A caller who cannot reach the chats of others must not learn their ids.
            keep_ids=principal.token is None
            or (principal.has(TokenScope.ADMIN) and not principal.is_narrowed),
        )
        chats: list[str] = []
        async for report in reports:
            if report.did is ImportOutcome.IMPORTED and len(chats) < AUDITED_CHATS:
                chats.append(str(report.chat))
                add_audit_fields(request.scope, imported=chats)
            await response.send(report)
        await response.end()

    async def _check_token(self, pieces: AsyncIterator[bytes], request: Request) -> AsyncIterator[bytes]:
        """Look the caller up again after the first piece: the token may have ended meanwhile."""
        is_first = True
        async for piece in pieces:
            if is_first:
                await self._service.authenticator.admit(request.state.head)
            is_first = False
            yield piece


class _ReportStream:
    def __init__(self, send: Send) -> None:
        self._send = send
        self._held = bytearray()
        self._counts: Counter[ImportOutcome] = Counter()
        self._has_begun = False

    async def send(self, report: ImportReport) -> None:
        self._counts[report.did] += 1
        self._held += msgspec.json.encode(report) + b"\n"
        if len(self._held) > HELD_BYTES or self._has_begun:
            await self._begin()
            await self._send({"type": "http.response.body", "body": bytes(self._held), "more_body": True})
            self._held.clear()

    async def end(self) -> None:
        counts = {outcome.value: self._counts[outcome] for outcome in ImportOutcome}
        await self._finish(msgspec.json.encode({"done": counts}))

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
