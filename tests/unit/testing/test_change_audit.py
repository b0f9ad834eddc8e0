"""Which stories of a turn can be true."""

import pytest

from turnledger.testing.change_audit import ChangeKind, is_a_story


def kinds(*names: str) -> list[ChangeKind]:
    return [ChangeKind(f"turn.{name}") for name in names]


@pytest.mark.parametrize(
    "story",
    [
        ("running", "committed"),
        ("queued", "running", "failed"),
        ("running", "failed", "committed"),
        ("running", "stopped", "committed"),
        ("queued", "stopped"),
        ("queued", "withdrawn"),
        ("withdrawn",),
        ("queued", "withdrawn", "queued", "running", "committed"),
        ("queued", "withdrawn", "running", "failed"),
    ],
)
def test_this_can_be_told(story: tuple[str, ...]) -> None:
    assert is_a_story(kinds(*story))


@pytest.mark.parametrize(
    "story",
    [
        (),
        ("running",),
        ("queued",),
        ("committed",),
        ("queued", "running"),
        ("queued", "committed"),
        ("running", "queued", "committed"),
        ("running", "running", "committed"),
        ("running", "committed", "committed"),
        ("running", "committed", "failed"),
        ("running", "failed", "stopped"),
        ("queued", "withdrawn", "queued"),
    ],
)
def test_this_cannot(story: tuple[str, ...]) -> None:
    assert not is_a_story(kinds(*story))
