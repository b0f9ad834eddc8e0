"""POST /v1/chat/completions: its description."""

from __future__ import annotations

from turnledger.engine.resend.match import Sent
from turnledger.engine.turn.resend import OnDivergence
from turnledger.model.access.token import TokenScope
from turnledger.model.ids import ConversationId, TurnId
from turnledger.model.turn import Began, OnBusy, OnFailure, OnStop
from turnledger.server.openapi.endpoint import Endpoint, Parameter
from turnledger.server.openapi.schemas import FULL, TEXT, a_list, an_object, id_of, one_of, or_null
from turnledger.server.requests.persistence import UNKEPT
from turnledger.server.requests.turn import OnDisconnect
from turnledger.server.service import Service
from turnledger.server.turns.chat_completions import CHAT_COMPLETIONS
from turnledger.server.turns.run import TurnEndpoint

ENCODED = {"type": "string", "minLength": 1}

HEADERS = {
    "X-Conversation-Id": Parameter(
        "The conversation: an id (`conv_…`), or a conversation_key of your own, UTF-8 and percent-encoded."
        " Without it, nothing is kept.",
        ENCODED,
    ),
    "X-Conversation-Scope": Parameter(
        "The scope, such as an application, that a new conversation belongs to, and in which a"
        " conversation_key is looked up.",
        ENCODED,
    ),
    "X-Conversation-Expect": Parameter(
        "`continued`: refuse to make a conversation.", {"type": "string", "enum": ["continued"]}
    ),
    "X-Conversation-Keep": Parameter(
        "`no`: the answer is given on what the request sends, and nothing of it is kept.",
        {"type": "string", "enum": ["no"]},
    ),
    "X-Conversation-Messages": Parameter(
        "`new`: all messages are new; `full`: they are the whole history. Guessed otherwise.", one_of(Sent)
    ),
    "X-Turn-On-Busy": Parameter(
        "While another turn runs: `queue`, `reject`, `interrupt` or `rollback`.", one_of(OnBusy)
    ),
    "X-Turn-On-Divergence": Parameter(
        "If the messages are not the stored history: `branch` or `reject`.", one_of(OnDivergence)
    ),
    "X-Turn-On-Disconnect": Parameter(
        "If the client goes away: `continue`, `keep` or `discard`.", one_of(OnDisconnect)
    ),
    "X-Turn-On-Stop": Parameter("If the turn is stopped: `keep` or `discard`.", one_of(OnStop)),
    "X-Turn-On-Failure": Parameter("If the turn fails: `settle`, `keep` or `forget`.", one_of(OnFailure)),
    "Idempotency-Key": Parameter(
        "Names the request, so that it happens once however often it is sent.", ENCODED
    ),
}
ANSWER_HEADERS = {
    "X-Conversation-Id": Parameter("The id of the conversation.", id_of(ConversationId)),
    "X-Conversation-State": Parameter(
        "What became of it; `unkept`: nothing of the request or its answer was kept.",
        {"type": "string", "enum": [*Began, UNKEPT]},
    ),
    "X-Turn-Id": Parameter("The id of the turn.", id_of(TurnId)),
    "Idempotency-Replayed": Parameter(
        "`true`: the turn was committed before, and is replayed.", {"type": "string", "enum": ["true"]}
    ),
}
_YES_OR_NO = {"type": ["boolean", "null"]}
BODY = an_object(
    {"model": TEXT, "messages": a_list(an_object({"role": TEXT}))},
    optional={
        "stream": _YES_OR_NO,
        "stream_options": or_null(an_object({}, optional={"include_usage": _YES_OR_NO})),
        "n": {"type": ["integer", "null"]},
        "modalities": or_null(a_list(TEXT)),
    },
)
COMPLETION = an_object({"choices": a_list(an_object({}))}, optional={"id": TEXT, "object": TEXT})


def endpoints(service: Service) -> list[Endpoint]:
    return [
        Endpoint(
            method="POST",
            path="/v1/chat/completions",
            answer=TurnEndpoint(service, CHAT_COMPLETIONS),
            needs=TokenScope.TURNS_RUN,
            checks_version=True,
            summary="Answer chat messages: as a turn of a conversation, or passed through to the model.",
            tag="chat",
            headers=HEADERS,
            body=BODY,
            answer_headers=ANSWER_HEADERS,
            content={200: {"application/json": COMPLETION, "text/event-stream": {}}},
            answers={
                200: "A chat completion, or a stream of its chunks.",
                404: "No such conversation or model.",
                409: "The conversation is busy, its history diverged, or the turn was stopped; or it is kept,"
                " and this turn is not to be.",
                410: "The conversation was deleted or has expired.",
                422: "The Idempotency-Key was used with another request.",
                502: "The model gave no whole answer. The history is as it was.",
                503: "The server is about to end, its store cannot be reached, or the outcome of the"
                " commit is unknown.",
                504: "The model took too long. The history is as it was.",
                **FULL,
            },
        )
    ]
