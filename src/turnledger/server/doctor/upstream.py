"""The doctor's look at the upstreams: whether they answer, take the api_key, and have the models."""

from __future__ import annotations

import asyncio
import socket
import ssl
import time
from collections.abc import Mapping
from email.utils import parsedate_to_datetime
from urllib.parse import urlsplit

import msgspec

from turnledger.errors import InvalidInput, ModelError
from turnledger.model.text.plain import plain
from turnledger.runners.http.pool import get
from turnledger.runners.upstream.failures import BrokenOff, ProxyFailed
from turnledger.server.access.guard import is_loopback
from turnledger.server.config.settings import Settings
from turnledger.server.doctor.diagnosis import Diagnosis, fail, ok, warn

PATIENCE = 10.0
"""Seconds that an upstream may take to answer."""
SHOWN = 5
LARGEST = 4 * 1024 * 1024
REFUSED = frozenset({401, 402, 403, 407})


class UpstreamCheck(msgspec.Struct, frozen=True):
    """One upstream, and what is asked of it."""

    url: str
    api_key_env: str | None
    models: tuple[str, ...] = ()
    """Names there that it must know; none where every name is passed on."""
    proxy: bool | str = True

    @property
    def subject(self) -> str:
        """What the findings are called."""
        return f"upstream {urlsplit(self.url).netloc}"


class Answered(msgspec.Struct, frozen=True):
    """What it said."""

    findings: list[Diagnosis]
    clock_ahead: float | None = None
    """Seconds by which its clock is ahead of ours, where it told the time."""


def upstreams_of(settings: Settings) -> list[UpstreamCheck]:
    """Every upstream once, with all that the settings want of it."""
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
    """Ask all of them at once."""
    asked = upstreams_of(settings)
    if not asked:
        return [Answered([ok("models", "the demo model, which needs no network")])]
    return list(await asyncio.gather(*(check_upstream(each, environ) for each in asked)))


async def check_upstream(asked: UpstreamCheck, environ: Mapping[str, str]) -> Answered:
    """Ask one upstream for its models, which costs nothing."""
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
