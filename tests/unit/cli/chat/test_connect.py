"""From options to the place where the chats are."""

from __future__ import annotations

from pathlib import Path

import pytest

from turnledger.cli.chat.backend import ChatBackend
from turnledger.cli.chat.connect import DemoOnly, Options, open_place
from turnledger.cli.chat.server import OnServer
from turnledger.cli.chat.store import OnStore, StoreModels
from turnledger.errors import InvalidInput

pytestmark = pytest.mark.anyio


async def opened(options: Options, environ: dict[str, str]) -> ChatBackend:
    place = await open_place(options, environ)
    await place.close()
    return place


async def test_a_server_that_is_named_goes_before_the_environment(tmp_path: Path) -> None:
    environ = {"TURNLEDGER_SERVER": "http://127.0.0.1:9", "XDG_DATA_HOME": str(tmp_path)}
    assert (await opened(Options(server="http://127.0.0.1:1"), environ)).name == "http://127.0.0.1:1"
    assert isinstance(await opened(Options(), environ), OnServer)
    assert isinstance(await opened(Options(store="memory:"), environ), OnStore)


async def test_without_a_server_it_is_the_store_of_this_user(tmp_path: Path) -> None:
    environ = {"XDG_DATA_HOME": str(tmp_path), "XDG_CONFIG_HOME": str(tmp_path)}
    place = await open_place(Options(), environ)
    assert await place.models() == ["demo"]
    await place.close()
    assert (tmp_path / "turnledger" / "chats.db").exists()


async def test_the_models_are_those_of_the_servers_file(tmp_path: Path) -> None:
    file = tmp_path / "turnledger.toml"
    file.write_text('[models.mine]\nupstream = "http://127.0.0.1:9/v1"\n[server]\nstore = "memory:"\n')
    place = await open_place(Options(config=file), {})
    assert await place.models() == ["mine"]
    await place.close()


async def test_where_chats_are_not_kept_nobody_talks(tmp_path: Path) -> None:
    file = tmp_path / "turnledger.toml"
    file.write_text('[server]\nstore = "memory:"\n[chats]\nkeep = false\n[chats.scopes.mine]\nkeep = true\n')
    with pytest.raises(InvalidInput, match="chats are not kept here"):
        await open_place(Options(config=file), {})
    await opened(Options(config=file, scope="mine"), {})
    await opened(Options(config=file, store="memory:"), {})


@pytest.mark.parametrize("more", [{"store": "memory:"}, {"upstream": "http://x"}, {"config": Path("x")}])
async def test_a_server_has_a_store_and_models_of_its_own(more: dict[str, object]) -> None:
    with pytest.raises(InvalidInput, match="do not go together"):
        await open_place(Options(server="http://127.0.0.1:1", **more), {})  # type: ignore[arg-type]


async def test_what_is_no_server_is_told_with_its_variable() -> None:
    with pytest.raises(InvalidInput, match="TURNLEDGER_SERVER"):
        await open_place(Options(), {"TURNLEDGER_SERVER": "nonsense"})


async def test_a_model_that_is_not_there_is_told() -> None:
    models = StoreModels(DemoOnly())
    assert await models.names() == ["demo"]
    with pytest.raises(InvalidInput, match=r"There is no model 'other'\. Known: demo"):
        models.runner("other")
    await models.close()
