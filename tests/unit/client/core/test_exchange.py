"""Requests: what httpx2 is given, how answers are read whole, and which requests are repeated."""

from __future__ import annotations

import ssl
from math import nan
from typing import Any

import httpx2
import pytest

from tests.unit.client.scripted import CHAT, CUT, UNREACHED, Script, refused, told
from turnledger import errors
from turnledger.client import AsyncClient, ChatInfo, Client
from turnledger.client.core import response
from turnledger.client.core.exchange import Pacing, RepeatedExchange, Retries, RetryCount, Timeouts
from turnledger.client.core.response import Whole
from turnledger.client.core.steps import Broken, Reply, Request
from turnledger.client.core.transport import PROBLEMS, Address
from turnledger.client.shapes import decoded
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
def test_what_may_have_arrived_is_told_from_what_cannot_have(
    problem: Exception, may_have_arrived: bool
) -> None:
    assert isinstance(problem, PROBLEMS)
    broken = Address.broken_by(problem)
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


def test_a_certificate_that_is_not_trusted_is_hopeless() -> None:
    problem = httpx2.ConnectError("certificate verify failed")
    problem.__cause__ = OSError()
    problem.__cause__.__context__ = ssl.SSLCertVerificationError()
    assert Address.broken_by(problem).is_hopeless
    assert Address.broken_by(httpx2.UnsupportedProtocol("no")).is_hopeless


@pytest.mark.parametrize(
    ("base_url", "asks_proxies"),
    [
        ("http://127.0.0.1:8383", False),
        ("http://localhost", False),
        ("http://[::1]:1", False),
        ("https://localhost", True),
        ("http://server.test", True),
    ],
)
def test_a_server_of_this_machine_is_asked_directly(base_url: str, asks_proxies: bool) -> None:
    options = address(base_url).http_options
    assert options["trust_env"] is asks_proxies
    assert asks_proxies is ("verify" not in options)  # all authorities are, by default


def test_for_a_server_without_tls_no_certificates_are_read() -> None:
    trusted = address("http://localhost").http_options["verify"]
    assert (trusted.cert_store_stats()["x509"], trusted.verify_mode) == (0, ssl.CERT_REQUIRED)


def test_a_request_carries_what_was_said() -> None:
    request = Request(
        method="GET", path="/api/chats", query=[("q", "a b"), ("tag", "x")], headers={"accept": "y"}
    )
    arguments = address("http://server.test/below/").arguments(request)
    built = httpx2.Client().build_request(**arguments)
    assert str(built.url) == "http://server.test/below/api/chats?q=a+b&tag=x"
    assert built.headers["accept"] == "y"
    assert "authorization" not in built.headers


@pytest.mark.parametrize("port", [0, 65536, 99999])
def test_a_port_that_there_is_not_is_refused_at_once(port: int) -> None:
    with pytest.raises(InvalidInput, match="port"):
        address(f"http://127.0.0.1:{port}")


def test_a_server_that_points_elsewhere_is_not_followed() -> None:
    asked: list[str] = []

    def answer(request: httpx2.Request) -> httpx2.Response:
        asked.append(request.url.host)
        return httpx2.Response(307, headers={"location": "http://elsewhere.example/api/turns"})

    with httpx2.Client(transport=httpx2.MockTransport(answer), follow_redirects=True) as http:
        client = Client(http=http, api_key="tl_secret", model="demo")
        with pytest.raises(RequestFailed, match="307"):
            client.chats.open(conversation_key="x").send("Between us.")
        with pytest.raises(RequestFailed, match="307"):
            client.models()
    assert set(asked) == {"127.0.0.1"}


ROOM = 1000


@pytest.fixture
def little_room(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(response, "MOST_BYTES", ROOM)
    monkeypatch.setattr(response, "MOST_OF_A_REFUSAL", ROOM)


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
def test_an_answer_without_end_is_not_read_to_it(status: int, little_room: None) -> None:
    body = Endless()
    transport = httpx2.MockTransport(lambda _: httpx2.Response(status, stream=body))
    with (
        httpx2.Client(transport=transport) as http,
        Client(http=http, retries=Retries(times=0)) as client,
        pytest.raises(RequestFailed) as refused,
    ):
        client.chats.open(CHAT).info()
    assert body.read == ROOM + 100
    assert body.is_closed
    assert isinstance(refused.value, ServerUnavailable) == (status != 404)
    assert len(str(refused.value)) < 200


@pytest.mark.parametrize("status", [200, 404])
async def test_an_awaited_answer_without_end_is_not_read_to_it(status: int, little_room: None) -> None:
    body = Endless()
    transport = httpx2.MockTransport(lambda _: httpx2.Response(status, stream=body))
    async with httpx2.AsyncClient(transport=transport) as http, AsyncClient(http=http) as client:
        with pytest.raises(RequestFailed):
            await client.chats.open(CHAT).info()
    assert body.read == ROOM + 100
    assert body.is_closed


def test_a_refusal_of_a_stream_without_end_is_not_read_to_it(little_room: None) -> None:
    body = Endless()
    transport = httpx2.MockTransport(lambda _: httpx2.Response(404, stream=body))
    with (
        httpx2.Client(transport=transport) as http,
        Client(http=http, model="demo") as client,
        pytest.raises(RequestFailed),
    ):
        client.chats.open(CHAT).send("Hi", stream=True)
    assert body.read == ROOM + 100


def test_what_has_room_is_taken_whole(little_room: None) -> None:
    whole = Whole(httpx2.Response(200))
    assert whole.add(b"x" * ROOM)
    assert whole.outcome == Reply(200, httpx2.Headers(), b"x" * ROOM)
    assert not whole.add(b"x")
    assert whole.outcome == Broken("the answer is without end", is_hopeless=True)


ASKED = Request(method="POST", path="/api/tokens", body=b"{}")


def exchanged(script: Script, **options: Any) -> Any:
    return script.play(RepeatedExchange(script.trying(), **options).ask(ASKED)).body


def test_a_good_answer_is_returned() -> None:
    assert exchanged(Script(told({"a": 1}, 201))) == b'{"a":1}'


@pytest.mark.parametrize(
    "passing", [CUT, UNREACHED, refused(503, "shutting_down"), refused(500, "internal_error")]
)
def test_what_may_be_repeated_is_repeated(passing: Any) -> None:
    script = Script(passing, passing, told({}))
    assert exchanged(script) == b"{}"
    assert script.asked == [ASKED] * 3
    assert script.pauses == [1.0, 2.0]


@pytest.mark.parametrize(
    "nothing_done", [UNREACHED, refused(503, "admission_moved"), refused(429, "too_many_requests")]
)
def test_what_happens_once_is_repeated_where_nothing_was_done(nothing_done: Any) -> None:
    assert exchanged(Script(nothing_done, told({})), is_repeatable=False) == b"{}"


def test_what_happens_once_is_not_repeated_where_it_may_have_been_done() -> None:
    script = Script(CUT)
    with pytest.raises(errors.ServerUnavailable, match="Look at the list"):
        exchanged(script, is_repeatable=False, once="Look at the list.")
    with pytest.raises(errors.RequestFailed) as raised:
        exchanged(Script(refused(500, "internal_error")), is_repeatable=False)
    assert raised.value.code == "internal_error"


def test_an_error_that_stays_is_raised_and_its_answer_can_be_looked_at() -> None:
    script = Script(CUT, refused(412, "revision_conflict"))
    exchanging = RepeatedExchange(script.trying())
    with pytest.raises(errors.RevisionConflict):
        script.play(exchanging.ask(ASKED))
    assert exchanging.may_be_done
    assert exchanging.refusal is not None
    assert exchanging.refusal.status == 412


def test_what_never_arrived_is_not_done() -> None:
    script = Script(UNREACHED, refused(404, "conversation_not_found"))
    exchanging = RepeatedExchange(script.trying())
    with pytest.raises(errors.ConversationNotFound):
        script.play(exchanging.ask(ASKED))
    assert not exchanging.may_be_done


def test_in_the_end_it_is_given_up() -> None:
    with pytest.raises(errors.ServerUnavailable, match="after 5 tries: the connection was cut") as raised:
        exchanged(Script(*[CUT] * 5), idempotency_key="k")
    assert raised.value.idempotency_key == "k"
    with pytest.raises(errors.ServerUnavailable, match="never reached it"):
        exchanged(Script(UNREACHED, retries=Retries(times=0)))


def test_what_is_hopeless_is_given_up_at_once() -> None:
    with pytest.raises(errors.ServerUnavailable):
        exchanged(Script(Broken("no", may_have_arrived=False, is_hopeless=True)))


class Now:
    """Stands still unless it is moved."""

    def __init__(self) -> None:
        self.seconds = 0.0

    def __call__(self) -> float:
        return self.seconds


def trying(chance: float = 1.0, now: Now | None = None, **retries: float) -> RetryCount:
    pacing = Pacing(now=now or Now(), chance=lambda: chance)
    return RetryCount(
        Retries(**{"times": 5, "first": 1.0, "most": 6.0, "patience": 100.0, **retries}), pacing
    )


def test_each_pause_is_twice_as_long_up_to_the_longest_and_then_there_is_none() -> None:
    counted = trying()
    assert [counted.pause() for _ in range(6)] == [1.0, 2.0, 4.0, 6.0, 6.0, None]


def test_chance_makes_pauses_shorter_but_never_by_more_than_half() -> None:
    assert trying(chance=0.0).pause() == 0.5
    assert trying(chance=0.5).pause() == 0.75


def test_progress_begins_the_count_anew() -> None:
    counted = trying()
    assert [counted.pause(), counted.pause()] == [1.0, 2.0]
    counted.failed = 0
    assert counted.pause() == 1.0


def test_what_the_server_asks_for_is_waited() -> None:
    assert trying().pause(30.0) == 30.0
    assert trying().pause(0.0) == 1.0


def test_those_who_are_told_the_same_time_do_not_come_back_at_the_same_time() -> None:
    assert trying(chance=0.5).pause(4.0) == 5.0
    assert trying(chance=0.0).pause(4.0) == 6.0
    assert trying(chance=0.0).pause(80.0) == 86.0


def test_who_waits_for_ever_waits_as_long_as_the_longest_pause_and_comes_by_chance() -> None:
    assert trying().longest() == 6.0
    assert trying(chance=0.0).longest() == 3.0
    assert trying().longest(40.0) == 40.0


def test_patience_ends_before_a_pause_that_would_outlast_it() -> None:
    now = Now()
    counted = trying(now=now, patience=10.0)
    assert counted.pause() == 1.0
    now.seconds = 9.5
    assert counted.pause() is None
    assert trying(patience=10.0).pause(11.0) is None


def test_patience_counts_from_the_first_failure_since_there_was_progress() -> None:
    now = Now()
    counted = trying(now=now, patience=10.0)
    counted.pause()
    now.seconds = 500.0
    counted.failed = 0
    assert counted.pause() == 1.0


def test_without_retries_there_is_one_try() -> None:
    assert trying(times=0).pause() is None


@pytest.mark.parametrize("wrong", [{"times": -1}, {"first": -0.1}, {"patience": -1.0}, {"most": nan}])
def test_retries_below_zero_are_refused(wrong: dict[str, float]) -> None:
    with pytest.raises(InvalidInput):
        Retries(**wrong)  # type: ignore[arg-type]


def test_timeouts_are_above_zero() -> None:
    with pytest.raises(InvalidInput):
        Timeouts(silence=0)
    with pytest.raises(InvalidInput):
        Timeouts(connect=nan)


@pytest.mark.parametrize("raw", [b"", b"{", b"[]", b"\xff", b'{"id":5}', b'{"id":"conv_1"}', b"[" * 5000])
def test_answer_that_makes_no_sense_is_an_error(raw: bytes) -> None:
    with pytest.raises(errors.RequestFailed, match="Unexpected answer"):
        decoded(ChatInfo, raw)
