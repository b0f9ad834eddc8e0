"""Reads of a store that do not join it as a process."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Collection, Sequence
from functools import partial
from typing import TYPE_CHECKING, TypeVar

from msgspec.structs import replace

from turnledger.api.access import Share, Token
from turnledger.api.chats import ListedChat
from turnledger.api.turns import Turn
from turnledger.api.views import show_listed, show_share, show_token
from turnledger.model.catalogue import ChatFilter
from turnledger.model.conversation import LOCAL
from turnledger.model.flags import hidden_in_parts, visible_items
from turnledger.model.item import raws

if TYPE_CHECKING:
    from turnledger.engine.ports import WholeStore

ROWS = 1_000
"""Tokens or links read at once."""
Row = TypeVar("Row")
Request = TypeVar("Request")


async def last_used(
    url: str, *, owner: str | None, scope: str | None, deleted: bool, limit: int
) -> tuple[ListedChat, ...]:
    """Return the chats of an owner that were used last. Writes nothing."""
    from turnledger.engine.clock import SystemClock
    from turnledger.engine.conversations.catalogue import ListChats, list_page
    from turnledger.stores.url import open_read_only

    query = ChatFilter(scope=scope, archived=None if deleted else False, deleted=deleted)
    store = await open_read_only(url)
    try:
        request = ListChats(query, None, limit, SystemClock().now_ms())
        page = await store.read(list_page, request, owner or LOCAL)
    finally:
        await store.close()
    return tuple(map(show_listed, page.chats))


async def all_tokens(url: str, owner: str | None) -> Sequence[Token]:
    """Return all tokens of one owner, or of all, the newest first. Writes nothing."""
    from turnledger.engine.access.tokens import ListTokens, list_tokens
    from turnledger.model.access.token import Token as StoredToken
    from turnledger.model.conversation import EVERYWHERE

    def request_after(last: StoredToken | None) -> ListTokens:
        return ListTokens(owner, EVERYWHERE, None if last is None else last.id, ROWS)

    return tuple(map(partial(show_token, Token), await _all_rows(url, list_tokens, request_after)))


async def all_shares(url: str) -> Sequence[Share]:
    """Return all share links, the newest first. Writes nothing."""
    from turnledger.engine.access.shares import ListShares, ShareView, list_shares
    from turnledger.model.access.share import Share as StoredShare
    from turnledger.model.conversation import EVERYWHERE

    def request_after(last: StoredShare | None) -> ListShares:
        return ListShares(
            ShareView(None, EVERYWHERE, only_chats=False), None if last is None else last.id, ROWS
        )

    return tuple(map(partial(show_share, Share), await _all_rows(url, list_shares, request_after)))


async def _all_rows(
    url: str,
    list_rows: Callable[[WholeStore, Request], Awaitable[list[Row]]],
    request_after: Callable[[Row | None], Request],
) -> list[Row]:
    """Read page after page; `request_after` is the request for the page after a row."""
    from turnledger.stores.url import open_read_only

    found: list[Row] = []
    store = await open_read_only(url)
    try:
        while True:
            page = await store.read_whole(list_rows, request_after(found[-1] if found else None))
            found += page
            if len(page) < ROWS:
                return found
    finally:
        await store.close()


def without_hidden(turns: Sequence[Turn]) -> tuple[Turn, ...]:
    """Return the turns without their hidden items and the other halves of these."""
    if not any(turn.hidden for turn in turns):
        return tuple(turns)
    dropped = hidden_in_parts(
        [(*turn.input, *turn.output) for turn in turns], [turn.hidden for turn in turns]
    )
    return tuple(map(_drop_items, turns, dropped))


def _drop_items(turn: Turn, dropped: Collection[int]) -> Turn:
    input = raws(visible_items(turn.input, dropped))
    output = raws(visible_items(turn.output, dropped, len(turn.input)))
    kept = [place for place in range(len(turn.input) + len(turn.output)) if place not in dropped]
    unsent = tuple(at for at, place in enumerate(kept) if place in turn.hidden_from_model)
    return replace(turn, raw_input=input, raw_output=output, hidden=(), hidden_from_model=unsent)
