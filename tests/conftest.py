"""What all tests share."""

from __future__ import annotations

import gc

import pytest

from tests.run_logs.plugin import RunLogs


def pytest_configure(config: pytest.Config) -> None:
    """Have the logs of the run searched for what may not be in a log."""
    config.pluginmanager.register(RunLogs(config), "run_logs")


def pytest_collection_finish() -> None:
    """Have the collector pass by everything that is imported: the simulator collects after each of its
    deaths, and would walk over all modules of all tests each time."""
    gc.collect()
    gc.freeze()
