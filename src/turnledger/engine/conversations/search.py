"""Search: an owner's chats whose title, or a message visible to the owner, contains the words.

The store only says where to look. Every hit is read again, so texts that were hidden, renamed or deleted do
not show. A search first indexes what is missing, so that turns committed before it are found.
"""

from __future__ import annotations

from contextlib import suppress

from msgspec import Struct
from msgspec.structs import replace

from turnledger.engine.conversations.resolve import has_expired
from turnledger.engine.conversations.title import hidden_of
from turnledger.engine.history import line
from turnledger.engine.ports import Store, Sync, Tables, WholeStore
from turnledger.errors import InvalidInput, StoreCorrupt, StoreError, StoreTooNew, TurnNotFound
from turnledger.model.conversation import EVERYWHERE, Conversation, ConversationState, TitleSource, Within
from turnledger.model.ids import BranchId, ConversationId, TurnId
from turnledger.model.text.search import TITLES, Phrase, SearchMatch, Snippet, snippet_of
from turnledger.model.turn import Turn, visible_texts

AT_ONCE = 256
"""Turns and titles indexed per step, fewer if they are long: a step occupies the writer."""
SEARCH_STEPS = 16
"""The most steps a search takes for its owner before it answers."""
OTHERS_STEPS = 4
"""The most steps a search takes for other owners, so that it does not wait for another owner's import."""
RECOVERY_STEPS = 4
"""The most steps per round of the timer while turns run, which take precedence."""
MORE_AT_ONCE = 64
"""Places requested at a time after the first batch did not fill the page."""
MOST_EFFORT = 1_000
"""The most effort a page spends on places that it skips: it may be short, and the next one continues."""
MOST_PASSED = 16_384
"""The most places skipped for a caller that sees one chat only: they cost little."""
READING = 4
"""The effort to read one place."""
MOST_FORKS = 20
"""The most conversations examined that were made from a deleted one."""


class Hit(Struct, frozen=True):
    """A chat in which all search words were found."""

    conversation: Conversation
    turn: TurnId | None
    """The turn with the match; None for the title."""
    branch: BranchId
    """A branch that shows the turn, preferably the current one."""
    snippet: str
    marks: tuple[tuple[int, int], ...]
    """The matches in the snippet: offsets of the first character, and behind the last."""


class SearchPage(Struct, frozen=True):
    """A page of hits."""

    hits: tuple[Hit, ...]
    next: str | None
    """The cursor of the next page; None on the last."""
    is_complete: bool
    """Whether everything committed before is indexed; if not, the newest turns may be missing."""


class SearchRequest(Struct, frozen=True):
    owner: str
    scope: str | None
    phrases: tuple[Phrase, ...]
    before: int | None
    limit: int
    now: int
    within: Within = EVERYWHERE

    async def shows(self, tables: Tables, conversation: Conversation) -> bool:
        """Return whether the caller would see the conversation in a list."""
        return (
            conversation.state is ConversationState.LIVE
            and not conversation.internal
            and conversation.is_listed
            and self.scope in (None, conversation.scope)
            and self.within.sees(conversation)
            and not await has_expired(tables, conversation, self.now)
        )


async def search(tables: Tables, request: SearchRequest) -> SearchPage:
    """Return a page of hits, one per chat: titles first, then the newest turns. For a caller that sees one
    chat only, nothing in the page depends on matches elsewhere, not even whether there is a next page."""
    hits: dict[ConversationId, Hit] = {}
    homes = await _homes(tables, request)
    before, is_last = request.before, False
    effort = passed = 0
    count = request.limit + 1  # one more shows whether another page follows
    while not is_last and len(hits) < request.limit and effort < MOST_EFFORT and passed < MOST_PASSED:
        found = await tables.search(request.scope, request.phrases, before, count)
        for each in found:
            before = each.place
            if homes is not None and each.conversation not in homes:
                passed += 1
                continue
            cost = 1 if each.conversation in hits else READING
            hit = await _hit(tables, request, each, hits)
            if hit is not None:
                hits[hit.conversation.id] = hit
            elif request.within.chat not in (None, each.conversation):
                passed += cost  # on a branch that the chat was made from, and does not show
            else:
                effort += cost
            if len(hits) == request.limit:
                break
        is_last = len(found) < count and (not found or before == found[-1].place)
        count = max(count, MORE_AT_ONCE)
    if homes is not None:
        is_last = len(hits) < request.limit and effort < MOST_EFFORT
    after = None if is_last or before is None else cursor_at(before)
    return SearchPage(tuple(hits.values()), after, await tables.is_index_complete())


async def _homes(tables: Tables, request: SearchRequest) -> frozenset[ConversationId] | None:
    """Return the conversations whose turns the caller's only chat shows: itself, and those it was made from.
    None for a caller that sees more."""
    chat = request.within.chat
    if chat is None:
        return None
    branch = await tables.first_branch(chat)
    homes, branches = {chat}, set[BranchId]()
    earlier = await line.earlier_stretches(tables, branch.id) if branch is not None else ()
    while earlier:
        new = [each.branch for each in earlier if each.branch not in branches]
        branches.update(new)
        found = [await tables.branch(each) for each in new]
        homes.update(each.conversation for each in found if each is not None)
        earlier = await line.earlier_stretches(tables, earlier[-1].branch)
    return frozenset(homes)


async def _hit(
    tables: Tables, request: SearchRequest, found: SearchMatch, hits: dict[ConversationId, Hit]
) -> Hit | None:
    """Return the hit for a place; None if it is not visible, or if its chat is in the page already."""
    if found.conversation in hits:
        return None
    home = await tables.conversation(found.conversation)
    if home is None:
        return None
    if found.turn is None:
        return await _title_hit(tables, home, request)
    try:
        turn = await tables.turn(found.turn)
        if turn is None:
            return None
        shown = await _showing_chat(tables, request, home, turn)
        if shown is None or shown[0].id in hits:
            return None
        conversation, branch = shown
        snippet = await _snippet(tables, request, turn)
    except (StoreCorrupt, StoreTooNew):
        return None  # reading that chat reports the damage; a search goes on
    return _hit_of(conversation, turn.id, branch, snippet) if snippet is not None else None


async def _title_hit(tables: Tables, home: Conversation, request: SearchRequest) -> Hit | None:
    if not await request.shows(tables, home) or not home.title or home.named_by is TitleSource.WORDS:
        return None
    snippet = snippet_of([home.title], request.phrases)
    return _hit_of(home, None, home.branch, snippet) if snippet is not None else None


def _hit_of(conversation: Conversation, turn: TurnId | None, branch: BranchId, snippet: Snippet) -> Hit:
    own = replace(conversation, metadata=dict(conversation.metadata))
    return Hit(own, turn, branch, snippet.text, snippet.marks)


async def _showing_chat(
    tables: Tables, request: SearchRequest, home: Conversation, turn: Turn
) -> tuple[Conversation, BranchId] | None:
    """Return the chat that shows a turn: its own, or the first visible one that was made from it."""
    if await request.shows(tables, home):
        return home, await _branch_showing(tables, home, turn, turn.branch)
    for shown in await tables.forks_showing(turn.branch, turn.number, MOST_FORKS):
        fork = await tables.conversation(shown.conversation)
        if fork is not None and await request.shows(tables, fork):
            return fork, await _branch_showing(tables, fork, turn, shown.branch)
    return None


async def _branch_showing(
    tables: Tables, conversation: Conversation, turn: Turn, otherwise: BranchId
) -> BranchId:
    """Return the current branch if the turn is on its line, else the other one."""
    if turn.branch == conversation.branch:
        return conversation.branch
    current = await tables.branch(conversation.branch)
    if current is None:
        return otherwise
    try:
        await line.line_through(tables, current, turn)
    except TurnNotFound:
        return otherwise
    return current.id


async def _snippet(tables: Tables, request: SearchRequest, turn: Turn) -> Snippet | None:
    return snippet_of(visible_texts(turn, await hidden_of(tables, turn)), request.phrases)


def cursor_at(place: int) -> str:
    return f"{place:x}"


def place_of(cursor: str | None) -> int | None:
    """Return the place of a cursor; raise InvalidInput for an invalid one."""
    if cursor is None:
        return None
    place = int(cursor, 16) if 0 < len(cursor) <= 16 and set(cursor) <= set("0123456789abcdef") else 0
    if not 0 < place < 2 * TITLES:
        raise InvalidInput("Invalid cursor. Pass `next` from the previous page.", param="cursor")
    return place


async def index_some(rows: WholeStore | Tables, limit: int) -> int:
    return await rows.index_texts(limit)


async def is_index_complete(rows: WholeStore | Tables, _: None) -> bool:
    return await rows.is_index_complete()


async def index_texts(store: Store, steps: int) -> bool:
    """Index in at most `steps` steps; return whether all is indexed. Steps lost in a crash are repeated."""
    for _ in range(steps):
        if await store.read_whole(is_index_complete, None):
            return True
        await store.transact_whole(index_some, AT_ONCE, Sync.PROCESS)
    return False


async def index_own_texts(store: Store, owner: str) -> None:
    """Index what was committed; if that is much, only what this owner wrote."""
    if await index_texts(store, OTHERS_STEPS):
        return
    for _ in range(SEARCH_STEPS):
        if await store.read(is_index_complete, None, owner):
            return
        if not await store.transact(index_some, AT_ONCE, owner, Sync.PROCESS):
            return


async def search_all(store: Store, request: SearchRequest) -> SearchPage:
    """Index what is missing, then search. A store that cannot be written to is searched as it is."""
    if not request.phrases:
        return SearchPage((), None, is_complete=True)
    with suppress(StoreError):  # an incomplete page is worth more than none
        await index_own_texts(store, request.owner)
    return await store.read(search, request, request.owner)
