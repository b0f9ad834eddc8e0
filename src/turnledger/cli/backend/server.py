"""Chats and tokens of a server."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from typing import Any, TypeVar

from msgspec.structs import asdict

from turnledger.api.access import Share, Token
from turnledger.api.chats import ChatInfo, Deletion, Hit, Page, SearchPage
from turnledger.api.turns import ChatContext, ChatHistory, Job, StopAnswer, Turn, TurnFlags
from turnledger.cli.backend.backend import API_KEY, ID_PREFIX, SERVER, Source, allows_http, check_chat_name
from turnledger.cli.backend.read_only_store import without_hidden
from turnledger.client import AsyncChat, AsyncClient, AsyncPages, Retries, StopOutcome, Timeouts
from turnledger.errors import InvalidInput, NotAdmitted, RequestFailed, TokenNotFound
from turnledger.model.access.token import is_token_text
from turnledger.model.transfer import ImportReport

PAGE = 50
FEW_RETRIES = Retries(times=4, patience=10)
"""A person waits: do not try an unreachable server for long."""
NO_RETRIES = Retries(times=0)
Entry = TypeVar("Entry")
SHORT_TIMEOUTS = Timeouts(connect=1, silence=2, write=1)
"""For shell completion."""


@asynccontextmanager
async def open_server(
    url: str, api_key: str | None, *, is_quick: bool = False
) -> AsyncIterator[ServerBackend]:
    """Open the server at this URL, without a request. Raises InvalidInput for an invalid URL."""
    timeouts, retries = (SHORT_TIMEOUTS, NO_RETRIES) if is_quick else (None, FEW_RETRIES)
    try:
        client = AsyncClient(url, api_key, timeouts=timeouts, retries=retries, allow_http=allows_http())
    except InvalidInput as problem:
        raise InvalidInput(f"--server or {SERVER}, or the token in {API_KEY}: {problem}") from None
    async with client:
        try:
            yield ServerBackend(client, url)
        except NotAdmitted as problem:
            remedy = "Set it to a token." if api_key is None else "Set it to another token."
            problem.args = (f"{problem} The command line sends the token in {API_KEY}. {remedy}",)
            raise
        except RequestFailed as problem:
            # The URL may come from the environment, set long ago.
            problem.args = (f"{problem} The request went to {url}.",)
            raise


class ServerBackend:
    is_new = False

    def __init__(self, client: AsyncClient, url: str) -> None:
        self._client = client
        self._url = url

    async def list(self, **fields: Any) -> Page[ChatInfo]:
        return await _joined(self._client.chats.list(**fields))

    async def search(self, text: str, *, scope: str | None, limit: int, cursor: str | None) -> Page[Hit]:
        data: list[Hit] = []
        next_cursor, is_complete = None, True
        async for page in self._client.chats.search(text, scope=scope, limit=limit, cursor=cursor).pages():
            data += page.data
            next_cursor, is_complete = page.next, page.complete
        return SearchPage(tuple(data), next_cursor, is_complete)

    async def create(self, *, scope: str, **details: Any) -> ChatInfo:
        return await (await self._client.chats.create(scope=scope or None, **details)).info()

    async def show(self, chat: str, *, scope: str, turns: int) -> ChatHistory:
        found = self._chat(chat, scope)
        page = await found.read(limit=min(PAGE, turns))
        info, read, before = page.chat, list(page.turns), page.before
        while before is not None and len(read) < turns:
            page = await found.read(before=before, limit=min(PAGE, turns - len(read)))
            if page.turns and page.turns[-1].id != read[0].parent:
                # The chat was switched to another branch, and a visitor cannot name the previous one.
                return await self.show(chat, scope=scope, turns=turns)
            read, before = [*page.turns, *read], page.before
        return ChatHistory(**asdict(info), turns=without_hidden(read), before=before)

    async def context(self, chat: str, *, scope: str, last: int | None, budget: int | None) -> ChatContext:
        return await self._chat(chat, scope).context(last=last, budget=budget)

    async def jobs(self, *, limit: int, cursor: str | None) -> Page[Job]:
        return await _joined(self._client.jobs(limit=limit, cursor=cursor))

    async def stop(self, chat: str, *, scope: str, policy: str | None) -> StopAnswer:
        return _show_end(await self._chat(chat, scope).stop(policy=policy))

    async def stop_turn(self, turn: str, *, policy: str | None) -> StopAnswer:
        unused = self._client.chats.open(conversation_key=turn)  # the id of the turn is enough
        return _show_end(await unused.stop(turn, policy=policy))

    async def stop_key(self, idempotency_key: str, *, policy: str | None) -> StopAnswer:
        return _show_end(await self._client.chats.stop(idempotency_key, policy=policy))

    async def update(self, chat: str, *, scope: str, **changes: Any) -> ChatInfo:
        return await self._chat(chat, scope).update(**changes)

    async def append(self, chat: str, items: Sequence[Any], *, scope: str, **options: Any) -> Turn:
        return await self._chat(chat, scope).append(items, **options)

    async def flag(self, chat: str, turn: str, *, scope: str, **flags: Any) -> TurnFlags:
        return await self._chat(chat, scope).flag(turn, **flags)

    async def delete(self, chat: str, *, scope: str, purge: bool) -> Deletion:
        return await self._chat(chat, scope).delete(purge=purge)

    async def restore(self, id: str) -> ChatInfo:
        return await self._client.chats.open(id).restore()

    async def export(self, chat: str, *, scope: str, format: str) -> AsyncIterator[bytes]:
        async with await self._chat(chat, scope).export(format) as lines:
            async for line in lines:
                yield line

    async def export_all(self, *, scope: str | None) -> AsyncIterator[bytes]:
        async with await self._client.export(scope) as lines:
            async for line in lines:
                yield line

    async def import_lines(self, source: Source, *, scope: str | None) -> AsyncIterator[ImportReport]:
        for report in await self._client.import_chats(source, scope=scope):
            yield report

    async def create_token(self, *, expires_at: int | None, **fields: Any) -> tuple[Token, bool]:
        """Create a token. It is never the first one: the request needs a token itself."""
        seconds = None if expires_at is None else expires_at / 1000 - time.time()
        if seconds is not None and seconds <= 0:
            raise InvalidInput("The token would have expired already. Use a time in the future.")
        return await self._client.tokens.create(**fields, expires_in=seconds), False

    async def list_tokens(self, owner: str | None) -> Sequence[Token]:
        return [token async for token in self._client.tokens.list(owner=owner)]

    async def revoke_token(self, token: str) -> Sequence[Token]:
        if not is_token_text(token):
            return await self._client.tokens.revoke(token)
        # A token may revoke itself, and its text is sent to the server only to authenticate.
        async with AsyncClient(self._url, token, retries=FEW_RETRIES, allow_http=allows_http()) as bearer:
            try:
                return await bearer.tokens.revoke("self")
            except NotAdmitted:
                raise TokenNotFound("No valid token has this text. Copy it completely.") from None

    async def create_share(self, **fields: Any) -> tuple[Share, bool]:
        """Create a link. It is never the first: the request needs a token itself."""
        return await self._client.shares.create(**fields), False

    async def list_shares(self) -> Sequence[Share]:
        return [share async for share in self._client.shares.list()]

    async def revoke_share(self, share: str) -> Share:
        return await self._client.shares.revoke(share)

    def _chat(self, name: str, scope: str) -> AsyncChat:
        check_chat_name(name)
        if name.startswith(ID_PREFIX):
            return self._client.chats.open(name)
        return self._client.chats.open(conversation_key=name, scope=scope or None)


async def _joined(pages: AsyncPages[Entry]) -> Page[Entry]:
    """Return all pages as one, with the cursor after the last."""
    data: list[Entry] = []
    next_cursor = None
    async for page in pages.pages():
        data += page.data
        next_cursor = page.next
    return Page(tuple(data), next_cursor)


def _show_end(ended: StopOutcome | None) -> StopAnswer:
    return StopAnswer(state=None) if ended is None else StopAnswer(**asdict(ended))
