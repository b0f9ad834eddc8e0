"""The import contracts in pyproject.toml are kept."""

import logging
from collections.abc import Iterator
from pathlib import Path

import pytest
from importlinter.cli import EXIT_STATUS_SUCCESS, lint_imports

PYPROJECT = Path(__file__).parents[2] / "pyproject.toml"


@pytest.fixture(autouse=True)
def loggers_stay_on() -> Iterator[None]:
    """The linter configures logging and turns off every logger there is, for all tests that come after."""
    yield
    for logger in logging.root.manager.loggerDict.values():
        if isinstance(logger, logging.Logger):
            logger.disabled = False


def test_imports_point_one_way(capsys: pytest.CaptureFixture[str]) -> None:
    # No cache: it goes stale when a module appears, and parallel workers would share it.
    status = lint_imports(config_filename=str(PYPROJECT), no_cache=True, no_logo=True)
    assert status == EXIT_STATUS_SUCCESS, capsys.readouterr().out
