"""How an attempt ends: what cannot become history fails the attempt, never its end."""

from __future__ import annotations

import pytest

from tests.unit.engine.stage import attempt
from turnledger.engine.attempt.end import is_well_formed
from turnledger.model.journal import Journal
from turnledger.testing.store_contract.stage import answer_to


def test_attempt_with_a_result_of_no_call_is_not_kept_and_is_logged(
    caplog: pytest.LogCaptureFixture,
) -> None:
    stranded = attempt(1, input=(answer_to("c1", "42"),))
    assert not is_well_formed((), stranded, Journal())
    assert f"{stranded.id} cannot be kept" in caplog.text
    assert is_well_formed((), attempt(1), Journal())
