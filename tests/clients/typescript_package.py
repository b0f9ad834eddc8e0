"""The TypeScript client as it is tested: installed and built, when its sources were changed."""

from __future__ import annotations

from pathlib import Path

from tests import node_packages
from tools.node_package import CLIENT

PACKAGE = CLIENT.folder


def built() -> Path:
    """Where it is. Skips the test where there is no Node, see `node_packages`."""
    return node_packages.built(CLIENT)
