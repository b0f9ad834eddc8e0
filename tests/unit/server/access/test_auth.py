"""Authentication of tokens, and sealed cursors."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest

from turnledger import Ledger
from turnledger.engine.access.tokens import find, record_uses
from turnledger.errors import StoreReadOnly
from turnledger.hosting import Host, Token
from turnledger.model.access.token import TokenScope, new_token_text
from turnledger.model.conversation import Within
from turnledger.model.ids import SystemEntropy
from turnledger.server.access.auth import CACHE_SECONDS, Authenticator
from turnledger.server.access.cursors import LENGTH, Seal, ServerSeal
from turnledger.server.access.guard import RequestHead
from turnledger.server.config.settings import Settings
from turnledger.server.errors import RequestRefused
from turnledger.stores.memory import MemoryStore
from turnledger.testing.fake_clock import FakeClock
from turnledger.testing.gates import GatedStore

RUN = frozenset({TokenScope.TURNS_RUN})


def shown(text: str | None = None, *others: tuple[bytes, bytes]) -> RequestHead:
    own = [] if text is None else [(b"authorization", f"Bearer {text}".encode())]
    return RequestHead({"headers": [(b"host", b"localhost"), *own, *others]})


class Place:
    def __init__(self, ledger: Ledger, store: GatedStore, clock: FakeClock, settings: Settings) -> None:
        self.ledger, self.store, self.clock = ledger, store, clock
        self.authenticator = Authenticator(ledger, Host(ledger).tokens, settings, clock)

    async def token(self, **fields: object) -> tuple[Token, str]:
        return await Host(self.ledger).tokens.create(**{"owner": "ann", "scopes": RUN, **fields})  # type: ignore[arg-type]

    async def code(self, head: RequestHead) -> tuple[int, str]:
        with pytest.raises(RequestRefused) as refused:
            await self.authenticator.admit(head)
        return refused.value.status, refused.value.code


@asynccontextmanager
async def place(settings: Settings | None = None) -> AsyncIterator[Place]:
    store, clock = GatedStore(MemoryStore()), FakeClock()
    async with await Ledger.over(store, clock=clock) as ledger:
        yield Place(ledger, store, clock, settings or Settings())


async def test_token_authenticates_its_owner_with_its_scopes_and_models() -> None:
    async with place() as here:
        token, text = await here.token(chat_scope="shop", models=["a"])
        who = await here.authenticator.admit(shown(text))
        assert (who.owner, who.scopes, who.within, who.token_id) == ("ann", RUN, Within("shop"), token.id)
        assert (who.may_use("a"), who.may_use("b")) == (True, False)
        who.check(None)
        who.check(TokenScope.TURNS_RUN)
        with pytest.raises(RequestRefused, match="requires a token with the scope admin") as refused:
            who.check(TokenScope.ADMIN)
        assert (refused.value.status, refused.value.code) == (403, "insufficient_scope")
        who.check_chat_scope(None)
        who.check_chat_scope("shop")
        with pytest.raises(RequestRefused, match="restricted"):
            who.check_chat_scope("bar")


@pytest.mark.parametrize("kind", [b"Bearer", b"bearer", b"BEARER  "])
async def test_bearer_keyword_is_accepted_in_any_case(kind: bytes) -> None:
    async with place() as here:
        _, text = await here.token()
        head = RequestHead({"headers": [(b"authorization", kind + b" " + text.encode())]})
        assert (await here.authenticator.admit(head)).owner == "ann"


async def test_tokenless_local_caller_is_accepted_until_a_token_exists_and_never_as_admin() -> None:
    async with place() as here:
        for head in (
            shown(),
            shown("sk-unused"),
            RequestHead({"headers": [(b"authorization", b"Basic YTpi")]}),
        ):
            who = await here.authenticator.admit(head)
            assert (who.owner, who.token, who.within, who.may_use("any")) == ("local", None, Within(), True)
            assert who.scopes == frozenset(TokenScope) - {TokenScope.ADMIN}
            with pytest.raises(RequestRefused, match="tokens create --scopes admin"):
                who.check(TokenScope.ADMIN)
        token, _ = await here.token()
        assert await here.code(shown()) == (401, "missing_token")
        assert await here.code(shown("sk-unused")) == (401, "invalid_token")
        await Host(here.ledger).tokens.revoke(token.id)
        assert await here.code(shown()) == (401, "missing_token")  # revoking the last token opens nothing


@pytest.mark.parametrize(
    "name",
    [
        b"forwarded",
        b"x-forwarded-for",
        b"x-forwarded-proto",
        b"via",
        b"x-real-ip",
        b"cf-connecting-ip",
        b"true-client-ip",
    ],
)
async def test_proxied_request_without_a_token_is_refused(name: bytes) -> None:
    async with place() as here:
        assert await here.code(shown(None, (name, b"1.2.3.4"))) == (403, "forwarded_request")
        _, text = await here.token()
        assert (await here.authenticator.admit(shown(text, (name, b"1.2.3.4")))).owner == "ann"
    async with place(Settings(insecure=True)) as here:
        assert (await here.authenticator.admit(shown(None, (name, b"1.2.3.4")))).owner == "local"


async def test_http_1_0_request_without_a_token_is_refused_as_proxied() -> None:
    """nginx uses it for its upstreams by default, and adds no header."""
    scope = {"headers": [(b"host", b"127.0.0.1:8383")], "http_version": "1.0"}
    async with place() as here:
        assert await here.code(RequestHead(scope)) == (403, "forwarded_request")
        assert await here.authenticator.admit(RequestHead({**scope, "http_version": "1.1"}))
        assert here.authenticator.find_cached(shown()) is not None
        with pytest.raises(RequestRefused):
            here.authenticator.find_cached(RequestHead(scope))


async def test_tokenless_caller_on_a_public_address_is_refused_unless_insecure() -> None:
    async with place(Settings(host="0.0.0.0")) as here:
        assert await here.code(shown()) == (401, "missing_token")
    async with place(Settings(host="0.0.0.0", insecure=True)) as here:
        assert (await here.authenticator.admit(shown())).owner == "local"


async def test_ended_token_error_distinguishes_revoked_expired_and_unknown() -> None:
    async with place() as here:
        revoked, text = await here.token()
        await Host(here.ledger).tokens.revoke(revoked.id)
        assert await here.code(shown(text)) == (401, "token_revoked")
        _, brief = await here.token(lifetime=5)
        here.clock.advance(5)
        assert await here.code(shown(brief)) == (401, "token_expired")
        assert await here.code(shown(new_token_text(SystemEntropy()))) == (401, "invalid_token")


async def test_malformed_token_is_recalled_without_a_store_lookup() -> None:
    async with place() as here:
        who = await here.authenticator.admit(shown("sk-unused"))
        here.store.refuse(find)
        assert here.authenticator.find_cached(shown("sk-other")) == who
        assert here.authenticator.find_cached(shown()) == who


async def test_missing_token_is_refused_without_a_store_lookup_once_tokens_exist() -> None:
    async with place() as here:
        await here.token()
        assert await here.code(shown()) == (401, "missing_token")
        here.store.operations.clear()
        for head in (shown(), shown("sk-unused")):
            assert (await here.code(head))[0] == 401
        assert here.store.operations == []


async def test_authenticated_caller_is_recalled_until_the_token_expires() -> None:
    async with place() as here:
        _, text = await here.token(lifetime=5)
        assert here.authenticator.find_cached(shown(text)) is None
        who = await here.authenticator.admit(shown(text))
        here.store.refuse(find)
        assert here.authenticator.find_cached(shown(text)) == who
        here.clock.advance(5)
        with pytest.raises(RequestRefused) as refused:
            here.authenticator.find_cached(shown(text))
        assert refused.value.code == "token_expired"


async def test_authenticated_caller_is_looked_up_again_after_the_cache_lifetime() -> None:
    async with place() as here:
        _, text = await here.token()
        await here.authenticator.admit(shown(text))
        here.clock.advance(CACHE_SECONDS)
        assert here.authenticator.find_cached(shown(text)) is not None
        here.clock.advance(1)
        assert here.authenticator.find_cached(shown(text)) is None


async def test_revoked_caller_is_not_recalled_from_the_cache() -> None:
    async with place() as here:
        token, text = await here.token()
        await here.authenticator.admit(shown(text))
        await Host(here.ledger).tokens.revoke(token.id)
        assert await here.code(shown(text)) == (401, "token_revoked")
        assert here.authenticator.find_cached(shown(text)) is None


async def test_token_uses_are_recorded_in_batches_at_an_interval() -> None:
    async with place() as here:
        admission = Authenticator(
            here.ledger, Host(here.ledger).tokens, Settings(), here.clock, write_every=0
        )
        (one, first), (two, second) = await here.token(), await here.token()
        for text in (first, second):
            await admission.admit(shown(text))
        await admission.record_uses()
        for _ in range(2):
            here.store.operations.clear()
            for text in (first, second, first):
                here.clock.advance(1)
                admission.find_cached(shown(text))
            while record_uses.__name__ not in here.store.operations:  # without further requests
                await asyncio.sleep(0)
            assert admission.write_task is not None
            await admission.write_task
            assert here.store.operations.count(record_uses.__name__) == 1
            used = {each.id: each.used_at for each in await Host(here.ledger).tokens.list()}
            now = here.clock.now_ms()
            assert used == {one.id: now, two.id: now - 1_000}


async def test_token_use_recording_failure_does_not_fail_requests_and_is_retried() -> None:
    async with place() as here:
        token, text = await here.token()
        await here.authenticator.admit(shown(text))
        here.store.refuse(record_uses, StoreReadOnly())
        for _ in range(2):
            await here.authenticator.record_uses()
        (found,) = await Host(here.ledger).tokens.list()
        assert (found.id, found.used_at) == (token.id, here.clock.now_ms())


TEXTS = ["", "1", "fffffffffffffff-ffffffff", "f" * LENGTH]


@pytest.mark.parametrize("text", TEXTS)
def test_seal_opens_a_sealed_text(text: str) -> None:
    seal = Seal(bytes(32))
    assert len(text) <= LENGTH
    assert Seal(bytes(32)).unseal(b"a", seal.seal(b"a", text)) == text


def test_seal_output_differs_each_time_and_has_constant_length() -> None:
    seal = Seal(bytes(32))
    sealed = {seal.seal(b"a", text) for text in TEXTS for _ in range(10)}
    assert (len(sealed), {len(each) for each in sealed}) == (40, {76})


def test_seal_does_not_open_altered_or_foreign_texts() -> None:
    seal = Seal(bytes(32))
    good = seal.seal(b"a", "text")
    assert seal.unseal(b"b", good) is None
    assert Seal(b"x" * 32).unseal(b"a", good) is None
    for place in range(len(good)):
        for other in ("A" if good[place] != "A" else "B", "=", "é", " "):
            assert seal.unseal(b"a", good[:place] + other + good[place + 1 :]) is None
    for other in ("", good[:-1], good + "A", good[:-4] + "====", "\n" * 76):
        assert seal.unseal(b"a", other) is None


async def test_seal_secret_belongs_to_one_store() -> None:
    async with await Ledger.open() as ledger, await Ledger.open() as other:
        sealed = (await ServerSeal(Host(ledger).tokens).get()).seal(b"a", "text")
        assert (await ServerSeal(Host(ledger).tokens).get()).unseal(b"a", sealed) == "text"
        assert (await ServerSeal(Host(other).tokens).get()).unseal(b"a", sealed) is None
