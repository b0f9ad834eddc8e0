"""The page about real clients and model servers, from the results that `make compat` wrote."""

from __future__ import annotations

import json
from pathlib import Path

from tools.reference.markdown import sections, table

RESULTS = Path(__file__).parents[2] / "tests" / "compat_real" / "results.json"

INTRODUCTION = """\
# Compatibility

<!-- Written by `make compat`, from what it saw. -->

`make compat` runs a Turnledger server behind real clients and in front of real model servers, in the
locked versions below, and notes here what it saw. `make compat ARGS="llm litellm"` runs some of them,
and `make compat ARGS=--open-webui` Open WebUI, too, which takes 2.4 GB and Chromium. It installs their
packages into `.compat/`; some need Node. It is not part of `make test`, which runs the official client
against scripted models.
"""

CLIENTS = """\
## Clients

Each client has the same conversation with the demo model, with its default retries, and names it with
`X-Conversation-Id`. It passes if the stored history contains each answer once, in order, under its
question; no failed answer; and of the stopped answer only the beginning. Open WebUI is driven in its own
page, and must store neither titles nor temporary chats.
"""

RESPONSES = """\
## Clients of the Responses API

Each client has a conversation with the demo model through [`/v1/responses`](../responses.md), with its
default retries and a tool that it runs itself, and names the response before or a conversation. It passes if
the stored history contains each question, call, result and answer once, in order; no failed answer; and of
the stopped answer at most the beginning. The history is that of the conversation, or of the last response and
those before it.
"""

SERVERS = """\
## Model servers

The official client has a conversation with a tiny random model through Turnledger. In the middle of a
stream the model server is killed (`SIGKILL`), started again, and later frozen (`SIGSTOP`). It passes if
the client receives each outage as an error and the next question is answered; if the conversation goes
on with a shorter context when the model refuses its length, as some do; and if the stored history
contains the answers, none of the broken ones, and of the stopped one only the beginning.
"""

RECIPES = """\
## Recipes

Recipes with packages of their own. Each passes if its commands print what its page says.
"""

NOTES = """\
## Known limits

aider leaves its connection open when it is stopped. Without `X-Turn-On-Busy: interrupt` its next
question waits for the stopped answer.

aider sends its files and its map of the repository as messages before the conversation, and moves the
files behind the older questions when it has applied edits. While the files stay before the conversation,
each question [continues it](../histories.md#what-counts-as-the-same-message), also after a change of a
file or of the map. After applied edits, or with another file in the chat, the next question is an edit: it
becomes a branch of one turn, with the whole history as aider sent it, and the questions after it continue
that branch. A switch between its modes makes such a branch, too. The server cannot tell such messages
between older questions from messages that a user has added or changed there, so it does not ignore them.

`transformers serve` takes a history of any length.

LangChain, pydantic-ai and openai-agents do not cancel a response that they stop. If the program continues the
one before it by `previous_response_id`, as here, the answers go to a
[side branch](../branches.md#turns-in-parallel), which the conversation does not show. Name a conversation
instead, or cancel the stopped response and continue it.

openai-agents with its OpenAIConversationsSession sends the whole history with each request, and does not name
the conversation: its items are in the session, and each response is also in a conversation of its own. The
Vercel AI SDK does the same without a session, unless it names a conversation. If it does, it sends the
question of a tool call again, before the result, which is refused: let `prepareStep` send the last message
only.
"""


def page() -> str:
    results = json.loads(RESULTS.read_text("utf-8")).values()

    def rows(kind: str) -> str:
        fields = ("title", "version", "exercised", "result")
        found = ([each[field] for field in fields] for each in results if each["kind"] == kind)
        return table((kind, *fields[1:]), found)

    return sections(
        [
            *(INTRODUCTION, CLIENTS, rows("client"), RESPONSES, rows("client of responses")),
            *(SERVERS, rows("model server"), RECIPES, rows("recipe"), NOTES),
        ]
    )
