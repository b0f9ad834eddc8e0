"""What lists and searches say of chats at rest: what commits wrote, and of each turn what its user sees and
nothing else, whoever died in between."""

from __future__ import annotations

from collections.abc import Iterator

from turnledger.engine.ports import Tables
from turnledger.ledger import OWNER
from turnledger.model.conversation import Conversation, NamedBy
from turnledger.model.text.search import Phrase, words_of
from turnledger.model.turn import Turn
from turnledger.testing.simulation.oracle.promises import RestingBranch

ALL = 10_000


async def check_search(tables: Tables, lines: list[RestingBranch]) -> list[str]:
    """What a search does not find, or finds though nobody sees it, of the turns on these lines. All of it was
    made findable before."""
    problems = [] if await tables.is_all_known() else ["there is still something to be made findable"]
    seen = {
        turn.id: set(words_of(" ".join(_texts_seen(line, turn)))) for line in lines for turn in line.turns
    }
    for word in sorted(set().union(*seen.values())):
        found = await tables.search(OWNER, None, (Phrase((word,)),), None, ALL)
        ids = {each.turn for each in found}
        for turn, words in seen.items():
            if word in words and turn not in ids:
                problems.append(f"{turn} is not found by {word!r}")
            if word not in words and turn in ids:
                problems.append(f"{turn} is found by {word!r}, which nobody sees")
    return problems


def check_list(conversation: Conversation, lines: list[RestingBranch]) -> Iterator[str]:
    """What is said wrongly of a conversation that has turns: that it is not there, how long it is, how its
    last text begins, or that nobody named it."""
    if not conversation.is_listed:
        yield f"{conversation.id} has turns, and no list shows it"
    if conversation.title is None or (conversation.named_by is NamedBy.WORDS and not conversation.title):
        yield f"{conversation.id} has turns, and no title"
    for line in lines:
        if line.branch.length != len(line.turns):
            yield f"{line.branch.id} counts {line.branch.length} turns, and has {len(line.turns)}"
        said = _last_words(line)
        if said and not said.startswith(line.branch.preview or "nothing"):
            yield f"the preview of {line.branch.id} is {line.branch.preview!r}, and {said!r} was said last"


def _last_words(line: RestingBranch) -> str:
    """The last text at the head that its user sees; empty if it shows none."""
    texts = _texts_seen(line, line.turns[-1]) if line.turns else []
    return next((text for each in reversed(texts) if (text := " ".join(each.split()))), "")


def _texts_seen(line: RestingBranch, turn: Turn) -> list[str]:
    flags = line.flags.get(turn.id, {})
    return [
        item.text
        for place, item in enumerate(turn.items)
        if item.role in ("user", "assistant") and (place not in flags or flags[place].to_user)
    ]
