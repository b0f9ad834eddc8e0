"""The outbox file: durable, private, bounded, and shared by running processes."""

from __future__ import annotations

import os
import sqlite3
import stat
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path

import pytest

from turnledger.client.outbox.file import (
    CLAIM_MS,
    INHERITED,
    SKEW_MS,
    OutboxFile,
    chat_of,
    open_file,
    prepare,
)
from turnledger.client.outbox.outbox import Claimant, Outbox
from turnledger.errors import (
    InvalidInput,
    NotAStore,
    StoreCorrupt,
    StoreFull,
    StoreReadOnly,
    StoreTooNew,
    StoreUnavailable,
)


def test_claimant_is_alive_until_it_retires_or_its_process_was_another() -> None:
    one, other = Claimant(), Claimant()
    for name in (one.name, other.name, "malformed"):
        assert one.is_alive(name)
    other.retire()
    assert not one.is_alive(other.name)
    assert not one.is_alive(f"{os.getpid()}:of-another-life")


@pytest.mark.skipif(os.name != "posix", reason="not supported there")
def test_claimant_of_an_ended_process_is_not_alive() -> None:
    program = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    name = f"{program.pid}:whoever"
    assert Claimant().is_alive(name)
    program.communicate()
    assert not Claimant().is_alive(name)


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


@pytest.fixture
def file(path: Path, clock: Clock) -> OutboxFile:
    return opened(path, clock)


def leave(file: OutboxFile, *messages: tuple[str, str]) -> None:
    """Record messages to chats, whose outcome stays unknown."""
    for key, chat in messages:
        file.record(key, body(chat=chat), HEADERS)
        file.keep(key, may_have_arrived=True)


def keys(file: OutboxFile) -> list[str]:
    return [each.idempotency_key for each in file.pending()]


def claimed(file: OutboxFile) -> list[str]:
    """All that can be claimed one after the other."""
    found, after = [], 0
    while (unsent := file.claim(after)) is not None:
        found.append(unsent.idempotency_key)
        after = unsent.id
    return found


def test_outbox_file_returns_recorded_messages_to_the_next_program(path: Path, clock: Clock) -> None:
    opened(path, clock).record("k", body(), HEADERS)
    [unsent] = opened(path, clock).pending()
    assert (unsent.idempotency_key, unsent.base_url, unsent.body) == ("k", URL, body())
    assert (unsent.headers, unsent.fields["input"]) == (HEADERS, "Hello")
    assert (unsent.recorded_at, unsent.first_tried_at, unsent.is_uncertain) == (clock.now, clock.now, False)


def test_outbox_file_removes_done_and_forgotten_messages(file: OutboxFile) -> None:
    for key in "abc":
        file.record(key, body(), HEADERS)
    file.remove("a")
    assert (file.forget(2), file.forget(2)) == (True, False)
    assert keys(file) == ["c"]


def test_outbox_file_keeps_the_first_try_time_of_a_message_sent_again(path: Path, clock: Clock) -> None:
    file, first = opened(path, clock), clock.now
    file.record("k", body(), HEADERS)
    clock.now += 1000
    file.record("k", body("Other"), HEADERS)
    [unsent] = file.pending()
    assert (unsent.first_tried_at, unsent.recorded_at, unsent.body) == (first, first, body())


def test_outbox_file_marks_a_message_that_cannot_have_arrived_as_untried(
    file: OutboxFile, clock: Clock
) -> None:
    file.record("k", body(), HEADERS)
    file.keep("k", may_have_arrived=False)
    assert [each.first_tried_at for each in file.pending()] == [None]
    clock.now += 30 * DAY_MS
    assert [each.is_uncertain for each in file.pending()] == [False]


def test_outbox_file_keeps_a_message_that_may_have_arrived_as_tried(path: Path, clock: Clock) -> None:
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


def test_outbox_file_with_one_of_two_tries_unarrived_counts_as_tried(file: OutboxFile, clock: Clock) -> None:
    file.record("k", body(), HEADERS)
    file.record("k", body(), HEADERS)
    file.keep("k", may_have_arrived=False)
    assert [each.first_tried_at for each in file.pending()] == [clock.now]


@pytest.mark.parametrize(
    ("later", "is_uncertain"),
    [(0, False), (23 * 3600_000, False), (23 * 3600_000 + 1, True), (-SKEW_MS, False), (-SKEW_MS - 1, True)],
)
def test_outbox_file_marks_old_or_future_tries_as_uncertain(
    file: OutboxFile, clock: Clock, later: int, is_uncertain: bool
) -> None:
    leave(file, ("k", "conv_1"))
    clock.now += later
    [unsent] = file.pending()
    found = file.claim(0)
    assert (unsent.is_uncertain, found and found.is_uncertain) == (is_uncertain, is_uncertain)


def test_outbox_file_claim_is_exclusive_until_it_expires(path: Path, clock: Clock) -> None:
    one, other = opened(path, clock), opened(path, clock)
    one.record("sending", body(), HEADERS)
    leave(one, ("left", "conv_2"))
    assert (claimed(other), claimed(one)) == (["left"], [])
    clock.now += CLAIM_MS
    assert claimed(one) == ["sending", "left"]


def test_outbox_file_ignores_claims_of_dead_processes(path: Path, clock: Clock) -> None:
    dead = Claimant()
    opened(path, clock, claimant=dead).record("k", body(), HEADERS)
    assert claimed(opened(path, clock, claimant=Others())) == []
    assert claimed(opened(path, clock, claimant=Others(dead.name))) == ["k"]


def test_outbox_file_keeps_the_order_of_messages_to_one_chat(path: Path, clock: Clock) -> None:
    one, other = opened(path, clock), opened(path, clock)
    leave(one, ("a1", "conv_a"), ("b1", "conv_b"), ("a2", "conv_a"), ("b2", "conv_b"))
    first = one.claim(0)
    assert first is not None
    assert first.idempotency_key == "a1"
    assert claimed(other) == ["b1"]
    one.remove("a1")
    assert claimed(other) == ["a2"]


def test_outbox_file_holds_back_messages_behind_an_unsent_one_of_their_chat(file: OutboxFile) -> None:
    leave(file, ("a1", "conv_a"), ("b1", "conv_b"), ("a2", "conv_a"), ("b2", "conv_b"))
    found, after = [], 0
    while (unsent := file.claim(after)) is not None:
        found.append(unsent.idempotency_key)
        after = unsent.id
        if unsent.idempotency_key == "a1":
            file.keep("a1", may_have_arrived=True)  # the server had no room for it
        else:
            file.remove(unsent.idempotency_key)
    assert found == ["a1", "b1", "b2"]


def test_outbox_file_claim_does_not_overtake_a_skipped_message(path: Path, clock: Clock) -> None:
    one, other = opened(path, clock), opened(path, clock)
    leave(one, ("a1", "conv_a"), ("a2", "conv_a"), ("b1", "conv_b"), ("a3", "conv_a"))
    assert one.claim(0).idempotency_key == "a1"
    passed = other.claim(0)
    assert passed.idempotency_key == "b1"
    one.remove("a1")
    assert other.claim(passed.id) is None


def test_outbox_file_does_not_hold_back_messages_behind_an_uncertain_one(
    file: OutboxFile, clock: Clock
) -> None:
    leave(file, ("old", "conv_1"))
    clock.now += DAY_MS
    leave(file, ("new", "conv_1"))
    assert claimed(file) == ["old", "new"]


def test_outbox_place_depends_on_the_chat_and_not_on_the_encoding() -> None:
    assert chat_of(b'{"chat":"c","input":"a"}') == chat_of(b'{"input":[1], "scope":null,"chat":"c"}')
    assert chat_of(b'{"conversation_key":"c"}') != chat_of(b'{"chat":"c"}')


def test_outbox_file_separates_senders_and_servers(path: Path, clock: Clock) -> None:
    files = [
        opened(path, clock),
        opened(path, clock, api_key="other"),
        opened(path, clock, api_key=None),
        opened(path, clock, url="http://elsewhere"),
        opened(path, clock, sender="ada"),
    ]
    for number, file in enumerate(files):
        leave(file, (str(number), "conv_1"))
    assert [keys(file) for file in files] == [["0"], ["1"], ["2"], ["3"], ["4"]]
    assert not files[0].forget(2)
    assert [claimed(file) for file in files] == [["0"], ["1"], ["2"], ["3"], ["4"]]
    assert keys(opened(path, clock, sender="ada", api_key="a new one")) == ["4"]


def test_outbox_file_contains_no_secret(path: Path, clock: Clock) -> None:
    file = opened(path, clock, api_key="tl-very-secret")
    file.record("k", body(), {**HEADERS, "Authorization": "Bearer tl-very-secret"})
    assert b"secret" not in path.read_bytes()
    assert b"Hello" in path.read_bytes()


def test_outbox_file_erases_the_text_of_sent_messages(file: OutboxFile, path: Path) -> None:
    file.record("k", body("marzipan " * 1000), HEADERS)
    file.remove("k")
    assert b"marzipan" not in path.read_bytes()
    assert [each.name for each in path.parent.iterdir()] == ["unsent.db"]


@pytest.mark.skipif(os.name != "posix", reason="there are no modes")
def test_outbox_file_is_private_to_its_owner(path: Path, clock: Clock) -> None:
    path.touch(mode=0o666)
    path.chmod(0o666)
    opened(path, clock).record("k", body(), HEADERS)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_outbox_file_limits_messages_and_bytes_per_sender(path: Path, clock: Clock) -> None:
    file = opened(path, clock, max_messages=2)
    file.record("a", body(), HEADERS)
    file.record("b", body(), HEADERS)
    with pytest.raises(StoreFull, match="2 messages"):
        file.record("c", body(), HEADERS)
    file.record("a", body(), HEADERS)  # it is there already
    file.remove("a")
    file.record("c", body(), HEADERS)
    opened(path, clock, max_messages=2, sender="ada").record("e", body(), HEADERS)  # own limit
    with pytest.raises(StoreFull):
        opened(path, clock, max_bytes=200).record("d", body("x" * 200), HEADERS)
    assert keys(file) == ["b", "c"]


def test_outbox_file_refuses_and_preserves_a_file_of_another_program(path: Path, clock: Clock) -> None:
    with closing(sqlite3.connect(path)) as db:
        db.execute("CREATE TABLE theirs (a)")
    with pytest.raises(NotAStore, match="another program"):
        opened(path, clock)
    path.write_bytes(b"# Notes\n" * 1000)
    with pytest.raises(NotAStore):
        opened(path, clock)
    assert path.read_bytes() == b"# Notes\n" * 1000


@pytest.mark.skipif(os.name != "posix", reason="there are no modes")
def test_outbox_file_does_not_change_the_mode_of_a_foreign_file(path: Path, clock: Clock) -> None:
    path.write_bytes(b"# Notes\n" * 1000)
    path.chmod(0o664)
    with pytest.raises(NotAStore):
        opened(path, clock)
    assert stat.S_IMODE(path.stat().st_mode) == 0o664


class Overtaken(sqlite3.Connection):
    """Another program makes the file just after this one has looked whether it is made."""

    is_overtaken = False

    def execute(self, sql: str, *values: object) -> sqlite3.Cursor:  # type: ignore[override]
        if "user_version" in sql and not self.is_overtaken:
            self.is_overtaken = True
            other = sqlite3.connect(self.path, timeout=0, isolation_level=None)
            with closing(other), suppress(sqlite3.OperationalError):  # it waits, then
                prepare(other, self.path)
        return super().execute(sql, *values)  # type: ignore[arg-type]

    path: Path


def test_outbox_file_created_by_two_programs_at_once_is_shared(path: Path, clock: Clock) -> None:
    with closing(sqlite3.connect(path, factory=Overtaken, isolation_level=None)) as db:
        db.path = path
        prepare(db, path)
        assert db.is_overtaken
    file = opened(path, clock)
    file.record("k", body(), HEADERS)
    assert keys(file) == ["k"]


WRITING = """
import sqlite3, sys
try:
    sqlite3.connect(sys.argv[1], timeout=0, isolation_level=None).execute("BEGIN IMMEDIATE")
except sqlite3.OperationalError as problem:
    print(problem)
"""


def test_outbox_file_lock_survives_another_client_closing_the_file(file: OutboxFile, path: Path) -> None:
    """Closing a file releases all locks of the process on it."""
    with file._transaction():
        open_file(path).close()
        command = [sys.executable, "-c", WRITING, str(path)]
        done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=True)
    assert done.stdout == "database is locked\n"


def test_outbox_file_that_is_read_only_is_refused_on_open(
    path: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened(path, clock).close()
    monkeypatch.setattr(os, "access", lambda *_: False)
    with pytest.raises(StoreReadOnly, match="is not writable"):
        opened(path, clock)


@pytest.mark.skipif(not hasattr(os, "fork"), reason="nothing is forked there")
def test_outbox_file_connection_inherited_by_a_child_is_left_open(file: OutboxFile) -> None:
    file.record("k", body(), HEADERS)
    first = file._db
    file._process = -1  # as a child sees it: that of its parent
    file.record("child", body(), HEADERS)
    second = file._db
    assert (second is not first, keys(file)) == (True, ["k", "child"])
    file._process = -1
    file.close()
    assert INHERITED[-2:] == [first, second]  # else they would be closed with their last reference
    for each in INHERITED[-2:]:
        each.close()


def test_outbox_file_of_a_newer_version_is_refused(path: Path, clock: Clock) -> None:
    opened(path, clock).close()
    with closing(sqlite3.connect(path)) as db:
        db.execute("PRAGMA user_version = 2")
    with pytest.raises(StoreTooNew):
        opened(path, clock)


def test_outbox_file_in_a_missing_folder_is_refused(tmp_path: Path, clock: Clock) -> None:
    with pytest.raises(StoreUnavailable, match="cannot be opened"):
        opened(tmp_path / "none" / "unsent.db", clock)


def test_outbox_with_invalid_options_is_refused() -> None:
    for options in ({"max_messages": 0}, {"max_bytes": 0}, {"safe_for": 0}, {"sender": " "}):
        with pytest.raises(InvalidInput):
            Outbox(path="unsent.db", **options)  # type: ignore[arg-type]


def test_outbox_file_opens_again_after_close(file: OutboxFile) -> None:
    file.record("k", body(), HEADERS)
    file.close()
    assert keys(file) == ["k"]


def test_outbox_file_that_was_deleted_is_recreated(file: OutboxFile, path: Path, clock: Clock) -> None:
    file.record("lost", body(), HEADERS)
    path.unlink()
    file.record("k", body(), HEADERS)
    assert keys(file) == keys(opened(path, clock)) == ["k"]


def test_outbox_file_that_is_damaged_raises_store_corrupt(file: OutboxFile, path: Path) -> None:
    file.record("k", body(), HEADERS)
    file.close()
    damaged = bytearray(path.read_bytes())
    damaged[4096:8192] = b"\xff" * 4096
    path.write_bytes(damaged)
    with pytest.raises(StoreCorrupt):
        file.pending()


def test_outbox_file_can_be_used_by_several_threads(path: Path, clock: Clock) -> None:
    file, barrier = opened(path, clock), threading.Barrier(8)

    def work(name: str) -> None:
        barrier.wait()
        for number in range(3):
            file.record(f"{name}{number}", body(), HEADERS)
            if number != 2:
                file.remove(f"{name}{number}")

    threads = [threading.Thread(target=work, args=(name,)) for name in "abcdefgh"]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(keys(file)) == [f"{name}2" for name in "abcdefgh"]


CLAIMING = """
import sys
from turnledger.client.outbox.file import OutboxFile
from turnledger.client.outbox.outbox import Outbox

file, after = OutboxFile(Outbox(path=sys.argv[1]), "http://server", "secret"), 0
print("ready", flush=True)
sys.stdin.readline()
while (unsent := file.claim(after)) is not None:
    after = unsent.id
    print(unsent.idempotency_key)
    file.remove(unsent.idempotency_key)
"""


def test_outbox_file_claimed_by_two_processes_gives_each_message_to_one(path: Path) -> None:
    file = OutboxFile(Outbox(path=path), URL, "secret")
    OPENED.append(file)
    leave(file, *((str(number), f"conv_{number}") for number in range(20)))
    command = [sys.executable, "-c", CLAIMING, str(path)]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE}
    programs = [subprocess.Popen(command, text=True, **pipes) for _ in range(2)]  # type: ignore[call-overload]
    for program in programs:
        assert program.stdout.readline() == "ready\n"
    outputs = [set(program.communicate("go\n", timeout=60)[0].split()) for program in programs]
    assert not outputs[0] & outputs[1]
    assert sorted(map(int, outputs[0] | outputs[1])) == list(range(20))
    assert keys(file) == []
