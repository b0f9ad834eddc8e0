"""What is undone is as it was, whatever was done to it and how often."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from tests.unit.model.shapes import repeatable
from turnledger.stores.memory.database import UndoLog

tables = st.dictionaries(st.integers(0, 4), st.integers())


@repeatable
@given(tables, st.lists(st.tuples(st.integers(0, 4), st.none() | st.integers())))
def test_everything_is_put_back(table: dict[int, int], steps: list[tuple[int, int | None]]) -> None:
    before, plain, log = dict(table), dict(table), UndoLog()
    for name, row in steps:
        if row is None:
            log._remove(table, name)
            plain.pop(name, None)
        else:
            log._put(table, name, row)
            plain[name] = row
        assert table == plain
    changes = any(row is not None for _, row in steps) or before != plain
    assert log.has_written or not changes
    log.undo()
    assert table == before
    assert not log.has_written
