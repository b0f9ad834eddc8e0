"""The doctor: examines everything that a server needs, with a remedy for each finding. It changes nothing."""

from __future__ import annotations

import asyncio
import http.client
import os
import platform
import shutil
import socket
import ssl
import stat
import tempfile
import time
from collections.abc import Awaitable, Callable, Mapping
from email.utils import parsedate_to_datetime
from enum import StrEnum
from importlib.metadata import version
from pathlib import Path
from urllib.parse import urlsplit

import msgspec

from turnledger.engine.access.tokens import FindRequest, find
from turnledger.errors import InvalidInput, ModelError, StoreError
from turnledger.ledger import OWNER
from turnledger.model.text.plain import plain
from turnledger.runners.http.pool import get
from turnledger.runners.upstream.failures import ProxyFailure, UpstreamFailure
from turnledger.server.access.guard import is_loopback
from turnledger.server.config.file import InvalidSettings
from turnledger.server.config.settings import Settings
from turnledger.server.listen.socket import PortInUse, allowed_files, bind, open_files_for
from turnledger.stores.sqlite import path_of
from turnledger.stores.sqlite.files import MOUNTS, check_place, network_filesystem
from turnledger.stores.sqlite.migrations import VERSION
from turnledger.stores.sqlite.read_only import Examination, sqlite_version
from turnledger.stores.sqlite.read_only import examine as examine_file
from turnledger.stores.url import is_postgresql, open_read_only


class Level(StrEnum):
    OK = "OK"
    WARN = "WARN"  # the server runs, but may surprise
    FAIL = "FAIL"  # the server does not start, or turns fail


class Diagnosis(msgspec.Struct, frozen=True):
    """One finding. It never contains an api_key or a token."""

    subject: str
    level: Level
    message: str = msgspec.field(name="told")  # as `doctor --json` prints it
    remedy: str = ""


def ok(subject: str, message: str) -> Diagnosis:
    return Diagnosis(subject, Level.OK, message)


def warn(subject: str, message: str, remedy: str) -> Diagnosis:
    return Diagnosis(subject, Level.WARN, message, remedy)


def fail(subject: str, message: str, remedy: str) -> Diagnosis:
    return Diagnosis(subject, Level.FAIL, message, remedy)


SKEW = 60.0
"""Seconds by which clocks may differ."""
EARLIEST = 1_735_689_600
"""The year 2025: a clock with an earlier date was never set."""
LISTENER_TIMEOUT = 3.0
"""Seconds for a server at our port to respond."""


async def examine(load: Callable[[], Settings], environ: Mapping[str, str]) -> list[Diagnosis]:
    """Run all checks, with the settings that `load` returns."""
    found = [*check_versions(), *check_sqlite()]
    try:
        settings = load()
    except InvalidSettings as problem:
        # The message has the place and the remedy.
        return [*found, fail("settings", str(problem), "Fix this first: the other checks depend on it.")]
    return [*found, ok("settings", "valid"), *await Doctor(settings, environ).findings()]


class Doctor:
    """One examination. A check that cannot run is itself a finding, and does not stop the others."""

    def __init__(self, settings: Settings, environ: Mapping[str, str]) -> None:
        self._settings = settings
        self._environ = environ
        self._examination: Examination | None = None
        self._any_tokens = False
        self._clock_ahead: list[float] = []

    async def findings(self) -> list[Diagnosis]:
        checks: dict[str, Callable[[], Awaitable[list[Diagnosis]]]] = {
            "store": self._store,
            "port": self._port,
            "upstreams": self._upstreams,
        }
        found: list[Diagnosis] = []
        for subject, check in checks.items():
            try:
                found += await check()
            except Exception as problem:
                message = f"could not be checked: {type(problem).__name__}"
                found.append(fail(subject, message, "This is a bug in Turnledger: please report it."))
        newest = self._examination.newest_ms if self._examination is not None else None
        found += check_open_files(self._settings)
        found += check_exposure(self._settings, any_tokens=self._any_tokens)
        return [*found, *check_clock(time.time(), self._clock_ahead, newest)]

    async def _store(self) -> list[Diagnosis]:
        found, self._examination = await asyncio.to_thread(check_store, self._settings.store)
        if self._examination is not None:
            store = await open_read_only(self._settings.store)
            try:
                self._any_tokens = (await store.read_whole(find, FindRequest(None, OWNER))).any_tokens
            finally:
                await store.close()
        return found

    async def _port(self) -> list[Diagnosis]:
        return await asyncio.to_thread(check_port, self._settings)

    async def _upstreams(self) -> list[Diagnosis]:
        answers = await check_upstreams(self._settings, self._environ)
        self._clock_ahead = [each.clock_ahead for each in answers if each.clock_ahead is not None]
        return [finding for each in answers for finding in each.findings]


def check_versions() -> list[Diagnosis]:
    return [ok("versions", f"Turnledger {version('turnledger')}, Python {platform.python_version()}")]


def check_exposure(settings: Settings, *, any_tokens: bool) -> list[Diagnosis]:
    address = f"{settings.host}:{settings.port}"
    if any_tokens:
        return [ok("access", f"{address} requires a token")]
    if not settings.insecure and not is_loopback(settings.host):
        message = f"{address} is reachable from other machines, and no token exists"
        return [fail("access", message, "Create one: turnledger tokens create. Or listen on 127.0.0.1.")]
    if settings.insecure:
        remedy = "Create a token, or make sure that your proxy authenticates its callers."
        if is_loopback(settings.host):
            message = f"{address} is open to everyone on this machine and to all requests through a proxy"
        else:
            message = f"{address} is open without a token to everyone who can reach this machine"
        return [warn("access", message, remedy)]
    message = f"{address} is open to programs on this machine; before using a proxy, create a token"
    return [ok("access", message)]


def check_open_files(settings: Settings) -> list[Diagnosis]:
    """Check that the system allows as many connections as the settings."""
    expected = open_files_for(settings.limits.requests)
    allowed = allowed_files(expected)
    if allowed >= expected:
        return []
    message = f"the system allows {allowed} open files; {settings.limits.requests} requests need {expected}"
    remedy = "Raise the limit (ulimit -Hn; LimitNOFILE= in systemd), or lower `requests`."
    return [warn("open files", message, remedy)]


def check_port(settings: Settings) -> list[Diagnosis]:
    """Check that the port is free, or used by our own server. Blocks."""
    try:
        bind(settings).close()
    except PortInUse:
        return _check_listener(settings)
    except InvalidSettings as problem:
        return [fail("port", str(problem), "The server cannot start until this is fixed.")]
    return [ok("port", f"{settings.port} is free")] if settings.port else []


def _check_listener(settings: Settings) -> list[Diagnosis]:
    host = settings.host.strip("[]")
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)  # noqa: S104 - asked, not listened at
    connection = http.client.HTTPConnection(host, settings.port, timeout=LISTENER_TIMEOUT)
    try:
        connection.request("GET", "/readyz", headers={"Host": f"localhost:{settings.port}"})
        answer = connection.getresponse()
        status = msgspec.json.decode(answer.read(65_536), type=dict[str, str])["status"]
    except (OSError, http.client.HTTPException, msgspec.MsgspecError, KeyError, UnicodeDecodeError):
        remedy = "Stop it, or choose another port with --port."
        return [fail("port", f"another program listens on {settings.port}", remedy)]
    finally:
        connection.close()
    if answer.status == 200:
        message = f"a server already runs on {settings.port} and is {status}"
        return [warn("port", message, "`serve` cannot use this port while that server runs.")]
    return [fail("port", f"a server runs on {settings.port} and is not ready: {status}", "See its log.")]


def check_clock(now: float, ahead: list[float], newest_ms: int | None) -> list[Diagnosis]:
    """Compare the clock with those of upstream and store: it sorts lists and lets conversations expire."""
    remedy = "Set the clock, and enable NTP."
    if now < EARLIEST:
        return [fail("clock", "never set", remedy)]
    if not time.get_clock_info("monotonic").monotonic:
        return [fail("clock", "this system has no monotonic clock", "Use another system.")]
    found = []
    if ahead and min(map(abs, ahead)) > SKEW:
        skew = min(ahead, key=abs)
        direction = "behind" if skew > 0 else "ahead of"
        found.append(warn("clock", f"{abs(skew):.0f} seconds {direction} the upstream", remedy))
    if newest_ms is not None and newest_ms / 1000 - now > SKEW:
        message = f"the last turn is {newest_ms / 1000 - now:.0f} seconds in the future"
        found.append(warn("clock", message, f"{remedy} Until then, new chats are listed as old ones."))
    return found or [ok("clock", "agrees with the upstream" if ahead else "plausible")]


TOO_LITTLE, LITTLE = 16 * 2**20, 256 * 2**20
"""Bytes of free space below which turns soon fail, and below which to warn."""
LONG_LOG = 512 * 2**20
LONG_TRANSACTION = 60.0
"""Seconds: the transactions of a server take less than one."""
TEST_BYTES = bytes(64 * 1024)


def check_sqlite() -> list[Diagnosis]:
    try:
        return [ok("SQLite", f"version {sqlite_version()}")]
    except StoreError as problem:
        return [fail("SQLite", str(problem), "pip install --upgrade apsw")]


def check_store(url: str) -> tuple[list[Diagnosis], Examination | None]:
    """Check the store of a URL; return its contents, too. Blocks; does not change the store."""
    if url.startswith("memory:"):
        message = "chats are kept in memory, and lost when the server stops"
        return [warn("store", message, "To keep chats, use a file: --store sqlite:////path/chats.db")], None
    if is_postgresql(url):
        return check_database(url), None
    try:
        path = path_of(url)
        file = check_place(path)
    except StoreError as problem:
        return [fail("store", str(problem), "Choose another file with --store, or repair this one.")], None
    disk_findings = [*check_disk(file.parent), *check_filesystem(file.parent)]
    if not file.exists() or not file.stat().st_size:
        return [ok("store", f"{file} does not exist yet; the server creates it"), *disk_findings], None
    try:
        found = examine_file(path)
    except StoreError as problem:
        diagnose = warn if type(problem) is StoreError else fail  # an older version: serving upgrades it
        return [diagnose("store", str(problem), "See the message."), *disk_findings], None
    return [*check_file(file, found), *check_permissions(file), *disk_findings], found


def check_database(url: str) -> list[Diagnosis]:
    from turnledger.stores.postgresql.examination import examine as examine_database

    try:
        found = asyncio.run(examine_database(url))
    except StoreError as problem:
        return [fail("store", str(problem), "Correct the URL in --store, or the database that it names.")]
    schema = f"schema {found.schema} of {found.known_schema}" if found.schema else "no tables yet"
    message = f"{found.place}, PostgreSQL {found.server}, {schema}"
    if 0 < found.schema < found.known_schema:
        store = warn("store", message, "Stop all servers and back it up: the next one to start upgrades it.")
    else:
        store = ok("store", message)
    diagnoses = [store, ok("processes", f"{_processes(len(found.leases))} using the store")]
    if not found.is_synced:
        message = "fsync is off in the database: if its machine crashes, acknowledged turns are lost"
        diagnoses.append(warn("disk", message, "Set fsync = on in postgresql.conf, and reload it."))
    if found.oldest_transaction is not None and found.oldest_transaction > LONG_TRANSACTION:
        message = (
            f"a transaction in the database server is open for {found.oldest_transaction:.0f} seconds: "
            "clients receive no changes made since"
        )
        remedy = "Find it in pg_stat_activity by xact_start, or in pg_prepared_xacts, and end it."
        diagnoses.append(warn("live updates", message, remedy))
    return diagnoses


def check_file(file: Path, found: Examination) -> list[Diagnosis]:
    size = f"{file}, {_bytes(found.file_bytes)}, schema {found.schema} of {VERSION}"
    diagnoses = [ok("store", size)]
    if found.journal_mode != "wal":
        remedy = "The server sets it when it starts. If it does not change, use a local disk."
        message = f"the journal mode is {found.journal_mode} instead of wal"
        diagnoses.append(warn("store log", message, remedy))
    elif found.log_bytes > LONG_LOG:
        remedy = "Find and stop the program that keeps reading the file, such as an open sqlite3 shell."
        diagnoses.append(warn("store log", f"the log has grown to {_bytes(found.log_bytes)}", remedy))
    if found.is_stuck:
        remedy = f"Find the program that has the file open: fuser {file}"
        diagnoses.append(fail("store lock", "another process holds the lock of the file", remedy))
    return [*diagnoses, *check_participants(found)]


def check_participants(found: Examination) -> list[Diagnosis]:
    if found.dead:
        message = f"{_processes(found.dead)} died with running turns or a lease"
        remedy = "No action needed: a running server, or the next one to start, recovers them."
        return [warn("processes", message, remedy)]
    if found.unknown:
        verb = "is" if found.unknown == 1 else "are"
        message = f"cannot determine whether {_processes(found.unknown)} {verb} alive"
        remedy = (
            "Normal in a restored backup. Otherwise another user runs it, "
            "or another machine, which must not share a SQLite file."
        )
        return [warn("processes", message, remedy)]
    return [ok("processes", f"{_processes(found.living)} using the store")]


def check_disk(folder: Path) -> list[Diagnosis]:
    """Check that the disk can be written to, and how much space is free."""
    try:
        with tempfile.TemporaryFile(dir=folder) as test_file:
            test_file.write(TEST_BYTES)
            test_file.flush()
            os.fsync(test_file.fileno())
    except OSError as problem:
        remedy = "Free some space, or check the permissions and the mount of this folder."
        return [fail("disk", f"{folder} cannot be written to: {problem.strerror}", remedy)]
    free = shutil.disk_usage(folder).free
    message = f"{_bytes(free)} free in {folder}"
    if free < TOO_LITTLE:
        return [fail("disk", message, "Free some space: without it, turns fail.")]
    if free < LITTLE:
        return [warn("disk", message, "Free some space soon.")]
    return [ok("disk", message)]


def check_filesystem(folder: Path, mounts: Path = MOUNTS) -> list[Diagnosis]:
    """Warn about a network filesystem; no finding where the kind is unknown."""
    kind = network_filesystem(folder, mounts)
    if kind is None:
        return []
    remedy = "Move the store to a local disk: network locks are not reliable."
    return [warn("filesystem", f"{folder} is on {kind}, a network filesystem", remedy)]


def check_permissions(file: Path) -> list[Diagnosis]:
    if os.name != "posix":
        return []
    open_to = _open_to(file)
    if open_to:
        remedy = f"chmod 600 {file}"
        return [warn("permissions", f"{open_to} on this machine can read {file}", remedy)]
    if file.stat().st_uid != os.getuid():
        remedy = "Run the server as the owner of the file."
        return [warn("permissions", f"{file} belongs to another user", remedy)]
    return [ok("permissions", "only its owner can read the store")]


def _open_to(file: Path) -> str:
    for readers, reads, traverses in (
        ("everyone", stat.S_IROTH, stat.S_IXOTH),
        ("the group", stat.S_IRGRP, stat.S_IXGRP),
    ):
        if file.stat().st_mode & reads and all(each.stat().st_mode & traverses for each in file.parents):
            return readers
    return ""


def _processes(count: int) -> str:
    return f"{count} process{'' if count == 1 else 'es'}"


def _bytes(count: int) -> str:
    size, unit = float(count), "bytes"
    for unit in ("bytes", "kB", "MB", "GB", "TB"):
        if size < 1000 or unit == "TB":
            break
        size /= 1000
    return f"{size:.0f} {unit}" if unit == "bytes" else f"{size:.1f} {unit}"


PATIENCE = 10.0
"""Seconds for an upstream to respond."""
SHOWN = 5
LARGEST = 4 * 1024 * 1024
REFUSED = frozenset({401, 402, 403, 407})


class UpstreamCheck(msgspec.Struct, frozen=True):
    """An upstream, and what the settings expect of it."""

    url: str
    api_key_env: str | None
    models: tuple[str, ...] = ()
    """Names that the upstream must know; empty if every name is passed on."""
    proxy: bool | str = True

    @property
    def subject(self) -> str:
        return f"upstream {urlsplit(self.url).netloc}"


class UpstreamReport(msgspec.Struct, frozen=True):
    findings: list[Diagnosis]
    clock_ahead: float | None = None
    """Seconds by which its clock is ahead of ours, if it sent the time."""


def upstreams_of(settings: Settings) -> list[UpstreamCheck]:
    expected: dict[tuple[str, str | None, bool | str], list[str]] = {}
    for name, model in settings.models.items():
        direction = (model.upstream, model.api_key_env, model.proxy)
        expected.setdefault(direction, []).append(model.model or name)
    if settings.upstream is not None:
        expected.setdefault((settings.upstream, settings.api_key_env, settings.proxy), [])
    return [
        UpstreamCheck(url, variable, tuple(names), proxy)
        for (url, variable, proxy), names in expected.items()
    ]


async def check_upstreams(settings: Settings, environ: Mapping[str, str]) -> list[UpstreamReport]:
    upstream = upstreams_of(settings)
    if not upstream:
        return [UpstreamReport([ok("models", "demo model; no network needed")])]
    return list(await asyncio.gather(*(check_upstream(each, environ) for each in upstream)))


async def check_upstream(upstream: UpstreamCheck, environ: Mapping[str, str]) -> UpstreamReport:
    """Request the models of one upstream, which is free of charge."""
    api_key = environ.get(upstream.api_key_env) if upstream.api_key_env else None
    try:
        response = await get(
            upstream.url, "/models", api_key, seconds=PATIENCE, limit=LARGEST, proxy=upstream.proxy
        )
    except InvalidInput as problem:
        remedy = f"Check {upstream.api_key_env}, and `upstream` and `proxy` in the settings."
        return UpstreamReport([fail(upstream.subject, str(problem), remedy)])
    except ProxyFailure as failed:
        remedy = "Check HTTPS_PROXY, HTTP_PROXY and NO_PROXY, or `proxy` in the settings."
        return UpstreamReport([fail(upstream.subject, str(failed), remedy)])
    except UpstreamFailure as broken_off:
        return UpstreamReport([_unreachable(upstream, broken_off.__cause__)])
    except (ModelError, TimeoutError) as problem:
        return UpstreamReport([_unreachable(upstream, problem)])
    findings = [
        *_check_status(upstream, response.status, response.body),
        *_check_transport(upstream, api_key),
    ]
    return UpstreamReport(findings, _clock_ahead(response.headers.get(b"date", b"").decode("latin-1")))


def _unreachable(upstream: UpstreamCheck, problem: BaseException | None) -> Diagnosis:
    if isinstance(problem, TimeoutError):
        return fail(upstream.subject, "timed out", "Check that it is running, and check the firewall.")
    if isinstance(problem, socket.gaierror):
        return fail(upstream.subject, "unknown host name", "Check `upstream` in the settings, and DNS.")
    if isinstance(problem, ssl.SSLError):
        remedy = "Check its certificate, and whether it uses https."
        return fail(upstream.subject, "no secure connection", remedy)
    remedy = "Check that it is running, and check host and port of `upstream` in the settings."
    return fail(upstream.subject, "cannot be reached", remedy)


def _check_status(upstream: UpstreamCheck, status: int, body: bytes) -> list[Diagnosis]:
    key = f"with the api_key in {upstream.api_key_env}" if upstream.api_key_env else "without an api_key"
    if status in REFUSED:
        remedy = (
            f"Check {upstream.api_key_env}."
            if upstream.api_key_env
            else "Set api_key_env to the name of its variable."
        )
        return [fail(upstream.subject, f"refused the request {key} (status {status})", remedy)]
    if 300 <= status < 400:
        return [fail(upstream.subject, f"redirects (status {status})", "Use the URL that it redirects to.")]
    if status >= 500:
        return [fail(upstream.subject, f"responds with a server error (status {status})", "See its log.")]
    names = _names(body) if status == 200 else None
    if names is None:
        remedy = "Check that `upstream` ends before /chat/completions, often in /v1."
        message = f"responds {key}, but has no list of models (status {status})"
        return [warn(upstream.subject, message, remedy)]
    missing = [name for name in upstream.models if name not in names]
    if missing:
        known = ", ".join(sorted(names)[:SHOWN]) + (" …" if len(names) > SHOWN else "")
        message = f"responds {key}, but does not list {', '.join(missing)}"
        return [
            warn(
                upstream.subject,
                plain(message),
                plain(f"Set `model` to one of its models: {known or 'none'}"),
            )
        ]
    counted = f"{len(names)} model{'' if len(names) == 1 else 's'}"
    return [ok(upstream.subject, f"responds {key}, and lists {counted}")]


def _check_transport(upstream: UpstreamCheck, api_key: str | None) -> list[Diagnosis]:
    parts = urlsplit(upstream.url)
    if api_key is None or parts.scheme == "https" or is_loopback(parts.hostname or ""):
        return []
    message = "the api_key is sent unencrypted"
    return [warn(upstream.subject, message, "Use https, unless the whole network is yours.")]


class _Model(msgspec.Struct):
    id: str = ""


class _Listing(msgspec.Struct):
    data: list[_Model]


def _names(body: bytes) -> set[str] | None:
    try:
        return {model.id for model in msgspec.json.decode(body, type=_Listing).data}
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None


def _clock_ahead(date: str) -> float | None:
    try:
        return parsedate_to_datetime(date).timestamp() - time.time()
    except (TypeError, ValueError):
        return None
