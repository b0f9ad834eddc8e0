"""What can be found at rest: each turn by what its user sees of it, and by nothing else, whoever died."""

from __future__ import annotations

from collections.abc import Iterator

from turnledger.engine.ports import Tables
from turnledger.ledger import OWNER
from turnledger.model.ids import TurnId
from turnledger.model.text.search import Phrase, words_of
from turnledger.testing.simulation.oracle.promises import RestingBranch

ALL = 10_000


async def broken_by_search(tables: Tables, lines: list[RestingBranch]) -> list[str]:
    """What a search does not find, or finds though nobody sees it, of the turns on these lines. All of it was
    made findable before."""
    problems = [] if await tables.is_all_known() else ["there is still something to be made findable"]
    seen = {turn: set(words) for turn, words in _seen(lines)}
    for word in sorted(set().union(*seen.values())):
        found = await tables.search(OWNER, None, (Phrase((word,)),), None, ALL)
        ids = {each.turn for each in found}
        for turn, words in seen.items():
            if word in words and turn not in ids:
                problems.append(f"{turn} is not found by {word!r}")
            if word not in words and turn in ids:
                problems.append(f"{turn} is found by {word!r}, which nobody sees")
    return problems


def _seen(lines: list[RestingBranch]) -> Iterator[tuple[TurnId, list[str]]]:
    for line in lines:
        for turn in line.turns:
            flags = line.flags.get(turn.id, {})
            texts = [
                item.text
                for place, item in enumerate(turn.items)
                if item.role in ("user", "assistant") and (place not in flags or flags[place].to_user)
            ]
            yield turn.id, words_of(" ".join(texts))
