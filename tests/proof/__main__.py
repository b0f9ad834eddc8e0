"""Run the proofs: `python -m tests.proof [NAME …]`. Each runs in a process of its own, with a time limit."""

from __future__ import annotations

import argparse
import contextlib
import importlib
import os
import pkgutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path

import tests.proof

DEFAULT_SECONDS = 600
"""Time limit of a proof whose module does not set SECONDS."""


def names() -> list[str]:
    return [module.name for module in pkgutil.iter_modules(tests.proof.__path__) if module.name != "__main__"]


def run_alone(name: str, seconds: float) -> bool:
    """Run one proof, and kill all processes it started, in any session."""
    started = time.monotonic()
    with tempfile.TemporaryDirectory(prefix="proof-") as home:
        command = [sys.executable, "-m", "tests.proof", "--here", name]
        environment = {**os.environ, "HOME": home, "TMPDIR": home}
        process = subprocess.Popen(
            command, env=environment, cwd=Path(__file__).parents[2], start_new_session=True
        )
        try:
            status = process.wait(seconds)
        except subprocess.TimeoutExpired:
            status = None
        finally:
            with contextlib.suppress(ProcessLookupError):  # already ended
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
            _kill_those_with(home)
    outcome = {0: "holds", None: f"took more than {seconds:.0f} s"}.get(status, "FAILS")
    print(f"{name}: {outcome} ({time.monotonic() - started:.0f} s)", flush=True)
    return status == 0


def _kill_those_with(home: str) -> None:
    """Kill processes with this temporary folder: servers may lead their own sessions."""
    mark = f"TMPDIR={home}\0".encode()
    for entry in Path("/proc").glob("[0-9]*/environ"):
        with contextlib.suppress(OSError):  # ended, or of another user
            if mark in entry.read_bytes():
                os.kill(int(entry.parent.name), signal.SIGKILL)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.proof", description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME")
    parser.add_argument("--list", action="store_true", help="name the proofs and what each shows")
    parser.add_argument("--here", action="store_true", help=argparse.SUPPRESS)
    options = parser.parse_args()
    if unknown := set(options.names) - set(names()):
        parser.error(f"unknown proof: {', '.join(sorted(unknown))}. Known: {', '.join(names())}.")
    modules = {name: importlib.import_module(f"tests.proof.{name}") for name in options.names or names()}
    if options.list:
        for name, module in modules.items():
            print(f"{name:24} {(module.__doc__ or '').splitlines()[0]}")
        return 0
    if options.here:
        for module in modules.values():
            module.prove()
        return 0
    held = [run_alone(name, getattr(module, "SECONDS", DEFAULT_SECONDS)) for name, module in modules.items()]
    print(f"{sum(held)} passed, {len(held) - sum(held)} failed")
    return 0 if all(held) else 1


if __name__ == "__main__":
    sys.exit(main())
