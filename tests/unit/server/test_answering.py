"""Which statuses an endpoint can answer with follows from what kind it is, and from what it says itself."""

from __future__ import annotations

from typing import Any

import pytest

from tests.unit.server.asgi import breaks
from turnledger.server.answering import all_answers
from turnledger.server.endpoint import Endpoint


def answers(**kind: Any) -> list[int]:
    endpoint = Endpoint(method="GET", path="/", answer=breaks, summary="For a test.", tag="test", **kind)
    return list(all_answers(endpoint))


@pytest.mark.parametrize(
    ("kind", "statuses"),
    [
        ({}, [200, 400, 401, 403, 415, 429, 503]),
        ({"is_public": True}, [200, 400, 403, 415, 429, 503]),
        ({"is_public": True, "while_ending": True}, [200, 400, 403, 415]),
        ({"while_ending": True}, [200, 400, 401, 403, 415, 503]),
        ({"body": {"type": "object"}}, [200, 400, 401, 403, 408, 413, 415, 429, 503]),
        ({"answers": {201: "Made.", 409: "Too many."}}, [201, 400, 401, 403, 409, 415, 429, 503]),
    ],
)
def test_the_statuses_follow_from_the_kind(kind: dict[str, Any], statuses: list[int]) -> None:
    assert answers(**kind) == statuses


def test_an_endpoint_says_better_what_a_status_means() -> None:
    endpoint = Endpoint(
        method="GET", path="/", answer=breaks, summary="For a test.", tag="test", answers={503: "It is not."}
    )
    assert all_answers(endpoint)[503] == "It is not."
