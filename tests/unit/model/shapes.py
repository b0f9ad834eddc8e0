"""Items, ids, histories and journals for tests: built, or generated well formed."""

from __future__ import annotations

import json
import os
from collections.abc import Callable, Iterable, Sequence
from typing import Any

import pytest
from hypothesis import settings
from hypothesis import strategies as st

from turnledger.model.conversation import Conversation
from turnledger.model.ids import AnyId, BranchId, ConversationId, TurnId
from turnledger.model.item import Item
from turnledger.model.journal import Journal
from turnledger.model.turn import Turn, TurnKind

EXAMPLES = int(os.environ.get("MODEL_EXAMPLES", "50"))
"""For a longer run with other examples: MODEL_EXAMPLES=1000."""
repeatable = settings(
    derandomize="MODEL_EXAMPLES" not in os.environ, max_examples=EXAMPLES, deadline=None, database=None
)

CALL_TYPES = ("function_call", "custom_tool_call", "shell_call")
CALL_IDS = ("a", "b", "c")


def some_id(kind: type[AnyId], number: int) -> AnyId:
    return kind(f"{kind.prefix}{number:012x}70008{number:015x}")


CONVERSATION, BRANCH = some_id(ConversationId, 1), some_id(BranchId, 1)


def user(text: str = "Hello") -> Item:
    return Item.of(text)


def assistant(text: str = "Hi") -> Item:
    return Item.of({"role": "assistant", "content": text})


def call(call_id: str = "a", type: str = "function_call", **fields: Any) -> Item:
    body = {"input": "x"} if type == "custom_tool_call" else {"arguments": "{}"}
    return Item.of({"type": type, "call_id": call_id, "name": "look", **body, **fields})


def result(call_id: str = "a", type: str = "function_call", output: Any = "found") -> Item:
    return Item.of({"type": f"{type}_output", "call_id": call_id, "output": output})


def reasoning(text: str = "Hm") -> Item:
    return Item.of({"type": "reasoning", "summary": [{"type": "summary_text", "text": text}]})


def raw(value: Any) -> bytes:
    return json.dumps(value, ensure_ascii=False).encode()


def turn(
    number: int = 1,
    *,
    input: Sequence[Item] | None = None,
    output: Sequence[Item] | None = None,
    id: int = 0,
    **changes: Any,
) -> Turn:
    fields: dict[str, Any] = {
        "id": some_id(TurnId, id or number),
        "branch": BRANCH,
        "parent": None,
        "kind": TurnKind.COMPLETED,
        "created_at": 1,
        "committed_at": 2,
        "input": (user(),) if input is None else tuple(input),
        "output": (assistant(),) if output is None else tuple(output),
    }
    return Turn.of(number=number, **{**fields, **changes})


def conversation(**changes: Any) -> Conversation:
    fields: dict[str, Any] = {"id": CONVERSATION, "owner": "ann", "branch": BRANCH}
    return Conversation(**{**fields, "created_at": 1, "touched_at": 1, **changes})


json_values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-(2**200), 2**200)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.text(),
    lambda children: st.lists(children, max_size=4) | st.dictionaries(st.text(), children, max_size=4),
    max_leaves=12,
)

known_items = st.sampled_from(
    [user(), assistant(), reasoning(), Item.of({"type": "web_search_call", "id": "ws_1"})]
)
free_items = st.builds(
    lambda kind, fields: Item(raw({**fields, "type": kind})),
    st.sampled_from(["note", "item_reference", "mcp_call", "some.day", "Ünï"]),
    st.dictionaries(st.text(), json_values, max_size=4),
)
any_items = known_items | free_items | st.builds(call, st.sampled_from(CALL_IDS))

_steps = st.lists(
    st.tuples(
        st.sampled_from(["user", "assistant", "hosted", "call", "call", "result", "result", "reasoning"]),
        st.integers(0, 5),
    ),
    max_size=14,
)


def _well_formed(steps: Iterable[tuple[str, int]], *, with_users: bool, may_end_thinking: bool) -> list[Item]:
    """Make a well-formed history of these steps, dropping or completing others."""
    items: list[Item] = []
    waiting: list[tuple[str, str]] = []
    for place, (step, pick) in enumerate(steps):
        thinking = bool(items) and items[-1].is_reasoning
        call_id = CALL_IDS[pick % len(CALL_IDS)]
        if step == "call" and call_id not in [each for each, _ in waiting]:
            kind = CALL_TYPES[pick % 2 * (1 + place % 2)]
            waiting.append((call_id, kind))
            items.append(call(call_id, kind, id=f"fc_{place}"))
        elif step == "result" and waiting and not thinking:
            items.append(result(*waiting.pop(pick % len(waiting)), output=f"found {place}"))
        elif step == "reasoning":
            items.append(reasoning(f"step {place}"))
        elif step == "hosted":
            items.append(Item.of({"type": "web_search_call", "id": f"ws_{place}"}))
        elif step == "user" and with_users and not thinking:
            items.append(user(f"message {place}"))
        else:
            items.append(assistant(f"text {place}"))
    if items and items[-1].is_reasoning and not may_end_thinking:
        items.append(assistant("so"))
    return items


histories = st.builds(_well_formed, _steps, with_users=st.just(True), may_end_thinking=st.just(False))


def _journal(steps: list[tuple[str, int]], starts: list[int], may_end_thinking: bool) -> Journal:
    items = _well_formed(steps, with_users=False, may_end_thinking=may_end_thinking)
    places = [place for place, item in enumerate(items) if item.is_call]
    chosen = zip(places, starts, strict=False)
    return Journal(items, {place: start == 1 for place, start in chosen if start})


_starts = st.lists(st.integers(0, 2), min_size=14, max_size=14)  # not started, read-only, may act
journals = st.builds(_journal, _steps, _starts, st.just(True))
journals_not_thinking = st.builds(_journal, _steps, _starts, st.just(False))


def looks(work: Callable[[], object]) -> int:
    """Count how often work reads call ids of items or compares two."""
    counted = 0
    call_id, equal = Item.call_id, Item.__eq__

    def seen(item: Item) -> str | None:
        nonlocal counted
        counted += 1
        return call_id.__get__(item)  # type: ignore[no-any-return]

    def compared(item: Item, other: object) -> bool:
        nonlocal counted
        counted += 1
        return equal(item, other)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(Item, "call_id", property(seen))
        patch.setattr(Item, "__eq__", compared)
        work()
    return counted
