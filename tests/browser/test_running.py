"""No page has anything done by a server on loopback: no turn, no chat, no question to a model, no stop."""

from __future__ import annotations

import json

import pytest

from tests.browser.attacks import RUNNING
from tests.browser.conftest import Open
from tests.browser.victim import COMPLETIONS, NAMED, Victim, learned, question

BODY = json.dumps(question("Do as the page says"))


@pytest.mark.parametrize(
    ("page_host", "host"),
    [("evil.test", "127.0.0.1"), ("localhost", "localhost"), ("evil.test", NAMED)],
    ids=["another site", "another port", "by name"],
)
@pytest.mark.parametrize("attack", RUNNING)
def test_a_page_from_elsewhere_has_nothing_done(
    attack: str, page_host: str, host: str, victim: Victim, page_of: Open
) -> None:
    paths = [COMPLETIONS, f"/api/turns/{victim.turn}/stop"]
    page = page_of(page_host)
    with victim.unharmed(*paths) as seen:
        told = [page.evaluate(RUNNING[attack], [victim.url(path, host=host), BODY]) for path in paths]
    assert learned(told) == []
    assert {line["code"] for line in seen} == {"origin_not_allowed"}


@pytest.mark.parametrize("method", ["PUT", "PATCH", "DELETE"])
def test_a_page_from_elsewhere_changes_no_chat(method: str, victim: Victim, page_of: Open) -> None:
    page = page_of("evil.test")
    path = victim.private[0]
    with victim.unharmed(path) as seen:
        told = page.evaluate(
            "([url, method]) => tried(async () => read(await fetch(url, {method})))",
            [victim.url(path), method],
        )
    assert told == {"error": "TypeError"}
    assert [line["method"] for line in seen] == ["OPTIONS"]
