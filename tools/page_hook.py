"""Run by hatchling before it builds a wheel or a source distribution: none is built without the chat page.

A source distribution already holds the page built from its sources.
"""

from __future__ import annotations

import os
import sys
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

WITHOUT = "TURNLEDGER_WITHOUT_PAGE"


class PageHook(BuildHookInterface[Any]):
    PLUGIN_NAME = "custom"

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Raise SystemExit with the remedy if there is no page, and it cannot be built."""
        if version == "editable" or os.environ.get(WITHOUT) == "1":
            return
        sys.path.insert(0, self.root)
        try:
            from tools.node_package import PAGE, CannotBuild
        finally:
            sys.path.remove(self.root)
        try:
            PAGE.build()
        except CannotBuild as problem:
            remedy = f"Or set {WITHOUT}=1 to make a package without the page: its server has the APIs only."
            raise SystemExit(f"{problem}. {remedy}") from None
