"""The packages of the clients and servers, as locked in `packages/`, installed into `.compat/` on demand."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
PACKAGES = HERE / "packages"
INSTALLED = ROOT / ".compat"
FOR_TESTS = "tests"
"""The environment of `make setup`."""
UNLOCKED = {"transformers": "torch==2.13.0", "open-webui": "torch==2.13.0"}
"""Not in the lock files (`--excludes`): its builds differ by machine, and pip is configured for one."""


def python_of(environment: str) -> Path:
    """Install what a lock file lists, unless that was done, and return the interpreter."""
    lock, folder = PACKAGES / f"{environment}.lock", INSTALLED / environment
    stamp, python = folder / ".installed", folder / "bin" / "python"
    unlocked = UNLOCKED.get(environment, "")
    wanted = f"{lock.read_text()}{unlocked}"
    if not stamp.exists() or stamp.read_text() != wanted:
        uv = os.environ.get("UV") or shutil.which("uv") or str(ROOT / ".tools" / "bin" / "uv")
        subprocess.run([sys.executable, "-m", "venv", "--clear", folder], check=True)
        sync = [uv, "pip", "sync", "--quiet", "--require-hashes", "--python", python, lock]
        subprocess.run(sync, check=True)
        if unlocked:
            subprocess.run([python, "-m", "pip", "install", "--quiet", unlocked], check=True)
        stamp.write_text(wanted)
    return python


def node_modules() -> Path:
    """Install the Node packages, unless that was done, and return their folder."""
    lock, folder = PACKAGES / "node" / "package-lock.json", INSTALLED / "node"
    stamp = folder / ".installed"
    if not stamp.exists() or stamp.read_text() != lock.read_text():
        shutil.copytree(lock.parent, folder, dirs_exist_ok=True)
        subprocess.run(["npm", "ci", "--silent"], cwd=folder, check=True)
        stamp.write_text(lock.read_text())
    return folder / "node_modules"


def version_of(package: str, environment: str) -> str:
    """Return the locked version of a package."""
    if environment == "node":
        locked = json.loads((PACKAGES / "node" / "package-lock.json").read_text())["packages"]
        return str(locked[f"node_modules/{package}"]["version"])
    lock = ROOT / "requirements-dev.lock" if environment == FOR_TESTS else PACKAGES / f"{environment}.lock"
    found = re.search(rf"^{package}==(\S+)", lock.read_text(), re.MULTILINE)
    assert found is not None, package
    return found[1]
