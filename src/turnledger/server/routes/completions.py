"""POST /v1/chat/completions: its description."""

from __future__ import annotations

from turnledger.engine.resend.match import SentMessages
from turnledger.engine.turn.policies import OnDisconnect
from turnledger.engine.turn.resent_request import OnDivergence
from turnledger.model.access.token import TokenScope
from turnledger.model.ids import ConversationId, TurnId
from turnledger.model.turn import CONTEXT, BeginKind, OnBusy, OnFailure, OnStop
from turnledger.server.errors import input_field
from turnledger.server.openapi.endpoint import Endpoint, Parameter
from turnledger.server.openapi.schemas import (
    STRING,
    TURN_ERRORS,
    enum_schema,
    id_schema,
    list_schema,
    nullable,
    object_schema,
)
from turnledger.server.requests.persistence import UNKEPT
from turnledger.server.service import Service
from turnledger.server.turns.chat_completions import CHAT_COMPLETIONS
from turnledger.server.turns.run import TurnEndpoint

ENCODED = {"type": "string", "minLength": 1}

HEADERS = {
    "X-Conversation-Id": Parameter(
        "The conversation: an id (`conv_…`) or your own conversation_key, UTF-8 and percent-encoded."
        " Without it, nothing is stored.",
        ENCODED,
    ),
    "X-Conversation-Scope": Parameter(
        "The scope, such as an application, of a new conversation, and in which the conversation_key is"
        " looked up.",
        ENCODED,
    ),
    "X-Conversation-Expect": Parameter(
        "`continued`: do not create a conversation.", {"type": "string", "enum": ["continued"]}
    ),
    "X-Conversation-Keep": Parameter(
        "`no`: answer from the messages of the request, and store nothing.",
        {"type": "string", "enum": ["no"]},
    ),
    "X-Conversation-Messages": Parameter(
        "`new`: all messages are new; `full`: they are the whole history. Default: detected.",
        enum_schema(SentMessages),
    ),
    "X-Context": Parameter(
        "How much of the history the model is shown: `all`, `last=TURNS` or `budget=TOKENS`. Default: as the"
        " server is set, and no more than a trimmed history contains.",
        {"type": "string", "pattern": f"^(?:{CONTEXT.pattern})$"},
    ),
    "X-Turn-On-Busy": Parameter(
        "While another turn runs: `queue`, `reject`, `interrupt` or `rollback`.", enum_schema(OnBusy)
    ),
    "X-Turn-On-Divergence": Parameter(
        "If the messages differ from the stored history: `branch` or `reject`.", enum_schema(OnDivergence)
    ),
    "X-Turn-On-Disconnect": Parameter(
        "If the client disconnects: `yield`, `continue`, `keep` or `discard`.", enum_schema(OnDisconnect)
    ),
    "X-Turn-On-Stop": Parameter("If the turn is stopped: `keep` or `discard`.", enum_schema(OnStop)),
    "X-Turn-On-Failure": Parameter(
        "If the turn fails: `settle`, `keep` or `forget`.", enum_schema(OnFailure)
    ),
    "Idempotency-Key": Parameter(
        "Identifies the request: repeats return the same result, and run nothing again.", ENCODED
    ),
}
ANSWER_HEADERS = {
    "X-Conversation-Id": Parameter("The id of the conversation.", id_schema(ConversationId)),
    "X-Conversation-State": Parameter(
        "How the turn relates to the conversation; `unkept`: nothing was stored.",
        {"type": "string", "enum": [*BeginKind, UNKEPT]},
    ),
    "X-Turn-Id": Parameter("The id of the turn.", id_schema(TurnId)),
    "X-Context-Reduced": Parameter(
        "`last=TURNS`: the model refused the length, and was then shown this many turns of the history.",
        {"type": "string", "pattern": "^last=[0-9]+$"},
    ),
    "Idempotency-Replayed": Parameter(
        "`true`: the turn was committed earlier, and is replayed.", {"type": "string", "enum": ["true"]}
    ),
}
_YES_OR_NO = {"type": ["boolean", "null"]}
BODY = object_schema(
    {"model": STRING, "messages": list_schema(object_schema({"role": STRING}))},
    optional={
        "stream": _YES_OR_NO,
        "stream_options": nullable(object_schema({}, optional={"include_usage": _YES_OR_NO})),
        "n": {"type": ["integer", "null"]},
        "modalities": nullable(list_schema(STRING)),
    },
)
COMPLETION = object_schema(
    {"choices": list_schema(object_schema({}))}, optional={"id": STRING, "object": STRING}
)


def endpoints(service: Service) -> list[Endpoint]:
    return [
        Endpoint(
            route="POST /v1/chat/completions",
            handler=TurnEndpoint(service, CHAT_COMPLETIONS),
            needs=TokenScope.TURNS_RUN,
            checks_version=True,
            summary="Answer chat messages as a turn of a conversation, or pass them through to the model.",
            headers=HEADERS,
            body=BODY,
            fields=input_field("messages"),
            response_headers=ANSWER_HEADERS,
            content={200: {"application/json": COMPLETION, "text/event-stream": {}}},
            responses={
                200: "A chat completion, or a stream of its chunks.",
                404: "Conversation or model not found.",
                409: "The conversation is busy, its history diverged, or the turn was stopped; or the"
                " conversation is stored, and the request forbids storing.",
                410: "The conversation was deleted or has expired.",
                **TURN_ERRORS,
            },
        )
    ]
