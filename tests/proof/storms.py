"""Storms of kills, minutes of each: no promise is broken, and followers receive every change once."""

from __future__ import annotations

from importlib import import_module

SECONDS = 1200
STORMS = {
    "killed_processes": ["--kills", "60", "--seed", "2"],
    "killed_server": ["--rounds", "30", "--seed", "7"],
    "killed_workers": ["--kills", "40", "--workers", "4", "--seed", "7"],
    "live_updates": ["--seconds", "60", "--workers", "4", "--seed", "7"],
    "unkept_storm": ["--rounds", "30", "--seed", "7"],
}


def prove() -> None:
    for name, arguments in STORMS.items():
        import_module(f"tests.crash.{name}").main(arguments)
