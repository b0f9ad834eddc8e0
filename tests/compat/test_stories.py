"""Failures reported in other projects, reproduced with this server, the official client and real stores."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path

import apsw
import pytest

from tests.compat.completions import (
    CONTINUED,
    CREATED,
    Way,
    both_ways,
    send_streamed,
    send_whole,
    user,
)
from tests.compat.conftest import Serve
from tests.compat.live_server import MODEL
from turnledger.testing.gates import Gate


class TestDockerAgent:
    """It worked on the conversation itself, and took the absence of an error for success."""

    @pytest.mark.parametrize("policy", ["continue", "discard", "keep"])
    def test_disconnect_is_never_committed_as_a_complete_answer(
        self, serve: Serve, store_url: str, policy: str
    ) -> None:
        gate = Gate()
        served = serve(["Hel", gate, "lo."], store=store_url)
        with served.client("k", X_Turn_On_Disconnect=policy) as client:
            chunks = client.chat.completions.create(model=MODEL, messages=[user("Hi")], stream=True)
            first = next(chunks)
            assert first.choices[0].delta.content == "Hel"
            served.wait_arrived(gate)
            chunks.close()
        served.wait_alone()
        if policy == "continue":
            assert served.turns("k") == b"[]"
            served.release(gate)
        served.do(served.chat("k").outcome(first.id))
        expected = {
            "continue": [("user", "Hi"), ("assistant", "Hello.")],
            "discard": [],
            "keep": [("user", "Hi"), ("assistant", "Hel")],
        }
        assert served.messages("k") == expected[policy]
        kinds = {"continue": ["completed"], "discard": [], "keep": ["interrupted"]}
        assert [each["kind"] for each in served.chat_json("k")["turns"]] == kinds[policy]


class TestGoose:
    """It persisted too late, then too much, then too often."""

    @both_ways
    def test_metadata_changed_during_a_turn_is_kept(
        self, serve: Serve, store_url: str, threads: ThreadPoolExecutor, way: Way
    ) -> None:
        gate = Gate()
        served = serve(["One."], ["Two", gate, "."], store=store_url)
        client = served.client("k")
        way(client, "first")
        running = threads.submit(way, client, "second")
        served.wait_arrived(gate)
        served.do(served.chat("k").update(title="Renamed", metadata={"tag": "kept"}))
        served.release(gate)
        assert running.result().text == "Two."
        shown = served.chat_json("k")
        assert (shown["title"], shown["metadata"]) == ("Renamed", {"tag": "kept"})
        assert len(served.messages("k")) == 4

    def test_text_deltas_add_no_rows_to_the_store(self, serve: Serve, tmp_path: Path) -> None:
        path = tmp_path / "chats.db"
        served = serve(["a"] * 2, ["a"] * 500, store=f"sqlite:///{path}")
        client = served.client("k")
        send_streamed(client, "zeroth", model="demo")
        before = rows_in(path)
        send_streamed(client, "first")
        after_two = rows_in(path)
        assert send_streamed(client, "second").text == "a" * 500
        assert rows_in(path) - after_two == after_two - before
        assert [len(turn["output"]) for turn in served.chat_json("k")["turns"]] == [1, 1, 1]


def rows_in(path: Path) -> int:
    """The number of rows with chat data in a database."""
    with closing(apsw.Connection(str(path), flags=apsw.SQLITE_OPEN_READONLY)) as connection:
        names = [name for (name,) in connection.execute("SELECT name FROM sqlite_master WHERE type='table'")]
        kept = [name for name in names if name not in ("claim", "lease", "ticket")]  # these come and go
        return sum(connection.execute(f"SELECT count(*) FROM {name}").get for name in kept)


class TestOpenclaw:
    """Two requests with one new key each made a session before either was saved. Rocketride lost turns alike:
    each tab wrote the whole file from what it remembered."""

    def test_concurrent_first_requests_at_two_servers_make_one_conversation(
        self, serve: Serve, tmp_path: Path, threads: ThreadPoolExecutor
    ) -> None:
        store = f"sqlite:///{tmp_path / 'chats.db'}"
        servers = [serve(otherwise=["Hello."], store=store) for _ in range(2)]
        pending = [
            threads.submit(send_whole, served.client("new"), f"{served.url} {number}")
            for number in range(4)
            for served in servers
        ]
        answers = [each.result() for each in pending]
        assert len({each.conversation for each in answers}) == 1
        assert sorted(each.state for each in answers) == [CONTINUED] * 7 + [CREATED]
        seen = sorted(len(each.body["messages"]) for served in servers for each in served.upstream.received)
        assert seen == [1, 3, 5, 7, 9, 11, 13, 15]
