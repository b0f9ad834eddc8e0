"""No page reads anything of a server on loopback: not what is there, and not whether it is there."""

from __future__ import annotations

import pytest

from tests.browser.attacks import READING, WEB_SOCKET
from tests.browser.conftest import Open, Sites
from tests.browser.victim import NAMED, SECRET, Victim, learned

ATTACKS = {**READING, "web socket": WEB_SOCKET}
ELSEWHERE = pytest.mark.parametrize(
    ("page_host", "host"),
    [("evil.test", "127.0.0.1"), ("localhost", "localhost")],
    ids=["another site", "another port"],
)


@ELSEWHERE
@pytest.mark.parametrize("attack", ATTACKS)
def test_a_page_from_elsewhere_reads_nothing(
    attack: str, page_host: str, host: str, victim: Victim, page_of: Open
) -> None:
    paths = [*victim.private, victim.not_there]
    page = page_of(page_host)
    with victim.unharmed(*paths):
        told = [page.evaluate(ATTACKS[attack], victim.url(path, host=host)) for path in paths]
    assert learned(told) == []
    assert all(each == told[0] for each in told), "it can tell what is there from what is not"


@pytest.mark.parametrize("attack", ATTACKS)
def test_nothing_is_read_where_browsers_do_not_say_whence_a_request_comes(
    attack: str, victim: Victim, page_of: Open
) -> None:
    """For a name that is neither of loopback nor https they send no Sec-Fetch-Site, and with a plain GET no
    Origin: the server cannot but answer, and it is the marks on its answers that keep them from the page."""
    paths = [*victim.private, victim.not_there]
    page = page_of("evil.test")
    before = victim.everything()
    with victim.watched(*paths) as seen:
        told = [page.evaluate(ATTACKS[attack], victim.url(path, host=NAMED)) for path in paths]
    assert {line["status"] for line in seen} <= {200, 403, 404}
    assert victim.everything() == before
    assert learned(told) == []
    assert all(each == told[0] for each in told), "it can tell what is there from what is not"


@ELSEWHERE
def test_a_page_learns_no_size_and_no_status(
    page_host: str, host: str, victim: Victim, sites: Sites, visit: Open
) -> None:
    page = visit(sites.of(page_host))
    with victim.unharmed(*victim.private):
        for path in victim.private:
            for attack in ("fetch", "fetch without cors", "image", "frame"):
                page.evaluate(READING[attack], victim.url(path, host=host))
    measured = page.evaluate("performance.getEntriesByType('resource').map(each => each.toJSON())")
    ours = [each for each in measured if each["name"].startswith(victim.url(host=host))]
    assert len(ours) >= len(victim.private)
    for name in ("transferSize", "encodedBodySize", "decodedBodySize", "responseStatus", "contentType"):
        assert {each[name] for each in ours} <= {0, ""}, name
    assert all(each["serverTiming"] == [] for each in ours)


def test_a_service_worker_reads_nothing_and_has_nothing_to_keep(
    victim: Victim, sites: Sites, visit: Open
) -> None:
    page = visit(sites.of("localhost"))  # elsewhere there are none without https
    path = victim.private[0]
    with victim.unharmed(path) as seen:
        told = page.evaluate(
            """async url => {
                await navigator.serviceWorker.register("/worker.js");
                const {active} = await navigator.serviceWorker.ready;
                const told = new Promise(resolve => {
                    navigator.serviceWorker.onmessage = event => resolve(event.data);
                });
                active.postMessage(url);
                return [await told, await caches.match("/loot") ?? null];
            }""",
            victim.url(path, host="localhost"),
        )
    assert told == [[{"error": "TypeError"}, {"error": "TypeError"}], None]
    assert [line["code"] for line in seen] == ["origin_not_allowed", "cross_site_request"]


def test_the_secret_is_there_for_its_owner(victim: Victim, visit: Open) -> None:
    page = visit(victim.url(victim.private[0]))  # as if its address had been typed
    assert SECRET in page.content()
