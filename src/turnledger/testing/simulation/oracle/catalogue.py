"""Check lists and searches of chats at rest: they show what commits wrote and what the user sees."""

from __future__ import annotations

from collections.abc import Iterator

from turnledger.engine.ports import Tables
from turnledger.model.conversation import Conversation, TitleSource
from turnledger.model.text.search import Phrase, words_of
from turnledger.model.turn import Turn
from turnledger.testing.simulation.oracle.line_promises import RestingBranch

ALL = 10_000


async def check_search(tables: Tables, lines: list[RestingBranch]) -> list[str]:
    """Find visible words that a search misses, and hidden ones that it finds. All turns must be indexed."""
    problems = [] if await tables.is_index_complete() else ["some turns are not indexed"]
    seen = {
        turn.id: set(words_of(" ".join(_visible_texts(line, turn)))) for line in lines for turn in line.turns
    }
    for word in sorted(set().union(*seen.values())):
        found = await tables.search(None, (Phrase((word,)),), None, ALL)
        ids = {each.turn for each in found}
        for turn, words in seen.items():
            if word in words and turn not in ids:
                problems.append(f"{turn} is not found by {word!r}")
            if word not in words and turn in ids:
                problems.append(f"{turn} is found by {word!r}, which is hidden")
    return problems


def check_list(conversation: Conversation, lines: list[RestingBranch]) -> Iterator[str]:
    """Check that a conversation with turns is listed, with its title, length and preview."""
    if not conversation.is_listed:
        yield f"{conversation.id} has turns, and is not listed"
    if conversation.title is None or (conversation.named_by is TitleSource.WORDS and not conversation.title):
        yield f"{conversation.id} has turns, and no title"
    for line in lines:
        if line.branch.length != len(line.turns):
            yield f"{line.branch.id} counts {line.branch.length} turns, and has {len(line.turns)}"
        last = _last_text(line)
        if last and not last.startswith(line.branch.preview or "nothing"):
            yield f"the preview of {line.branch.id} is {line.branch.preview!r}, its last text {last!r}"


def _last_text(line: RestingBranch) -> str:
    """Return the last text at the head that the user sees, or an empty one."""
    texts = _visible_texts(line, line.turns[-1]) if line.turns else []
    return next((text for each in reversed(texts) if (text := " ".join(each.split()))), "")


def _visible_texts(line: RestingBranch, turn: Turn) -> list[str]:
    flags = line.flags.get(turn.id, {})
    return [
        item.text
        for place, item in enumerate(turn.items)
        if item.role in ("user", "assistant") and (place not in flags or flags[place].to_user)
    ]
