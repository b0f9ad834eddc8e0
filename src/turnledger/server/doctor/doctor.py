"""The doctor: looks at everything that a server needs, and says what to do. It changes nothing."""

from __future__ import annotations

import asyncio
import http.client
import platform
import time
from collections.abc import Awaitable, Callable, Mapping
from importlib.metadata import version

import msgspec

from turnledger.engine.access.tokens import FindRequest, find
from turnledger.ledger import OWNER
from turnledger.server.access.guard import is_loopback
from turnledger.server.config.file import InvalidSettings
from turnledger.server.config.settings import Settings
from turnledger.server.doctor.diagnosis import Diagnosis, fail, ok, warn
from turnledger.server.doctor.store import check_sqlite, check_store
from turnledger.server.doctor.upstream import check_upstreams
from turnledger.server.listen.socket import PortInUse, allowed_files, bind, needed_for
from turnledger.stores.sqlite.visit import Examination
from turnledger.stores.url import visit_store

SKEW = 60.0
"""Seconds by which clocks may differ."""
EARLIEST = 1_735_689_600
"""The year 2025: a clock that shows an earlier one was never set."""
HEARING = 3.0
"""Seconds that whoever listens at our port has to answer."""


async def examine(load: Callable[[], Settings], environ: Mapping[str, str]) -> list[Diagnosis]:
    """Look at everything, with the settings that `load` returns."""
    found = [*check_versions(), *check_sqlite()]
    try:
        settings = load()
    except InvalidSettings as problem:
        # It names the place and the remedy itself.
        return [*found, fail("settings", str(problem), "Mend this first: all else hangs on it.")]
    return [*found, ok("settings", "understood"), *await Doctor(settings, environ).findings()]


class Doctor:
    """One examination. A check that cannot be made is a finding, and keeps none of the others from it."""

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
        """Everything, what others hang on first."""
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
    """What is installed."""
    return [ok("versions", f"Turnledger {version('turnledger')}, Python {platform.python_version()}")]


def check_exposure(settings: Settings, *, any_tokens: bool) -> list[Diagnosis]:
    """Who is let in."""
    where = f"{settings.host}:{settings.port}"
    if any_tokens:
        return [ok("access", f"at {where}, with a token only")]
    if not settings.insecure and not is_loopback(settings.host):
        told = f"{where} can be reached from other machines, and there is no token"
        return [fail("access", told, "Make one: turnledger tokens create. Or listen at 127.0.0.1.")]
    if settings.insecure:
        remedy = "Make a token, or make sure that a proxy of yours lets in only who may."
        if is_loopback(settings.host):
            told = f"at {where} everybody on this machine, and behind a proxy everybody whom it lets in"
        else:
            told = f"at {where} everybody who can reach this machine is let in, without a token"
        return [warn("access", told, remedy)]
    told = f"at {where}, programs on this machine only; behind any proxy, create a token first"
    return [ok("access", told)]


def check_open_files(settings: Settings) -> list[Diagnosis]:
    """Whether the system allows as many connections as the settings do."""
    wanted = needed_for(settings.limits.requests)
    allowed = allowed_files(wanted)
    if allowed >= wanted:
        return []
    told = f"the system allows {allowed} open files, and {settings.limits.requests} requests need {wanted}"
    remedy = "Raise its limit (ulimit -Hn, LimitNOFILE= of systemd), or lower `requests`."
    return [warn("open files", told, remedy)]


def check_port(settings: Settings) -> list[Diagnosis]:
    """Whether the server could listen, or it is one of ours who listens there. Blocks."""
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
    """Whether time goes as others say: lists are sorted and conversations expire by it."""
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
