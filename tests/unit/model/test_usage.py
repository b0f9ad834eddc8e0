"""What counts of turns of any size."""

import pytest

from turnledger.model.conversation import BLOCK, in_blocks


@pytest.mark.parametrize(
    ("size", "counted"),
    [(0, 0), (1, BLOCK), (BLOCK, BLOCK), (BLOCK + 1, 2 * BLOCK), (5 * BLOCK - 1, 5 * BLOCK)],
)
def test_what_a_block_holds_in_part_counts_whole(size: int, counted: int) -> None:
    assert in_blocks(size) == counted
