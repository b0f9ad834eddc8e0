"""Pages of configured origins and of the server can use the API, with a token where tokens exist."""

from __future__ import annotations

import json
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Page

from tests.browser.attacks import RUNNING
from tests.browser.conftest import Guarded, Open, Sites
from tests.browser.victim import COMPLETIONS, PATIENCE, SECRET, Victim, question

STREAM = """async ([url, headers, body]) => {
    const answer = await fetch(url, {method: 'POST', body, headers: {
        'Content-Type': 'application/json', ...headers}});
    const parts = [];
    const reader = answer.body.pipeThrough(new TextDecoderStream()).getReader();
    for (;;) {
        const {done, value} = await reader.read();
        if (done) break;
        parts.push(value);
    }
    return {status: answer.status, headers: Object.fromEntries(answer.headers), parts};
}"""


@pytest.fixture(scope="module", params=["a configured origin", "the server's own"])
def page(request: pytest.FixtureRequest, victim: Victim, sites: Sites, browser: Browser) -> Iterator[Page]:
    # Pages of the server may call no other origin, so the page is from another site.
    is_own = request.param == "the server's own"
    context = browser.new_context(bypass_csp=is_own)
    context.set_default_timeout(PATIENCE * 1000)
    page = context.new_page()
    page.goto(victim.url("/healthz") if is_own else sites.of("friend.test"))
    yield page
    context.close()


@pytest.fixture
def name(page: Page) -> str:
    """Something to call things by that only this page does."""
    return str(page.evaluate("location.hostname"))


def test_allowed_page_runs_a_turn_and_reads_the_response_headers(
    victim: Victim, page: Page, name: str
) -> None:
    headers = {
        "X-Conversation-Id": f"of-{name}",
        "Idempotency-Key": f"once-{name}",
        "Authorization": "Bearer of-no-use-to-anybody",
    }
    arguments = [victim.url(COMPLETIONS), headers, json.dumps(question("Hello from a page"))]
    first, again = (page.evaluate(STREAM, arguments) for _ in range(2))
    assert (first["status"], again["status"]) == (200, 200)
    answer = json.loads("".join(first["parts"]))
    assert answer["choices"][0]["message"]["content"] == "One two three."
    assert first["headers"]["x-conversation-state"] == "created"
    assert first["headers"]["x-request-id"]
    assert again["headers"]["idempotency-replayed"] == "true"
    assert again["headers"]["x-turn-id"] == first["headers"]["x-turn-id"]


def test_allowed_page_reads_a_streamed_answer(victim: Victim, page: Page) -> None:
    body = json.dumps(question("Hello in parts", stream=True))
    result = page.evaluate(STREAM, [victim.url(COMPLETIONS), {}, body])
    assert result["status"] == 200
    assert result["headers"]["content-type"].startswith("text/event-stream")
    assert "".join(result["parts"]).endswith("data: [DONE]\n\n")


def test_allowed_page_reads_chats_and_events(victim: Victim, page: Page) -> None:
    read = "async url => { const answer = await fetch(url); return [answer.status, await answer.text()]; }"
    for path in victim.private:
        status, body = page.evaluate(read, victim.url(path))
        assert status == 200
        assert body
    assert SECRET in page.evaluate(read, victim.url(victim.private[0]))[1]
    events = page.evaluate(
        """url => new Promise(resolve => {
            const source = new EventSource(url);
            source.addEventListener('turn.finished', event => { source.close(); resolve(event.data); });
            source.onerror = () => { source.close(); resolve(null); };
        })""",
        victim.url(victim.private[1]),
    )
    assert json.loads(events)


def test_allowed_page_reads_a_refusal_and_its_retry_header(victim: Victim, page: Page, name: str) -> None:
    headers = {"X-Conversation-Id": f"refused-{name}", "X-Turn-On-Divergence": "reject"}
    messages = [("user", "Never said before"), ("assistant", "Nor answered"), ("user", "And now?")]
    resent = {"model": "demo", "messages": [{"role": role, "content": text} for role, text in messages]}
    bodies = [json.dumps(question("The first thing said")), json.dumps(resent)]
    one, other = (page.evaluate(STREAM, [victim.url(COMPLETIONS), headers, body]) for body in bodies)
    assert (one["status"], other["status"]) == (200, 409)
    assert json.loads("".join(other["parts"]))["error"]["message"]
    assert other["headers"]["x-should-retry"] == "false"


def test_page_served_by_the_server_cannot_fetch_other_paths(victim: Victim, visit: Open) -> None:
    page = visit(victim.url("/healthz"))
    assert page.evaluate("url => tried(async () => read(await fetch(url)))", victim.url("/metrics")) == {
        "error": "TypeError"
    }


POST_WITH_TOKEN = """([url, token, body]) => tried(async () => read(await fetch(url, {method: 'POST', body,
    headers: {'Content-Type': 'application/json', ...(token ? {Authorization: `Bearer ${token}`} : {})}})))"""


HELLO = json.dumps(question("Hello with a token"))


def test_page_of_a_foreign_origin_is_refused_even_with_a_valid_token(guarded: Guarded, page_of: Open) -> None:
    victim, token = guarded
    with victim.unharmed(COMPLETIONS) as seen:
        result = page_of("evil.test").evaluate(POST_WITH_TOKEN, [victim.url(COMPLETIONS), token, HELLO])
    assert result == {"error": "TypeError"}
    assert [line["method"] for line in seen] == ["OPTIONS"]


def test_allowed_page_without_a_valid_token_gets_401_with_a_message(guarded: Guarded, page_of: Open) -> None:
    victim, token = guarded
    page = page_of("friend.test")
    without, wrong, right = (
        page.evaluate(POST_WITH_TOKEN, [victim.url(COMPLETIONS), each, HELLO])
        for each in ("", token[:-1], token)
    )
    assert (without["status"], wrong["status"], right["status"]) == (401, 401, 200)
    assert json.loads(without["body"])["error"]["message"]
    assert "One two three." in right["body"]


def test_token_used_by_an_allowed_page_is_not_sent_with_requests_of_a_foreign_page(
    guarded: Guarded, page_of: Open
) -> None:
    """There is no cookie that a browser would send along for a page that knows nothing."""
    victim, token = guarded
    page_of("friend.test").evaluate(POST_WITH_TOKEN, [victim.url(COMPLETIONS), token, HELLO])
    for attack in ("fetch of text without cors", "form of text", "beacon of text"):
        request_count, _ = victim.everything()
        with victim.watched(COMPLETIONS) as seen:
            page_of("evil.test").evaluate(RUNNING[attack], [victim.url(COMPLETIONS), HELLO])
        assert [line["status"] for line in seen] == [403], attack
        assert victim.everything()[0] == request_count, attack
