"""With tokens a page needs both: to come from where it may, and to have one."""

from __future__ import annotations

import json
import subprocess
import sys
from collections.abc import Iterator

import pytest

from tests.browser.attacks import RUNNING
from tests.browser.conftest import Open, Sites
from tests.browser.victim import COMPLETIONS, Victim, attacked, question

ASK = """([url, token, body]) => tried(async () => read(await fetch(url, {method: 'POST', body, headers: {
    'Content-Type': 'application/json', ...(token ? {Authorization: `Bearer ${token}`} : {})}})))"""
BODY = json.dumps(question("Hello with a token"))


@pytest.fixture(scope="module")
def guarded(sites: Sites, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Victim, str]]:
    """A server that has a token, and the token."""
    folder = tmp_path_factory.mktemp("guarded")
    with attacked(folder, sites.of("friend.test")) as victim:
        command = [
            sys.executable,
            "-m",
            "turnledger",
            "tokens",
            "create",
            "--scopes",
            "turns:run,chats:write",
        ]
        store = f"sqlite:///{folder / 'chats.db'}"
        made = subprocess.run([*command, "--store", store], capture_output=True, text=True, check=False)
        assert made.returncode == 0, made.stderr
        yield victim, made.stdout.strip()


def test_a_token_does_not_let_in_a_page_from_elsewhere(guarded: tuple[Victim, str], page_of: Open) -> None:
    victim, token = guarded
    with victim.unharmed(COMPLETIONS) as seen:
        told = page_of("evil.test").evaluate(ASK, [victim.url(COMPLETIONS), token, BODY])
    assert told == {"error": "TypeError"}
    assert [line["method"] for line in seen] == ["OPTIONS"]


def test_a_page_that_is_let_in_needs_a_token_and_is_told_so(
    guarded: tuple[Victim, str], page_of: Open
) -> None:
    victim, token = guarded
    page = page_of("friend.test")
    without, wrong, right = (
        page.evaluate(ASK, [victim.url(COMPLETIONS), each, BODY]) for each in ("", token[:-1], token)
    )
    assert (without["status"], wrong["status"], right["status"]) == (401, 401, 200)
    assert json.loads(without["body"])["error"]["message"]
    assert "One two three." in right["body"]


@pytest.mark.parametrize("attack", ["fetch of text without cors", "form of text", "beacon of text"])
def test_no_attack_finds_a_token_in_the_browser(
    attack: str, guarded: tuple[Victim, str], page_of: Open
) -> None:
    """There is no cookie that a browser would send along for a page that knows nothing."""
    victim, token = guarded
    page_of("friend.test").evaluate(ASK, [victim.url(COMPLETIONS), token, BODY])
    asked, _ = victim.everything()
    with victim.watched(COMPLETIONS) as seen:
        page_of("evil.test").evaluate(RUNNING[attack], [victim.url(COMPLETIONS), BODY])
    assert [line["status"] for line in seen] == [403]
    assert victim.everything()[0] == asked
