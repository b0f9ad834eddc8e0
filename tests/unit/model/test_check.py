"""A finding: damage, or the note that somebody is at work."""

import pytest

from turnledger.model.check import Finding, Rule


@pytest.mark.parametrize("rule", Rule)
def test_all_but_being_at_work_is_damage(rule: Rule) -> None:
    assert Finding(rule=rule, message="It is so.").is_damage is (rule is not Rule.NOT_AT_REST)
