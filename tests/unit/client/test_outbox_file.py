"""The record of unsent messages: on disk before it is told, shared, bounded, and nobody else's to read."""

from __future__ import annotations

import os
import sqlite3
import stat
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from turnledger.client.outbox_claim import Claimant
from turnledger.client.outbox_file import CLAIM_MS, SKEW_MS, OutboxFile, place_of
from turnledger.client.unsent import Outbox
from turnledger.errors import (
    InvalidInput,
    NotAStore,
    StoreFull,
    StoreTooNew,
    StoreUnavailable,
)

URL = "http://server"
HEADERS = {"content-type": "application/json", "idempotency-key": "k"}
DAY_MS = 24 * 3600 * 1000


class Clock:
    def __init__(self) -> None:
        self.now = 1_700_000_000_000

    def __call__(self) -> int:
        return self.now


class Others(Claimant):
    """One among processes of which some are dead."""

    def __init__(self, *dead: str) -> None:
        super().__init__()
        self._dead = dead

    def is_alive(self, name: str) -> bool:
        return name not in self._dead


OPENED: list[OutboxFile] = []


@pytest.fixture(autouse=True)
def all_closed() -> Iterator[None]:
    yield
    while OPENED:
        OPENED.pop().close()


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "unsent.db"


def body(text: str = "Hello", chat: str = "conv_1") -> bytes:
    return b'{"model":"m","chat":"%b","input":"%b"}' % (chat.encode(), text.encode())


def opened(
    path: Path,
    clock: Clock,
    *,
    api_key: str | None = "secret",
    url: str = URL,
    claimant: Claimant | None = None,
    **options: object,
) -> OutboxFile:
    outbox = Outbox(path=path, **options)  # type: ignore[arg-type]
    OPENED.append(OutboxFile(outbox, url, api_key, now_ms=clock, claimant=claimant))
    return OPENED[-1]


def keys(file: OutboxFile) -> list[str]:
    return [each.idempotency_key for each in file.pending()]


def claimed(file: OutboxFile) -> list[str]:
    """All that can be claimed one after the other."""
    found, after = [], 0
    while (unsent := file.claim(after)) is not None:
        found.append(unsent.idempotency_key)
        after = unsent.id
    return found


def test_what_was_recorded_is_there_for_the_next_program(path: Path, clock: Clock) -> None:
    opened(path, clock).record("k", body(), HEADERS)
    [unsent] = opened(path, clock).pending()
    assert (unsent.idempotency_key, unsent.base_url, unsent.body) == ("k", URL, body())
    assert (unsent.headers, unsent.asked["input"]) == (HEADERS, "Hello")
    assert (unsent.recorded_at, unsent.first_tried_at, unsent.is_uncertain) == (clock.now, clock.now, False)


def test_what_has_ended_and_what_is_forgotten_is_there_no_more(path: Path, clock: Clock) -> None:
    file = opened(path, clock)
    for key in "abc":
        file.record(key, body(), HEADERS)
    file.done("a")
    assert (file.forget(2), file.forget(2)) == (True, False)
    assert keys(file) == ["c"]


def test_a_message_that_is_sent_again_keeps_the_time_of_its_first_try(path: Path, clock: Clock) -> None:
    file, first = opened(path, clock), clock.now
    file.record("k", body(), HEADERS)
    clock.now += 1000
    file.record("k", body("Other"), HEADERS)
    [unsent] = file.pending()
    assert (unsent.first_tried_at, unsent.recorded_at, unsent.body) == (first, first, body())


def test_what_cannot_have_arrived_counts_as_not_tried(path: Path, clock: Clock) -> None:
    file = opened(path, clock)
    file.record("k", body(), HEADERS)
    file.keep("k", may_have_arrived=False)
    assert [each.first_tried_at for each in file.pending()] == [None]
    clock.now += 30 * DAY_MS
    assert [each.is_uncertain for each in file.pending()] == [False]


def test_what_may_have_arrived_once_stays_tried_whatever_becomes_of_later_tries(
    path: Path, clock: Clock
) -> None:
    first = clock.now
    opened(path, clock).record("crashed", body(), HEADERS)
    file = opened(path, clock)
    file.record("lost", body(), HEADERS)
    file.keep("lost", may_have_arrived=True)
    clock.now += 1000
    for key in ("crashed", "lost"):
        file.record(key, body(), HEADERS)
        file.keep(key, may_have_arrived=False)
    assert [each.first_tried_at for each in file.pending()] == [first, first]


def test_two_tries_at_once_of_which_one_did_not_arrive_count_as_tried(path: Path, clock: Clock) -> None:
    file = opened(path, clock)
    file.record("k", body(), HEADERS)
    file.record("k", body(), HEADERS)
    file.keep("k", may_have_arrived=False)
    assert [each.first_tried_at for each in file.pending()] == [clock.now]


@pytest.mark.parametrize(
    ("later", "is_uncertain"),
    [(0, False), (23 * 3600_000, False), (23 * 3600_000 + 1, True), (-SKEW_MS, False), (-SKEW_MS - 1, True)],
)
def test_what_was_tried_too_long_ago_or_in_the_future_is_uncertain(
    path: Path, clock: Clock, later: int, is_uncertain: bool
) -> None:
    file = opened(path, clock)
    file.record("k", body(), HEADERS)
    file.keep("k", may_have_arrived=True)
    clock.now += later
    [unsent] = file.pending()
    found = file.claim(0)
    assert (unsent.is_uncertain, found and found.is_uncertain) == (is_uncertain, is_uncertain)


def test_a_message_is_claimed_by_one_of_many_for_a_while(path: Path, clock: Clock) -> None:
    one, other = opened(path, clock), opened(path, clock)
    one.record("sending", body(), HEADERS)
    one.record("left", body(chat="conv_2"), HEADERS)
    one.keep("left", may_have_arrived=True)
    assert (claimed(other), claimed(one)) == (["left"], [])
    clock.now += CLAIM_MS
    assert claimed(one) == ["sending", "left"]


def test_the_dead_hold_no_claims(path: Path, clock: Clock) -> None:
    dead = Claimant()
    opened(path, clock, claimant=dead).record("k", body(), HEADERS)
    assert claimed(opened(path, clock, claimant=Others())) == []
    assert claimed(opened(path, clock, claimant=Others(dead.name))) == ["k"]


def test_messages_to_one_chat_keep_their_order(path: Path, clock: Clock) -> None:
    one, other = opened(path, clock), opened(path, clock)
    for key, chat in [("a1", "conv_a"), ("b1", "conv_b"), ("a2", "conv_a"), ("b2", "conv_b")]:
        one.record(key, body(chat=chat), HEADERS)
        one.keep(key, may_have_arrived=True)
    first = one.claim(0)
    assert first is not None
    assert first.idempotency_key == "a1"
    assert claimed(other) == ["b1"]
    one.done("a1")
    assert claimed(other) == ["a2"]


def test_a_place_is_the_same_however_the_body_is_written() -> None:
    assert place_of(b'{"chat":"c","input":"a"}') == place_of(b'{"input":[1], "scope":null,"chat":"c"}')
    assert place_of(b'{"conversation_key":"c"}') != place_of(b'{"chat":"c"}')


def test_each_sender_and_each_server_has_messages_of_its_own(path: Path, clock: Clock) -> None:
    files = [
        opened(path, clock),
        opened(path, clock, api_key="other"),
        opened(path, clock, api_key=None),
        opened(path, clock, url="http://elsewhere"),
        opened(path, clock, sender="ada"),
    ]
    for number, file in enumerate(files):
        file.record(str(number), body(), HEADERS)
        file.keep(str(number), may_have_arrived=True)
    assert [keys(file) for file in files] == [["0"], ["1"], ["2"], ["3"], ["4"]]
    assert not files[0].forget(2)
    assert [claimed(file) for file in files] == [["0"], ["1"], ["2"], ["3"], ["4"]]
    assert keys(opened(path, clock, sender="ada", api_key="a new one")) == ["4"]


def test_no_secret_is_written(path: Path, clock: Clock) -> None:
    file = opened(path, clock, api_key="tl-very-secret")
    file.record("k", body(), {**HEADERS, "Authorization": "Bearer tl-very-secret"})
    assert b"secret" not in path.read_bytes()
    assert b"Hello" in path.read_bytes()


def test_what_was_said_does_not_stay_in_the_file(path: Path, clock: Clock) -> None:
    file = opened(path, clock)
    file.record("k", body("marzipan " * 1000), HEADERS)
    file.done("k")
    assert b"marzipan" not in path.read_bytes()
    assert [each.name for each in path.parent.iterdir()] == ["unsent.db"]


@pytest.mark.skipif(os.name != "posix", reason="there are no modes")
def test_the_file_is_for_its_owner_alone(path: Path, clock: Clock) -> None:
    path.touch(mode=0o666)
    path.chmod(0o666)
    opened(path, clock).record("k", body(), HEADERS)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_it_has_room_for_so_many_messages_and_bytes(path: Path, clock: Clock) -> None:
    file = opened(path, clock, most_messages=2)
    file.record("a", body(), HEADERS)
    file.record("b", body(), HEADERS)
    with pytest.raises(StoreFull, match="holds 2 messages"):
        file.record("c", body(), HEADERS)
    file.record("a", body(), HEADERS)  # it is there already
    file.done("a")
    file.record("c", body(), HEADERS)
    with pytest.raises(StoreFull):
        opened(path, clock, most_bytes=200).record("d", body("x" * 200), HEADERS)
    assert keys(file) == ["b", "c"]


def test_a_file_of_another_program_is_left_alone(path: Path, clock: Clock) -> None:
    with closing(sqlite3.connect(path)) as db:
        db.execute("CREATE TABLE theirs (a)")
    with pytest.raises(NotAStore, match="another program"):
        opened(path, clock)
    path.write_bytes(b"# Notes\n" * 1000)
    with pytest.raises(NotAStore):
        opened(path, clock)
    assert path.read_bytes() == b"# Notes\n" * 1000


def test_a_file_of_a_newer_version_is_left_alone(path: Path, clock: Clock) -> None:
    opened(path, clock).close()
    with closing(sqlite3.connect(path)) as db:
        db.execute("PRAGMA user_version = 2")
    with pytest.raises(StoreTooNew):
        opened(path, clock)


def test_a_folder_that_is_not_there_is_told(tmp_path: Path, clock: Clock) -> None:
    with pytest.raises(StoreUnavailable, match="cannot be opened"):
        opened(tmp_path / "none" / "unsent.db", clock)


def test_an_outbox_without_room_or_name_is_refused() -> None:
    for options in ({"most_messages": 0}, {"most_bytes": 0}, {"safe_for": 0}, {"sender": " "}):
        with pytest.raises(InvalidInput):
            Outbox(path="unsent.db", **options)  # type: ignore[arg-type]


def test_a_closed_one_opens_again(path: Path, clock: Clock) -> None:
    file = opened(path, clock)
    file.record("k", body(), HEADERS)
    file.close()
    assert keys(file) == ["k"]


def test_threads_share_it(path: Path, clock: Clock) -> None:
    file, barrier = opened(path, clock), threading.Barrier(8)

    def work(name: str) -> None:
        barrier.wait()
        for number in range(3):
            file.record(f"{name}{number}", body(), HEADERS)
            if number != 2:
                file.done(f"{name}{number}")

    threads = [threading.Thread(target=work, args=(name,)) for name in "abcdefgh"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(keys(file)) == [f"{name}2" for name in "abcdefgh"]


CLAIMING = """
import sys
from turnledger.client.outbox_file import OutboxFile
from turnledger.client.unsent import Outbox

file, after = OutboxFile(Outbox(path=sys.argv[1]), "http://server", "secret"), 0
print("ready", flush=True)
sys.stdin.readline()
while (unsent := file.claim(after)) is not None:
    after = unsent.id
    print(unsent.idempotency_key)
    file.done(unsent.idempotency_key)
"""


def test_processes_that_send_at_once_send_each_message_once(path: Path) -> None:
    file = OutboxFile(Outbox(path=path), URL, "secret")
    OPENED.append(file)
    for number in range(20):
        file.record(str(number), body(chat=f"conv_{number}"), HEADERS)
        file.keep(str(number), may_have_arrived=True)
    command = [sys.executable, "-c", CLAIMING, str(path)]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    programs = [subprocess.Popen(command, text=True, **pipes) for _ in range(2)]  # type: ignore[call-overload]
    for program in programs:
        assert program.stdout.readline() == "ready\n"
    told = [set(program.communicate("go\n", timeout=60)[0].split()) for program in programs]
    assert not told[0] & told[1]
    assert sorted(map(int, told[0] | told[1])) == list(range(20))
    assert keys(file) == []
