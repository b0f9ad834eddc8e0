"""The reader, driven by hand."""

from pathlib import Path
from typing import Any

import apsw
import pytest

from tests.unit.stores.sqlite.operations import has_claim
from turnledger.errors import StoreCorrupt, StoreError, StoreUnavailable
from turnledger.stores.sqlite import SqliteStore, opening
from turnledger.stores.sqlite.reader import Reader
from turnledger.stores.sqlite.writer import Job


class Failing:
    """A cursor that cannot end a transaction, once."""

    def __init__(self, cursor: apsw.Cursor, problem: apsw.Error) -> None:
        self._cursor = cursor
        self._problems = [problem]

    def execute(self, statement: str, *bindings: Any) -> apsw.Cursor:
        if statement == "ROLLBACK" and self._problems:
            raise self._problems.pop()
        return self._cursor.execute(statement, *bindings)


@pytest.mark.parametrize(
    ("problem", "kind"),
    [(apsw.IOError("disk I/O error"), StoreUnavailable), (apsw.NotADBError("no database"), StoreCorrupt)],
)
def test_a_view_that_cannot_be_ended_is_no_unknown_outcome(
    path: Path, problem: apsw.Error, kind: type[StoreError]
) -> None:
    opening.prepare(str(path))
    reader: Any = Reader(opening.connect_reader(str(path)), str(path))
    reader._cursor = Failing(reader._cursor, problem)
    first, second, third = (Job(has_claim, ("owner", "a")) for _ in range(3))
    reader.run_batch([first, second])
    assert [type(job.error) for job in (first, second)] == [kind] * 2
    reader.run_batch([third])
    assert third.outcome() is False
    reader.close()


async def test_a_bug_in_the_reader_is_no_unknown_outcome(
    store: SqliteStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    def broken(jobs: object) -> None:
        raise ZeroDivisionError

    monkeypatch.setattr(store._reader, "run_batch", broken)
    with pytest.raises(StoreError, match="ZeroDivisionError") as caught:
        await store.read(has_claim, ("owner", "a"))
    assert type(caught.value) is StoreError
