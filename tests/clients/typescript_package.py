"""The TypeScript client, rebuilt when its sources changed."""

from __future__ import annotations

from pathlib import Path

from tests import node_packages
from tools.node_package import CLIENT

PACKAGE = CLIENT.folder


def built() -> Path:
    """Return its folder. Skips the test without Node, see `node_packages`."""
    return node_packages.built(CLIENT)
