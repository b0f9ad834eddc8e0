"""What is logged of real turns: how they ended and whose they were, and nothing of what was said."""

from __future__ import annotations

import io
import json
from collections.abc import Iterator

import openai
import pytest

from tests.compat.conftest import Serve
from tests.compat.talking import Way, both_ways, streamed, whole
from tests.unit.server.logging_kept import kept_logging
from turnledger.server.ops import logs
from turnledger.testing.upstream import CUT, Data, End, Status

SAID = "Nobody else's business"


@pytest.fixture
def lines() -> Iterator[io.StringIO]:
    with kept_logging():
        stream = io.StringIO()
        logs.configure("json", "info", stream)
        yield stream


def test_each_request_is_a_line_with_its_ids_its_end_and_nothing_that_was_said(
    serve: Serve, lines: io.StringIO
) -> None:
    served = serve(
        [SAID],
        [SAID, CUT],
        [Status(400, json.dumps({"error": {"message": SAID}}).encode())],
        [Data(SAID.encode())],
    )
    client = served.client("k", Authorization="Bearer of-a-token")
    told = whole(client, SAID)
    for _ in range(3):
        with pytest.raises(openai.APIError):
            streamed(client, SAID)
    with pytest.raises(openai.APIError):
        whole(client, " ")
    served.close_clients()
    served.alone()
    text = lines.getvalue()
    assert SAID not in text
    assert "of-a-token" not in text
    events = [json.loads(line) for line in text.splitlines()]
    assert [(each["status"], each.get("code")) for each in events] == [
        (200, None),
        (200, "model_unavailable"),
        (400, "model_refused"),
        (502, "malformed_answer"),
        (400, "no_new_input"),
    ]
    assert (events[0]["conversation"], events[0]["turn"]) == (told.conversation, told.turn)
    assert {each["conversation"] for each in events[:-1]} == {told.conversation}
    assert len({each["turn"] for each in events[:-1]}) == 4
    assert len({each["request_id"] for each in events}) == 5


@both_ways
def test_request_without_a_conversation_is_unchanged_and_its_line_has_the_code_of_a_failed_end(
    serve: Serve, lines: io.StringIO, way: Way
) -> None:
    served = serve(["Hel", End("abort")], ["Hello."])
    aborted = way(served.client(), SAID)
    assert (aborted.text, aborted.finish_reason) == ("Hel", "abort")
    way(served.client(), SAID)
    served.close_clients()
    served.alone()
    events = [json.loads(line) for line in lines.getvalue().splitlines()]
    assert [each.get("code") for each in events] == ["model_unavailable", None]
