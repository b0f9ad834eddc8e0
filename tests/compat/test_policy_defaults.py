"""Defaults of policy headers: of the server, the model and the token, and the request over all of them."""

from __future__ import annotations

from typing import Any

import openai
import pytest

from tests.compat.completions import BRANCHED, send_streamed, send_whole
from tests.compat.conftest import Serve
from tests.compat.live_server import MODEL, LiveServer
from turnledger.engine.resend.match import SentMessages
from turnledger.engine.turn.policies import OnDisconnect, Policies
from turnledger.engine.turn.resent_request import OnDivergence
from turnledger.hosting import Host
from turnledger.model.turn import OnBusy, OnFailure, OnStop
from turnledger.server.config.settings import ModelSettings, Settings
from turnledger.testing.gates import Gate
from turnledger.testing.upstream import CUT

BRANCH, REJECT = OnDivergence.BRANCH, OnDivergence.REJECT


def settings(model: Policies | None = None, **server: Any) -> Settings:
    upstream = "http://127.0.0.1:9/v1"
    models = {} if model is None else {MODEL: ModelSettings(upstream=upstream, defaults=model)}
    return Settings(port=0, grace=0.0, defaults=Policies(**server), models=models)


def new_token(served: LiveServer, **fields: Any) -> str:
    scopes = ("chats:read", "chats:write", "turns:run")
    return served.do(Host(served.ledger).tokens.create(scopes=scopes, **fields))[1]


@pytest.mark.parametrize(
    ("server", "model", "token", "header", "is_refused"),
    [
        (REJECT, None, None, None, True),
        (REJECT, BRANCH, None, None, False),
        (BRANCH, REJECT, None, None, True),
        (REJECT, REJECT, BRANCH, None, False),
        (BRANCH, BRANCH, REJECT, None, True),
        (REJECT, REJECT, REJECT, BRANCH, False),
        (BRANCH, BRANCH, BRANCH, REJECT, True),
    ],
)
def test_request_goes_before_token_model_and_server(
    serve: Serve,
    server: OnDivergence,
    model: OnDivergence | None,
    token: OnDivergence | None,
    header: OnDivergence | None,
    is_refused: bool,
) -> None:
    of_model = None if model is None else Policies(on_divergence=model)
    served = serve(otherwise=["Hello."], settings=settings(of_model, on_divergence=server))
    bearer = new_token(served, defaults=None if token is None else {"on_divergence": token})
    client = served.client("k").with_options(api_key=bearer)
    send_whole(client, "Hi")
    edited = [{"role": "user", "content": "Ho"}, {"role": "assistant", "content": "Else."}]
    options = {"extra_headers": {"X-Turn-On-Divergence": header}} if header else {}
    question = [*edited, {"role": "user", "content": "Next"}]
    if is_refused:
        with pytest.raises(openai.ConflictError) as refused:
            send_whole(client, question, **options)
        assert refused.value.code == "history_diverged"
    else:
        assert send_whole(client, question, **options).state == BRANCHED


def test_server_default_applies_to_other_models_of_the_upstream(serve: Serve) -> None:
    served = serve(
        otherwise=["Hello."],
        settings=settings(Policies(messages=SentMessages.FULL), messages=SentMessages.NEW),
    )
    client = served.client("k")
    for _ in range(2):
        send_whole(client, "Hi", model="another")
    assert len(served.messages("k")) == 4  # not a second answer to the only question


def test_on_failure_default_applies_to_both_apis(serve: Serve) -> None:
    served = serve(otherwise=["Hel", CUT], settings=settings(on_failure=OnFailure.KEEP))
    with pytest.raises(openai.APIError):
        send_streamed(served.client("k"), "Hi")
    body = {"model": MODEL, "input": "Hi", "conversation_key": "native", "stream": True}
    assert '"model_unavailable"' in served.http.post("/api/turns", json=body).text
    for name in ("k", "native"):
        assert served.messages(name) == [("user", "Hi"), ("assistant", "Hel")]


def test_on_busy_default_applies_to_turns_and_moves(serve: Serve) -> None:
    gate = Gate()
    served = serve(["One."], ["Hel", gate, "lo."], settings=settings(on_busy=OnBusy.REJECT))
    client = served.client("k")
    send_whole(client, "Hi")
    chat = served.id_of("k")
    running = {"messages": [{"role": "user", "content": "More"}], "stream": True}
    with served.raw_completion(running, "k"):
        served.wait_arrived(gate)
        with pytest.raises(openai.ConflictError) as refused:
            send_whole(client, "Again")
        assert refused.value.code == "conversation_busy"
        undone = served.http.post(f"/api/chats/{chat}/undo", json={})
        assert (undone.status_code, undone.json()["error"]["code"]) == (409, "conversation_busy")
        served.release(gate)


def test_defaults_do_not_refuse_requests_that_could_not_choose_them(serve: Serve) -> None:
    served = serve(
        otherwise=["Hello."],
        settings=settings(
            on_busy=OnBusy.REJECT,
            on_stop=OnStop.KEEP,
            on_failure=OnFailure.KEEP,
            on_disconnect=OnDisconnect.KEEP,
            messages=SentMessages.NEW,
        ),
    )
    assert send_whole(served.client("k", X_Conversation_Keep="no"), "Hi").state == "unkept"
    assert "x-conversation-id" not in send_whole(served.client(), "Hi").headers
    body = {"model": MODEL, "input": "Hi", "background": True}
    assert served.http.post("/api/turns", json=body).status_code == 202


@pytest.mark.parametrize(("path", "is_stopped"), [("/v1/chat/completions", True), ("/api/turns", False)])
def test_on_disconnect_default_applies_where_clients_stop_by_leaving(
    serve: Serve, path: str, is_stopped: bool
) -> None:
    gate = Gate()
    served = serve(["Hel", gate, "lo."], settings=settings(on_disconnect=OnDisconnect.DISCARD))
    body = {"model": MODEL, "stream": True}
    if path == "/api/turns":
        body |= {"input": "Hi", "conversation_key": "k"}
    else:
        body |= {"messages": [{"role": "user", "content": "Hi"}]}
    headers = {} if path == "/api/turns" else {"X-Conversation-Id": "k"}
    with served.http.stream("POST", path, json=body, headers=headers) as answer:
        next(answer.iter_bytes())
        served.wait_arrived(gate)
    served.wait_alone()
    if not is_stopped:
        served.release(gate)
    served.wait_until(lambda: not served.app.service.host.at_work().running)
    assert len(served.messages("k")) == (0 if is_stopped else 2)


def test_defaults_of_a_token_are_stored_listed_and_checked(serve: Serve, store_url: str) -> None:
    served = serve(store=store_url)
    _, parent = served.do(Host(served.ledger).tokens.create(scopes=("admin", "chats:read")))
    admin = {"Authorization": f"Bearer {parent}"}
    body: dict[str, Any] = {"scopes": ["chats:read"], "defaults": {"on_busy": "reject", "messages": "new"}}
    created = served.http.post("/api/tokens", json=body, headers=admin).json()
    listed = served.http.get("/api/tokens", headers=admin).json()["data"]
    own = served.http.get("/api/tokens/self", headers={"Authorization": f"Bearer {created['token']}"}).json()
    assert created["defaults"] == listed[0]["defaults"] == own["defaults"] == body["defaults"]
    assert listed[1]["defaults"] == {}
    child = served.do(Host(served.ledger).tokens.create(scopes=["chats:read"], parent=listed[1]["id"]))[0]
    assert child.defaults == {}
    for defaults, named in (({"on_busi": "queue"}, "on_busi"), ({"on_busy": "wait"}, "queue, reject")):
        refused = served.http.post("/api/tokens", json={**body, "defaults": defaults}, headers=admin)
        assert (refused.status_code, refused.json()["error"]["code"]) == (400, "invalid_input")
        assert named in refused.json()["error"]["message"]
