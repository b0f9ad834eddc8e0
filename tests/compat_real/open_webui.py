"""Open WebUI in a browser, connected as its recipe says: answers, other answers, a failure, and a stop."""

from __future__ import annotations

import re
import secrets
from pathlib import Path
from tempfile import TemporaryDirectory

import httpx2
from playwright.sync_api import Page, expect

from tests.browser.chromium import browsing
from tests.compat_real.environments import python_of
from tests.compat_real.outages import running
from tests.compat_real.story import PATIENCE, result_of, shown_turns, text_of, texts_of
from tests.docs.recipe import Recipe
from tests.unit.server.processes import started

EXERCISED = (
    "4 answers, streamed, 1 regenerated, 1 continued, 1 failure in a stream, 1 stop, 1 temporary chat, "
    "in Chromium"
)
TURNLEDGER = "http://127.0.0.1:8383"
SETTING = re.compile(r"^(OPENAI_\w+)=(.+)$", re.MULTILINE)
OFFLINE = {
    "OFFLINE_MODE": "true",
    "HF_HUB_OFFLINE": "1",
    "RAG_EMBEDDING_ENGINE": "openai",  # else it loads a model of its own
    "ENABLE_OLLAMA_API": "false",
    "ANONYMIZED_TELEMETRY": "false",
    "WEBUI_AUTH": "false",
    "NO_PROXY": "127.0.0.1",
}


def tell() -> str:
    """Run the story; return the result for the page. Raises AssertionError."""
    program = python_of("open-webui").with_name("open-webui")
    with TemporaryDirectory() as temporary:
        folder = Path(temporary)
        Recipe("open-webui", folder, {}).write()
        flags = ("--config", str(folder / "turnledger.toml"), "--port", "0", "--store", "memory:")
        with started("turnledger", "serve", *flags) as server:
            settings = dict(SETTING.findall(Recipe("open-webui", folder, {TURNLEDGER: server.url}).page))
            with (
                running(
                    lambda port: [program, "serve", "--host", "127.0.0.1", "--port", str(port)],
                    folder,
                    "/health",
                    **OFFLINE,
                    **settings,
                    DATA_DIR=str(folder / "data"),
                    WEBUI_SECRET_KEY=secrets.token_hex(32),
                ) as webui,
                browsing() as browser,
            ):
                page = browser.new_page()
                page.set_default_timeout(PATIENCE * 1000)
                expect.set_options(timeout=PATIENCE * 1000)
                return talk(page, webui.address, server.url)


def talk(page: Page, address: str, ledger: str) -> str:
    page.goto(address)
    page.get_by_role("button", name="Okay, Let's Go!").click()
    say(page, "Hello", "I remember nothing before that.")
    say(page, "My coat is red.", 'the last one "Hello".')
    first = shown_turns(ledger)[-1]["id"]
    page.get_by_role("button", name="Regenerate").last.click()
    page.get_by_text("Try Again").click()
    expect(page.get_by_text("2/2")).to_be_visible()
    ended(page)
    say(page, "/fail after 3", "The demo model failed, as requested.")
    begin(page, "/count 3000", "1 2 3 4 5")
    page.get_by_role("button", name="Stop").click()
    ended(page)
    say(page, "And now?", 'the last one "/count 3000".')
    page.get_by_role("button", name="Continue Response").last.click()
    expect(page.locator("#messages-container")).to_contain_text('"/count 3000".You said "And now?"')
    ended(page)
    say(page, "Goodbye", 'the last one "And now?".')
    page.goto(f"{address}/?temporary-chat=true")
    say(page, "Forget this", "I remember nothing before that.")
    return check_history(ledger, first)


def begin(page: Page, text: str, shown: str) -> None:
    """Send a message, and wait for a part of its answer."""
    page.locator("#chat-input").fill(text)
    page.get_by_role("button", name="Send message").click()
    expect(page.locator("#messages-container")).to_contain_text(shown)


def say(page: Page, text: str, shown: str) -> None:
    begin(page, text, shown)
    ended(page)


def ended(page: Page) -> None:
    expect(page.get_by_role("button", name="Stop")).to_have_count(0)


def check_history(url: str, replaced: str) -> str:
    """One chat has each message once, in order: no title, no tag, no temporary chat; one answer is replaced,
    one continued, one cut."""
    turns = shown_turns(url)
    asked = ["Hello", "My coat is red.", "/count 3000", "And now?", "Goodbye"]
    assert [texts_of(turn["input"])[-1] for turn in turns] == asked, turns
    kinds = ["completed", "completed", "interrupted", "completed", "completed"]
    assert [turn["kind"] for turn in turns] == kinds, turns
    assert turns[1]["id"] != replaced
    assert text_of(turns[2]["output"]).startswith("1 2 3 4 5")
    assert text_of(turns[3]["output"]).count('You said "And now?"') == 2, turns[3]
    [chat] = httpx2.get(f"{url}/api/chats", trust_env=False).json()["data"]
    assert re.fullmatch(r"[0-9a-f-]{36}", chat["conversation_key"]), chat
    return result_of(turns)
