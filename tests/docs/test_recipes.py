"""Recipes run exactly as written, against scripted services and models."""

from __future__ import annotations

import hashlib
import hmac
import json
import os
import queue
import re
import shutil
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, closing, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx2
import pytest
from openai import APIError, LengthFinishReasonError
from openai.types.chat import ChatCompletion
from playwright.sync_api import expect

from tests.browser.chromium import browsing, installed
from tests.clients.typescript_package import built
from tests.compat.completions import send_whole, user
from tests.compat.live_server import MODEL, LiveServer, run_server
from tests.compat_real.outages import llama_cpp, running
from tests.docs import heavy_recipes
from tests.docs.recipe import FOLDER, Recipe, at_work, environment
from tests.free_port import free_port
from tests.long_form import long_only
from tests.terminal.upstream import run_scripted_model
from tests.unit.server.processes import ServerProcess, started
from turnledger.sync import Ledger
from turnledger.testing.upstream import CUT, Data, End, Status, Step

TURNLEDGER = "http://127.0.0.1:8383"
IS_PROVING = os.environ.get("CI") == "true"
CURL = pytest.mark.skipif(shutil.which("curl") is None and not IS_PROVING, reason="no curl here")


@pytest.fixture(scope="module")
def server() -> Iterator[ServerProcess]:
    # No test reads the log while the server runs: it must not fill its pipe.
    flags = ("--port", "0", "--store", "memory:", "--log-level", "error")
    with started("turnledger", "serve", *flags) as server:
        yield server


def test_openai_client_recipe_works(server: ServerProcess, tmp_path: Path) -> None:
    recipe = Recipe("openai-client", tmp_path, {TURNLEDGER: server.url})
    assert recipe.check() == 5


def test_responses_recipe_works_in_front_of_llama_cpp(tmp_path: Path) -> None:
    with (
        running(llama_cpp(tmp_path), tmp_path) as model,
        started(*heavy_recipes.SERVE, "--upstream", model.url) as server,
    ):
        assert Recipe("responses", tmp_path, {TURNLEDGER: server.url}).check() == 1


@CURL
def test_fastapi_recipe_works_and_a_turn_outlives_its_client(tmp_path: Path) -> None:
    recipe = Recipe("fastapi", tmp_path, {})
    flag = "--timeout-graceful-shutdown"
    assert f"uvicorn app:app {flag} 5\n" in recipe.page
    recipe.write()
    with at_work(tmp_path, "uvicorn", "app:app", flag, "5", "--port", "0") as url:
        assert Recipe("fastapi", tmp_path, {"http://127.0.0.1:8000": url}).check() == 8
        with httpx2.Client(base_url=url, headers={"X-User": "grace"}, trust_env=False) as grace:
            leave_and_come_back(grace)
            assert grace.get("/chats").json() == [{"name": "long", "turns": 1}]
            follow_another_tab(grace)


def test_fastapi_recipe_runs_a_turn_again_under_its_key_after_a_kill(tmp_path: Path) -> None:
    Recipe("fastapi", tmp_path, {}).write()
    command = ("uvicorn", "app:app", "--port", "0")
    request = {"json": {"text": "/stall after 2"}, "headers": {"X-User": "ada", "Idempotency-Key": "1"}}
    with (
        at_work(tmp_path, *command, is_killed=True) as url,
        httpx2.stream("POST", f"{url}/chats/orders", **request, trust_env=False) as left,
    ):
        turn = left.headers["X-Turn-Id"]
    with (
        at_work(tmp_path, *command, is_killed=True) as url,
        httpx2.Client(base_url=url, headers={"X-User": "ada"}, trust_env=False) as ada,
    ):
        *_, end = events_of(ada.get(f"/turns/{turn}"))
        assert (end["state"], end["failure"]["code"]) == ("failed", "process_died")
        with ada.stream("POST", "/chats/orders", **request) as again:
            assert again.headers["X-Turn-Id"] != turn
            read = ada.get("/chats/orders").json()
            assert (read["turns"], [each["id"] for each in read["running"]]) == (
                [],
                [again.headers["X-Turn-Id"]],
            )


@long_only
def test_fastapi_recipe_page_follows_a_turn_across_a_reload_and_a_killed_process(tmp_path: Path) -> None:
    installed(is_light=True)
    Recipe("fastapi", tmp_path, {}).write()
    command = ("uvicorn", "app:app", "--port", str(free_port()))
    with ExitStack() as running:
        page = running.enter_context(browsing(is_light=True)).new_context().new_page()
        lines, field = page.locator("p"), page.locator("input")
        with at_work(tmp_path, *command, is_killed=True) as url:
            page.goto(url)
            field.fill("/count 2")
            field.press("Enter")
            expect(lines).to_have_text(["/count 2", "1 2"])
            field.fill("/stall after 2")
            field.press("Enter")
            expect(lines).to_have_text(["/count 2", "1 2", "/stall after 2", "You said"])
            page.reload()
            expect(lines).to_have_text(["/count 2", "1 2", "/stall after 2", "You said"])
        with at_work(tmp_path, *command, is_killed=True):
            expect(lines.last).to_contain_text("died", timeout=PATIENCE * 1000)
            field.fill("/fail")
            field.press("Enter")
            expect(lines.last).to_have_text("The demo model failed, as requested.")
            page.reload()
            expect(lines).to_have_text(["/count 2", "1 2"])


def follow_another_tab(client: httpx2.Client) -> None:
    """Check that a tab receives a message of another one, and continues after a lost connection."""
    chat = client.get("/chats/long").json()["id"]
    with client.stream("GET", "/live") as live:
        changes = map(str.split, live.iter_lines())
        *_, position = next(changes)
        turn = client.post("/chats/long", json={"text": "/count 1"}).headers["X-Turn-Id"]
        seen = [next(changes), next(changes)]
    assert [each[:3] for each in seen] == [["turn.running", chat, turn], ["turn.committed", chat, turn]]
    with client.stream("GET", "/live", params={"after": position}) as live:
        assert next(live.iter_lines()).split() == seen[0]


def events_of(response: httpx2.Response) -> Iterator[dict[str, Any]]:
    """Yield the pieces of text, and the end, of a stream of events."""
    for line in response.iter_lines():
        event = json.loads(line.removeprefix("data: ")) if line.startswith("data: ") else {}
        if event.get("type") in ("text.delta", "turn.finished"):
            yield event


def leave_and_come_back(client: httpx2.Client) -> None:
    """A turn continues when its client has left; a retry and a reader find it, follow it, and stop it."""
    request = {"json": {"text": "/stall after 2"}, "headers": {"Idempotency-Key": "1"}}
    with client.stream("POST", "/chats/long", **request) as left:
        turn = left.headers["X-Turn-Id"]
    with client.stream("POST", "/chats/long", **request) as again:
        assert again.headers["X-Turn-Id"] == turn
    read = client.get("/chats/long").json()
    assert (read["turns"], read["running"]) == ([], [{"id": turn, "input": "/stall after 2"}])
    with client.stream("GET", f"/turns/{turn}") as followed:
        events = events_of(followed)
        received = [next(events), next(events)]
        assert client.post(f"/turns/{turn}/stop").json() == {"state": "kept"}
        received += events
    assert [each.get("text") or each["state"] for each in received] == ["You", " said", "kept"]
    rest = client.get(f"/turns/{turn}", headers={"Last-Event-ID": str(received[0]["number"])})
    assert list(events_of(rest)) == received[1:]
    refused = client.get(f"/turns/{turn}", headers={"X-User": "mallory"})
    assert (refused.status_code, refused.json()["error"]["code"]) == (404, "turn_not_found")


@CURL
def test_flask_recipe_works_and_follows_and_stops_a_running_turn(
    server: ServerProcess, tmp_path: Path
) -> None:
    moved = {TURNLEDGER: server.url}
    recipe = Recipe("flask", tmp_path, moved)
    assert "flask --app web run\n" in recipe.page
    recipe.write()
    with at_work(tmp_path, "flask", "--app", "web", "run", "--port", "0") as url:
        assert Recipe("flask", tmp_path, {**moved, "http://127.0.0.1:5000": url}).check() == 6
        with httpx2.Client(base_url=url, headers={"X-User": "grace"}, trust_env=False) as grace:
            with grace.stream("POST", "/chats/long", json={"text": "/stall after 2"}) as left:
                begun = next(left.iter_lines())
            assert grace.get("/chats/long").json() == {"turns": [], "running": ["/stall after 2"]}
            with grace.stream("GET", "/chats/long/running") as followed:
                lines = followed.iter_lines()
                assert [next(lines), next(lines), next(lines)] == [
                    begun,
                    '{"text": "You"}',
                    '{"text": " said"}',
                ]
                assert grace.post("/chats/long/stop").json() == {"state": "kept"}
                assert list(lines) == ['{"state": "kept"}']
            assert grace.get("/chats/long").json() == {
                "turns": [["/stall after 2", "You said"]],
                "running": [],
            }


@long_only
def test_reload_recipe_survives_reloads_and_killed_servers_in_two_tabs(tmp_path: Path) -> None:
    installed(is_light=True)
    package = built()
    subprocess.run(["npm", "--silent", "run", "size"], cwd=package, check=True, capture_output=True)
    (tmp_path / "node_modules").mkdir()
    (tmp_path / "node_modules" / "turnledger").symlink_to(package)
    port = free_port()
    moved = {"http://127.0.0.1:5000": f"http://127.0.0.1:{port}"}
    recipe = Recipe("reload", tmp_path, moved)
    assert "flask --app app run\n" in recipe.page
    assert recipe.check() == 1  # creates the token
    with ExitStack() as running:
        flags = ("--port", "0", "--store", f"sqlite:///{tmp_path / 'chats.db'}", "--log-level", "error")
        serve = ("turnledger", "serve", "--config", str(tmp_path / "turnledger.toml"))
        server = running.enter_context(started(*serve, *flags))
        Recipe("reload", tmp_path, {**moved, TURNLEDGER: server.url}).write()
        environ = {"OPERATOR_TOKEN": (tmp_path / "operator.token").read_text().strip()}
        command = ("flask", "--app", "app", "run", "--port", str(port))
        url = running.enter_context(at_work(tmp_path, *command, **environ))
        browser = running.enter_context(browsing(is_light=True))
        page = browser.new_context().new_page()
        page.goto(f"{url}/login/ada")
        lines, field = page.locator("p"), page.locator("input")
        field.fill("/slow One two")
        field.press("Enter")
        expect(page.locator("[name=send]")).to_be_disabled()
        expect(lines.last).to_contain_text("You said")
        page.reload()  # while the answer runs, unless the machine is very slow
        shown = ["/slow One two", 'You said "/slow One two". I remember nothing before that.']
        expect(lines).to_have_text(shown, timeout=PATIENCE * 1000)
        expect(field).to_be_enabled()
        page.reload()
        expect(lines).to_have_text(shown)
        page.goto(f"{url}/login/mallory")
        expect(lines).to_have_count(0)
        field.fill("/fail")
        field.press("Enter")
        expect(lines).to_have_text(["/fail", "The demo model failed, as requested."])
        page.reload()
        expect(lines).to_have_text(["/fail", "The demo model failed, as requested."])
        expect(field).to_have_value("/fail")
        page.goto(f"{url}/login/grace")
        second = page.context.new_page()
        answered: list[str] = []
        second.on("response", lambda response: answered.append(response.url))
        second.goto(url)
        stop, lines_of_second = second.locator("[name=halt]"), second.locator("p")
        field.fill("/stall after 2")
        field.press("Enter")
        shown = ["/stall after 2", "You said"]
        expect(lines).to_have_text(shown)
        expect(lines_of_second).to_have_text(shown)
        again = ("--port", server.url.rpartition(":")[2], *flags[2:])
        seen = {None, *map(events_url, answered)}
        with second.expect_response(
            lambda each: events_url(each.url) not in seen
        ):  # the first tab runs it again
            server.end(signal.SIGKILL)
            server = running.enter_context(started(*serve, *again))
        expect(lines_of_second).to_have_text(shown)
        stop.click()
        for each in (page, second):
            expect(each.locator("input")).to_be_enabled()
            expect(each.locator("p")).to_have_text(shown)
        field.fill("/stall after 3")
        field.press("Enter")
        expect(lines_of_second).to_have_text([*shown, "/stall after 3", 'You said "/stall'])
        key = page.evaluate("localStorage.getItem('sent:/stall after 3')")
        page.close()
        third = browser.new_context().new_page()
        third.goto(f"{url}/login/alan")
        alan, place = enqueue(url, server.url, "alan", shown[0])
        running.enter_context(closing(alan))
        expect(third.locator("p")).to_have_text(shown)
        server.end(signal.SIGKILL)
        running.enter_context(started(*serve, *again))
        field = second.locator("input")
        expect(field).to_have_value("/stall after 3", timeout=PATIENCE * 1000)
        expect(lines_of_second.last).to_contain_text("died")
        expect(field).to_be_enabled()
        with second.expect_request(lambda request: request.method == "POST") as sent:
            field.press("Enter")
        assert sent.value.headers["idempotency-key"] == key
        expect(lines_of_second.last).to_have_text('You said "/stall')
        with alan.stream("GET", place) as events:
            received = events.iter_lines()
            assert any("turn.resumed" in line for line in received)
            assert any(" said" in line for line in received)  # again
        expect(third.locator("p")).to_have_text(shown)


def events_url(url: str) -> str | None:
    """Return the address if it has the events of a turn."""
    return url if re.search(r"/api/turns/\w+/events", url) else None


def enqueue(app: str, server: str, user: str, text: str) -> tuple[httpx2.Client, str]:
    """Store a background turn of a user; return a client for that user, and the path of the events."""
    token = httpx2.post(f"{app}/token", cookies={"user": user}, trust_env=False).json()["text"]
    headers = {"Authorization": f"Bearer {token}"}
    client = httpx2.Client(base_url=server, headers=headers, trust_env=False, timeout=PATIENCE)
    target = {"conversation_key": "my chat", "background": True, "model": "demo"}
    turn = client.post("/api/turns", json={**target, "input": text}).json()["id"]
    return client, f"/api/turns/{turn}/events"


def test_background_worker_recipe_answers_each_job_once(server: ServerProcess, tmp_path: Path) -> None:
    recipe = Recipe("background-worker", tmp_path, {TURNLEDGER: server.url})
    assert recipe.check() == 5
    stored = [recipe.run(f"python ask.py {job} alan '/count {job}'").stdout for job in (40, 41, 40)]
    assert stored[0] == stored[2] != stored[1]
    assert recipe.run("python answer.py 41 alan '/count 41'").stdout.endswith("40 41\n")
    with httpx2.Client(base_url=server.url, trust_env=False) as client:
        assert client.get("/api/jobs").json()["data"] == []
        listed = client.get("/api/chats", params={"scope": "tickets"}).json()["data"]
        assert {chat["conversation_key"]: chat["turn_count"] for chat in listed} == {"ada": 2, "alan": 2}


def test_recipes_all_have_a_test() -> None:
    tests = Path(__file__).read_text() + Path(heavy_recipes.__file__).read_text()
    pages = {page.stem for page in FOLDER.glob("*.md")}
    assert pages
    assert [page for page in pages if f'Recipe("{page}"' not in tests] == []


SECRET = "shared with the service"
PATIENCE = 20


class Service:
    """What is posted, in order, and how to deliver something."""

    def __init__(self) -> None:
        self.posted: queue.Queue[tuple[str, str]] = queue.Queue()
        self.bot = ""
        self.url = ""

    def deliver(self, id: str, channel: str, user: str, text: str, secret: str = SECRET) -> int:
        event = {"type": "message", "id": id, "channel": channel, "user": user, "text": text}
        body = json.dumps(event).encode()
        signed = hmac.new(secret.encode(), b"1:" + body, hashlib.sha256).hexdigest()
        headers = {"X-Timestamp": "1", "X-Signature": signed, "Content-Type": "application/json"}
        return httpx2.post(f"{self.bot}/events", content=body, headers=headers, trust_env=False).status_code

    def next_post(self) -> tuple[str, str]:
        return self.posted.get(timeout=PATIENCE)


@contextmanager
def chat_service() -> Iterator[Service]:
    service = Service()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            service.posted.put((body["channel"], body["text"]))
            self.send_response(200)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            """Log nothing."""

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        service.url = f"http://127.0.0.1:{server.server_port}"
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        try:
            yield service
        finally:
            server.shutdown()
            thread.join()


@contextmanager
def bot(service: Service, folder: Path, *, is_killed: bool = False) -> Iterator[None]:
    environ = {"SIGNING_SECRET": SECRET, "SERVICE": service.url}
    with at_work(folder, "uvicorn", "bot:app", "--port", "0", is_killed=is_killed, **environ) as service.bot:
        yield


def test_channel_bot_recipe_behaves_as_its_table_states(server: ServerProcess, tmp_path: Path) -> None:
    Recipe("channel-bot", tmp_path, {TURNLEDGER: server.url}).write()
    with chat_service() as service:
        with bot(service, tmp_path, is_killed=True):
            statuses = [service.deliver("e1", "#general", "ada", "My name is Ada.") for _ in (1, 2)]
            assert statuses == [200, 200]
            first = 'You said "ada: My name is Ada.". I remember nothing before that.'
            assert service.next_post() == ("#general", first)
            service.deliver("e2", "#general", "grace", "Is anyone here?")
            assert 'the last one "ada: My name is Ada."' in service.next_post()[1]
            service.deliver("e3", "#random", "alan", "Hello")
            assert service.next_post() == (
                "#random",
                'You said "alan: Hello". I remember nothing before that.',
            )
            assert service.deliver("e4", "#general", "mallory", "Hi", secret="guessed") == 401
            for forged in ({}, {"X-Timestamp": "1", "X-Signature": b"\xff"}):
                response = httpx2.post(
                    f"{service.bot}/events", content=b"{}", headers=forged, trust_env=False
                )
                assert response.status_code == 401
            service.deliver("e0", "#random", "/fail", "is the name of a user who makes the demo model fail")
            failed = "I have no answer to that (model_unavailable). Ask me again."
            assert service.next_post() == ("#random", failed)
            service.deliver("e9", "#random", "alan", "Hello?")
            assert (
                'I remember 1 message from you before that, the last one "alan: Hello".'
                in service.next_post()[1]
            )
            service.deliver("e5", "#general", "ada", "new topic")
            assert service.next_post() == ("#general", "What is it about?")
            service.deliver("e6", "#general", "ada", "Tea.")
            assert service.next_post()[1] == 'You said "ada: Tea.". I remember nothing before that.'
            service.deliver("e7", "#general", "ada", "And milk.")
        with bot(service, tmp_path):  # killed above, with a message that it may or may not have answered
            service.deliver("e7", "#general", "ada", "And milk.")
            service.deliver("e8", "#general", "ada", "And sugar.")
            posts = service.next_post()[1], service.next_post()[1]
    assert '"ada: And milk."' in posts[0]
    assert "I remember 2 messages" in posts[1]
    assert service.posted.empty()


PAGE = (FOLDER / "local-models.md").read_text()
ROW = re.compile(r"^\| (Ollama|vLLM|llama\.cpp|all) \| (.+) \| (.+) \|$", re.MULTILINE)
PORTS = {"ollama": 11434, "vllm": 8000, "llama-cpp": 8080}
ARGUMENTS = '{"city":"Rome"}'
MARK_ONLY = End(None)
NO_MARK = End(None, done=False)


def chunk(delta: dict[str, Any] | None, finish_reason: str | None = None, **fields: Any) -> Data:
    choices = [] if delta is None else [{"index": 0, "delta": delta, "finish_reason": finish_reason}]
    head = {"id": "chatcmpl-1", "object": "chat.completion.chunk", "created": 1, "model": "qwen3"}
    return Data(json.dumps({**head, "choices": choices, **fields}).encode())


def call(index: int, name: str) -> dict[str, Any]:
    function = {"name": name, "arguments": ARGUMENTS}
    return {"id": f"call_{name}", "index": index, "type": "function", "function": function}


def refusal(status: int, message: str, **fields: Any) -> list[Step]:
    return [Status(status, json.dumps({"error": {"message": message, **fields}}).encode())]


ASSISTANT = {"role": "assistant"}
TOO_LONG = {"type": "exceed_context_size_error", "n_prompt_tokens": 40000, "n_ctx": 32768}
HABITS: dict[tuple[str, str], Sequence[Step]] = {
    (
        "Ollama",
        "streams its thoughts as `reasoning`, and in older versions repeats its role in every chunk",
    ): [
        chunk({**ASSISTANT, "content": "", "reasoning": "Hm."}, system_fingerprint="fp_ollama"),
        chunk({**ASSISTANT, "content": "Hel"}),
        chunk({**ASSISTANT, "content": "lo."}),
        chunk({**ASSISTANT, "content": ""}, "stop"),
        MARK_ONLY,
    ],
    ("Ollama", "sends a call whole, in one chunk, and ends with `stop`"): [
        chunk({**ASSISTANT, "content": "", "tool_calls": [call(0, "weather")]}),
        chunk({**ASSISTANT, "content": ""}, "stop"),
        MARK_ONLY,
    ],
    ("Ollama", "gives two calls at once the same index, in older versions"): [
        chunk({**ASSISTANT, "content": "", "tool_calls": [call(0, "weather"), call(0, "time")]}),
        chunk({**ASSISTANT, "content": ""}, "tool_calls"),
        MARK_ONLY,
    ],
    ("Ollama", "fails in the middle: an empty chunk, and the stream ends cleanly without a final chunk"): [
        chunk({**ASSISTANT, "content": "Hel"}),
        chunk({"content": ""}),
        NO_MARK,
    ],
    ("Ollama", "has not pulled the model: 404"): refusal(
        404, "model 'qwen3' not found", type="not_found_error", param=None, code=None
    ),
    ("Ollama", "its queue is full: 503"): refusal(
        503, "server busy, please try again.  maximum pending requests exceeded", type="api_error"
    ),
    ("vLLM", "streams its thoughts as `reasoning`, and has text in the chunk that ends"): [
        chunk({**ASSISTANT, "content": ""}),
        chunk({"reasoning": "Hm."}),
        chunk({"content": "Hel"}),
        chunk({"content": "lo."}, "stop", stop_reason=None),
        chunk(None, usage={"prompt_tokens": 1, "completion_tokens": 2, "total_tokens": 3}),
        MARK_ONLY,
    ],
    ("vLLM", "fails in the middle: an `error` object, then `[DONE]`"): [
        chunk({**ASSISTANT, "content": "Hel"}),
        Data(b'{"error": {"message": "Engine died", "type": "InternalServerError", "code": 500}}'),
        MARK_ONLY,
    ],
    ("vLLM", "gets a request to choose tools without `--enable-auto-tool-choice`: 400"): refusal(
        400,
        '"auto" tool choice requires --enable-auto-tool-choice and --tool-call-parser to be set',
        type="BadRequestError",
        param=None,
        code=400,
    ),
    ("vLLM", "is shown more than `--max-model-len`: 400"): refusal(
        400, "This model's maximum context length is 32768 tokens.", type="BadRequestError", code=400
    ),
    ("llama.cpp", "begins with `null` for a text, streams `reasoning_content`, adds `timings`"): [
        chunk({**ASSISTANT, "content": None}),
        chunk({"reasoning_content": "Hm."}, timings={"predicted_n": 1}),
        chunk({"content": "Hel"}),
        chunk({"content": "lo."}),
        chunk({}, "stop", usage={"total_tokens": 3}, timings={"cache_n": 0, "predicted_n": 3}),
        MARK_ONLY,
    ],
    ("llama.cpp", "still loads the model: 503"): refusal(
        503, "Loading model", type="unavailable_error", code=503
    ),
    ("llama.cpp", "is shown more than `--ctx-size`: 400"): refusal(
        400, "the request exceeds the available context size", code=400, **TOO_LONG
    ),
    ("all", "use up the token limit on reasoning and return no text"): [
        chunk({**ASSISTANT, "content": "", "reasoning": "Hm."}),
        chunk({"content": ""}, "length"),
        MARK_ONLY,
    ],
    ("all", "lose the connection in the middle"): [chunk({**ASSISTANT, "content": "Hel"}), CUT],
}


@pytest.fixture(scope="module")
def served() -> Iterator[LiveServer]:
    with run_server() as served:
        yield served


def rows() -> dict[tuple[str, str], str]:
    return {(server, habit): fate for server, habit, fate in ROW.findall(PAGE)}


def test_local_models_table_has_a_script_for_every_row() -> None:
    assert set(rows()) == set(HABITS)


def trials(*, are_kept: bool) -> list[object]:
    return [
        pytest.param(habit, script, id=" ".join(habit))
        for habit, script in HABITS.items()
        if rows()[habit].startswith("kept") is are_kept
    ]


def run_habit(served: LiveServer, habit: tuple[str, str], script: Sequence[Step]) -> str:
    """Have one good turn, then one with the habit; what the helper of the official client made of that."""
    tries = 2 if "is shown more than" in habit[1] else 1  # a refused length is tried once more, with less
    served.upstream.scripts.extend([["Good morning."], *[script] * tries])
    client = served.client(" ".join(habit))
    send_whole(client, "Hi")
    try:
        with client.chat.completions.stream(model=MODEL, messages=[user("Hello?")]) as stream:
            completion: ChatCompletion = stream.get_final_completion()
    except LengthFinishReasonError as too_long:  # raised by the helper itself, once it has all of the answer
        completion = too_long.completion
    message = completion.choices[0].message
    assert message.role == "assistant"
    return message.content or ""


@pytest.mark.parametrize(("habit", "script"), trials(are_kept=True))
def test_local_model_answer_that_succeeds_stores_its_reasoning_in_separate_items(
    served: LiveServer, habit: tuple[str, str], script: Sequence[Step]
) -> None:
    answer = run_habit(served, habit, script)
    *thoughts, last = served.chat_json(" ".join(habit))["turns"][-1]["output"]
    thought = [item["content"][0]["text"] for item in thoughts]
    assert thought == (["Hm."] if "thoughts" in rows()[habit] else [])
    if last["type"] == "message":
        assert answer == last["content"][0]["text"] == ("" if "empty message" in rows()[habit] else "Hello.")
    else:
        assert (last["name"], last["arguments"]) == ("weather", ARGUMENTS)


@pytest.mark.parametrize(("habit", "script"), trials(are_kept=False))
def test_local_model_answer_that_fails_returns_the_listed_code_and_stores_no_turn(
    served: LiveServer, habit: tuple[str, str], script: Sequence[Step]
) -> None:
    fate = rows()[habit]
    listed = re.search(r"(\d+) `(\w+)`", fate)
    assert listed is not None
    with pytest.raises(APIError) as failed:
        run_habit(served, habit, script)
    assert failed.value.code == listed[2]
    # A failure in the middle of a stream is reported in it: the status has been sent.
    assert getattr(failed.value, "status_code", 200) in (200, int(listed[1]))
    assert served.messages(" ".join(habit)) == [("user", "Hi"), ("assistant", "Good morning.")]
    if "its message" in fate:
        [status] = script
        assert isinstance(status, Status)
        words = json.loads(status.body)["error"]["message"]
        assert " ".join(words.split()) in failed.value.message


def test_local_models_talk_reaches_the_upstream_with_its_own_model_name(tmp_path: Path) -> None:
    shown = (["I was shown 1 message."], ["I was shown 3 messages."])
    with run_scripted_model(*shown) as upstream:
        flags = ("--upstream", upstream.url, "--port", "0", "--store", "memory:")
        with started("turnledger", "serve", *flags) as server:
            assert Recipe("local-models", tmp_path, {TURNLEDGER: server.url}).check("talk.py") == 1
    assert upstream.requested_models == ["qwen3", "qwen3"]
    assert [len(each.body["messages"]) for each in upstream.received] == [1, 3]


def test_responses_recipe_keeps_the_history_in_front_of_a_model_that_keeps_none(tmp_path: Path) -> None:
    answers = (["Good ", "morning."], ["You said that."], ["One, ", "two."])
    with run_scripted_model(*answers) as upstream:
        flags = ("--upstream", upstream.url, "--port", "0", "--store", "memory:")
        with started("turnledger", "serve", *flags) as server:
            assert Recipe("responses", tmp_path, {TURNLEDGER: server.url}).check() == 1
    assert upstream.requested_models == ["tiny"] * 3
    assert [len(each.body["messages"]) for each in upstream.received] == [1, 3, 5]


def test_local_models_settings_reach_all_three_upstreams(tmp_path: Path) -> None:
    with ExitStack() as running:
        upstreams = {
            name: running.enter_context(run_scripted_model([f"I am {name}, and was shown ", shown, "."]))
            for name, shown in zip(PORTS, ("1 message", "3 messages", "5 messages"), strict=True)
        }
        moved = {f"http://127.0.0.1:{PORTS[name]}/v1": each.url for name, each in upstreams.items()}
        config = tmp_path / "turnledger.toml"
        config.write_text(Recipe("local-models", tmp_path, moved).settings)
        command = ["serve", "--config", str(config), "--port", "0", "--store", "memory:"]
        server = running.enter_context(started("turnledger", *command, VLLM_API_KEY="secret"))
        moved[TURNLEDGER] = server.url
        assert Recipe("local-models", tmp_path, moved).check("three.py") == 1
    received = {name: each.received[0] for name, each in upstreams.items()}
    assert {name: len(each.body["messages"]) for name, each in received.items()} == {
        "ollama": 1,
        "vllm": 3,
        "llama-cpp": 5,
    }
    names = {name: each.body["model"] for name, each in received.items()}
    assert names == {"ollama": "qwen3:latest", "vllm": "qwen3", "llama-cpp": "qwen3"}
    keys = {name: each.headers.get("authorization") for name, each in received.items()}
    assert keys == {"ollama": None, "vllm": "Bearer secret", "llama-cpp": None}


@CURL
def test_django_recipe_under_wsgi_works_in_forked_workers_and_a_turn_outlives_its_client(
    tmp_path: Path,
) -> None:
    recipe = Recipe("django", tmp_path, {})
    recipe.write()
    flags = ("django.core.wsgi:get_wsgi_application()", "--workers", "2", "--threads", "8")
    assert f"gunicorn '{flags[0]}' {' '.join(flags[1:])}\n" in recipe.page
    command = ("gunicorn", *flags, "--bind", "127.0.0.1:0")
    request = {"json": {"text": "/stall after 2"}, "headers": {"X-User": "grace", "Idempotency-Key": "1"}}
    with at_work(tmp_path, *command, DJANGO_SETTINGS_MODULE="settings") as url:
        assert Recipe("django", tmp_path, {"http://127.0.0.1:8000": url}).check() == 4
        with httpx2.Client(base_url=url, headers={"X-User": "grace"}, trust_env=False) as grace:
            assert grace.get("/chats/long").status_code == 404
            with grace.stream("POST", "/chats/long", **request) as left:
                turn = json.loads(next(left.iter_lines()))["turn"]
            assert grace.get("/chats/long").json() == {"turns": [], "running": [[turn, "/stall after 2"]]}
            with (
                grace.stream("GET", f"/turns/{turn}") as followed,
                grace.stream("POST", "/chats/long", **request) as again,
            ):
                readers = [map(json.loads, each.iter_lines()) for each in (followed, again)]
                begun = [[next(reader) for _ in range(3)] for reader in readers]
                assert begun == [[{"turn": turn}, {"text": "You"}, {"text": " said"}]] * 2
                assert grace.get(f"/turns/{turn}", headers={"X-User": "mallory"}).status_code == 404
                assert grace.post(f"/turns/{turn}/stop").json() == {"state": "kept"}
                assert [list(reader) for reader in readers] == [[{"state": "kept"}]] * 2
            ended = grace.post("/chats/long", **request)
            assert json.loads(ended.text.splitlines()[-1]) == {"state": "kept"}
            assert grace.get("/chats/long").json() == {
                "turns": [["/stall after 2", "You said"]],
                "running": [],
            }


def test_django_recipe_under_asgi_streams_a_turn_that_outlives_its_client(tmp_path: Path) -> None:
    recipe = Recipe("django", tmp_path, {})
    recipe.write()
    flags = ("--factory", "django.core.asgi:get_asgi_application")
    assert f"DJANGO_SETTINGS_MODULE=async_settings uvicorn {' '.join(flags)}\n" in recipe.page
    with (
        at_work(tmp_path, "uvicorn", *flags, "--port", "0", DJANGO_SETTINGS_MODULE="async_settings") as url,
        httpx2.Client(base_url=url, headers={"X-User": "grace"}, trust_env=False) as grace,
    ):
        refused = grace.post("/chats/long", json={"text": "/fail"})
        assert (refused.status_code, refused.json()["error"]["code"]) == (502, "model_unavailable")
        with grace.stream("POST", "/chats/long", json={"text": "/stall after 2"}) as left:
            turn, first = left.headers["X-Turn-Id"], next(events_of(left))
        again = {"Last-Event-ID": str(first["number"])}
        with grace.stream("GET", f"/turns/{turn}", headers=again) as followed:
            rest = events_of(followed)
            assert next(rest)["text"] == " said"
            assert grace.get("/chats/long").json()["running"] == [[turn, "/stall after 2"]]
            assert grace.post(f"/turns/{turn}/stop").json() == {"state": "kept"}
            assert [each["state"] for each in rest] == ["kept"]
        assert grace.get("/chats/long").json() == {"turns": [["/stall after 2", "You said"]], "running": []}
        for path in ("/chats/long", f"/turns/{turn}"):
            assert grace.get(path, headers={"X-User": "mallory"}).status_code == 404


AGAIN = """
from tasks import answer

for _ in range(2):
    print(answer.apply_async(["alan", "Hello"], task_id="order-7").get(interval=0.05))
    answer.AsyncResult("order-7").forget()
"""


DYING = """
import os, signal
from pathlib import Path

import tasks
from tasks import DemoModel, answer, app

words = 0


async def die_once(seconds):
    global words
    words += 1
    if words == 3 and not Path("died").exists():
        Path("died").touch()
        os.kill(os.getpid(), signal.SIGKILL)


tasks.model = DemoModel(pace=1, sleep=die_once)
"""


WHOLE_FILES = """
import os
from kombu.transport.filesystem import Channel

outbox = Path(f"outbox-{os.getpid()}")
outbox.mkdir(exist_ok=True)
broker_transport_options["data_folder_out"] = str(outbox)


def put_and_move(channel, queue, payload, put=Channel._put, **options):
    put(channel, queue, payload, **options)
    for file in outbox.iterdir():
        file.rename(Path("queue", file.name))


Channel._put = put_and_move
"""
"""Kombu's worker takes a file that is still being written, and loses its task: here a file appears whole."""


@contextmanager
def celery_worker(folder: Path, app: str = "tasks") -> Iterator[Recipe]:
    """Run the worker of the recipe."""
    recipe = Recipe("celery", folder, {})
    recipe.write()
    with (folder / "celeryconfig.py").open("a") as config:
        config.write(WHOLE_FILES)
    flags = ("worker", "--concurrency", "2")
    assert f"celery --app tasks {' '.join(flags)}\n" in recipe.page
    flags += ("--loglevel", "error", "--without-mingle")
    command = [sys.executable, "-m", "celery", "--app", app, *flags]
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    with subprocess.Popen(command, cwd=folder, env=environment(), start_new_session=True, **quiet) as worker:
        try:
            yield recipe
        finally:
            os.killpg(worker.pid, signal.SIGKILL)  # Celery takes six seconds to shut down


def test_celery_recipe_runs_tasks_in_forked_processes_and_a_repeated_task_once(tmp_path: Path) -> None:
    (tmp_path / "again.py").write_text(AGAIN)
    with celery_worker(tmp_path) as recipe:
        assert recipe.check(is_written=True) == 2
        again = recipe.run("python again.py").stdout.splitlines()
    assert again == ['You said "Hello". I remember nothing before that.'] * 2
    assert celery_turns(tmp_path) == {"alan": 1, "ada": 2}


def test_celery_task_whose_process_is_killed_in_its_turn_is_redelivered_and_stored_once(
    tmp_path: Path,
) -> None:
    (tmp_path / "dying.py").write_text(DYING)
    with celery_worker(tmp_path, "dying") as recipe:
        done = recipe.run("python ask.py Hello")
    assert (tmp_path / "died").exists()
    assert done.stdout == 'You said "Hello". I remember nothing before that.\n', done.stderr
    assert celery_turns(tmp_path) == {"ada": 1}


def celery_turns(folder: Path) -> dict[str | None, int]:
    """Return how many turns each customer's chat has."""
    with Ledger.open(f"sqlite:///{folder}/chats.db") as ledger:
        assert ledger.check(at_rest=True) == []
        return {each.conversation.conversation_key: each.turns for each in ledger.list().chats}


def open_webui_headers(page: str) -> dict[str, str]:
    """Return the headers of the connection, as a person pastes them; they are the same in the environment."""
    [pasted] = re.findall(r"\| Headers \| `(.+)` \|", page)
    assert f'OPENAI_API_CONFIGS={{"0": {{"headers": {pasted}}}}}\n' in page
    return dict(json.loads(pasted))


def test_open_webui_recipe_stores_messages_and_neither_tasks_nor_temporary_chats(tmp_path: Path) -> None:
    """Requests as Open WebUI 0.12 sends them: the whole chat each time, and tasks with the id of the chat."""
    recipe = Recipe("open-webui", tmp_path, {})
    recipe.write()
    templates = open_webui_headers(recipe.page)
    command = ("serve", "--config", str(tmp_path / "turnledger.toml"), "--port", "0", "--store", "memory:")
    with (
        started("turnledger", *command) as server,
        httpx2.Client(base_url=server.url, trust_env=False) as http,
    ):

        def send(chat: str, *messages: str, task: str = "") -> str:
            filled = {"{{CHAT_ID}}": chat, "{{TASK}}": task}
            headers = {name: filled[template] for name, template in templates.items()}
            roles = ("user", "assistant")
            body = {
                "model": "demo",
                "stream": False,
                "messages": [
                    {"role": roles[place % 2], "content": text} for place, text in enumerate(messages)
                ],
            }
            answer = http.post("/v1/chat/completions", json=body, headers=headers)
            assert answer.status_code == 200, answer.text
            text: str = answer.json()["choices"][0]["message"]["content"]
            return text

        chat = "6a1d2f0c-5a53-4c6e-9d0e-0a2f6f0f7d11"
        first = send(chat, "Hello")
        send(chat, "### Task:\nGenerate a title.", task="TASKS.TITLE_GENERATION")
        second = send(chat, "Hello", first, "And now?")
        send(chat, "### Task:\nSuggest follow-ups.", task="TASKS.FOLLOW_UP_GENERATION")
        again = send(chat, "Hello", first, "And then?")  # an edit of the second message
        for prefix in ("temporary", "local"):
            send(f"{prefix}:socket", "A temporary chat")
        send("", "Outside of a chat")
        [listed] = http.get("/api/chats").json()["data"]
        assert (listed["conversation_key"], listed["turn_count"]) == (chat, 2)
        turns = http.get(f"/api/chats/{listed['id']}").json()["turns"]
        assert [turn["output"][0]["content"][0]["text"] for turn in turns] == [first, again]
        assert "I remember 1 message" in second
