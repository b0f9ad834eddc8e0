"""Responses on two servers with one store: followed, cancelled and continued through the other one."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from typing import Any

import pytest

from tests.compat.conftest import Serve
from tests.compat.live_server import MODEL
from tests.compat.responses import checked, checked_events, create, raw_events, stream
from turnledger.testing.gates import Gate
from turnledger.testing.upstream import Call, Data

THOUGHT = Data(b'{"choices":[{"delta":{"reasoning_content":"Hm"}}]}')
STEPS: list[Any] = [THOUGHT, "a ", "b ", Call("look", '{"at": "it"}', "call_a", 0, 100)]
"""Each leads to one delta at least."""


def test_response_is_read_from_every_event_through_another_server(serve: Serve, store_url: str) -> None:
    one, two = serve(STEPS, store=store_url), serve(store=store_url)
    sent = stream(one.client(), "Hi")
    whole = raw_events(one, sent[0].response.id)
    assert len(whole) == len(sent)
    for number in range(len(whole)):
        assert raw_events(two, sent[0].response.id, number) == whole[number + 1 :]


def test_running_response_is_followed_through_another_server(
    serve: Serve, store_url: str, threads: ThreadPoolExecutor
) -> None:
    gate = Gate()
    one, two = serve([*STEPS, gate], store=store_url), serve(store=store_url)
    live = one.client().responses.create(model=MODEL, input="Hi", stream=True)
    started = [next(live) for _ in range(4)]
    id = started[0].response.id  # type: ignore[union-attr]
    follower = threads.submit(
        lambda: checked_events(two.client().responses.retrieve(id, stream=True, starting_after=1))
    )
    two.wait_attached()
    one.release(gate)
    assert follower.result() == [*started, *live][2:]


@pytest.mark.parametrize("steps", range(len(STEPS) + 1))
def test_response_is_cancelled_through_another_server_after_every_step(
    serve: Serve, store_url: str, steps: int
) -> None:
    gate = Gate()
    one, two = serve([*STEPS[:steps], gate], ["on"], store=store_url), serve(["on"], store=store_url)
    live = one.client().responses.create(model=MODEL, input="Hi", stream=True)
    started = [next(live)]
    one.wait_arrived(gate)
    id = started[0].response.id  # type: ignore[union-attr]
    cancelled = checked(two.client().responses.cancel(id))
    assert cancelled.status == "cancelled"
    events = checked_events([*started, *live])
    assert events[-1].response == checked(one.client().responses.retrieve(id)) == cancelled
    assert checked_events(two.client().responses.retrieve(id, stream=True))[-1].response == cancelled
    assert create(two.client(), "On?", previous_response_id=id).output_text == "on"
