"""Reports stay within bounds, whatever stands in a file."""

from __future__ import annotations

from turnledger.model.transfer_report import LONGEST_WHY, MOST_OF_A_CHAT, Did, ImportReport, Notes


def test_notes_come_in_the_order_of_lines() -> None:
    notes = Notes()
    for line in (3, 1, 2):
        notes.add(line, Did.DROPPED, "why", chat="c", turn="t")
    assert [report.line for report in notes.all()] == [1, 2, 3]
    assert notes.all()[0] == ImportReport(line=1, did=Did.DROPPED, chat="c", turn="t", why="why")


def test_of_too_many_it_is_told_how_many() -> None:
    notes = Notes()
    for line in range(MOST_OF_A_CHAT + 5):
        notes.add(line, Did.DROPPED, "x" * 10_000, chat="c", turn="t" * 10_000)
    *kept, last = notes.all()
    assert len(kept) == MOST_OF_A_CHAT
    assert last.why == "5 more reports of this chat are left out."
    assert {len(report.why) for report in kept} == {LONGEST_WHY}
    assert {len(report.turn or "") for report in kept} == {80}
