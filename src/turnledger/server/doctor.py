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
from turnledger.runners.upstream.failures import BrokenOff, ProxyFailed
from turnledger.server.access.guard import is_loopback
from turnledger.server.config.file import InvalidSettings
from turnledger.server.config.settings import Settings
from turnledger.server.listen.socket import PortInUse, allowed_files, bind, needed_for
from turnledger.stores.sqlite import path_of
from turnledger.stores.sqlite.files import MOUNTS, check_place, network_filesystem
from turnledger.stores.sqlite.migrations import VERSION
from turnledger.stores.sqlite.visit import Examination, sqlite_version
from turnledger.stores.sqlite.visit import examine as examine_file
from turnledger.stores.url import visit_store


class Level(StrEnum):
    OK = "OK"
    WARN = "WARN"  # the server runs, but may surprise
    FAIL = "FAIL"  # the server does not start, or turns fail


class Diagnosis(msgspec.Struct, frozen=True):
    """One finding. It never contains an api_key or a token."""

    subject: str
    level: Level
    told: str
    remedy: str = ""


def ok(subject: str, told: str) -> Diagnosis:
    return Diagnosis(subject, Level.OK, told)


def warn(subject: str, told: str, remedy: str) -> Diagnosis:
    return Diagnosis(subject, Level.WARN, told, remedy)


def fail(subject: str, told: str, remedy: str) -> Diagnosis:
    return Diagnosis(subject, Level.FAIL, told, remedy)


SKEW = 60.0
"""Seconds by which clocks may differ."""
EARLIEST = 1_735_689_600
"""The year 2025: a clock with an earlier date was never set."""
HEARING = 3.0
"""Seconds for a server at our port to respond."""


async def examine(load: Callable[[], Settings], environ: Mapping[str, str]) -> list[Diagnosis]:
    """Run all checks, with the settings that `load` returns."""
    found = [*check_versions(), *check_sqlite()]
    try:
        settings = load()
    except InvalidSettings as problem:
        # The message has the place and the remedy.
        return [*found, fail("settings", str(problem), "Mend this first: all else hangs on it.")]
    return [*found, ok("settings", "understood"), *await Doctor(settings, environ).findings()]


class Doctor:
    """One examination. A check that cannot run is itself a finding, and does not stop the others."""

    def __init__(
        self, settings: Settings, environ: Mapping[str, str], now: Callable[[], float] = time.time
    ) -> None:
        self._settings = settings
        self._environ = environ
        self._now = now
        self._stored: Examination | None = None
        self._any_tokens = False
        self._ahead: list[float] = []

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
                told = f"could not be looked at: {type(problem).__name__}"
                found.append(fail(subject, told, "This is a bug in Turnledger: please report it."))
        newest = self._stored.newest_ms if self._stored is not None else None
        found += check_open_files(self._settings)
        found += check_exposure(self._settings, any_tokens=self._any_tokens)
        return [*found, *check_clock(self._now(), self._ahead, newest)]

    async def _store(self) -> list[Diagnosis]:
        found, self._stored = await asyncio.to_thread(check_store, self._settings.store)
        if self._stored is not None:
            visit = await visit_store(self._settings.store)
            try:
                self._any_tokens = (await visit.read(find, FindRequest(None, OWNER))).any_tokens
            finally:
                await visit.close()
        return found

    async def _port(self) -> list[Diagnosis]:
        return await asyncio.to_thread(check_port, self._settings)

    async def _upstreams(self) -> list[Diagnosis]:
        answers = await check_upstreams(self._settings, self._environ)
        self._ahead = [each.clock_ahead for each in answers if each.clock_ahead is not None]
        return [finding for each in answers for finding in each.findings]


def check_versions() -> list[Diagnosis]:
    return [ok("versions", f"Turnledger {version('turnledger')}, Python {platform.python_version()}")]


def check_exposure(settings: Settings, *, any_tokens: bool) -> list[Diagnosis]:
    where = f"{settings.host}:{settings.port}"
    if any_tokens:
        return [ok("access", f"at {where}, with a token only")]
    if not settings.insecure and not is_loopback(settings.host):
        told = f"{where} can be reached from other machines, and there is no token"
        return [fail("access", told, "Make one: turnledger tokens create. Or listen at 127.0.0.1.")]
    if settings.insecure:
        remedy = "Create a token, or make sure that your proxy authorizes its callers."
        if is_loopback(settings.host):
            told = f"at {where} everybody on this machine, and everybody who comes through a proxy"
        else:
            told = f"at {where} everybody who can reach this machine may call it without a token"
        return [warn("access", told, remedy)]
    told = f"at {where}, programs on this machine only; behind any proxy, create a token first"
    return [ok("access", told)]


def check_open_files(settings: Settings) -> list[Diagnosis]:
    """Check that the system allows as many connections as the settings."""
    wanted = needed_for(settings.limits.requests)
    allowed = allowed_files(wanted)
    if allowed >= wanted:
        return []
    told = f"the system allows {allowed} open files, and {settings.limits.requests} requests need {wanted}"
    remedy = "Raise its limit (ulimit -Hn, LimitNOFILE= of systemd), or lower `requests`."
    return [warn("open files", told, remedy)]


def check_port(settings: Settings) -> list[Diagnosis]:
    """Check that the port is free, or used by our own server. Blocks."""
    try:
        bind(settings).close()
    except PortInUse:
        return _check_listener(settings)
    except InvalidSettings as problem:
        return [fail("port", str(problem), "Until then the server does not start.")]
    return [ok("port", f"{settings.port} is free")] if settings.port else []


def _check_listener(settings: Settings) -> list[Diagnosis]:
    host = settings.host.strip("[]")
    host = {"0.0.0.0": "127.0.0.1", "::": "::1"}.get(host, host)  # noqa: S104 - asked, not listened at
    connection = http.client.HTTPConnection(host, settings.port, timeout=HEARING)
    try:
        connection.request("GET", "/readyz", headers={"Host": f"localhost:{settings.port}"})
        answer = connection.getresponse()
        status = msgspec.json.decode(answer.read(65_536), type=dict[str, str])["status"]
    except (OSError, http.client.HTTPException, msgspec.MsgspecError, KeyError, UnicodeDecodeError):
        remedy = "End that, or choose another port with --port."
        return [fail("port", f"something else listens at {settings.port}", remedy)]
    finally:
        connection.close()
    if answer.status == 200:
        return [ok("port", f"a server runs at {settings.port}, and is {status}")]
    return [fail("port", f"a server runs at {settings.port}, and is not ready: {status}", "See its log.")]


def check_clock(now: float, ahead: list[float], newest_ms: int | None) -> list[Diagnosis]:
    """Compare the clock with those of upstream and store: it sorts lists and lets conversations expire."""
    remedy = "Set the clock, and have it kept by NTP."
    if now < EARLIEST:
        return [fail("clock", "it was never set", remedy)]
    if not time.get_clock_info("monotonic").monotonic:
        return [fail("clock", "this system has no clock that never goes back", "Use another system.")]
    found = []
    if ahead and min(map(abs, ahead)) > SKEW:
        off = min(ahead, key=abs)
        way = "behind" if off > 0 else "ahead of"
        found.append(warn("clock", f"{abs(off):.0f} seconds {way} that of the upstream", remedy))
    if newest_ms is not None and newest_ms / 1000 - now > SKEW:
        told = f"the last turn is from {newest_ms / 1000 - now:.0f} seconds in the future"
        found.append(warn("clock", told, f"{remedy} Until then, what is new is listed as if it were old."))
    return found or [ok("clock", "as that of the upstream" if ahead else "nothing speaks against it")]


TOO_LITTLE, LITTLE = 16 * 2**20, 256 * 2**20
"""Bytes of free space below which turns soon fail, and below which to warn."""
LONG_LOG = 512 * 2**20
TRIAL = bytes(64 * 1024)


def check_sqlite() -> list[Diagnosis]:
    try:
        return [ok("SQLite", f"version {sqlite_version()}")]
    except StoreError as problem:
        return [fail("SQLite", str(problem), "pip install --upgrade apsw")]


def check_store(url: str) -> tuple[list[Diagnosis], Examination | None]:
    """Check the store of a URL; return its contents, too. Blocks; does not change the store."""
    if url.startswith("memory:"):
        told = "everything is kept in memory, and gone with the server"
        return [
            warn("store", told, "Name a file to keep conversations: --store sqlite:////path/chats.db")
        ], None
    try:
        path = path_of(url)
        place = check_place(path)
    except StoreError as problem:
        return [fail("store", str(problem), "Name another file with --store, or mend this one.")], None
    around = [*check_disk(place.parent), *check_filesystem(place.parent)]
    if not place.exists() or not place.stat().st_size:
        return [ok("store", f"{place} is not there yet, and will be made"), *around], None
    try:
        found = examine_file(path)
    except StoreError as problem:
        diagnose = warn if type(problem) is StoreError else fail  # an older version: serving upgrades it
        return [diagnose("store", str(problem), "See what is said of it."), *around], None
    return [*check_file(place, found), *check_permissions(place), *around], found


def check_file(place: Path, found: Examination) -> list[Diagnosis]:
    size = f"{place}, {_bytes(found.file_bytes)}, schema {found.schema} of {VERSION}"
    told = [ok("store", size)]
    if found.journal_mode != "wal":
        remedy = "The server sets it when it starts; if it stays so, use a local disk."
        told.append(warn("store log", f"the journal mode is {found.journal_mode}, and should be wal", remedy))
    elif found.log_bytes > LONG_LOG:
        remedy = "Find the program that keeps reading the file, such as an open sqlite3 shell, and end it."
        told.append(warn("store log", f"the log has grown to {_bytes(found.log_bytes)}", remedy))
    if found.is_stuck:
        remedy = f"Find the program that has the file open, for example with: fuser {place}"
        told.append(fail("store lock", "another process holds the file and does not let go", remedy))
    return [*told, *check_participants(found)]


def check_participants(found: Examination) -> list[Diagnosis]:
    if found.dead:
        told = f"{_processes(found.dead)} died and left turns or a lease behind"
        remedy = "Nothing needs to be done: the next server to start, or one that runs, takes that up."
        return [warn("processes", told, remedy)]
    if found.unknown:
        told = f"of {_processes(found.unknown)} it cannot be seen here whether they live"
        remedy = "They may be other users', or on other machines, where SQLite files must not be shared."
        return [warn("processes", told, remedy)]
    return [ok("processes", f"{_processes(found.living)} at work in the store")]


def check_disk(folder: Path) -> list[Diagnosis]:
    """Check that the disk can be written to, and how much space is free."""
    try:
        with tempfile.TemporaryFile(dir=folder) as trial:
            trial.write(TRIAL)
            trial.flush()
            os.fsync(trial.fileno())
    except OSError as problem:
        remedy = "Free some space, or check the permissions and the mount of this folder."
        return [fail("disk", f"{folder} cannot be written to: {problem.strerror}", remedy)]
    free = shutil.disk_usage(folder).free
    told = f"{_bytes(free)} free in {folder}"
    if free < TOO_LITTLE:
        return [fail("disk", told, "Free some space: turns fail when there is none left.")]
    if free < LITTLE:
        return [warn("disk", told, "Free some space soon.")]
    return [ok("disk", told)]


def check_filesystem(folder: Path, mounts: Path = MOUNTS) -> list[Diagnosis]:
    """Warn about a network filesystem; no finding where the kind is unknown."""
    kind = network_filesystem(folder, mounts)
    if kind is None:
        return []
    remedy = "Move the store to a local disk: over a network, locks and the log are not reliable."
    return [warn("filesystem", f"{folder} is on {kind}, which is a network filesystem", remedy)]


def check_permissions(place: Path) -> list[Diagnosis]:
    if os.name != "posix":
        return []
    open_to = _open_to(place)
    if open_to:
        remedy = f"chmod 600 {place}"
        return [warn("permissions", f"{open_to} on this machine can read {place}", remedy)]
    if place.stat().st_uid != os.getuid():
        remedy = "Serve as its owner, who may not be able to read what other users write."
        return [warn("permissions", f"{place} belongs to another user", remedy)]
    return [ok("permissions", "the store can be read by its user only")]


def _open_to(place: Path) -> str:
    for who, reads, enters in (
        ("everybody", stat.S_IROTH, stat.S_IXOTH),
        ("the group", stat.S_IRGRP, stat.S_IXGRP),
    ):
        if place.stat().st_mode & reads and all(each.stat().st_mode & enters for each in place.parents):
            return who
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


class Answered(msgspec.Struct, frozen=True):
    findings: list[Diagnosis]
    clock_ahead: float | None = None
    """Seconds by which its clock is ahead of ours, if it sent the time."""


def upstreams_of(settings: Settings) -> list[UpstreamCheck]:
    wanted: dict[tuple[str, str | None, bool | str], list[str]] = {}
    for name, model in settings.models.items():
        way = (model.upstream, model.api_key_env, model.proxy)
        wanted.setdefault(way, []).append(model.model or name)
    if settings.upstream is not None:
        wanted.setdefault((settings.upstream, settings.api_key_env, settings.proxy), [])
    return [
        UpstreamCheck(url, variable, tuple(names), proxy) for (url, variable, proxy), names in wanted.items()
    ]


async def check_upstreams(settings: Settings, environ: Mapping[str, str]) -> list[Answered]:
    asked = upstreams_of(settings)
    if not asked:
        return [Answered([ok("models", "the demo model, which needs no network")])]
    return list(await asyncio.gather(*(check_upstream(each, environ) for each in asked)))


async def check_upstream(asked: UpstreamCheck, environ: Mapping[str, str]) -> Answered:
    """Request the models of one upstream, which is free of charge."""
    api_key = environ.get(asked.api_key_env) if asked.api_key_env else None
    try:
        got = await get(asked.url, "/models", api_key, seconds=PATIENCE, limit=LARGEST, proxy=asked.proxy)
    except InvalidInput as problem:
        remedy = f"Check {asked.api_key_env}, and `upstream` and `proxy` in the settings."
        return Answered([fail(asked.subject, str(problem), remedy)])
    except ProxyFailed as failed:
        remedy = "Check HTTPS_PROXY, HTTP_PROXY and NO_PROXY, or `proxy` in the settings."
        return Answered([fail(asked.subject, str(failed), remedy)])
    except BrokenOff as broken_off:
        return Answered([_unreachable(asked, broken_off.__cause__)])
    except (ModelError, TimeoutError) as problem:
        return Answered([_unreachable(asked, problem)])
    findings = [*_of_status(asked, got.status, got.body), *_of_transport(asked, api_key)]
    return Answered(findings, _ahead(got.headers.get(b"date", b"").decode("latin-1")))


def _unreachable(asked: UpstreamCheck, problem: BaseException | None) -> Diagnosis:
    if isinstance(problem, TimeoutError):
        return fail(asked.subject, "did not answer in time", "Is it up, and is there a firewall between?")
    if isinstance(problem, socket.gaierror):
        return fail(asked.subject, "its name is not known", "Check `upstream` in the settings, and DNS.")
    if isinstance(problem, ssl.SSLError):
        remedy = "Check its certificate, and whether it is https at all."
        return fail(asked.subject, "no secure connection could be made", remedy)
    remedy = "Is it running? Check host and port of `upstream` in the settings."
    return fail(asked.subject, "cannot be reached", remedy)


def _of_status(asked: UpstreamCheck, status: int, body: bytes) -> list[Diagnosis]:
    key = f"with the api_key in {asked.api_key_env}" if asked.api_key_env else "without an api_key"
    if status in REFUSED:
        remedy = f"Check {asked.api_key_env}." if asked.api_key_env else "Name its variable: api_key_env."
        return [fail(asked.subject, f"refused to answer {key} (status {status})", remedy)]
    if 300 <= status < 400:
        return [fail(asked.subject, f"redirects (status {status})", "Write the URL that it redirects to.")]
    if status >= 500:
        return [
            fail(asked.subject, f"answers, but with an error of its own (status {status})", "See its log.")
        ]
    names = _names(body) if status == 200 else None
    if names is None:
        remedy = "Does `upstream` end where /chat/completions follows, often in /v1? Else it has no list."
        told = f"answers {key}, but has no list of models (status {status})"
        return [warn(asked.subject, told, remedy)]
    missing = [name for name in asked.models if name not in names]
    if missing:
        known = ", ".join(sorted(names)[:SHOWN]) + (" …" if len(names) > SHOWN else "")
        told = f"answers {key}, but does not list {', '.join(missing)}"
        return [warn(asked.subject, plain(told), plain(f"Set `model` to one that it has: {known or 'none'}"))]
    counted = f"{len(names)} model{'' if len(names) == 1 else 's'}"
    return [ok(asked.subject, f"answers {key}, and lists {counted}")]


def _of_transport(asked: UpstreamCheck, api_key: str | None) -> list[Diagnosis]:
    parts = urlsplit(asked.url)
    if api_key is None or parts.scheme == "https" or is_loopback(parts.hostname or ""):
        return []
    told = "the api_key travels unencrypted"
    return [warn(asked.subject, told, "Use https, if the way there is not wholly yours.")]


class _Model(msgspec.Struct):
    id: str = ""


class _Listing(msgspec.Struct):
    data: list[_Model]


def _names(body: bytes) -> set[str] | None:
    try:
        return {model.id for model in msgspec.json.decode(body, type=_Listing).data}
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None


def _ahead(date: str) -> float | None:
    try:
        return parsedate_to_datetime(date).timestamp() - time.time()
    except (TypeError, ValueError):
        return None
