"""Every recipe is followed to the letter, and prints what its page says it prints."""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import httpx2
import pytest

from tests.docs.recipe import FOLDER, Recipe, at_work, environment
from tests.unit.server.processes import ServerProcess, started

TURNLEDGER = "http://127.0.0.1:8383"
IS_PROVING = os.environ.get("CI") == "true"
CURL = pytest.mark.skipif(shutil.which("curl") is None and not IS_PROVING, reason="no curl here")


@pytest.fixture(scope="module")
def server() -> Iterator[ServerProcess]:
    # Nobody reads the log while it runs: it must not fill its pipe.
    flags = ("--port", "0", "--store", "memory:", "--log-level", "error")
    with started("turnledger", "serve", *flags) as server:
        yield server


def test_the_openai_client_needs_one_header(server: ServerProcess, tmp_path: Path) -> None:
    recipe = Recipe("openai-client", tmp_path, {TURNLEDGER: server.url})
    assert recipe.check() == 4


@CURL
def test_a_fastapi_application_embeds_the_ledger(tmp_path: Path) -> None:
    recipe = Recipe("fastapi", tmp_path, {})
    assert "uvicorn app:app\n" in recipe.page
    recipe.write()
    with at_work(tmp_path, "uvicorn", "app:app", "--port", "0") as url:
        assert Recipe("fastapi", tmp_path, {"http://127.0.0.1:8000": url}).check() == 6
        with httpx2.Client(base_url=url, headers={"X-User": "grace"}, trust_env=False) as grace:
            leave_and_come_back(grace)
            hear_a_failure(grace)
            assert grace.get("/chats").json() == [{"name": "long", "turns": 1}]


def leave_and_come_back(client: httpx2.Client) -> None:
    """A turn goes on when its client has left, is read along, and stopped."""
    with client.stream("POST", "/chats/long", json={"text": "/stall after 2"}) as left:
        turn = left.headers["X-Turn-Id"]
    with client.stream("GET", f"/turns/{turn}") as read_along:
        words = read_along.iter_text()
        heard = next(words)
        stopped = client.post(f"/turns/{turn}/stop").json()
        heard += "".join(words)
    assert (heard, stopped) == ("You said", {"state": "kept"})
    refused = client.get(f"/turns/{turn}", headers={"X-User": "mallory"})
    assert (refused.status_code, refused.json()["error"]) == (404, "turn_not_found")


def hear_a_failure(client: httpx2.Client) -> None:
    """No part of an answer is taken for the whole."""
    with client.stream("POST", "/chats/long", json={"text": "/fail after 3"}) as broken:
        assert broken.status_code == 200
        with pytest.raises(httpx2.RemoteProtocolError):
            broken.read()


@CURL
def test_a_flask_application_uses_the_blocking_client(server: ServerProcess, tmp_path: Path) -> None:
    moved = {TURNLEDGER: server.url}
    recipe = Recipe("flask", tmp_path, moved)
    assert "flask --app web run\n" in recipe.page
    recipe.write()
    with at_work(tmp_path, "flask", "--app", "web", "run", "--port", "0") as url:
        assert Recipe("flask", tmp_path, {**moved, "http://127.0.0.1:5000": url}).check() == 5
        with httpx2.Client(base_url=url, headers={"X-User": "grace"}, trust_env=False) as grace:
            with grace.stream("POST", "/chats/long", json={"text": "/stall after 2"}) as stalled:
                told = stalled.iter_lines()
                assert [next(told), next(told)] == ['{"text": "You"}', '{"text": " said"}']
                assert grace.post("/chats/long/stop").json() == {"state": "kept"}
                assert next(told).startswith('{"turn": "turn_')
            assert grace.get("/chats/long").json() == [["/stall after 2", "You said"]]


def test_a_worker_answers_each_job_once(server: ServerProcess, tmp_path: Path) -> None:
    recipe = Recipe("background-worker", tmp_path, {TURNLEDGER: server.url})
    assert recipe.check() == 6
    assert recipe.run("python add.py alan '/count 40'").stdout == "job 4\n"
    with httpx2.Client(base_url=server.url, trust_env=False) as client:
        worker = subprocess.Popen([sys.executable, "worker.py"], cwd=tmp_path, env=environment())
        with worker:
            while not running_in(client, "tickets"):
                assert worker.poll() is None
            worker.kill()
        done = recipe.run("python worker.py")
        assert re.search(r"^4 (answered|was answered before): 1 2 3 .* 40$", done.stdout, re.MULTILINE), done
        listed = client.get("/api/chats", params={"scope": "tickets"}).json()["data"]
        assert {chat["conversation_key"]: chat["turn_count"] for chat in listed} == {"ada": 2, "alan": 1}


def running_in(client: httpx2.Client, scope: str) -> bool:
    listed = client.get("/api/chats", params={"scope": scope, "conversation_key": "alan"}).json()["data"]
    return any(chat["is_running"] for chat in listed)


def test_no_recipe_is_left_out() -> None:
    tests = "".join(path.read_text() for path in Path(__file__).parent.glob("test_*.py"))
    pages = {page.stem for page in FOLDER.glob("*.md")}
    assert pages
    assert [page for page in pages if f'Recipe("{page}"' not in tests] == []
