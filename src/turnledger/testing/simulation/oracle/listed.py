"""What a list says of chats at rest: as their commits wrote it, whoever died in between."""

from __future__ import annotations

from collections.abc import Iterator

from turnledger.model.conversation import Conversation, NamedBy
from turnledger.testing.simulation.oracle.promises import RestingBranch


def broken_by_list(conversation: Conversation, lines: list[RestingBranch]) -> Iterator[str]:
    """What is said wrongly of a conversation that has turns: that it is not there, how long it is, how its
    last text begins, or that nobody named it."""
    if not conversation.is_listed:
        yield f"{conversation.id} has turns, and no list shows it"
    if conversation.title is None or (conversation.named_by is NamedBy.WORDS and not conversation.title):
        yield f"{conversation.id} has turns, and no title"
    for line in lines:
        if line.branch.length != len(line.turns):
            yield f"{line.branch.id} counts {line.branch.length} turns, and has {len(line.turns)}"
        said = last_words(line)
        if said and not said.startswith(line.branch.preview or "nothing"):
            yield f"the preview of {line.branch.id} is {line.branch.preview!r}, and {said!r} was said last"


def last_words(line: RestingBranch) -> str:
    """The last text at the head that its user sees; empty if it shows none."""
    if not line.turns:
        return ""
    head = line.turns[-1]
    flags = line.flags.get(head.id, {})
    shown = [
        " ".join(item.text.split())
        for place, item in enumerate(head.items)
        if item.role in ("user", "assistant") and (place not in flags or flags[place].to_user)
    ]
    return next((text for text in reversed(shown) if text), "")
