"""The changes in their table: kinds by numbers that never change, and no way that reads all of it."""

from turnledger.model.change import ChangeKind
from turnledger.stores.sqlite.tables.records import _NUMBER_OF_CHANGE, CHANGE_KINDS


def test_the_numbers_of_kinds_stay_as_they_are() -> None:
    """They are in files: a new kind comes at the end."""
    assert [kind.value for kind in CHANGE_KINDS] == [
        "chat.created",
        "chat.changed",
        "chat.deleted",
        "chat.restored",
        "chat.switched",
        "turn.queued",
        "turn.running",
        "turn.committed",
        "turn.failed",
        "turn.stopped",
        "turn.withdrawn",
    ]
    assert set(ChangeKind) - set(_NUMBER_OF_CHANGE) == {ChangeKind.START, ChangeKind.GAP}
