"""A client that goes away: what becomes of its turn, and who else counts."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx2
import openai
import pytest
from openai import OpenAI, Stream
from openai.types.chat import ChatCompletionChunk

from tests.compat.conftest import Serve
from tests.compat.retrying import MOMENT
from tests.compat.served import MODEL, PATIENCE, Served
from tests.compat.talking import heard, user, whole
from turnledger.testing.gates import Gate

ASKED: Any = {
    "model": MODEL,
    "messages": [user("Hi")],
    "stream": True,
    "extra_headers": {"Idempotency-Key": "i"},
}


def begin(client: OpenAI) -> tuple[Stream[ChatCompletionChunk], ChatCompletionChunk]:
    """Ask, or attach to what runs, and hear the first chunk."""
    chunks = client.chat.completions.create(**ASKED)
    return chunks, next(chunks)


def leave(served: Served, client: OpenAI, chunks: Stream[ChatCompletionChunk]) -> None:
    """Go away, and wait until the server has noticed."""
    others = len(served.server.server_state.connections) - 1
    chunks.close()
    client.close()
    served.until(lambda: len(served.server.server_state.connections) == others)


@pytest.mark.parametrize("policy", ["discard", "keep"])
def test_a_turn_goes_on_while_somebody_else_reads_it(serve: Serve, policy: str) -> None:
    gate = Gate()
    served = serve(["Hel", gate, "lo."])
    asking, reading = [served.client("k", X_Turn_On_Disconnect=policy) for _ in range(2)]
    asked, first = begin(asking)
    attached, early = begin(reading)
    assert early.id == first.id
    leave(served, asking, asked)
    served.release(gate)
    assert heard([early, *attached]).text == "Hello."
    assert served.history("k") == [("user", "Hi"), ("assistant", "Hello.")]


def test_a_turn_goes_on_when_only_the_other_reader_leaves(serve: Serve) -> None:
    gate = Gate()
    served = serve(["Hel", gate, "lo."])
    asking, reading = [served.client("k", X_Turn_On_Disconnect="discard") for _ in range(2)]
    asked, first = begin(asking)
    attached, _ = begin(reading)
    leave(served, reading, attached)
    served.release(gate)
    assert heard([first, *asked]).text == "Hello."


def test_a_turn_ends_when_its_last_reader_leaves(serve: Serve) -> None:
    gate = Gate()
    served = serve(["Hel", gate, "lo."])
    asking, reading = [served.client("k", X_Turn_On_Disconnect="discard") for _ in range(2)]
    asked, first = begin(asking)
    attached, _ = begin(reading)
    leave(served, asking, asked)
    leave(served, reading, attached)
    assert served.do(served.chat("k").outcome(first.id)).turn is None
    assert served.turns("k") == b"[]"


def test_who_reads_the_events_counts_as_well(serve: Serve) -> None:
    gate = Gate()
    served = serve(["Hel", gate, "lo."])
    asking = served.client("k", X_Turn_On_Disconnect="discard")
    asked, first = begin(asking)
    with served.http.stream("GET", f"/api/turns/{first.id}/events") as reading:
        lines = reading.iter_lines()
        next(lines)
        leave(served, asking, asked)
        served.release(gate)
        assert "turn.finished" in "".join(lines)
    assert served.history("k") == [("user", "Hi"), ("assistant", "Hello.")]


@pytest.mark.parametrize("policy", ["continue", "discard"])
def test_a_request_that_was_given_up_in_the_queue(
    serve: Serve, threads: ThreadPoolExecutor, policy: str
) -> None:
    gate = Gate()
    served = serve(["Zero", gate], ["One."], ["Two."])
    first = threads.submit(whole, served.client("k"), "0")
    served.arrived(gate)
    impatient = served.client("k", X_Turn_On_Disconnect=policy).with_options(
        timeout=httpx2.Timeout(PATIENCE, read=MOMENT)
    )
    with pytest.raises(openai.APITimeoutError):
        whole(impatient, "1")
    impatient.close()
    served.until(lambda: len(served.server.server_state.connections) == 1)
    served.queued("k", 1 if policy == "continue" else 0)
    served.release(gate)
    first.result()
    whole(served.client("k"), "2")
    said = [text for role, text in served.history("k") if role == "user"]
    assert said == (["0", "1", "2"] if policy == "continue" else ["0", "2"])
