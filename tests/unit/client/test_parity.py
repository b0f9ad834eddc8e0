"""The two edges are one client: what the one has, the other has, by the same names and signatures."""

from __future__ import annotations

import inspect
import re
import subprocess
import sys
from typing import Any, get_overloads

import pytest

import turnledger.client
from turnledger import client

PAIRS = [
    (client.Client, client.AsyncClient),
    (client.Chats, client.AsyncChats),
    (client.Chat, client.AsyncChat),
    (client.Stream, client.AsyncStream),
    (client.TurnStream, client.AsyncTurnStream),
    (client.Tokens, client.AsyncTokens),
    (client.Shares, client.AsyncShares),
    (client.Pages, client.AsyncPages),
    (client.UnsentMessages, client.AsyncUnsentMessages),
]
AWAITED_NAMES = {
    "__anext__": "__next__",
    "__aiter__": "__iter__",
    "__aenter__": "__enter__",
    "__aexit__": "__exit__",
}
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


def signatures(kind: type) -> dict[str, str]:
    """Public names, and what they take and give, in the words of the blocking edge."""

    def said(value: Any) -> str:
        if isinstance(value, property):
            return f"property {value.fget.__annotations__['return']}"  # type: ignore[union-attr]
        text = str(inspect.signature(value))
        text = re.sub(r"\bAsync(?=Iterator|[A-Z])", "", text)
        return text.replace("httpx2.AsyncClient", "httpx2.Client")

    return {
        AWAITED_NAMES.get(name, name): said(value)
        for name, value in inspect.getmembers(kind)
        if name in (*AWAITED_NAMES, *AWAITED_NAMES.values())
        or (not name.startswith("_") and (inspect.isfunction(value) or isinstance(value, property)))
    }


@pytest.mark.parametrize(("blocking", "awaited"), PAIRS, ids=lambda kind: kind.__name__)
def test_both_edges_have_the_same_names_and_signatures(blocking: type, awaited: type) -> None:
    assert signatures(blocking) == signatures(awaited)
    assert inspect.signature(blocking).parameters.keys() == inspect.signature(awaited).parameters.keys()


@pytest.mark.parametrize(("blocking", "awaited"), PAIRS, ids=lambda kind: kind.__name__)
def test_both_edges_say_the_same_of_themselves(blocking: type, awaited: type) -> None:
    def contract(kind: type, name: str) -> str:
        return " ".join((inspect.getdoc(getattr(kind, name)) or "").split()).replace("any task", "any thread")

    names = [name for name in signatures(blocking) if not name.startswith("_")]
    assert {name: contract(blocking, name) for name in names} == {
        name: contract(awaited, name) for name in names
    }
    undocumented = [name for name in names if not contract(blocking, name)]
    assert set(undocumented) <= {"conversation_key", "scope"}


def test_every_public_name_is_there() -> None:
    assert sorted(turnledger.client.__all__) == list(turnledger.client.__all__)
    for name in turnledger.client.__all__:
        assert getattr(turnledger.client, name) is not None
    assert set(turnledger.client.__all__) <= set(dir(turnledger.client))
    with pytest.raises(AttributeError, match="no attribute 'Clinet'"):
        _ = turnledger.client.Clinet


def test_the_client_loads_nothing_of_a_server() -> None:
    code = "import sys, turnledger.client; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    modules = set(loaded.split())
    assert not {name for name in modules if name.split(".")[0] in FOREIGN}
    ours = {name.split(".")[1] for name in modules if name.startswith("turnledger.")}
    assert ours == {"client", "errors", "model"}


def test_httpx2_is_loaded_with_the_first_client() -> None:
    code = """
import sys
from turnledger.client import Client
assert not {"httpx2", "ssl", "random"} & {*sys.modules}, [*sys.modules]
Client().close()
assert "httpx2" in sys.modules
"""
    subprocess.run([sys.executable, "-c", code], check=True)


def test_without_its_extra_it_names_the_remedy() -> None:
    code = "import sys; sys.modules['httpx2'] = None; import turnledger.client"
    told = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False).stderr
    assert told.splitlines()[-1] == (
        "ModuleNotFoundError: turnledger.client needs one more package, httpx2. "
        "Install it with: pip install 'turnledger[client]'"
    )


@pytest.mark.parametrize("verb", ["send", "edit", "regenerate"])
@pytest.mark.parametrize(
    ("chat", "stream"), [(client.Chat, client.TurnStream), (client.AsyncChat, client.AsyncTurnStream)]
)
def test_a_type_checker_knows_a_stream_from_an_answer(chat: type, stream: type, verb: str) -> None:
    told = {
        each.__annotations__["stream"]: each.__annotations__["return"]
        for each in get_overloads(getattr(chat, verb))
    }
    assert told == {
        "Literal[False]": "Answer",
        "Literal[True]": stream.__name__,
        "bool": f"Answer | {stream.__name__}",
    }
