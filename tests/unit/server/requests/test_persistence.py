"""Whether a turn is stored: the operator decides, and a request can only opt out."""

from __future__ import annotations

from collections.abc import AsyncIterator
from typing import Any

import pytest

from tests.unit.server.requests.test_turn import make_chat_request
from turnledger import Ledger
from turnledger.errors import ConversationNotFound
from turnledger.hosting import Host
from turnledger.model.conversation import Within
from turnledger.server.config.settings import ChatSettings, ScopeSettings
from turnledger.server.errors import RequestRefused
from turnledger.server.requests.persistence import PersistencePolicy

UNKNOWN = "conv_01a1e0bc393673fba6a314494b850c72"
OFF = ScopeSettings(keep=False)
ON = ScopeSettings(keep=True)


@pytest.fixture
async def ledger(anyio_backend: str) -> AsyncIterator[Ledger]:
    async with await Ledger.open() as ledger:
        yield ledger


async def is_kept(ledger: Ledger, settings: ChatSettings, within: str | None = None, **headers: str) -> bool:
    request = make_chat_request({name.replace("_", "-"): value for name, value in headers.items()})
    return await PersistencePolicy(settings, Host(ledger)).is_kept(request, "ada", Within(within))


async def refused(ledger: Ledger, settings: ChatSettings, **headers: str) -> RequestRefused:
    with pytest.raises(RequestRefused) as problem:
        await is_kept(ledger, settings, **headers)
    return problem.value


@pytest.mark.parametrize(
    ("settings", "scope", "kept"),
    [
        (ChatSettings(), "", True),
        (ChatSettings(keep=False), "", False),
        (ChatSettings(keep=False), "desk", False),
        (ChatSettings(scopes={"desk": OFF}), "desk", False),
        (ChatSettings(scopes={"desk": OFF}), "shop", True),
        (ChatSettings(keep=False, scopes={"desk": ON}), "desk", True),
        (ChatSettings(keep=False, scopes={"desk": ON}), "", False),
        (ChatSettings(scopes={"desk": ScopeSettings()}), "desk", True),
    ],
)
async def test_persistence_follows_the_operator_and_a_request_can_only_opt_out(
    ledger: Ledger, settings: ChatSettings, scope: str, kept: bool
) -> None:
    named = {"X_Conversation_Id": "k"} | ({"X_Conversation_Scope": scope} if scope else {})
    assert await is_kept(ledger, settings, **named) is kept
    assert await is_kept(ledger, settings, scope or None, X_Conversation_Id="k") is kept
    assert not await is_kept(ledger, settings, **named, X_Conversation_Keep="no")
    assert PersistencePolicy(settings, Host(ledger)).keeps_all is (
        settings.keep and not any(each.keep is False for each in settings.scopes.values())
    )


async def test_turn_without_a_conversation_is_not_persisted(ledger: Ledger) -> None:
    assert not await is_kept(ledger, ChatSettings())
    assert not await is_kept(ledger, ChatSettings(), X_Conversation_Keep="no")


@pytest.mark.parametrize(
    ("header", "value"),
    [
        ("Idempotency-Key", "one"),
        ("X-Conversation-Expect", "continued"),
        ("X-Context", "all"),
        ("X-Conversation-Messages", "new"),
        ("X-Turn-On-Disconnect", "continue"),
        ("X-Turn-On-Disconnect", "keep"),
        ("X-Turn-On-Stop", "keep"),
        ("X-Turn-On-Failure", "keep"),
    ],
)
async def test_header_that_needs_the_store_is_refused_unkept(ledger: Ledger, header: str, value: str) -> None:
    more = {header.replace("-", "_"): value}
    by_request = await refused(
        ledger, ChatSettings(), X_Conversation_Id="k", X_Conversation_Keep="no", **more
    )
    assert (by_request.status, by_request.code, by_request.param) == (400, "not_kept", header)
    assert "X-Conversation-Keep is no" in str(by_request)
    by_server = await refused(ledger, ChatSettings(keep=False), X_Conversation_Id="k", **more)
    assert (by_server.code, by_server.param) == ("not_kept", header)
    assert "This server stores no chats" in str(by_server)
    off = ChatSettings(scopes={"desk": OFF})
    by_scope = await refused(ledger, off, X_Conversation_Id="k", X_Conversation_Scope="desk", **more)
    assert "of this scope are not stored" in str(by_scope)


@pytest.mark.parametrize(
    "harmless",
    [
        {"X_Turn_On_Busy": "reject"},
        {"X_Turn_On_Divergence": "reject"},
        {"X_Turn_On_Disconnect": "discard"},
        {"X_Turn_On_Stop": "discard"},
        {"X_Turn_On_Failure": "forget"},
        {"X_Conversation_Messages": "full"},
        {"X_Stainless_Retry_Count": "1"},
    ],
)
async def test_header_without_effect_is_accepted_unkept(ledger: Ledger, harmless: Any) -> None:
    assert not await is_kept(ledger, ChatSettings(keep=False), X_Conversation_Id="k", **harmless)


async def test_unkept_turn_with_a_conversation_id_is_refused_without_a_store_lookup(ledger: Ledger) -> None:
    for settings in (ChatSettings(), ChatSettings(keep=False)):
        problem = await refused(
            ledger,
            settings,
            X_Conversation_Id=UNKNOWN,
            X_Conversation_Keep="no",
            X_Conversation_Messages="full",
        )
        assert (problem.status, problem.code) == (409, "conversation_is_kept")
        assert (b"x-should-retry", b"false") in problem.headers


async def test_unkept_turn_with_the_key_of_a_kept_chat_needs_the_full_history(ledger: Ledger) -> None:
    await ledger.for_owner("ada").conversation(conversation_key="k")
    for settings in (ChatSettings(), ChatSettings(keep=False)):
        no = {"X_Conversation_Id": "k", "X_Conversation_Keep": "no"}
        problem = await refused(ledger, settings, **no)
        assert (problem.status, problem.code) == (409, "conversation_is_kept")
        assert not await is_kept(ledger, settings, **no, X_Conversation_Messages="full")
        # That of another scope, or another key, names nothing.
        assert not await is_kept(ledger, settings, **no, X_Conversation_Scope="desk")
        assert not await is_kept(ledger, settings, X_Conversation_Id="other", X_Conversation_Keep="no")


async def test_conversation_follows_the_persistence_setting_of_its_own_scope(ledger: Ledger) -> None:
    desk = await ledger.for_owner("ada", scope="desk").conversation()
    shop = await ledger.for_owner("ada", scope="shop").conversation()
    settings = ChatSettings(scopes={"desk": OFF})
    assert await is_kept(ledger, settings, X_Conversation_Id=shop.id)
    problem = await refused(ledger, settings, X_Conversation_Id=desk.id, X_Conversation_Scope="shop")
    assert (problem.status, problem.code) == (409, "conversation_is_kept")
    with pytest.raises(ConversationNotFound):
        await is_kept(ledger, settings, X_Conversation_Id=UNKNOWN)
    with pytest.raises(ConversationNotFound):
        await is_kept(ledger, settings, "shop", X_Conversation_Id=desk.id)


async def test_chat_creation_in_an_unkept_scope_is_refused(ledger: Ledger) -> None:
    keeping = PersistencePolicy(ChatSettings(scopes={"desk": OFF}), Host(ledger))
    keeping.check("")
    with pytest.raises(RequestRefused) as problem:
        keeping.check("desk")
    assert (problem.value.status, problem.value.code) == (409, "not_kept")
