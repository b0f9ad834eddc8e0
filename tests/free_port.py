"""A port for a program that cannot report the one it received, or that is started again at the same one."""

from __future__ import annotations

import random
import socket
from contextlib import suppress

NEVER_ASSIGNED = range(10_000, 32_000)
"""The system assigns higher ports to those who ask for any, such as the tests in the processes beside."""


def free_port() -> int:
    while True:
        port = random.choice(NEVER_ASSIGNED)
        with suppress(OSError), socket.create_server(("127.0.0.1", port)):
            return port
