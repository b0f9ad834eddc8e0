"""Where the processes of a folder keep their chats: in a file there, or in a database that a note names."""

from __future__ import annotations

from pathlib import Path

NOTE = "store"


def store_of(folder: Path) -> str:
    note = folder / NOTE
    return note.read_text() if note.exists() else f"sqlite:///{folder / 'chats.db'}"


def is_file(folder: Path) -> bool:
    return store_of(folder).startswith("sqlite:")


def keep_in(folder: Path, url: str) -> None:
    """Let the processes of this folder use a database."""
    (folder / NOTE).write_text(url)
