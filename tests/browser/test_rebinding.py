"""A name that was made to point to this machine is not the server's: whoever comes by it is refused, though
to the browser all is one origin."""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import suppress

import pytest
from playwright.sync_api import Error, Page

from tests.browser.attacks import READING, RUNNING, WEB_SOCKET
from tests.browser.conftest import Open, Sites
from tests.browser.victim import COMPLETIONS, SECRET, Victim, question

OWN_SITE = ("redirect", "report")
"""Attacks that need something from the attacker's server, where the page has no way back to."""
BODY = json.dumps(question("Do as the page says"))


def possible(attacks: dict[str, str]) -> list[str]:
    return [name for name in attacks if not any(word in name for word in OWN_SITE)]


@pytest.fixture(scope="module")
def rebound(victim: Victim, sites: Sites, page_of: Open) -> Iterator[Page]:
    """A page whose origin has become that of the server."""
    page = page_of("rebound.test")
    page.goto(victim.url("/", host="rebound.test"))
    sites.rebinding.rebind(victim.port)
    yield page
    sites.rebinding.rebind(sites.port)


@pytest.mark.parametrize("attack", [*possible(READING), "web socket"])
def test_a_rebound_page_reads_nothing(attack: str, victim: Victim, rebound: Page) -> None:
    with victim.unharmed(*victim.private) as seen:
        for path in victim.private:
            told = rebound.evaluate({**READING, "web socket": WEB_SOCKET}[attack], path_of(rebound, path))
            assert victim.chat not in repr(told)
            assert SECRET not in repr(told)
    assert {line["code"] for line in seen} == {"host_not_allowed"}


@pytest.mark.parametrize("attack", possible(RUNNING))
def test_a_rebound_page_has_nothing_done(attack: str, victim: Victim, rebound: Page) -> None:
    paths = [COMPLETIONS, f"/api/turns/{victim.turn}/stop"]
    with victim.unharmed(*paths) as seen:
        for path in paths:
            rebound.evaluate(RUNNING[attack], [path_of(rebound, path), BODY])
    assert {line["code"] for line in seen} == {"host_not_allowed"}


def test_the_page_is_told_only_that_it_is_refused(victim: Victim, rebound: Page) -> None:
    """It may read the answer, being of the same origin: so the browser is no help here."""
    with victim.unharmed(COMPLETIONS):
        told = rebound.evaluate(RUNNING["fetch with a conversation"], [COMPLETIONS, BODY])
    assert told["status"] == 403
    assert json.loads(told["body"])["error"]["code"] == "host_not_allowed"


@pytest.mark.parametrize(
    "host",
    ["evil.test", "127.0.0.1.evil.test", "app.localhost", "localhost.", "0.0.0.0", "[::ffff:127.0.0.1]"],
)
def test_other_names_of_the_machine_are_not_the_servers(host: str, victim: Victim, visit: Open) -> None:
    page = visit("about:blank")
    before = victim.everything()
    shown = ""
    # Where the browser does not go, nothing is to be feared.
    with victim.watched() as seen, suppress(Error):
        answer = page.goto(victim.url(victim.private[0], host=host))
        shown = answer.text() if answer else ""
    assert {line["code"] for line in seen} <= {"host_not_allowed"}
    assert SECRET not in shown
    assert victim.everything() == before


def path_of(page: Page, path: str) -> str:
    return str(page.evaluate("path => new URL(path, location).href", path))
