"""The bundled TypeScript client in an insecure page over a breaking connection.

Its other behaviour in pages is tested in tests/clients/test_contract.py.
"""

from __future__ import annotations

import asyncio
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from playwright.sync_api import Page

from tests.browser.conftest import Open, Sites
from tests.browser.victim import PATIENCE, Victim
from tests.clients.typescript_package import built
from turnledger.testing.fault_proxy import Fault, FaultProxy

LOAD = """async (text) => {
    const url = URL.createObjectURL(new Blob([text], {type: "text/javascript"}));
    globalThis.turnledger = await import(url);
}"""
SEND = """async ([url, conversationKey]) => {
    const client = new turnledger.Client(url, {model: "demo", retries: {firstPause: 1, maxPause: 10}});
    const chat = client.chats.open({conversationKey});
    const stream = chat.send("Hello", {stream: true});
    const events = [];
    for await (const event of stream) events.push([event.type, event.number]);
    const {text, state, chat: {turnCount}} = await stream.answer();
    return {events, streamed: stream.text, text, state, turnCount, isSecure: isSecureContext};
}"""
REFUSED = """async (url) => {
    const client = new turnledger.Client(url, {retries: {times: 0}});
    try {
        await client.chats.open("conv_01a1e29c3b7e74b1824da121735f1ddd").info();
    } catch (problem) {
        const {name, code, status, requestId} = problem;
        const isKnown = problem instanceof turnledger.errors.ConversationNotFound;
        return {name, code, status, hasRequestId: requestId !== null, isKnown};
    }
}"""


@pytest.fixture(scope="module")
def bundle() -> str:
    package = built()
    subprocess.run(["npm", "--silent", "run", "size"], cwd=package, check=True, capture_output=True)
    return (package / "dist" / "turnledger.min.js").read_text()


@pytest.fixture
def page(victim: Victim, sites: Sites, visit: Open, bundle: str) -> Page:
    """A page with the client, of an origin that the server allows and browsers do not trust."""
    page = visit(sites.of("friend.test"))
    page.evaluate(LOAD, bundle)
    return page


@contextmanager
def breaking(port: int, *faults: Fault | None) -> Iterator[str]:
    """A way to the server that breaks so, in a loop and thread of its own."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()

    def do(work: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(work, loop).result(PATIENCE)

    proxy = FaultProxy(port, by_exchange=True)
    do(proxy.__aenter__())
    try:
        proxy.plan(*faults)
        yield f"http://127.0.0.1:{proxy.port}"
        assert proxy.faults == sum(fault is not None for fault in faults)
    finally:
        do(proxy.__aexit__())
        loop.call_soon_threadsafe(loop.stop)
        thread.join(PATIENCE)
        loop.close()


WHOLE = ["turn.started", "text.delta", "text.delta", "text.delta", "item.done", "turn.finished"]


def test_typescript_client_on_a_broken_connection_runs_a_turn_once_and_raises_typed_errors(
    victim: Victim, page: Page
) -> None:
    request_count, preflight = victim.everything()[0], None
    faults = (preflight, Fault(received=0, resets=True), Fault(received=1200))
    with breaking(victim.port, *faults) as url:
        result = page.evaluate(SEND, [url, "from a page"])
    assert result["events"] == [[kind, number] for number, kind in enumerate(WHOLE, 1)]
    assert result["streamed"] == result["text"] == "One two three."
    assert result["turnCount"] == 1
    assert result["isSecure"] is False
    assert victim.everything()[0] == request_count + 1
    # And an error is of its class.
    assert page.evaluate(REFUSED, victim.url()) == {
        "name": "ConversationNotFound",
        "code": "conversation_not_found",
        "status": 404,
        "hasRequestId": True,
        "isKnown": True,
    }
