"""A tokenless server behind a real nginx configured with `proxy_pass` only."""

from __future__ import annotations

import asyncio
import os
import shutil
import socket
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import httpx2
import pytest

from tests.compat.live_server import NO_TLS, PATIENCE, run_server
from tests.free_port import free_port
from tests.unit.server.processes import started
from turnledger import Ledger
from turnledger.hosting import Host

NGINX = shutil.which("nginx", path=os.pathsep.join([os.environ.get("PATH", ""), "/usr/sbin"]))


@contextmanager
def nginx(folder: Path, url: str, *directives: str) -> Iterator[httpx2.Client]:
    """Yield a client of an nginx that passes every request on to this URL."""
    if NGINX is None and os.environ.get("CI") == "true":
        pytest.fail("not installed: nginx")
    if NGINX is None:
        pytest.skip("not installed: nginx")
    port = free_port()
    # Its usual folders for temporary files belong to root.
    kinds = ("client_body", "proxy", "fastcgi", "uwsgi", "scgi")
    paths = " ".join(f"{kind}_temp_path {folder};" for kind in kinds)
    (folder / "nginx.conf").write_text(
        f"pid nginx.pid; error_log stderr; daemon off; master_process off; events {{}}\n"
        f"http {{ access_log off; {paths} server {{ listen 127.0.0.1:{port};\n"
        f"location / {{ proxy_pass {url}; {' '.join(directives)} }} }} }}\n"
    )
    command = [NGINX, "-p", str(folder), "-c", "nginx.conf", "-e", "stderr"]
    with subprocess.Popen(command, stderr=subprocess.PIPE) as process:
        transport = httpx2.HTTPTransport(verify=NO_TLS)
        try:
            _wait_until_listening(port, process)
            with httpx2.Client(
                base_url=f"http://127.0.0.1:{port}", timeout=PATIENCE, transport=transport
            ) as client:
                yield client
        finally:
            process.terminate()


def _wait_until_listening(port: int, process: subprocess.Popen[bytes]) -> None:
    deadline = time.monotonic() + PATIENCE
    while True:
        try:
            socket.create_connection(("127.0.0.1", port), PATIENCE).close()
        except ConnectionRefusedError:
            assert process.poll() is None, process.stderr and process.stderr.read()
            assert time.monotonic() < deadline, f"nothing listens at port {port}"
        else:
            return


def status_and_code(client: httpx2.Client, path: str, **headers: str) -> tuple[int, str | None]:
    answer = client.get(path, headers={name.replace("_", "-"): value for name, value in headers.items()})
    return answer.status_code, answer.json().get("error", {}).get("code")


def test_bare_proxy_pass_without_a_token_is_refused(tmp_path: Path) -> None:
    with run_server() as served, nginx(tmp_path, served.url, "proxy_http_version 1.0;") as client:
        for path in ("/api/chats", "/v1/models", "/metrics"):
            assert status_and_code(client, path) == (403, "forwarded_request")
        response = client.post("/v1/chat/completions", json={"model": "demo", "messages": []})
        assert response.json()["error"]["code"] == "forwarded_request"
        assert served.http.get("/api/chats").status_code == 200


def test_proxy_pass_over_http_1_1_with_a_client_address_header_is_refused(tmp_path: Path) -> None:
    with run_server() as served:
        for header in ("X-Real-IP", "CF-Connecting-IP", "True-Client-IP"):
            directives = ("proxy_http_version 1.1;", f"proxy_set_header {header} $remote_addr;")
            with nginx(tmp_path, served.url, *directives) as client:
                assert status_and_code(client, "/api/chats") == (403, "forwarded_request"), header


def test_bare_proxy_pass_over_http_1_1_is_accepted_until_a_token_exists(tmp_path: Path) -> None:
    """Such a request is the same, byte for byte, as one of a local client: the start-up line warns of it."""
    with run_server() as served, nginx(tmp_path, served.url, "proxy_http_version 1.1;") as client:
        assert status_and_code(client, "/api/chats") == (200, None)
        _, text = served.do(Host(served.ledger).tokens.create(owner="ann", scopes=["chats:read"]))
        assert status_and_code(client, "/api/chats") == (401, "missing_token")
        assert status_and_code(client, "/api/chats", Authorization=f"Bearer {text}") == (200, None)


def test_tokenless_server_prints_at_start_that_a_proxy_needs_a_token(tmp_path: Path) -> None:
    store = f"sqlite:///{tmp_path / 'chats.db'}"
    serve = ("turnledger", "serve", "--port", "0", "--store", store)
    home = {name: str(tmp_path) for name in ("HOME", "XDG_DATA_HOME", "XDG_CONFIG_HOME")}
    with started(*serve, **home) as server:
        assert "Behind any proxy, create one first: turnledger tokens create\n" in server.announcement
    with started(*serve, "--workers", "2", "--insecure", **home) as server:
        assert "Access: Everyone who can reach the server may use it without" in server.announcement
    asyncio.run(make_token(store))
    with started(*serve, **home) as server:
        assert "\nAccess: Only with a token.\n" in server.announcement


async def make_token(store: str) -> None:
    async with await Ledger.open(store) as ledger:
        await Host(ledger).tokens.create(scopes=["chats:read"])
