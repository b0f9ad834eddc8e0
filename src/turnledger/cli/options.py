"""Options that commands share, and times as people write them: `12h`, `30d`, `2027-01-31`."""

from __future__ import annotations

import re
import time
from datetime import UTC, datetime
from pathlib import Path
from typing import Annotated

import typer

from turnledger.cli.backend.completion import complete_chat, complete_deleted_id
from turnledger.errors import InvalidInput

PAGE = 50
"""Chats or turns shown by default."""

Server = Annotated[
    str | None,
    typer.Option(metavar="URL", help="Use a server instead of a store. Default: TURNLEDGER_SERVER, if set."),
]
Store = Annotated[str | None, typer.Option(metavar="URL", help="Default: that of `turnledger serve`.")]
Config = Annotated[
    Path | None, typer.Option(metavar="FILE", help="The server's turnledger.toml, which sets its store.")
]
AsJson = Annotated[bool, typer.Option("--json", help="Print JSON; times are milliseconds since 1970.")]
Owner = Annotated[
    str | None, typer.Option(help="The owner, with --store. Default: the owner of requests without a token.")
]
ScopeFilter = Annotated[str | None, typer.Option(help="Only chats of this scope. Default: all.")]
Limit = Annotated[int, typer.Option(min=1, max=1_000, help="Page size.")]
Cursor = Annotated[str | None, typer.Option(help="The cursor that the previous page printed.")]
Scope = Annotated[str, typer.Option(help="The scope in which a conversation_key is looked up.")]
ChatName = Annotated[
    str,
    typer.Argument(
        metavar="CHAT",
        help="An id, as in conv_…, or a conversation_key.",
        autocompletion=complete_chat,
    ),
]
ChatNames = Annotated[
    list[str],
    typer.Argument(metavar="CHAT…", help="Ids, or conversation_keys.", autocompletion=complete_chat),
]
DeletedIds = Annotated[
    list[str],
    typer.Argument(
        metavar="ID…", help="As in conv_…; `list --deleted` lists them.", autocompletion=complete_deleted_id
    ),
]


_SPAN = re.compile(r"([0-9]{1,9})([mhdw])")
_SECONDS = {"m": 60, "h": 3600, "d": 24 * 3600, "w": 7 * 24 * 3600}


def seconds_of(flag: str, text: str) -> int:
    """Parse a span. Raises InvalidInput."""
    span = _SPAN.fullmatch(text)
    if span is None:
        raise InvalidInput(f"{flag} is {text!r}. Use a span, as in 90m, 12h, 30d or 8w.")
    return int(span[1]) * _SECONDS[span[2]]


def expiry_of(text: str, now: int) -> int:
    """Parse a span from now on, or a date, in UTC by default; return milliseconds since 1970. Raises
    InvalidInput."""
    if _SPAN.fullmatch(text):
        return now + seconds_of("--expires", text) * 1000
    try:
        date = datetime.fromisoformat(text)
        date = date.replace(tzinfo=UTC) if date.tzinfo is None else date
        return round(date.timestamp() * 1000)
    except (ValueError, OverflowError):
        raise InvalidInput(
            f"--expires is {text!r}. Use a span (90m, 12h, 30d, 8w) or a date (2027-01-31, "
            "2027-01-31T18:00+01:00)."
        ) from None


def date_of(time: int) -> str:
    """Format a time for people, in UTC; as a number if it is out of the calendar's range."""
    try:
        return datetime.fromtimestamp(time / 1000, UTC).strftime("%Y-%m-%d %H:%M")
    except (ValueError, OverflowError, OSError):
        return f"{time} ms"


def expiry_text(expires_at: int | None) -> str:
    return "never expires" if expires_at is None else f"expires {date_of(expires_at)} UTC"


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def split_names(text: str) -> list[str]:
    return [name for name in (each.strip() for each in text.split(",")) if name]
