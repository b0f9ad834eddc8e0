"""The list of chats, the search index and the changes that an owner receives."""

from __future__ import annotations

from typing import Any

from msgspec.structs import replace

from tests.simulation.broken.registry import Patch, broken
from turnledger.engine.attempt import dead_process, end
from turnledger.engine.conversations import list_entry, resolve
from turnledger.engine.turn import begin, commit, queue
from turnledger.model.conversation import Conversation
from turnledger.model.turn import visible_texts
from turnledger.stores.memory import search_rows as in_memory
from turnledger.stores.sql import search as in_file


@broken
def lists_no_chat_whose_first_turn_was_kept() -> list[Patch]:
    async def enter(tables: Any, id: Any, *_: Any, **options: Any) -> Any:
        return await tables.conversation(id)

    # The probe that ends each schedule would list it, if it were a first turn for anybody.
    return [(end, "update_entry", enter), (Conversation, "is_entry_complete", True)]


@broken
def previews_the_turn_before() -> list[Patch]:
    true = commit.behind

    def behind(branch: Any, *arguments: Any) -> Any:
        return replace(true(branch, *arguments), preview=branch.preview)

    return [(commit, "behind", behind)]


@broken
def previews_the_question() -> list[Patch]:
    def preview_of(turn: Any, hidden: Any = ()) -> str:
        return next((item.text for item in turn.input if item.role == "user"), "")

    return [(commit, "preview_of", preview_of), (list_entry, "preview_of", preview_of)]


@broken
def finds_hidden_texts() -> list[Patch]:
    def all_texts(turn: Any, hidden: Any) -> list[str]:
        return visible_texts(turn, ())

    return [(in_memory, "visible_texts", all_texts), (in_file, "visible_texts", all_texts)]


@broken
def finds_no_answers() -> list[Patch]:
    def questions(turn: Any, hidden: Any) -> list[str]:
        return [item.text for item in turn.input if item.role == "user"]

    return [(in_memory, "visible_texts", questions), (in_file, "visible_texts", questions)]


async def publish_nothing(*_: Any, **__: Any) -> None:
    return None


@broken
def publishes_no_commit() -> list[Patch]:
    return [(commit, "record_commit", publish_nothing)]


@broken
def publishes_no_kept_or_settled_turn() -> list[Patch]:
    return [(end, "record_commit", publish_nothing)]


@broken
def publishes_no_failure() -> list[Patch]:
    return [(end, "_record_end", publish_nothing)]


@broken
def publishes_no_running_turn() -> list[Patch]:
    return [(begin, "record_change", publish_nothing)]


@broken
def publishes_no_abandoned_wait() -> list[Patch]:
    return [(queue, "record_withdrawal", publish_nothing)]


@broken
def publishes_no_wait_of_a_dead_process() -> list[Patch]:
    return [(dead_process, "record_withdrawal", publish_nothing)]


@broken
def publishes_no_deletion() -> list[Patch]:
    return [(resolve, "record_change", publish_nothing)]


@broken
def publishes_an_edit_without_its_branch() -> list[Patch]:
    true = commit.record_commit

    async def stays(tables: Any, conversation: Any, turn: Any, *, has_moved: bool, **more: Any) -> None:
        await true(tables, conversation, turn, has_moved=False, **more)

    return [(commit, "record_commit", stays)]
