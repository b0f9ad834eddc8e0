"""Lines of turns to test histories and their cache with."""

from collections.abc import Sequence

from msgspec.structs import replace

from tests.unit.model.shapes import assistant, turn
from turnledger.model.turn import Turn


def chain(*ids: int, after: Sequence[Turn] = ()) -> list[Turn]:
    """Turns of these ids behind others."""
    turns = list(after)
    for id in ids:
        parent = turns[-1].id if turns else None
        turns.append(replace(turn(len(turns) + 1, id=id, output=[assistant(str(id % 10))]), parent=parent))
    return turns[len(after) :]
