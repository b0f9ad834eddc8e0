"""Lock files and what make installs of them, the bill of materials, the audit, and licence notices."""

from __future__ import annotations

import json
import os
import re
import subprocess
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

import pytest

from tools import audit, sbom
from tools.notices import NoLicence, notices
from tools.sbom import CORE, DEVELOPMENT, EXCLUDED, OPTIONAL, REQUIRED, ROOT, bill, extras, pinned


def test_lock_of_each_extra_is_part_of_the_development_lock() -> None:
    everything, core = pinned(ROOT / DEVELOPMENT), pinned(ROOT / CORE)
    assert core
    assert core.items() <= everything.items()
    makefile = (ROOT / "Makefile").read_text()
    assert f"EXTRAS := {' '.join(extras())}\n" in makefile
    for extra in extras():
        locked = pinned(ROOT / f"requirements-{extra}.lock")
        assert core.items() <= locked.items() <= everything.items(), extra
        assert len(locked) > len(core)
        assert all(hashes for _, hashes in locked.values())


def locks_to_install(target: str, venv: Path) -> set[str]:
    """Return the lock files that `make` would install for this target."""
    environ = {name: value for name, value in os.environ.items() if name not in {"MAKEFLAGS", "MAKELEVEL"}}
    done = subprocess.run(
        ["make", "--dry-run", target, f"VENV={venv}"], cwd=ROOT, env=environ, capture_output=True, text=True
    )
    assert done.returncode == 0, done.stderr
    return set(re.findall(r"--require-hashes .*?(requirements\S*\.lock)", done.stdout))


def test_make_serve_installs_the_server_lock_only_and_make_test_adds_the_rest(tmp_path: Path) -> None:
    assert locks_to_install("serve", tmp_path) == {"requirements-server.lock"}
    (tmp_path / ".serving").touch()
    assert locks_to_install("serve", tmp_path) == set()
    assert locks_to_install("test", tmp_path) == {DEVELOPMENT}
    (tmp_path / ".installed").touch()
    assert locks_to_install("test", tmp_path) == set()


def test_bill_of_materials_lists_locked_packages_with_hashes_and_scopes() -> None:
    made = bill()
    assert (made["bomFormat"], made["specVersion"]) == ("CycloneDX", "1.6")
    assert made == bill()
    components = {each["purl"]: each for each in made["components"]}
    assert len(components) == len(made["components"])
    for name, (version, hashes) in pinned(ROOT / DEVELOPMENT).items():
        assert {each["content"] for each in components[f"pkg:pypi/{name}@{version}"]["hashes"]} == set(hashes)
    scopes = {each["name"]: each["scope"] for each in made["components"]}
    assert (scopes["apsw"], scopes["uvicorn"], scopes["mypy"]) == (REQUIRED, OPTIONAL, EXCLUDED)
    assert (scopes["preact"], scopes["vite"]) == (OPTIONAL, EXCLUDED)
    assert "pkg:npm/%40preact/signals@" in " ".join(components)
    assert all(len(each["hashes"][0]["content"]) in (64, 128) for each in made["components"])


def test_bill_of_materials_is_written_to_a_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert sbom.main([str(tmp_path / "made" / "bom.json")]) == 0
    assert json.loads((tmp_path / "made" / "bom.json").read_text()) == bill()
    assert "components" in capsys.readouterr().out


@contextmanager
def database(answer: Any) -> Iterator[str]:
    """A database of vulnerabilities that answers so, for these packages."""

    class Answering(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            request = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            body = json.dumps(answer(request["queries"])).encode()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            pass

    server = HTTPServer(("127.0.0.1", 0), Answering)
    thread = threading.Thread(target=server.serve_forever, args=(0.01,))
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}/v1/querybatch"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


def knows(*names: str) -> Any:
    """Answers that packages of these names are vulnerable."""

    def answer(queries: list[dict[str, Any]]) -> dict[str, Any]:
        purls = [each["package"]["purl"] for each in queries]
        bad = [any(f"/{name}@" in purl for name in names) for purl in purls]
        return {"results": [{"vulns": [{"id": "GHSA-1"}]} if each else {} for each in bad]}

    return answer


@pytest.mark.parametrize(("names", "code"), [((), 0), (("mypy",), 0), (("uvicorn",), 1), (("preact",), 1)])
def test_audit_fails_only_for_vulnerable_packages_users_get(
    names: tuple[str, ...], code: int, capsys: pytest.CaptureFixture[str]
) -> None:
    with database(knows(*names)) as url:
        assert audit.main(database=url) == code
    output = capsys.readouterr().out
    assert f"{len(names)} with known vulnerabilities" in output
    assert all(f"/{name}@" in output for name in names)


@pytest.mark.parametrize("answer", [lambda _: {"results": []}, lambda _: []])
def test_audit_fails_for_a_malformed_answer_but_not_without_one(
    answer: Any, capsys: pytest.CaptureFixture[str]
) -> None:
    with database(answer) as url:
        assert audit.main(database=url) == 1
    assert audit.main(database="http://127.0.0.1:9/v1/querybatch") == 0
    assert capsys.readouterr().out.count("nothing was checked") == 2


def test_notices_contain_the_licences_of_bundled_packages(tmp_path: Path) -> None:
    packages = {
        "": {},
        "node_modules/a": {"version": "1.0.0", "license": "MIT"},
        "node_modules/@b/c": {"version": "2.0.0", "license": "BSD-3-Clause"},
        "node_modules/tool": {"version": "3.0.0", "license": "MIT", "dev": True},
    }
    (tmp_path / "package-lock.json").write_text(json.dumps({"packages": packages}))
    for name, text in (("a", "Copyright A"), ("@b/c", "Copyright C")):
        home = tmp_path / "node_modules" / name
        home.mkdir(parents=True)
        (home / "LICENSE.md").write_text(text)
    contents = notices(tmp_path)
    assert contents.index("@b/c 2.0.0 (BSD-3-Clause)") < contents.index("a 1.0.0 (MIT)")
    assert "Copyright A" in contents
    assert "Copyright C" in contents
    assert "tool" not in contents
    packages["node_modules/x"] = {"version": "1"}
    (tmp_path / "package-lock.json").write_text(json.dumps({"packages": packages}))
    with pytest.raises(NoLicence, match="x 1 has no licence"):
        notices(tmp_path)
