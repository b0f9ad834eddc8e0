"""/v1/chat/completions: its description; the endpoint itself is a module of its own."""

from __future__ import annotations

from turnledger.model.token import TokenScope
from turnledger.server.chat_completions import ChatCompletions
from turnledger.server.endpoint import Endpoint
from turnledger.server.service import Service

HEADERS = {
    "X-Conversation-Id": "The conversation: an id (`conv_…`), or a conversation_key of your own, UTF-8 and"
    " percent-encoded. Without it, nothing is kept.",
    "X-Conversation-Scope": "The scope, such as an application, that a new conversation belongs to, and in"
    " which a conversation_key is looked up.",
    "X-Conversation-Expect": "`continued`: refuse to make a conversation.",
    "X-Conversation-Messages": "`new`: all messages are new; `full`: they are the whole history. Guessed"
    " otherwise.",
    "X-Turn-On-Busy": "While another turn runs: `queue`, `reject`, `interrupt` or `rollback`.",
    "X-Turn-On-Divergence": "If the messages are not the stored history: `branch` or `reject`.",
    "X-Turn-On-Disconnect": "If the client goes away: `continue`, `keep` or `discard`.",
    "X-Turn-On-Stop": "If the turn is stopped: `keep` or `discard`.",
    "X-Turn-On-Failure": "If the turn fails: `settle`, `keep` or `forget`.",
    "Idempotency-Key": "Names the request, so that it happens once however often it is sent.",
}


def endpoints(service: Service) -> list[Endpoint]:
    """`POST /v1/chat/completions`."""
    return [
        Endpoint(
            method="POST",
            path="/v1/chat/completions",
            answer=ChatCompletions(service),
            needs=TokenScope.TURNS_RUN,
            checks_version=True,
            summary="Answer chat messages: as a turn of a conversation, or passed through to the model.",
            tag="chat",
            headers=HEADERS,
            body={
                "type": "object",
                "required": ["model", "messages"],
                "properties": {
                    "model": {"type": "string"},
                    "messages": {"type": "array", "items": {"type": "object"}},
                    "stream": {"type": "boolean"},
                },
                "additionalProperties": True,
            },
            answers={
                200: "A chat completion, or a stream of its chunks.",
                404: "No such conversation or model.",
                409: "The conversation is busy, its history diverged, or the turn was stopped.",
                410: "The conversation was deleted or has expired.",
                422: "The Idempotency-Key was used with another request.",
                502: "The model gave no whole answer. The history is as it was.",
                503: "The store cannot be reached, or the outcome of the commit is unknown.",
            },
        )
    ]
