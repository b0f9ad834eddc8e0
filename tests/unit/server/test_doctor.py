"""The doctor checks port, store, disk and upstreams independently of each other."""

from __future__ import annotations

import os
import socket
import ssl
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager, closing
from email.utils import formatdate
from pathlib import Path
from typing import Any

import apsw
import msgspec
import pytest
from aiohttp import web

from tests.unit.server.processes import started
from turnledger import Ledger
from turnledger.errors import UnsafeSqlite
from turnledger.runners.http import pool
from turnledger.server import doctor
from turnledger.server.config.file import InvalidSettings
from turnledger.server.config.settings import ModelSettings, ServerLimits, Settings
from turnledger.server.doctor import (
    Diagnosis,
    Doctor,
    Level,
    UpstreamReport,
    check_clock,
    check_disk,
    check_exposure,
    check_file,
    check_filesystem,
    check_open_files,
    check_participants,
    check_permissions,
    check_port,
    check_sqlite,
    check_store,
    check_upstreams,
    examine,
    upstreams_of,
)
from turnledger.stores.sqlite.files import filesystem_of
from turnledger.stores.sqlite.read_only import Examination

NOW = 1_800_000_000.0


def levels(found: list[Diagnosis]) -> dict[str, Level]:
    return {each.subject: each.level for each in found}


async def test_doctor_runs_every_check(tmp_path: Path) -> None:
    settings = Settings(port=0, store=f"sqlite:///{tmp_path}/chats.db")
    found = levels(await examine(lambda: settings, {}))
    wanted = {"versions", "SQLite", "settings", "store", "disk", "models", "access", "clock"}
    assert wanted <= found.keys()
    assert found["models"] is Level.OK
    assert Level.FAIL not in found.values()


async def test_doctor_with_invalid_settings_reports_them_and_skips_dependent_checks() -> None:
    def load() -> Settings:
        raise InvalidSettings("/etc/turnledger.toml, line 3: `prot` is not a setting.")

    found = await examine(load, {})
    assert levels(found) == {"versions": Level.OK, "SQLite": Level.OK, "settings": Level.FAIL}
    assert "line 3" in found[-1].message


async def test_doctor_check_that_raises_is_a_failure_and_the_others_still_run(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def broken(*_: Any) -> Any:
        raise ZeroDivisionError("with a secret")

    monkeypatch.setattr(doctor, "check_store", broken)
    found = await Doctor(Settings(port=0), {}).findings()
    assert levels(found)["store"] is Level.FAIL
    assert {"models", "access", "clock"} <= levels(found).keys()
    assert "secret" not in repr(found)


@pytest.mark.parametrize(
    ("settings", "any_tokens", "level", "message"),
    [
        (Settings(), False, Level.OK, "programs on this machine"),
        (Settings(insecure=True), False, Level.WARN, "through a proxy"),
        (Settings(host="0.0.0.0", insecure=True), False, Level.WARN, "without a token"),
        (Settings(host="0.0.0.0"), False, Level.FAIL, "no token exists"),
        (Settings(host="0.0.0.0"), True, Level.OK, "requires a token"),
        (Settings(host="0.0.0.0", insecure=True), True, Level.OK, "requires a token"),
        (Settings(), True, Level.OK, "requires a token"),
    ],
)
def test_doctor_reports_exposure(settings: Settings, any_tokens: bool, level: Level, message: str) -> None:
    [found] = check_exposure(settings, any_tokens=any_tokens)
    assert (found.level, message in found.message) == (level, True)


def test_doctor_warns_of_too_few_open_files(monkeypatch: pytest.MonkeyPatch) -> None:
    assert check_open_files(Settings(limits=ServerLimits(requests=1))) == []
    # Each may have a connection upstream as well.
    monkeypatch.setattr(doctor, "allowed_files", lambda _: Settings().limits.requests + 1000)
    assert levels(check_open_files(Settings())) == {"open files": Level.WARN}


def test_doctor_distinguishes_a_foreign_address_from_a_port_in_use() -> None:
    [found] = check_port(Settings(host="192.0.2.1"))  # reserved for documentation
    assert (found.level, "not an address of this machine" in found.message) == (Level.FAIL, True)


def test_doctor_distinguishes_a_free_port_our_own_and_a_foreign_one(monkeypatch: pytest.MonkeyPatch) -> None:
    assert check_port(Settings(port=0)) == []
    with closing(socket.socket()) as other:
        other.bind(("127.0.0.1", 0))
        settings = Settings(port=other.getsockname()[1])
        other.listen()
        monkeypatch.setattr(doctor, "LISTENER_TIMEOUT", 0.05)
        assert levels(check_port(settings)) == {"port": Level.FAIL}
        monkeypatch.undo()
    assert "free" in check_port(settings)[0].message
    with started("turnledger", "serve", "--port", "0", "--store", "memory:") as server:
        [found] = check_port(Settings(port=server.address[1]))
        assert (found.level, "is ready" in found.message) == (Level.WARN, True)
        assert "cannot use this port" in found.remedy


@pytest.mark.parametrize(
    ("now", "ahead", "newest", "level", "message"),
    [
        (NOW, [], None, Level.OK, "plausible"),
        (NOW, [3.0], None, Level.OK, "agrees with the upstream"),
        (NOW, [300.0], None, Level.WARN, "300 seconds behind"),
        (NOW, [-300.0], None, Level.WARN, "300 seconds ahead"),
        (NOW, [300.0, 1.0], None, Level.OK, "agrees with"),
        (NOW, [], NOW - 5, Level.OK, "plausible"),
        (NOW, [], NOW + 300, Level.WARN, "in the future"),
        (5.0, [], None, Level.FAIL, "never set"),
    ],
)
def test_doctor_compares_the_clock_with_upstreams_and_the_store(
    now: float, ahead: list[float], newest: float | None, level: Level, message: str
) -> None:
    [found] = check_clock(now, ahead, None if newest is None else int(newest * 1000))
    assert (found.level, message in found.message) == (level, True)


SOUND = Examination(
    schema=1,
    journal_mode="wal",
    file_bytes=8192,
    log_bytes=0,
    living=1,
    dead=0,
    unknown=0,
    newest_ms=None,
    is_stuck=False,
)


@pytest.fixture
async def store(tmp_path: Path) -> Path:
    async with await Ledger.open(f"sqlite:///{tmp_path}/chats.db") as ledger:
        await ledger.conversation()
    (tmp_path / "chats.db").chmod(0o600)
    return tmp_path / "chats.db"


async def test_doctor_finds_no_problem_in_a_sound_store(store: Path) -> None:
    found, examined = check_store(f"sqlite:///{store}")
    assert set(levels(found).values()) == {Level.OK}
    assert levels(found).keys() == {"store", "processes", "permissions", "disk"}
    assert examined is not None
    assert all(not each.remedy for each in found)


def test_doctor_does_not_create_a_missing_store(tmp_path: Path) -> None:
    found, examined = check_store(f"sqlite:///{tmp_path}/chats.db")
    assert (levels(found)["store"], examined) == (Level.OK, None)
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("make", "level"),
    [
        (lambda path: path.write_text("no database" * 50), Level.FAIL),
        (lambda path: path.mkdir(), Level.FAIL),
        (lambda path: apsw.Connection(str(path)).pragma("user_version", 7), Level.FAIL),
    ],
)
def test_doctor_reports_a_path_that_is_not_a_store(tmp_path: Path, make: object, level: Level) -> None:
    path = tmp_path / "chats.db"
    assert callable(make)
    make(path)
    found, examined = check_store(f"sqlite:///{path}")
    assert (levels(found)["store"], examined) == (level, None)
    assert str(path) in found[0].message


async def test_doctor_warns_of_a_store_in_an_older_format(store: Path) -> None:
    connection = apsw.Connection(str(store))
    connection.pragma("user_version", 0)
    connection.close()
    assert levels(check_store(f"sqlite:///{store}")[0])["store"] is Level.WARN


def test_doctor_warns_of_an_in_memory_store() -> None:
    assert levels(check_store("memory:")[0]) == {"store": Level.WARN}


@pytest.mark.parametrize(
    ("change", "subject", "level"),
    [
        ({"journal_mode": "delete"}, "store log", Level.WARN),
        ({"log_bytes": 10**10}, "store log", Level.WARN),
        ({"is_stuck": True}, "store lock", Level.FAIL),
        ({"dead": 1}, "processes", Level.WARN),
        ({"unknown": 2}, "processes", Level.WARN),
        ({}, "processes", Level.OK),
    ],
)
def test_doctor_reports_store_file_anomalies(change: dict[str, int], subject: str, level: Level) -> None:
    found = check_file(Path("/somewhere/chats.db"), msgspec.structs.replace(SOUND, **change))
    assert levels(found)[subject] is level
    assert all(each.remedy for each in found if each.level is not Level.OK)


def test_doctor_counts_the_processes_of_a_store() -> None:
    assert check_participants(msgspec.structs.replace(SOUND, living=0))[0].message.startswith("0 processes")
    assert check_participants(SOUND)[0].message.startswith("1 process using")
    unknown = [check_participants(msgspec.structs.replace(SOUND, unknown=count))[0] for count in (1, 2)]
    assert [each.message.split("whether ")[1] for each in unknown] == [
        "1 process is alive",
        "2 processes are alive",
    ]


def test_doctor_reports_an_unwritable_and_a_nearly_full_disk(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    assert levels(check_disk(tmp_path)) == {"disk": Level.OK}
    [lost] = check_disk(tmp_path / "nowhere")
    assert (lost.level, "No such file" in lost.message) == (Level.FAIL, True)
    for bound in ("LITTLE", "TOO_LITTLE"):
        monkeypatch.setattr(doctor, bound, 10**18)
        expected = {"LITTLE": Level.WARN, "TOO_LITTLE": Level.FAIL}[bound]
        assert levels(check_disk(tmp_path)) == {"disk": expected}
    assert list(tmp_path.iterdir()) == []


def test_doctor_warns_of_a_network_filesystem(tmp_path: Path) -> None:
    mounts = tmp_path / "mounts"
    mounts.write_text("/dev/sda / ext4 rw 0 0\nhost:/x /mnt/my\\040disk nfs4 rw 0 0\nshort\n")
    assert filesystem_of(Path("/home/a"), mounts) == "ext4"
    assert check_filesystem(Path("/home/a"), mounts) == []
    assert levels(check_filesystem(Path("/mnt/my disk/deep/below"), mounts)) == {"filesystem": Level.WARN}
    assert filesystem_of(Path("/"), tmp_path / "nothing") is None


@pytest.mark.skipif(os.name != "posix", reason="permissions are those of POSIX")
def test_doctor_warns_of_a_store_readable_by_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Path, "parents", property(lambda self: (tmp_path,)))
    place = tmp_path / "chats.db"
    place.touch()
    for folder, mode, message in (
        (0o755, 0o644, "everyone"),
        (0o750, 0o644, "the group"),
        (0o755, 0o640, "the group"),
        (0o700, 0o644, "only its owner"),
        (0o755, 0o600, "only its owner"),
    ):
        tmp_path.chmod(folder)
        place.chmod(mode)
        [found] = check_permissions(place)
        assert message in found.message
        assert (found.level is Level.OK) == ("owner" in message)
    monkeypatch.setattr(os, "getuid", lambda: -1)
    assert "another user" in check_permissions(place)[0].message


def test_doctor_fails_an_unsafe_sqlite(monkeypatch: pytest.MonkeyPatch) -> None:
    assert levels(check_sqlite()) == {"SQLite": Level.OK}

    def unsafe() -> str:
        raise UnsafeSqlite

    monkeypatch.setattr(doctor, "sqlite_version", unsafe)
    assert levels(check_sqlite()) == {"SQLite": Level.FAIL}


KEY = "sk-very-secret"
LISTING = b'{"object": "list", "data": [{"id": "one"}, {"id": "two"}]}'


@asynccontextmanager
async def upstream(
    status: int = 200,
    body: bytes = LISTING,
    headers: Mapping[str, str] | None = None,
    *,
    closes: bool = False,
) -> AsyncIterator[tuple[str, list[web.Request]]]:
    requests: list[web.Request] = []

    async def answer(request: web.Request) -> web.Response:
        requests.append(request)
        response = web.Response(status=status, body=body, headers=headers)
        if closes:
            response.force_close()
        return response

    app = web.Application()
    app.router.add_get("/v1/models", answer)
    runner = web.AppRunner(app, handle_signals=False)
    await runner.setup()
    site = web.TCPSite(runner, "127.0.0.1", 0)
    await site.start()
    try:
        yield f"http://127.0.0.1:{runner.addresses[0][1]}/v1", requests
    finally:
        await runner.cleanup()


async def check_upstream(url: str, *, key: bool = False, model: str | None = None) -> UpstreamReport:
    variable = "API_KEY" if key else None
    models = {"m": ModelSettings(upstream=url, model=model, api_key_env=variable)} if model else {}
    settings = Settings(upstream=None if model else url, api_key_env=variable, models=models)
    [answered] = await check_upstreams(settings, {"API_KEY": KEY})
    assert KEY not in repr(answered)
    return answered


async def test_doctor_accepts_an_upstream_that_answers() -> None:
    async with upstream() as (url, requests):
        answered = await check_upstream(url, key=True)
    [found] = answered.findings
    assert (found.level, found.remedy) == (Level.OK, "")
    assert "API_KEY" in found.message
    assert "2 models" in found.message
    assert requests[0].headers["Authorization"] == f"Bearer {KEY}"
    assert answered.clock_ahead is not None


async def test_doctor_sends_no_authorization_without_an_api_key() -> None:
    async with upstream() as (url, requests):
        assert "without an api_key" in (await check_upstream(url)).findings[0].message
    assert "Authorization" not in requests[0].headers


@pytest.mark.parametrize(
    ("status", "body", "level", "message"),
    [
        (401, b"", Level.FAIL, "refused"),
        (403, b"", Level.FAIL, "refused"),
        (302, b"", Level.FAIL, "redirects"),
        (500, b"", Level.FAIL, "status 500"),
        (404, b"", Level.WARN, "no list of models"),
        (200, b"<html>", Level.WARN, "no list of models"),
        (200, b"[" * 100_000, Level.WARN, "no list of models"),
    ],
)
async def test_doctor_reports_each_upstream_status_with_a_remedy(
    status: int, body: bytes, level: Level, message: str
) -> None:
    for key in (True, False):
        async with upstream(status, body) as (url, _):
            [found] = (await check_upstream(url, key=key)).findings
        assert (found.level, message in found.message, bool(found.remedy)) == (level, True, True)


async def test_doctor_reports_an_unknown_upstream_model_with_the_known_ones() -> None:
    async with upstream() as (url, _):
        assert (await check_upstream(url, model="two")).findings[0].level is Level.OK
        [found] = (await check_upstream(url, model="three")).findings
    assert (found.level, "three" in found.message, "one, two" in found.remedy) == (Level.WARN, True, True)


@pytest.mark.parametrize(
    ("problem", "message"),
    [
        (socket.gaierror(-2, "unknown"), "unknown host name"),
        (ssl.SSLCertVerificationError(1, "expired"), "no secure connection"),
        (TimeoutError(), "timed out"),
        (ConnectionRefusedError(), "cannot be reached"),
    ],
)
async def test_doctor_reports_why_an_upstream_connection_failed(
    problem: OSError, message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def dial(*_: object) -> None:
        raise problem

    monkeypatch.setattr(pool, "dial", dial)
    [found] = (await check_upstream("http://a/v1")).findings
    assert (found.level, found.message) == (Level.FAIL, message)


async def test_doctor_reports_an_upstream_that_cuts_its_answer_as_unreachable() -> None:
    async with upstream(headers={"Content-Length": "9999"}, closes=True) as (url, _):
        [found] = (await check_upstream(url)).findings
    assert (found.level, found.message) == (Level.FAIL, "cannot be reached")


async def test_doctor_reports_an_upstream_that_times_out(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "PATIENCE", 0.05)
    async with upstream(headers={"Content-Length": "9999"}) as (url, _):
        [found] = (await check_upstream(url)).findings
    assert (found.level, found.message) == (Level.FAIL, "timed out")


async def test_doctor_reports_an_unsendable_api_key_without_its_text() -> None:
    settings = Settings(upstream="http://127.0.0.1:9/v1", api_key_env="API_KEY")
    [answered] = await check_upstreams(settings, {"API_KEY": f"{KEY}\n"})
    [found] = answered.findings
    assert found.level is Level.FAIL
    assert "invalid character" in found.message
    assert KEY not in repr(answered)


async def test_doctor_measures_the_clock_of_an_upstream(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor.time, "time", lambda: 1_800_000_000.0)
    async with upstream(headers={"Date": formatdate(1_800_000_100, usegmt=True)}) as (url, _):
        assert (await check_upstream(url)).clock_ahead == 100
    async with upstream(headers={"Date": "some day"}) as (url, _):
        assert (await check_upstream(url)).clock_ahead is None


async def test_doctor_distinguishes_a_refusing_proxy_from_the_upstream() -> None:
    async with upstream(status=405) as (url, _):  # which opens no tunnels
        at = url.removeprefix("http://").removesuffix("/v1")
        settings = Settings(upstream="https://model.test/v1", proxy=f"http://ann:s3cret@{at}")
        [answered] = await check_upstreams(settings, {})
    [finding] = answered.findings
    assert finding.level is Level.FAIL
    assert "The proxy could not connect to the model" in finding.message
    assert "HTTPS_PROXY" in finding.remedy
    assert "s3cret" not in repr(answered)


def test_doctor_checks_an_upstream_shared_by_several_models_once() -> None:
    url = "https://one.example/v1"
    models = {
        "a": ModelSettings(upstream=url),
        "b": ModelSettings(upstream=url, model="bee"),
        "c": ModelSettings(upstream=url, api_key_env="KEY"),
    }
    checks = upstreams_of(Settings(upstream="https://other.example", models=models))
    assert [(each.subject, each.api_key_env, each.models) for each in checks] == [
        ("upstream one.example", None, ("a", "bee")),
        ("upstream one.example", "KEY", ("c",)),
        ("upstream other.example", None, ()),
    ]


async def test_doctor_warns_of_an_api_key_over_plain_http() -> None:
    check = doctor.UpstreamCheck("http://models.example/v1", "API_KEY")
    [found] = doctor._check_transport(check, KEY)
    assert (found.level, KEY in repr(found)) == (Level.WARN, False)
    for url in ("https://models.example/v1", "http://127.0.0.1:1/v1"):
        assert doctor._check_transport(doctor.UpstreamCheck(url, "API_KEY"), KEY) == []
    assert doctor._check_transport(check, None) == []
