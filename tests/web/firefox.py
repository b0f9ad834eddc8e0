"""Firefox, driven by WebDriver BiDi: Playwright needs its own build of it. Only what the main paths need."""

from __future__ import annotations

import base64
import json
import os
import re
import shutil
import socket
import struct
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from tests.node_packages import skip_or_fail

MISSING = "Firefox is not installed. Install firefox-esr, or name it in FIREFOX."
LISTENING = re.compile(r"WebDriver BiDi listening on (ws://\S+)")
PATIENCE = 60
WAIT = """async (source, ...given) => {
  const look = new Function("return " + source)();
  for (let tries = 0; tries < 600; tries++) {
    const found = look(...given);
    if (found) return JSON.stringify(found);
    await new Promise((resolve) => setTimeout(resolve, 50));
  }
  throw new Error(`Not reached: ${source} ${given}`);
}"""


class Socket:
    """A client's end of a WebSocket, for texts of up to 64 kB."""

    def __init__(self, url: str) -> None:
        parts = urlsplit(url)
        self._socket = socket.create_connection((parts.hostname, parts.port), PATIENCE)
        key = base64.b64encode(os.urandom(16)).decode()
        self._socket.sendall(
            f"GET {parts.path} HTTP/1.1\r\nHost: {parts.netloc}\r\nUpgrade: websocket\r\n"
            f"Connection: Upgrade\r\nSec-WebSocket-Key: {key}\r\nSec-WebSocket-Version: 13\r\n\r\n".encode()
        )
        self._file = self._socket.makefile("rb")
        assert b" 101 " in self._file.readline()
        while self._file.readline() != b"\r\n":
            pass

    def send(self, text: str) -> None:
        data = text.encode()
        size = len(data)
        if size < 126:
            head = struct.pack("!BB", 0x81, 0x80 | size)
        else:
            head = struct.pack("!BBH", 0x81, 0x80 | 126, size)
        # A client masks each frame, and Firefox refuses a mask of zeros.
        mask = os.urandom(4)
        masked = bytes(byte ^ mask[place % 4] for place, byte in enumerate(data))
        self._socket.sendall(head + mask + masked)

    def receive(self) -> str:
        text = b""
        while True:
            first, second = self._file.read(2)
            size = second & 127
            if size > 125:
                size = int.from_bytes(self._file.read(2 if size == 126 else 8))
            text += self._file.read(size)
            if first & 0x80:
                return text.decode()

    def close(self) -> None:
        self._file.close()
        self._socket.close()


class Firefox:
    def __init__(self, connection: Socket) -> None:
        self._socket = connection
        self._last = 0
        self.run("session.new", capabilities={})

    def run(self, method: str, **params: Any) -> Any:
        self._last += 1
        self._socket.send(json.dumps({"id": self._last, "method": method, "params": params}))
        while True:
            answer = json.loads(self._socket.receive())
            if answer.get("id") == self._last:
                assert answer["type"] == "success", answer
                return answer["result"]

    def tab(self) -> Tab:
        return Tab(self, self.run("browsingContext.create", type="tab")["context"])


class Tab:
    def __init__(self, firefox: Firefox, context: str) -> None:
        self._firefox = firefox
        self._context = context

    def open(self, url: str) -> None:
        self._firefox.run("browsingContext.navigate", context=self._context, url=url, wait="complete")

    def reload(self) -> None:
        self._firefox.run("browsingContext.reload", context=self._context, wait="complete")

    def bring_to_front(self) -> None:
        self._firefox.run("browsingContext.activate", context=self._context)

    def until(self, look: str, *given: str) -> Any:
        """Wait until a function of JavaScript returns something, and return it."""
        answer = self._firefox.run(
            "script.callFunction",
            functionDeclaration=WAIT,
            arguments=[{"type": "string", "value": each} for each in (look, *given)],
            target={"context": self._context},
            awaitPromise=True,
        )
        assert answer["type"] == "success", answer
        return json.loads(answer["result"]["value"])

    def press(self, *keys: str) -> None:
        """Press keys one after the other."""
        actions = [{"type": kind, "value": key} for key in keys for kind in ("keyDown", "keyUp")]
        source = {"type": "key", "id": "keyboard", "actions": actions}
        self._firefox.run("input.performActions", context=self._context, actions=[source])

    def write(self, text: str) -> None:
        self.press(*text)


@contextmanager
def run_firefox() -> Iterator[Firefox]:
    """Run a Firefox with a fresh profile. Without one the test is skipped, or fails in CI."""
    path = os.environ.get("FIREFOX") or shutil.which("firefox-esr") or shutil.which("firefox")
    if path is None:
        skip_or_fail(MISSING)
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as home:
        (Path(home) / "profile").mkdir()
        command = [
            path,
            "--headless",
            "--no-remote",
            "--profile",
            f"{home}/profile",
            "--remote-debugging-port=0",
        ]
        with subprocess.Popen(
            [*command, "about:blank"],
            env={**os.environ, "HOME": home},
            stdout=subprocess.DEVNULL,
            stderr=subprocess.PIPE,
            text=True,
        ) as process:
            try:
                assert process.stderr is not None
                found = next(filter(None, map(LISTENING.search, process.stderr)), None)
                assert found is not None, "Firefox ended before it listened."
                with closing(Socket(f"{found[1]}/session")) as connection:
                    yield Firefox(connection)
            finally:
                process.kill()
