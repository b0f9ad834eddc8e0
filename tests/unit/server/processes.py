"""Server processes on real sockets."""

from __future__ import annotations

import os
import re
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager

from tests.fork_server import ROOT, ForkedProcess

STAND_IN = """
import json, socket, sys
channel = socket.socket(fileno=int(sys.argv[1])).makefile("rwb", 0)
if json.loads(channel.readline())["settings"]["models"]:
    channel.write(b'{"type": "failed", "code": "worker_failed", "message": "No."}\\n')
    sys.exit(2)
channel.write(b'{"type": "ready", "models": ["demo"]}\\n')
while channel.readline() not in (b"", b'"end"\\n', b'"leave"\\n'):
    pass
"""
"""A worker that reports and obeys, and serves nothing, so that it starts at once."""


class ServerProcess:
    def __init__(self, process: subprocess.Popen[str] | ForkedProcess) -> None:
        self.process = process
        self.log = ""
        assert process.stdout is not None
        self.announcement, found = "", None
        for line in process.stdout:  # store, models and access, then the address
            self.announcement += line
            if found := re.search(r"http://([\d.]+|\[::1\]):(\d+)", line):
                break
        if found is None:
            raise AssertionError(process.communicate())
        self.url, self.address = found[0], (found[1].strip("[]"), int(found[2]))

    def connect(self) -> socket.socket:
        return socket.create_connection(self.address, timeout=60)

    def get(self, path: str, *headers: str) -> str:
        """Send a request on a new connection; return the whole answer."""
        with self.connect() as connection:
            connection.sendall(request(path, "Connection: close", *headers))
            return rest_of(connection)

    def end(self, signal: int) -> tuple[int, str, str]:
        """Send a signal; return the exit code and the rest of its output."""
        self.process.send_signal(signal)
        out, err = self.process.communicate(timeout=60)
        self.log += err
        return self.process.returncode, out, err

    def wait_for(self, text: str) -> str:
        """Read the log up to the line with this text."""
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.log += line
            if text in line:
                return line
        raise AssertionError(f"{text} was not logged")


def request(path: str, *headers: str) -> bytes:
    return "\r\n".join([f"GET {path} HTTP/1.1", "Host: localhost", *headers, "", ""]).encode()


def rest_of(connection: socket.socket) -> str:
    parts = []
    while part := connection.recv(65536):
        parts.append(part)
    return b"".join(parts).decode()


def read_until(connection: socket.socket, text: str) -> str:
    output = ""
    while text not in output:
        part = connection.recv(65536)
        assert part, output
        output += part.decode()
    return output


@contextmanager
def started(*command: str, **environ: str) -> Iterator[ServerProcess]:
    """Run `python -m` with these arguments during the block."""
    source = f"{ROOT / 'src'}{os.pathsep}{ROOT}"  # for its child processes
    with ForkedProcess(*command, env={**os.environ, "PYTHONPATH": source, **environ}) as process:
        try:
            yield ServerProcess(process)
        finally:
            if process.poll() is None:
                process.kill()
