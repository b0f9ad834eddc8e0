"""What the workers of one server share, as one of them has it."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from turnledger.server.board import Board


class Sharing(NamedTuple):
    """Given to a worker by its supervisor; a server of one process has none."""

    board: Board
    metrics_folder: Path
    part: int
    """Its number: no other worker has it at the same time."""
