"""The sync client and ledger are generated from the async ones."""

from __future__ import annotations

import inspect
import subprocess
import sys
from typing import get_overloads

import pytest

import turnledger.client
from tools.twins import BY_HAND, HEADER, TARGET, twin, twins
from turnledger import client

FOREIGN = (
    "starlette",
    "uvicorn",
    "apsw",
    "aiohttp",
    "httptools",
    "rich",
    "typer",
    "prompt_toolkit",
    "asyncio",
)


def test_sync_modules_equal_the_generator_output() -> None:
    written = twins()
    of_client = {path.name for path in written if path.parent == TARGET}
    assert {path.name for path in TARGET.glob("*.py")} == of_client | BY_HAND
    stale = [str(path) for path, text in written.items() if path.read_text() != text]
    assert not stale, f"{stale}: edit what they are generated from, then run `make twins`"


def test_twin_of_async_code_has_no_trace_of_asyncio() -> None:
    source = """
async def read(self) -> AsyncIterator[AsyncChat]:
    '''Read, awaited, from any task.'''
    async with self as opened:  # other tasks of one loop wait
        async for piece in opened.aiter_raw():
            yield (await anext(piece)).text
"""
    blocking = """
def read(self) -> Iterator[Chat]:
    '''Read, blocking, from any thread.'''
    with self as opened:  # other threads wait
        for piece in opened.iter_raw():
            yield (next(piece)).text
"""
    assert twin(source) == HEADER + blocking


def test_public_methods_have_docstrings_except_two_properties() -> None:
    kinds = [getattr(client, name) for name in client.__all__]
    undocumented = {
        name
        for kind in kinds
        if isinstance(kind, type) and kind.__module__.startswith("turnledger.client.sync")
        for name, value in inspect.getmembers(kind)
        if not name.startswith("_") and not inspect.getdoc(value)
    }
    assert undocumented == {"conversation_key", "scope"}


def test_client_package_exports_every_public_name() -> None:
    assert sorted(turnledger.client.__all__) == list(turnledger.client.__all__)
    for name in turnledger.client.__all__:
        assert getattr(turnledger.client, name) is not None
    assert set(turnledger.client.__all__) <= set(dir(turnledger.client))
    with pytest.raises(AttributeError, match="no attribute 'Clinet'"):
        _ = turnledger.client.Clinet


def test_client_import_loads_no_server_module() -> None:
    code = "import sys, turnledger.client; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    modules = set(loaded.split())
    assert not {name for name in modules if name.split(".")[0] in FOREIGN}
    ours = {name.split(".")[1] for name in modules if name.startswith("turnledger.")}
    assert ours == {"api", "client", "errors", "model"}


def test_httpx2_is_imported_with_the_first_client() -> None:
    code = """
import sys
from turnledger.client import Client
assert not {"httpx2", "ssl", "random"} & {*sys.modules}, [*sys.modules]
Client().close()
assert "httpx2" in sys.modules
"""
    subprocess.run([sys.executable, "-c", code], check=True)


def test_client_import_without_its_extra_names_the_remedy() -> None:
    code = "import sys; sys.modules['httpx2'] = None; import turnledger.client"
    output = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False).stderr
    assert output.splitlines()[-1] == (
        "ModuleNotFoundError: turnledger.client needs one more package, httpx2. "
        "Install it with: pip install 'turnledger[client]'"
    )


@pytest.mark.parametrize("verb", ["send", "edit", "regenerate"])
@pytest.mark.parametrize(
    ("chat", "stream"), [(client.Chat, client.TurnStream), (client.AsyncChat, client.AsyncTurnStream)]
)
def test_send_overloads_return_a_stream_or_an_answer(chat: type, stream: type, verb: str) -> None:
    documented = {
        each.__annotations__["stream"]: each.__annotations__["return"]
        for each in get_overloads(getattr(chat, verb))
    }
    assert documented == {
        "Literal[False]": "Answer",
        "Literal[True]": stream.__name__,
        "bool": f"Answer | {stream.__name__}",
    }
