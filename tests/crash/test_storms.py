"""A short run of each storm of kills. A storm fails if it loses a turn, or if its kills hit no turn."""

from importlib import import_module

import pytest

STORMS = {
    "killed_processes": ["--kills", "3", "--seed", "1"],
    "killed_server": ["--rounds", "2", "--seed", "3"],
    "killed_work": ["--kills", "3", "--processes", "2", "--seed", "1"],
    "killed_workers": ["--kills", "2", "--workers", "2", "--seed", "5"],
    "live_updates": ["--seconds", "0", "--workers", "2", "--kill-every", "0.4", "--seed", "3"],
    "unkept_storm": ["--rounds", "1", "--seed", "5"],
}


@pytest.mark.parametrize("name", STORMS)
def test_storm_of_kills_breaks_no_promise(name: str) -> None:
    import_module(f"tests.crash.{name}").main(STORMS[name])
