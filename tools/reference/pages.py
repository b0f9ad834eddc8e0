"""The reference pages, and the function that generates each."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path

from tools.reference import (
    command_line,
    compatibility,
    errors,
    library,
    outcomes,
    python_client,
    typescript_client,
)

FOLDER = Path(__file__).parents[2] / "docs" / "reference"

PAGES: Mapping[str, Callable[[], str]] = {
    "command-line.md": command_line.page,
    "compatibility.md": compatibility.page,
    "errors.md": errors.page,
    "library.md": library.page,
    "outcomes.md": outcomes.page,
    "python-client.md": python_client.page,
    "typescript-client.md": typescript_client.page,
}
