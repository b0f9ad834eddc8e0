"""The machines' own assertions show what they compared."""

import pytest

pytest.register_assert_rewrite("tests.stateful.pair", "tests.stateful.invariants", "tests.stateful.steps")
