"""Search: the chats of an owner whose title, or a message that the owner sees, has the words typed.

A store only says where to look. Every hit is read again where it stands, as it is now: what was hidden,
renamed or deleted since is not shown. What is not findable yet is made so before a search, so that a turn
which was committed before is found.
"""

from __future__ import annotations

from contextlib import suppress

from msgspec import Struct
from msgspec.structs import replace

from turnledger.engine.conversations.resolve import has_expired
from turnledger.engine.history import line
from turnledger.engine.ports import Store, Sync, Tables
from turnledger.errors import InvalidInput, StoreCorrupt, StoreError, StoreTooNew, TurnNotFound
from turnledger.model.conversation import EVERYWHERE, Conversation, ConversationState, NamedBy, Within
from turnledger.model.flags import hidden_from_user
from turnledger.model.ids import BranchId, ConversationId, TurnId
from turnledger.model.text.plain import seen_texts
from turnledger.model.text.search import TITLES, FoundPlace, Phrase, Snippet, snippet_of
from turnledger.model.turn import Turn

AT_ONCE = 256
"""Turns and titles that one step makes findable, fewer if they are long: the writer is busy then."""
STEPS_OF_SEARCH = 16
"""Steps that a search takes at most for its owner before it answers."""
STEPS_FOR_OTHERS = 4
"""Steps that it takes for what others wrote: nobody waits long for an import of somebody else."""
STEPS_OF_TENDING = 4
"""Steps that one round of the timer takes at most while turns run: these go first."""
MORE_AT_ONCE = 64
"""Places that are asked for at once where the first did not fill the page."""
MOST_EFFORT = 1_000
"""What a page spends at most on places that it passes over: it may be short, and the next one goes on."""
MOST_PASSED = 16_384
"""Places that are passed over for a caller who sees one chat only: they cost little."""
READING = 4
"""What it takes to read what is found at a place."""
MOST_FORKS = 20
"""Conversations made from a deleted one that are looked at."""


class Hit(Struct, frozen=True):
    """A chat in which all that was sought was found."""

    conversation: Conversation
    turn: TurnId | None
    """Where; None for the title."""
    branch: BranchId
    """The branch that shows it: the current one if that does."""
    snippet: str
    """A part of the text, on one line."""
    marks: tuple[tuple[int, int], ...]
    """What of it was sought: offsets of first characters, and of those behind the last."""


class SearchPage(Struct, frozen=True):
    """A page of what was found."""

    hits: tuple[Hit, ...]
    next: str | None
    """Where the next page begins; None behind the last."""
    is_complete: bool
    """Whether all that was committed before can be found; if not, the newest turns cannot yet."""


class SearchRequest(Struct, frozen=True):
    owner: str
    scope: str | None
    sought: tuple[Phrase, ...]
    before: int | None
    limit: int
    now: int
    within: Within = EVERYWHERE

    async def shows(self, tables: Tables, conversation: Conversation) -> bool:
        """Whether who asks would see the conversation in a list."""
        return (
            conversation.state is ConversationState.LIVE
            and not conversation.internal
            and conversation.is_listed
            and self.scope in (None, conversation.scope)
            and self.within.sees(conversation)
            and not await has_expired(tables, conversation, self.now)
        )


async def search(tables: Tables, request: SearchRequest) -> SearchPage:
    """A page of hits, titles first, then the newest turn first; one for each chat. Who sees one chat only is
    told nothing that depends on what is found in others, be it that the page has a next one."""
    hits: dict[ConversationId, Hit] = {}
    homes = await _homes(tables, request)
    before, is_last = request.before, False
    effort = passed = 0
    count = request.limit + 1  # one more than may be needed: it tells whether there is another page
    while not is_last and len(hits) < request.limit and effort < MOST_EFFORT and passed < MOST_PASSED:
        found = await tables.search(request.owner, request.scope, request.sought, before, count)
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
                passed += cost  # it is of what the chat was made from, and does not show
            else:
                effort += cost
            if len(hits) == request.limit:
                break
        is_last = len(found) < count and (not found or before == found[-1].place)
        count = max(count, MORE_AT_ONCE)
    if homes is not None:
        is_last = len(hits) < request.limit and effort < MOST_EFFORT
    after = None if is_last or before is None else cursor_at(before)
    return SearchPage(tuple(hits.values()), after, await tables.is_all_known(request.owner))


async def _homes(tables: Tables, request: SearchRequest) -> frozenset[ConversationId] | None:
    """The conversations whose turns the only chat shows that there is for who asks: itself, and those that it
    was made from. None for who sees more."""
    chat = request.within.chat
    if chat is None:
        return None
    branch = await tables.first_branch(chat)
    homes, branches = {chat}, set[BranchId]()
    earlier = await line.before(tables, branch.id) if branch is not None else ()
    while earlier:
        new = [each.branch for each in earlier if each.branch not in branches]
        branches.update(new)
        found = [await tables.branch(each) for each in new]
        homes.update(each.conversation for each in found if each is not None)
        earlier = await line.before(tables, earlier[-1].branch)
    return frozenset(homes)


async def _hit(
    tables: Tables, request: SearchRequest, found: FoundPlace, hits: dict[ConversationId, Hit]
) -> Hit | None:
    """What is to be shown of a place; None if it is not, or if its chat is shown already."""
    if found.conversation in hits:
        return None
    home = await tables.conversation(request.owner, found.conversation)
    if home is None:
        return None
    if found.turn is None:
        return await _title_hit(tables, home, request)
    try:
        turn = await tables.turn(request.owner, found.turn)
        if turn is None:
            return None
        shown = await _where_shown(tables, request, home, turn)
        if shown is None or shown[0].id in hits:
            return None
        conversation, branch = shown
        snippet = await _snippet(tables, request, turn)
    except (StoreCorrupt, StoreTooNew):
        return None  # who opens the chat is told; whoever searches others need not be
    return _hit_of(conversation, turn.id, branch, snippet) if snippet is not None else None


async def _title_hit(tables: Tables, home: Conversation, request: SearchRequest) -> Hit | None:
    if not await request.shows(tables, home) or not home.title or home.named_by is NamedBy.WORDS:
        return None
    snippet = snippet_of([home.title], request.sought)
    return _hit_of(home, None, home.branch, snippet) if snippet is not None else None


def _hit_of(conversation: Conversation, turn: TurnId | None, branch: BranchId, snippet: Snippet) -> Hit:
    own = replace(conversation, metadata=dict(conversation.metadata))
    return Hit(own, turn, branch, snippet.text, snippet.marks)


async def _where_shown(
    tables: Tables, request: SearchRequest, home: Conversation, turn: Turn
) -> tuple[Conversation, BranchId] | None:
    """The chat that shows a turn: its own, or the first one to be seen that was made from it."""
    if await request.shows(tables, home):
        return home, await _branch_with(tables, home, turn, turn.branch)
    for id, branch in await tables.shown_elsewhere(turn.branch, turn.number, MOST_FORKS):
        fork = await tables.conversation(request.owner, id)
        if fork is not None and await request.shows(tables, fork):
            return fork, await _branch_with(tables, fork, turn, branch)
    return None


async def _branch_with(
    tables: Tables, conversation: Conversation, turn: Turn, otherwise: BranchId
) -> BranchId:
    """The current branch if the turn is on its line, and another one if not."""
    if turn.branch == conversation.branch:
        return conversation.branch
    current = await tables.branch(conversation.branch)
    if current is None:
        return otherwise
    try:
        await line.up_to(tables, current, turn)
    except TurnNotFound:
        return otherwise
    return current.id


async def _snippet(tables: Tables, request: SearchRequest, turn: Turn) -> Snippet | None:
    flags = await tables.flags(request.owner, (turn.id,))
    hidden = hidden_from_user(flags).get(turn.id, ())
    return snippet_of(seen_texts(turn, hidden), request.sought)


def cursor_at(place: int) -> str:
    return f"{place:x}"


def place_of(cursor: str | None) -> int | None:
    """The place that a cursor names; raises InvalidInput for one that was not given out here."""
    if cursor is None:
        return None
    place = int(cursor, 16) if 0 < len(cursor) <= 16 and set(cursor) <= set("0123456789abcdef") else 0
    if not 0 < place < 2 * TITLES:
        raise InvalidInput("cursor is none. Give the `next` of the page before, or leave it out.")
    return place


async def index_some(tables: Tables, limit: int) -> int:
    """Make some of what was committed findable."""
    return await tables.index_texts(limit)


async def index_own(tables: Tables, owner: str) -> int:
    """Make some of what one owner wrote findable."""
    return await tables.index_texts(AT_ONCE, owner)


async def is_all_known(tables: Tables, owner: str | None) -> bool:
    """Whether there is nothing to be made findable, of all owners or of one."""
    return await tables.is_all_known(owner)


async def make_findable(store: Store, steps: int) -> bool:
    """Make findable what was committed, in so many steps at most, and return whether all is. What is lost of
    that is done again."""
    for _ in range(steps):
        if await store.read(is_all_known, None):
            return True
        await store.transact(index_some, AT_ONCE, Sync.PROCESS)
    return False


async def make_own_findable(store: Store, owner: str) -> None:
    """Make findable what was committed; where that is much, what this owner wrote goes first."""
    if await make_findable(store, STEPS_FOR_OTHERS):
        return
    for _ in range(STEPS_OF_SEARCH):
        if await store.read(is_all_known, owner):
            return
        if not await store.transact(index_own, owner, Sync.PROCESS):
            return


async def search_all(store: Store, request: SearchRequest) -> SearchPage:
    """Make findable what is not yet, then search. A store that cannot be written to is searched as it is."""
    if not request.sought:
        return SearchPage((), None, is_complete=True)
    with suppress(StoreError):  # a page that says that it is not complete is worth more than none
        await make_own_findable(store, request.owner)
    return await store.read(search, request)
