"""The soak report fails on growth, unexpected answers, leftovers and damage."""

from __future__ import annotations

from math import isnan

import pytest

from bench.soak import BOUNDS, Measurements, by_quarter, report, table

CHECKED = "4 conversations: no errors."


def seen(*, memory: float = 0.0, files: int = 0, turns: float = 0.0, signs: float = 0.0) -> Measurements:
    """A minute in which this is added from its beginning to its end."""
    passed = [number / 1000 for number in range(1000)]
    return Measurements(
        held=[(at, 100 + memory * at, 30 + round(files * at)) for at in passed],
        turns=[(at, 5 + turns * at) for at in passed],
        signs=[(at, 1 + signs * at) for at in passed],
    )


def test_soak_report_with_flat_figures_passes(capsys: pytest.CaptureFixture[str]) -> None:
    assert report(seen(), 0, CHECKED)
    output = capsys.readouterr().out
    assert output.count(" flat") == len(BOUNDS) == len(table(seen())) - 1


@pytest.mark.parametrize("growth", [{"memory": 100.0}, {"files": 40}, {"turns": 20.0}])
def test_soak_report_with_a_growing_figure_fails_and_names_it(
    growth: dict[str, float], capsys: pytest.CaptureFixture[str]
) -> None:
    assert not report(seen(**growth), 0, CHECKED)  # type: ignore[arg-type]
    assert "GROWS" in capsys.readouterr().out


def test_soak_report_on_a_uniformly_slower_machine_passes() -> None:
    assert report(seen(turns=20.0, signs=4.0), 0, CHECKED)
    assert not report(seen(turns=200.0, signs=4.0), 0, CHECKED)


def test_soak_report_with_odd_answers_leftovers_or_damage_fails() -> None:
    odd = seen()
    odd.odd.append("has_a_turn: 500")
    assert not report(odd, 0, CHECKED)
    assert not report(seen(), 100, CHECKED)
    assert not report(seen(), 0, "1 thing wrong.")


def test_soak_quarters_ignore_samples_of_the_warm_up() -> None:
    quarters = by_quarter([(0.05, 1.0), (0.1, 2.0), (0.3, 3.0), (0.99, 4.0), (1.5, 5.0)])
    assert [quarters[0], quarters[3]] == [[2.0, 3.0], [4.0]]
    assert all(isnan(value) for quarter in quarters[1:3] for value in quarter)
