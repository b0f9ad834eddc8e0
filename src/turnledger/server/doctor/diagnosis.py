"""What a doctor finds: one thing that was looked at, how it is, and what to do."""

from __future__ import annotations

from enum import StrEnum

import msgspec


class Level(StrEnum):
    """How it is."""

    OK = "OK"  # as it should be
    WARN = "WARN"  # the server runs, but something may surprise
    FAIL = "FAIL"  # the server does not start, or turns fail


class Diagnosis(msgspec.Struct, frozen=True):
    """One thing that was looked at. None of them holds an api_key or a token."""

    subject: str
    level: Level
    told: str
    remedy: str = ""


def ok(subject: str, told: str) -> Diagnosis:
    """All is well."""
    return Diagnosis(subject, Level.OK, told)


def warn(subject: str, told: str, remedy: str) -> Diagnosis:
    """It works, but should be looked at."""
    return Diagnosis(subject, Level.WARN, told, remedy)


def fail(subject: str, told: str, remedy: str) -> Diagnosis:
    """It does not work."""
    return Diagnosis(subject, Level.FAIL, told, remedy)
