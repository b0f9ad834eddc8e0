"""The page about sharing: its commands, run in the order in which they stand there, against a real server."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.unit.server.processes import started
from turnledger.server.config.file import load_settings

PAGE = (Path(__file__).parents[2] / "docs" / "sharing.md").read_text()
BLOCKS = re.findall(r"```sh\n(.*?)```", PAGE, re.DOTALL)
NONCE = "made-up-by-the-page-of-a-visitor"


@pytest.fixture(scope="module")
def operator(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, str]]:
    """A server with a token of its operator's, as the page assumes: the environment of a shell."""
    missing = [name for name in ("bash", "curl") if shutil.which(name) is None]
    if missing and os.environ.get("CI") == "true":
        pytest.fail(f"not installed: {', '.join(missing)}")
    if missing:
        pytest.skip(f"not installed: {', '.join(missing)}")
    store = f"sqlite:///{tmp_path_factory.mktemp('sharing') / 'chats.db'}"
    command = re.search(r"turnledger (tokens create .*?)`", PAGE, re.DOTALL)
    assert command is not None
    words = [sys.executable, "-m", "turnledger", *command[1].split(), "--store", store]
    made = subprocess.run(words, capture_output=True, text=True, check=True)
    with started("turnledger", "serve", "--port", "0", "--store", store) as server:
        yield {**os.environ, "SERVER": server.url, "TOKEN": made.stdout.strip(), "NONCE": NONCE}


def run(block: str, shell: dict[str, str]) -> list[Any]:
    """What the commands of a block print, each a document."""
    done = subprocess.run(["bash", "-ec", block], capture_output=True, text=True, env=shell, check=False)
    assert done.returncode == 0, done.stderr
    decoder, told, text = json.JSONDecoder(), [], done.stdout.strip()
    while text:
        document, end = decoder.raw_decode(text)
        told.append(document)
        text = text[end:].strip()
    return told


def test_the_commands_do_what_the_page_says(operator: dict[str, str]) -> None:
    for_user, link, look_after, follow = BLOCKS
    [token] = run(for_user, operator)
    assert token["token"].startswith("tlt_")
    assert (token["owner"], token["chat_scope"], token["models"]) == ("user-42", "shop", ["demo"])
    [share] = run(link, operator)
    assert share["path"] == f"/share#{share['code']}"
    shell = {**operator, "CODE": share["code"], "SHARE": share["id"]}
    [visit], [again] = run(follow, shell), run(follow, shell)
    assert visit == again
    assert (visit["kind"], visit["scope"], visit["models"]) == ("scope", "shop", ["demo"])
    listed, revoked = run(look_after, shell)
    assert [(each["id"], each["uses"]) for each in listed["data"]] == [(share["id"], 1)]
    assert revoked["revoked_at"] is not None
    [refused] = run(follow, shell)
    assert refused["error"]["code"] == "link_not_valid"


def test_the_settings_that_are_shown_are_understood(tmp_path: Path) -> None:
    config = tmp_path / "turnledger.toml"
    config.write_text("".join(re.findall(r"```toml\n(.*?)```", PAGE, re.DOTALL)))
    folders = {"config_folder": tmp_path, "data_folder": tmp_path}
    settings = load_settings({}, config=config, environ={}, **folders)
    assert settings.frame_ancestors == ("https://shop.example.com",)
