"""`turnledger serve`: output, data folder and exit codes."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from http.client import HTTPConnection
from pathlib import Path

import pytest
from typer.testing import CliRunner

from tests.unit.server.processes import started
from turnledger.cli import NEEDS_SERVER
from turnledger.cli.main import app

run = CliRunner().invoke
PAGE = ("Open it in a browser.", "The chat page is not built: run make page.")
"""What follows the address: tests may run before the page is built."""
pytestmark = pytest.mark.usefixtures("own_folders")


def test_serve_without_flags_serves_the_demo_model_from_the_data_folder(tmp_path: Path) -> None:
    with started("turnledger", "serve", "--port", "0") as server:
        assert server.url.startswith("http://127.0.0.1:")
        store, models, access, address = server.announcement.splitlines()
        assert address in (f"Turnledger is at {server.url}. {page}" for page in PAGE)
        assert store.startswith("Store: sqlite:///")
        assert models == "Models: demo"
        assert access.startswith("Access: Programs on this machine need no token.")
        assert '{"status":"ready"}' in server.get("/readyz")
        assert "turnledger_turns" in server.get("/metrics")
        assert '"/openapi.json"' in server.get("/openapi.json")
        code, out, log = server.end(signal.SIGTERM)
    assert (code, out) == (0, "")
    events = [json.loads(line)["event"] for line in log.splitlines()]
    assert events == ["request", "request", "request", "shutting_down"]
    assert len(list(tmp_path.rglob("turnledger/chats.db"))) == 1
    assert list((tmp_path / "here").iterdir()) == []


def test_serve_reads_the_settings_file_and_flags(tmp_path: Path) -> None:
    config = tmp_path / "my.toml"
    config.write_text('[server]\nport = 0\nstore = "memory:"\nlog_format = "console"\n')
    with started("turnledger", "serve", "--config", str(config), "--log-level", "warning") as server:
        assert "Store: memory:\n" in server.announcement
        assert server.end(signal.SIGINT) == (0, "", "")


def test_serve_flags_for_hosts_and_origins_replace_those_of_the_file(tmp_path: Path) -> None:
    config = tmp_path / "my.toml"
    config.write_text('[server]\nstore = "memory:"\nhosts = ["old.test"]\norigins = ["http://old.test"]\n')
    hosts = ("--allow-host", "a.test", "--allow-host", "b.test")
    flags = ("--config", str(config), "--port", "0", *hosts, "--origin", "http://localhost:3000")

    def status(**headers: str) -> int:
        connection = HTTPConnection(*server.address)
        try:
            connection.request("GET", "/healthz", headers=headers)
            return connection.getresponse().status
        finally:
            connection.close()

    with started("turnledger", "serve", *flags) as server:
        assert [status(Host=f"{name}.test") for name in ("a", "b", "old")] == [200, 200, 403]
        assert [status(Origin=f"http://{name}") for name in ("localhost:3000", "old.test")] == [200, 403]


@pytest.mark.parametrize(
    ("flags", "message"),
    [
        (("--origin", "http://localhost:3000", "--origin", "localhost"), "--origin: `localhost` is not an"),
        (("--config", "{}/my.toml"), "{}/my.toml, line 2: `prot` is not a setting of [server]."),
        (("--host", "0.0.0.0"), "--insecure"),
        (("--store", "sqlite:///{}/chats.db"), "not_a_store: "),
    ],
)
def test_serve_that_cannot_start_prints_one_line(
    tmp_path: Path, flags: tuple[str, ...], message: str
) -> None:
    (tmp_path / "my.toml").write_text("[server]\nprot = 1\n")
    (tmp_path / "chats.db").write_text("this is not a database" * 100)
    done = run(app, ["serve", "--port", "0", *(each.format(tmp_path) for each in flags)])
    assert (done.exit_code, done.stdout, done.stderr.count("\n")) == (2, "", 1)
    assert message.format(tmp_path) in done.stderr


@pytest.mark.parametrize("command", ["serve", "doctor"])
def test_serve_and_doctor_without_packages_print_how_to_install_them(command: str) -> None:
    code = "import sys; sys.modules['typer'] = None; from turnledger.cli import main; main()"
    done = subprocess.run(
        [sys.executable, "-c", code, "--plain", command, "--port", "0"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert (done.returncode, done.stdout, done.stderr.strip()) == (2, "", NEEDS_SERVER)


def test_library_import_loads_no_server_package() -> None:
    packages = ["starlette", "uvicorn", "uvloop", "prometheus_client", "httptools", "typer"]
    code = f"import sys, turnledger; print([name for name in {packages!r} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout == "[]\n"
