"""The chat backend: options select a store or a server, which behave the same."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest

from tests.compat.live_server import LiveServer, run_server
from tests.unit.cli.chat.backend_contract import STALLING, BackendContract, answer_of, new_turn
from turnledger.cli.chat.backend import ChatBackend, output_of, question_of
from turnledger.cli.chat.connect import DemoModels, Options, connect
from turnledger.cli.chat.server import ServerChatBackend, open_server
from turnledger.cli.chat.store import StoreChatBackend, TitleWriter
from turnledger.errors import InvalidInput, ModelUnavailable
from turnledger.ledger import Ledger
from turnledger.runners.chat_model import ModelRequest
from turnledger.runners.demo import DemoModel
from turnledger.server.models.models import Models, ResolvedModel
from turnledger.testing.gates import Gate


async def opened(options: Options, environ: dict[str, str]) -> ChatBackend:
    backend = await connect(options, environ)
    await backend.close()
    return backend


async def test_chat_server_option_overrides_the_environment(tmp_path: Path) -> None:
    environ = {"TURNLEDGER_SERVER": "http://127.0.0.1:9", "XDG_DATA_HOME": str(tmp_path)}
    assert (await opened(Options(server="http://127.0.0.1:1"), environ)).name == "http://127.0.0.1:1"
    assert isinstance(await opened(Options(), environ), ServerChatBackend)
    assert isinstance(await opened(Options(store="memory:"), environ), StoreChatBackend)


async def test_chat_without_a_server_opens_the_store_of_the_user(tmp_path: Path) -> None:
    environ = {"XDG_DATA_HOME": str(tmp_path), "XDG_CONFIG_HOME": str(tmp_path)}
    backend = await connect(Options(), environ)
    assert await backend.models() == ["demo"]
    await backend.close()
    assert (tmp_path / "turnledger" / "chats.db").exists()


async def test_chat_models_come_from_the_settings_file(tmp_path: Path) -> None:
    file = tmp_path / "turnledger.toml"
    file.write_text('[models.mine]\nupstream = "http://127.0.0.1:9/v1"\n[server]\nstore = "memory:"\n')
    backend = await connect(Options(config=file), {})
    assert await backend.models() == ["mine"]
    await backend.close()


async def test_chat_is_refused_where_chats_are_not_kept(tmp_path: Path) -> None:
    file = tmp_path / "turnledger.toml"
    file.write_text('[server]\nstore = "memory:"\n[chats]\nkeep = false\n[chats.scopes.mine]\nkeep = true\n')
    with pytest.raises(InvalidInput, match="disables storing chats"):
        await connect(Options(config=file), {})
    await opened(Options(config=file, scope="mine"), {})
    await opened(Options(config=file, store="memory:"), {})


@pytest.mark.parametrize("more", [{"store": "memory:"}, {"upstream": "http://x"}, {"config": Path("x")}])
async def test_chat_server_option_excludes_store_upstream_and_config(more: dict[str, object]) -> None:
    with pytest.raises(InvalidInput, match="exclude each other"):
        await connect(Options(server="http://127.0.0.1:1", **more), {})  # type: ignore[arg-type]


async def test_chat_with_an_invalid_server_variable_names_it() -> None:
    with pytest.raises(InvalidInput, match="TURNLEDGER_SERVER"):
        await connect(Options(), {"TURNLEDGER_SERVER": "nonsense"})


async def test_unknown_model_is_refused_with_the_known_ones() -> None:
    backend = StoreChatBackend(await Ledger.open(), DemoModels(), "memory")
    assert await backend.models() == ["demo"]
    with pytest.raises(InvalidInput, match=r"Unknown model 'other'\. Known: demo"):
        backend.runner("other")
    await backend.close()


async def at_once(seconds: float) -> None:
    await asyncio.sleep(0)


class Stalling(DemoModel):
    """Answers every request with `You said`, and stalls."""

    def stream(self, question: ModelRequest):  # type: ignore[no-untyped-def]
        messages = [{"role": "user", "content": "/stall after 2"}]
        return super().stream(ModelRequest(messages, question.settings))


@pytest.fixture
async def on_store() -> AsyncIterator[StoreChatBackend]:
    stalling = Stalling(pace=0, patience=3600)
    known = {
        "demo": ResolvedModel(DemoModel(sleep=at_once), "demo"),
        STALLING: ResolvedModel(stalling, "demo"),
    }
    backend = StoreChatBackend(await Ledger.open(), Models(known), "memory")
    yield backend
    await backend.close()


class TestOnStore(BackendContract):
    @pytest.fixture
    def backend(self, on_store: StoreChatBackend) -> StoreChatBackend:
        return on_store


async def test_hidden_items_are_not_shown_on_a_store(on_store: StoreChatBackend) -> None:
    talk = on_store.new()
    await answer_of(talk, new_turn("A secret"))
    (turn,) = (await talk.read()).turns
    await (await on_store.ledger.conversation(talk.id)).flag(turn.id, 1, to_user=False)
    (turn,) = (await talk.read()).turns
    assert (question_of(turn), output_of(turn)) == ("A secret", ())
    (version,) = await talk.versions(turn.id)
    assert version.turn == turn


async def test_tool_results_sent_with_a_turn_are_shown_as_output(on_store: StoreChatBackend) -> None:
    chat = await on_store.ledger.conversation()
    call = {"type": "function_call", "call_id": "c", "name": "look", "arguments": "{}"}
    async with chat.turn("Look") as turn:
        turn.put(call)
    async with chat.turn({"type": "function_call_output", "call_id": "c", "output": "A cat"}) as turn:
        turn.emit("It is a cat.")
    first, second = (await (await on_store.open(chat.id)).read()).turns
    assert (question_of(first), [item.type for item in output_of(first)]) == ("Look", ["function_call"])
    assert question_of(second) == ""
    assert [item.type for item in output_of(second)] == ["function_call_output", "message"]


async def test_abandoned_turn_on_a_store_leaves_no_turn(on_store: StoreChatBackend) -> None:
    talk = on_store.new()
    answering = talk.start(new_turn("Stall", model=STALLING))
    async for _ in answering:
        break
    assert await answering.leave() is False
    assert (await talk.read()).turns == []


async def test_model_title_is_made_after_the_first_turn_only(on_store: StoreChatBackend) -> None:
    on_store.title_writer = TitleWriter(on_store.ledger, ResolvedModel(DemoModel(sleep=at_once), "demo"))
    talk = on_store.new()
    changes = on_store.changes()
    await answer_of(talk, new_turn("Hello"))
    while (await talk.read()).chat.title == "Hello":
        await anext(changes)
    title = (await talk.read()).chat.title
    assert title is not None
    assert title.startswith("You said")
    await answer_of(talk, new_turn("Again"))
    assert (await talk.read()).chat.title == title


class TestOnServer(BackendContract):
    @pytest.fixture
    async def backend(self) -> AsyncIterator[ServerChatBackend]:
        with run_server(["You said", Gate()], ["You said", Gate()]) as served:
            backend = open_server(served.url, None, None)
            yield backend
            await backend.close()


@pytest.fixture
def served() -> Iterator[LiveServer]:
    with run_server() as served:
        yield served


async def test_chat_without_an_answer_is_deleted_when_a_server_session_closes(served: LiveServer) -> None:
    backend = open_server(served.url, None, None)
    empty, used = backend.new(), backend.new()
    with pytest.raises(ModelUnavailable):
        await answer_of(empty, new_turn("/fail", "k"))
    await answer_of(used, new_turn("Hello"))
    assert len(await backend.chats()) == 2
    await backend.close()
    left = open_server(served.url, None, None)
    assert [chat.id for chat in await left.chats()] == [used.id]
    await left.close()


async def test_chat_whose_first_turn_is_abandoned_or_undone_is_kept_on_a_server(served: LiveServer) -> None:
    backend = open_server(served.url, None, None)
    left, undone = backend.new(), backend.new()
    answering = left.start(new_turn("/stall", "k"))
    events = aiter(answering)
    await anext(events)
    await answering.leave()
    await answer_of(undone, new_turn("Hello"))
    await undone.existing.undo((await undone.read()).turns[0].id)
    await backend.close()
    later = open_server(served.url, None, None)
    assert {chat.id for chat in await later.chats()} == {left.id, undone.id}
    talk = await later.open(str(left.id))
    assert answering.turn is not None
    await talk.follow(answering.turn).stop()
    await later.close()


async def test_chat_list_on_a_server_is_limited_to_the_scope(served: LiveServer) -> None:
    backend = open_server(served.url, None, "mine")
    talk = backend.new()
    await answer_of(talk, new_turn("Hello"))
    everywhere = open_server(served.url, None, None)
    await answer_of(everywhere.new(), new_turn("Hello to all"))
    assert [chat.id for chat in await backend.chats()] == [talk.id]
    assert len(await everywhere.chats()) == 2
    await backend.close()
    await everywhere.close()
