"""The Dockerfile and compose.yaml. No image is built here: the commands that the image would run are run."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import yaml

from tests.unit.server.processes import started
from tools.sbom import ROOT

Instructions = list[tuple[str, str]]
STORE = "/var/lib/turnledger"


def stages() -> list[Instructions]:
    """Return the instructions of each stage of the Dockerfile, with their arguments."""
    text = re.sub(r"^#.*\n", "", (ROOT / "Dockerfile").read_text("utf-8"), flags=re.MULTILINE)
    lines = re.sub(r"\\\n\s*", "", text).splitlines()
    found: list[Instructions] = []
    for name, _, rest in (line.partition(" ") for line in lines if line):
        if name == "FROM":
            found.append([])
        found[-1].append((name, rest))
    return found


def image() -> dict[str, str]:
    """Return the last argument of each instruction of the image."""
    return dict(stages()[-1])


def service() -> dict[str, Any]:
    [(_, found)] = yaml.safe_load((ROOT / "compose.yaml").read_text("utf-8"))["services"].items()
    return dict(found)


def test_image_runs_as_a_numbered_user_without_rights_and_keeps_the_store_in_a_volume() -> None:
    assert re.fullmatch(r"[1-9]\d*:[1-9]\d*", image()["USER"])
    assert image()["VOLUME"] == STORE
    assert [each for each in service()["volumes"] if each.endswith(f":{STORE}")]
    assert (service()["cap_drop"], service()["read_only"]) == (["ALL"], True)


def test_image_and_compose_file_hold_no_secret() -> None:
    assert not re.search(r"KEY|TOKEN|SECRET|PASSWORD|^ARG", (ROOT / "Dockerfile").read_text(), re.M | re.I)
    assert [each for each in service()["environment"] if "=" in each] == []
    ignored = (ROOT / ".dockerignore").read_text().splitlines()
    assert ignored[1] == "*"
    assert [each for each in ignored if each.startswith("!") and not (ROOT / each[1:]).exists()] == []


def test_image_is_built_of_locked_packages_by_the_uv_of_the_makefile() -> None:
    [version] = re.findall(r"^UV_VERSION \?= (.+)$", (ROOT / "Makefile").read_text(), re.MULTILINE)
    built = " ".join(rest for _, rest in stages()[1])
    assert f"uv=={version}" in built
    assert "--require-hashes --requirements requirements-server.lock" in built
    assert "--build-constraints requirements-dev.lock" in built


def test_commands_of_the_image_create_a_token_serve_and_report_health(tmp_path: Path) -> None:
    variables = dict(each.split("=") for each in image()["ENV"].split() if each.startswith("XDG_"))
    assert f"{variables['XDG_DATA_HOME']}/turnledger" == STORE
    environ = {name: str(tmp_path / value.strip("/")) for name, value in variables.items()}
    [program], command = json.loads(image()["ENTRYPOINT"]), json.loads(image()["CMD"])
    subprocess.run(
        [sys.executable, "-m", program, "tokens", "create"],
        env={**os.environ, **environ},
        capture_output=True,
        check=True,
    )
    assert command[-2:] == ["--host", "0.0.0.0"]
    with started(program, *command[:-2], "--port", "0", **environ) as server:
        assert f"Store: sqlite:///{tmp_path}{STORE}/chats.db\n" in server.announcement
        _, _, check = image()["HEALTHCHECK"].partition("CMD ")
        python, *arguments = json.loads(check.replace("http://127.0.0.1:8383", server.url))
        assert python == "python"
        health = [sys.executable, *arguments]
        assert subprocess.run(health, capture_output=True).returncode == 0
        server.process.kill()
        server.process.communicate()
        assert subprocess.run(health, capture_output=True).returncode == 1
