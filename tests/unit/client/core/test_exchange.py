"""HTTP requests: their arguments, bounded answers, and retries."""

from __future__ import annotations

import ssl
from math import nan
from typing import Any

import httpx2
import pytest

from tests.unit.client.script import CHAT, CUT, UNREACHED, Script, error_reply, reply
from turnledger import errors
from turnledger.client import AsyncClient, ChatInfo, Client
from turnledger.client.core import response
from turnledger.client.core.exchange import Pacing, RepeatedExchange, Retries, RetryCount, Timeouts
from turnledger.client.core.response import ResponseReader
from turnledger.client.core.steps import ConnectionFailure, Reply, Request
from turnledger.client.core.transport import PROBLEMS, Address
from turnledger.client.shapes import decode_shape
from turnledger.errors import InvalidInput, RequestFailed, ServerUnavailable


def address(base_url: str) -> Address:
    return Address(base_url, None, Timeouts())


@pytest.mark.parametrize(
    ("problem", "may_have_arrived"),
    [
        (httpx2.ConnectError("Refused."), False),
        (httpx2.ConnectTimeout(""), False),
        (httpx2.PoolTimeout(""), False),
        (httpx2.ReadError(""), True),
        (httpx2.ReadTimeout(""), True),
        (httpx2.WriteError(""), True),
        (httpx2.WriteTimeout(""), True),
        (httpx2.RemoteProtocolError(""), True),
        (httpx2.DecodingError(""), True),
        (httpx2.StreamClosed(), True),
    ],
)
def test_connection_error_reports_whether_the_request_may_have_arrived(
    problem: Exception, may_have_arrived: bool
) -> None:
    assert isinstance(problem, PROBLEMS)
    broken = Address.failure_of(problem)
    assert (broken.may_have_arrived, broken.is_hopeless) == (may_have_arrived, False)
    assert broken.reason
    assert not broken.reason.endswith(".")


def test_token_is_not_sent_over_plain_http_to_another_machine() -> None:
    remedy = "unencrypted. Use https://, or set allow_http=True"
    for url in ("http://chat.example.com", "http://10.0.0.5:1", "http://[2001:db8::1]", "http://localhost.a"):
        for kind in (Client, AsyncClient):
            with pytest.raises(InvalidInput, match=remedy):
                kind(url, "tlt_secret")
        Client(url).close()
        Client(url, "tlt_secret", allow_http=True).close()
    for url in (
        "http://127.0.0.2:1",
        "http://localhost",
        "http://a.localhost",
        "http://[::1]",
        "https://a.example",
    ):
        Client(url, "tlt_secret").close()


def test_untrusted_certificate_is_not_worth_a_retry() -> None:
    problem = httpx2.ConnectError("certificate verify failed")
    problem.__cause__ = OSError()
    problem.__cause__.__context__ = ssl.SSLCertVerificationError()
    assert Address.failure_of(problem).is_hopeless
    assert Address.failure_of(httpx2.UnsupportedProtocol("no")).is_hopeless


@pytest.mark.parametrize(
    ("base_url", "reads_proxies"),
    [
        ("http://127.0.0.1:8383", False),
        ("http://localhost", False),
        ("http://[::1]:1", False),
        ("https://localhost", True),
        ("http://server.test", True),
    ],
)
def test_local_server_is_reached_without_a_proxy(base_url: str, reads_proxies: bool) -> None:
    options = address(base_url).http_options
    assert options["trust_env"] is reads_proxies
    assert reads_proxies is ("verify" not in options)  # all authorities are, by default


def test_plain_http_client_loads_no_certificates() -> None:
    trusted = address("http://localhost").http_options["verify"]
    assert (trusted.cert_store_stats()["x509"], trusted.verify_mode) == (0, ssl.CERT_REQUIRED)


def test_request_is_built_with_base_path_query_and_headers() -> None:
    request = Request(
        method="GET", path="/api/chats", query=[("q", "a b"), ("tag", "x")], headers={"accept": "y"}
    )
    arguments = address("http://server.test/below/").arguments(request)
    built = httpx2.Client().build_request(**arguments)
    assert str(built.url) == "http://server.test/below/api/chats?q=a+b&tag=x"
    assert built.headers["accept"] == "y"
    assert "authorization" not in built.headers


@pytest.mark.parametrize("port", [0, 65536, 99999])
def test_port_out_of_range_in_the_base_url_is_refused(port: int) -> None:
    with pytest.raises(InvalidInput, match="port"):
        address(f"http://127.0.0.1:{port}")


def test_redirect_is_not_followed() -> None:
    hosts: list[str] = []

    def answer(request: httpx2.Request) -> httpx2.Response:
        hosts.append(request.url.host)
        return httpx2.Response(307, headers={"location": "http://elsewhere.example/api/turns"})

    with httpx2.Client(transport=httpx2.MockTransport(answer), follow_redirects=True) as http:
        client = Client(http=http, api_key="tl_secret", model="demo")
        with pytest.raises(RequestFailed, match="307"):
            client.chats.open(conversation_key="x").send("Between us.")
        with pytest.raises(RequestFailed, match="307"):
            client.models()
    assert set(hosts) == {"127.0.0.1"}


ROOM = 1000


@pytest.fixture
def little_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(response, "MAX_BYTES", ROOM)
    monkeypatch.setattr(response, "MAX_ERROR_BYTES", ROOM)


class Endless(httpx2.SyncByteStream, httpx2.AsyncByteStream):
    """A body that never ends; it remembers how much of it was read, and whether it was closed."""

    def __init__(self) -> None:
        self.read = 0
        self.is_closed = False

    def __iter__(self):  # type: ignore[no-untyped-def]
        while True:
            assert self.read < 100 * ROOM
            self.read += 100
            yield b"x" * 100

    async def __aiter__(self):  # type: ignore[no-untyped-def]
        for piece in self:
            yield piece

    def close(self) -> None:
        self.is_closed = True

    async def aclose(self) -> None:
        self.is_closed = True


@pytest.mark.parametrize("status", [200, 404, 503])
def test_endless_answer_is_read_only_up_to_the_limit(status: int, little_room: None) -> None:
    body = Endless()
    transport = httpx2.MockTransport(lambda _: httpx2.Response(status, stream=body))
    with (
        httpx2.Client(transport=transport) as http,
        Client(http=http, retries=Retries(times=0)) as client,
        pytest.raises(RequestFailed) as error_reply,
    ):
        client.chats.open(CHAT).info()
    assert body.read == ROOM + 100
    assert body.is_closed
    assert isinstance(error_reply.value, ServerUnavailable) == (status != 404)
    assert len(str(error_reply.value)) < 200


def test_endless_error_body_of_a_stream_is_read_only_up_to_the_limit(little_room: None) -> None:
    body = Endless()
    transport = httpx2.MockTransport(lambda _: httpx2.Response(404, stream=body))
    with (
        httpx2.Client(transport=transport) as http,
        Client(http=http, model="demo") as client,
        pytest.raises(RequestFailed),
    ):
        client.chats.open(CHAT).send("Hi", stream=True)
    assert body.read == ROOM + 100


def test_answer_at_the_size_limit_is_read_whole(little_room: None) -> None:
    whole = ResponseReader(httpx2.Response(200))
    assert whole.add(b"x" * ROOM)
    assert whole.outcome == Reply(200, httpx2.Headers(), b"x" * ROOM)
    assert not whole.add(b"x")
    assert whole.outcome == ConnectionFailure("the response is endless", is_hopeless=True)


REQUEST = Request(method="POST", path="/api/tokens", body=b"{}")


def exchanged(script: Script, **options: Any) -> Any:
    return script.play(RepeatedExchange(script.new_retry_count(), **options).run(REQUEST)).body


def test_exchange_returns_the_body_of_a_successful_answer() -> None:
    assert exchanged(Script(reply({"a": 1}, 201))) == b'{"a":1}'


@pytest.mark.parametrize(
    "passing", [CUT, UNREACHED, error_reply(503, "shutting_down"), error_reply(500, "internal_error")]
)
def test_exchange_retries_a_repeatable_request_after_transient_failures(passing: Any) -> None:
    script = Script(passing, passing, reply({}))
    assert exchanged(script) == b"{}"
    assert script.received == [REQUEST] * 3
    assert script.pauses == [1.0, 2.0]


@pytest.mark.parametrize(
    "nothing_done", [UNREACHED, error_reply(503, "admission_moved"), error_reply(429, "too_many_requests")]
)
def test_exchange_retries_an_unrepeatable_request_that_was_not_executed(nothing_done: Any) -> None:
    assert exchanged(Script(nothing_done, reply({})), is_repeatable=False) == b"{}"


def test_exchange_does_not_retry_an_unrepeatable_request_that_may_have_been_executed() -> None:
    script = Script(CUT)
    with pytest.raises(errors.ServerUnavailable, match="Look at the list"):
        exchanged(script, is_repeatable=False, hint="Look at the list.")
    with pytest.raises(errors.RequestFailed) as raised:
        exchanged(Script(error_reply(500, "internal_error")), is_repeatable=False)
    assert raised.value.code == "internal_error"


def test_exchange_raises_a_permanent_error_and_keeps_its_answer() -> None:
    script = Script(CUT, error_reply(412, "revision_conflict"))
    exchanging = RepeatedExchange(script.new_retry_count())
    with pytest.raises(errors.RevisionConflict):
        script.play(exchanging.run(REQUEST))
    assert exchanging.may_be_done
    assert exchanging.refusal is not None
    assert exchanging.refusal.status == 412


def test_exchange_of_a_request_that_never_arrived_is_not_marked_as_possibly_done() -> None:
    script = Script(UNREACHED, error_reply(404, "conversation_not_found"))
    exchanging = RepeatedExchange(script.new_retry_count())
    with pytest.raises(errors.ConversationNotFound):
        script.play(exchanging.run(REQUEST))
    assert not exchanging.may_be_done


def test_exchange_gives_up_after_the_last_retry_with_its_idempotency_key() -> None:
    with pytest.raises(errors.ServerUnavailable, match="after 5 tries: the connection was cut") as raised:
        exchanged(Script(*[CUT] * 5), idempotency_key="k")
    assert raised.value.idempotency_key == "k"
    with pytest.raises(errors.ServerUnavailable, match="never reached it"):
        exchanged(Script(UNREACHED, retries=Retries(times=0)))


def test_exchange_gives_up_on_a_hopeless_failure_immediately() -> None:
    with pytest.raises(errors.ServerUnavailable, match="Check its address and certificate"):
        exchanged(Script(ConnectionFailure("no", may_have_arrived=False, is_hopeless=True)))


class Now:
    """Stands still unless it is moved."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def __call__(self) -> float:
        return self.seconds


def trying(chance: float = 1.0, now: Now | None = None, **retries: float) -> RetryCount:
    pacing = Pacing(now=now or Now(), chance=lambda: chance)
    return RetryCount(
        Retries(**{"times": 5, "first_pause": 1.0, "max_pause": 6.0, "patience": 100.0, **retries}), pacing
    )


@pytest.mark.parametrize(
    ("options", "requested", "pauses"),
    [
        ({}, [None] * 6, [1.0, 2.0, 4.0, 6.0, 6.0, None]),
        ({"chance": 0.0}, [None], [0.5]),
        ({"chance": 0.5}, [None], [0.75]),
        ({}, [30.0], [30.0]),
        ({}, [0.0], [1.0]),
        ({"chance": 0.5}, [4.0], [5.0]),
        ({"chance": 0.0}, [4.0, 80.0], [6.0, 86.0]),
        ({"times": 0}, [None], [None]),
        ({"patience": 10.0}, [11.0], [None]),
    ],
)
def test_retry_pauses_double_with_jitter_and_respect_the_server(
    options: dict[str, Any], requested: list[float | None], pauses: list[float | None]
) -> None:
    counted = trying(**options)
    assert [counted.pause(each) for each in requested] == pauses


def test_retry_count_restarts_after_progress() -> None:
    counted = trying()
    assert [counted.pause(), counted.pause()] == [1.0, 2.0]
    counted.failed = 0
    assert counted.pause() == 1.0


def test_endless_retry_waits_the_jittered_maximum_pause() -> None:
    assert trying().longest_pause() == 6.0
    assert trying(chance=0.0).longest_pause() == 3.0
    assert trying().longest_pause(40.0) == 40.0


def test_retry_ends_before_a_pause_that_exceeds_the_patience() -> None:
    now = Now()
    counted = trying(now=now, patience=10.0)
    assert counted.pause() == 1.0
    now.seconds = 9.5
    assert counted.pause() is None


def test_retry_patience_restarts_after_progress() -> None:
    now = Now()
    counted = trying(now=now, patience=10.0)
    counted.pause()
    now.seconds = 500.0
    counted.failed = 0
    assert counted.pause() == 1.0


@pytest.mark.parametrize(
    "wrong", [{"times": -1}, {"first_pause": -0.1}, {"patience": -1.0}, {"max_pause": nan}]
)
def test_retries_with_negative_or_nan_values_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(InvalidInput):
        Retries(**wrong)  # type: ignore[arg-type]


def test_timeouts_that_are_not_positive_are_refused() -> None:
    with pytest.raises(InvalidInput):
        Timeouts(silence=0)
    with pytest.raises(InvalidInput):
        Timeouts(connect=nan)


@pytest.mark.parametrize("raw", [b"", b"{", b"[]", b"\xff", b'{"id":5}', b'{"id":"conv_1"}', b"[" * 5000])
def test_answer_that_cannot_be_decoded_raises_request_failed(raw: bytes) -> None:
    with pytest.raises(errors.RequestFailed, match="Unexpected answer"):
        decode_shape(ChatInfo, raw)
