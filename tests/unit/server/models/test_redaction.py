"""What a narrowed caller reads of a failed turn."""

from __future__ import annotations

import pytest

from turnledger.engine.turn.commit import failure_of
from turnledger.errors import EmptyTurn, ModelRefused, ModelUnavailable
from turnledger.model.turn import Failure
from turnledger.server.models.redaction import redact_failure


@pytest.mark.parametrize(
    "problem",
    [
        ModelUnavailable("org-7 failed"),
        ModelRefused(400, {"message": "org-7 failed"}),
        OSError("org-7 failed"),
    ],
)
def test_failure_of_a_model_or_a_bug_shows_its_kind_only(problem: Exception) -> None:
    failure = failure_of(problem)
    shown = redact_failure(failure)
    assert shown is not None
    assert shown.code == failure.code
    assert "org-7" in failure.message
    assert "org-7" not in shown.message


@pytest.mark.parametrize(
    "failure", [failure_of(EmptyTurn()), Failure("process_died", "its process died"), None]
)
def test_other_failure_is_shown_as_it_is(failure: Failure | None) -> None:
    assert redact_failure(failure) == failure
