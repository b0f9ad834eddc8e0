"""What the doctor says of upstreams that answer, refuse, misbehave, or are not there."""

from __future__ import annotations

import socket
import ssl
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from email.utils import formatdate

import pytest
from aiohttp import web

from turnledger.runners.http import pool
from turnledger.server import doctor
from turnledger.server.config.settings import ModelSettings, Settings
from turnledger.server.doctor import Answered, Level, check_upstreams, upstreams_of

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
    asked: list[web.Request] = []

    async def answer(request: web.Request) -> web.Response:
        asked.append(request)
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
        yield f"http://127.0.0.1:{runner.addresses[0][1]}/v1", asked
    finally:
        await runner.cleanup()


async def ask(url: str, *, key: bool = False, model: str | None = None) -> Answered:
    variable = "API_KEY" if key else None
    models = {"m": ModelSettings(upstream=url, model=model, api_key_env=variable)} if model else {}
    settings = Settings(upstream=None if model else url, api_key_env=variable, models=models)
    [answered] = await check_upstreams(settings, {"API_KEY": KEY})
    assert KEY not in repr(answered)
    return answered


async def test_one_that_answers_is_well() -> None:
    async with upstream() as (url, asked):
        answered = await ask(url, key=True)
    [found] = answered.findings
    assert (found.level, found.remedy) == (Level.OK, "")
    assert "API_KEY" in found.told
    assert "2 models" in found.told
    assert asked[0].headers["Authorization"] == f"Bearer {KEY}"
    assert answered.clock_ahead is not None


async def test_without_an_api_key_none_is_sent() -> None:
    async with upstream() as (url, asked):
        assert "without an api_key" in (await ask(url)).findings[0].told
    assert "Authorization" not in asked[0].headers


@pytest.mark.parametrize(
    ("status", "body", "level", "told"),
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
async def test_each_other_answer_is_told_with_what_to_do(
    status: int, body: bytes, level: Level, told: str
) -> None:
    for key in (True, False):
        async with upstream(status, body) as (url, _):
            [found] = (await ask(url, key=key)).findings
        assert (found.level, told in found.told, bool(found.remedy)) == (level, True, True)


async def test_a_model_that_it_does_not_have_is_told_with_those_that_it_has() -> None:
    async with upstream() as (url, _):
        assert (await ask(url, model="two")).findings[0].level is Level.OK
        [found] = (await ask(url, model="three")).findings
    assert (found.level, "three" in found.told, "one, two" in found.remedy) == (Level.WARN, True, True)


async def test_one_that_is_not_there_cannot_be_reached() -> None:
    async with upstream() as (url, _):
        pass
    [found] = (await ask(url)).findings
    assert (found.level, found.told) == (Level.FAIL, "cannot be reached")


async def test_a_name_that_is_not_known_is_told() -> None:
    [found] = (await ask("http://no-such-host.invalid/v1")).findings
    assert found.level is Level.FAIL


@pytest.mark.parametrize(
    ("problem", "told"),
    [
        (socket.gaierror(-2, "unknown"), "its name is not known"),
        (ssl.SSLCertVerificationError(1, "expired"), "no secure connection could be made"),
        (TimeoutError(), "did not answer in time"),
        (ConnectionRefusedError(), "cannot be reached"),
    ],
)
async def test_why_there_is_no_connection_is_told(
    problem: OSError, told: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def dial(*_: object) -> None:
        raise problem

    monkeypatch.setattr(pool, "dial", dial)
    [found] = (await ask("http://a/v1")).findings
    assert (found.level, found.told) == (Level.FAIL, told)


async def test_one_that_breaks_off_cannot_be_reached() -> None:
    async with upstream(headers={"Content-Length": "9999"}, closes=True) as (url, _):
        [found] = (await ask(url)).findings
    assert (found.level, found.told) == (Level.FAIL, "cannot be reached")


async def test_one_that_falls_silent_is_not_waited_for(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor, "PATIENCE", 0.05)
    async with upstream(headers={"Content-Length": "9999"}) as (url, _):
        [found] = (await ask(url)).findings
    assert (found.level, found.told) == (Level.FAIL, "did not answer in time")


async def test_an_api_key_that_cannot_be_sent_is_told_and_not_repeated() -> None:
    settings = Settings(upstream="http://127.0.0.1:9/v1", api_key_env="API_KEY")
    [answered] = await check_upstreams(settings, {"API_KEY": f"{KEY}\n"})
    [found] = answered.findings
    assert found.level is Level.FAIL
    assert "end of line" in found.told
    assert KEY not in repr(answered)


async def test_its_clock_is_compared_with_ours(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(doctor.time, "time", lambda: 1_800_000_000.0)
    async with upstream(headers={"Date": formatdate(1_800_000_100, usegmt=True)}) as (url, _):
        assert (await ask(url)).clock_ahead == 100
    async with upstream(headers={"Date": "some day"}) as (url, _):
        assert (await ask(url)).clock_ahead is None


async def test_proxy_that_refuses_is_told_apart_from_the_upstream() -> None:
    async with upstream(status=405) as (url, _):  # which opens no tunnels
        at = url.removeprefix("http://").removesuffix("/v1")
        settings = Settings(upstream="https://model.test/v1", proxy=f"http://ann:s3cret@{at}")
        [answered] = await check_upstreams(settings, {})
    [finding] = answered.findings
    assert finding.level is Level.FAIL
    assert "The proxy could not connect to the model" in finding.told
    assert "HTTPS_PROXY" in finding.remedy
    assert "s3cret" not in repr(answered)


def test_an_upstream_of_many_models_is_asked_once() -> None:
    url = "https://one.example/v1"
    models = {
        "a": ModelSettings(upstream=url),
        "b": ModelSettings(upstream=url, model="bee"),
        "c": ModelSettings(upstream=url, api_key_env="KEY"),
    }
    asked = upstreams_of(Settings(upstream="https://other.example", models=models))
    assert [(each.subject, each.api_key_env, each.models) for each in asked] == [
        ("upstream one.example", None, ("a", "bee")),
        ("upstream one.example", "KEY", ("c",)),
        ("upstream other.example", None, ()),
    ]


async def test_an_api_key_on_an_open_road_is_told() -> None:
    asked = doctor.UpstreamCheck("http://models.example/v1", "API_KEY")
    [found] = doctor._of_transport(asked, KEY)
    assert (found.level, KEY in repr(found)) == (Level.WARN, False)
    for url in ("https://models.example/v1", "http://127.0.0.1:1/v1"):
        assert doctor._of_transport(doctor.UpstreamCheck(url, "API_KEY"), KEY) == []
    assert doctor._of_transport(asked, None) == []


async def test_without_upstreams_there_is_the_demo_model() -> None:
    [answered] = await check_upstreams(Settings(), {})
    assert answered.findings[0].level is Level.OK
