"""`turnledger tokens`: output on each stream, and changes to the store."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result
from typer.testing import CliRunner

from tests.unit.cli.commands.test_chats import use_ledger
from tests.unit.model.shapes import some_id
from turnledger import Ledger
from turnledger.api import access
from turnledger.api.views import show_token
from turnledger.cli.backend.store import StoreBackend
from turnledger.cli.commands.tokens import record_of
from turnledger.cli.main import app
from turnledger.errors import StoreFull
from turnledger.hosting import Admission, Host, TokenScope
from turnledger.model.access.token import Token, digest_of, is_token_text
from turnledger.model.ids import TokenId

UNKNOWN = some_id(TokenId, 1)
pytestmark = pytest.mark.usefixtures("own_folders")


def run(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["tokens", *arguments])


def found(url: str, text: str) -> Admission:
    return use_ledger(url, lambda ledger: Host(ledger).tokens.find(digest_of(text)))


def made(url: str, *arguments: str) -> dict[str, Any]:
    done = run("create", "--store", url, "--json", *arguments)
    assert done.exit_code == 0, done.output
    output: dict[str, Any] = json.loads(done.stdout)
    return output


def test_create_prints_only_the_token_on_stdout(url: str) -> None:
    done = run("create", "--store", url)
    assert done.exit_code == 0, done.output
    text = done.stdout.removesuffix("\n")
    assert is_token_text(text)
    token = found(url, text).token
    assert token is not None
    assert (token.owner, token.name, token.expires_at) == ("local", "", None)
    assert token.scopes == {TokenScope.CHATS_READ, TokenScope.CHATS_WRITE, TokenScope.TURNS_RUN}
    new_store, created, first, keep = done.stderr.splitlines()
    assert new_store.startswith(f"Created the store {url}. If a server runs already, name its store")
    rights = "chats:read, chats:write, turns:run; never expires."
    assert created == f"Created {token.id} for 'local' at {url}: {rights}"
    assert "from now on, every request needs one" in first
    assert keep == "Keep its text, which is not shown again."
    assert text not in done.stderr
    again = run("create", "--store", url).stderr.splitlines()
    assert [line[:11] for line in again] == ["Created tok", "Keep its te"]


def test_create_accepts_every_option(url: str) -> None:
    output = made(
        url,
        *("--owner", "ann", "--scopes", "admin, turns:run", "--name", "phone", "--chat-scope", "shop"),
        *("--models", "fast,smart", "--expires", "12h", "--max-tokens", "2000", "--n", "2"),
        *("--default", "on_busy=reject", "--default", "messages = new"),
    )
    text = output.pop("token")
    token = found(url, text).token
    assert token is not None
    assert token.expires_at == token.created_at + output["expires_at"] - output["created_at"]
    assert 12 * 3_600_000 - 60_000 < token.expires_at - token.created_at <= 12 * 3_600_000
    assert output == {
        "id": token.id,
        "owner": "ann",
        "name": "phone",
        "scopes": ["admin", "turns:run"],
        "chat_scope": "shop",
        "models": ["fast", "smart"],
        "created_at": token.created_at,
        "expires_at": token.expires_at,
        "revoked_at": None,
        "used_at": None,
        "parent": None,
        "chat": None,
        "share": None,
        "max_tokens": 2_000,
        "n": 2,
        "defaults": {"on_busy": "reject", "messages": "new"},
    }
    assert (token.bounds.max_tokens, token.bounds.n) == (2_000, 2)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--scopes", "everything"], "invalid_input: 'everything' is not a scope. Known: chats:read"),
        (["--scopes", " , "], "invalid_input: A token needs at least one scope."),
        (["--expires", "soon"], "invalid_input: --expires is 'soon'. Use a span"),
        (
            ["--expires", "2020-01-01"],
            "invalid_input: The token would have expired already. Use a time in the future.",
        ),
        (["--expires", "99999d"], "invalid_input: expires_at must be a time within"),
        (["--owner", ""], "invalid_input: owner must have 1 to"),
        (["--name", "x" * 600], "invalid_input: name must be"),
        (["--models", " , "], "invalid_input: --models is empty."),
        (["--models", ""], "invalid_input: --models is empty."),
        (["--chat-scope", ""], "invalid_input: --chat-scope is empty."),
        (["--default", "on_busy"], "invalid_input: --default 'on_busy' must be NAME=VALUE"),
        (["--default", "on_busy=wait"], "invalid_input: on_busy is 'wait'; it must be one of queue, reject"),
        (["--default", "busy=queue"], "invalid_input: 'busy' is not a policy. Known: on_busy, on_stop"),
        (["--store", "memory:"], "not_a_store: A store in memory ends with its process."),
        (["--store", "mysql://u:secret@h/d"], "not_a_store: This URL does not name a store."),
        (["--config", "none.toml"], "invalid_settings: none.toml cannot be read"),
    ],
)
def test_create_reports_an_invalid_option_on_one_line(url: str, arguments: list[str], message: str) -> None:
    named = [] if {"--store", "--config"} & {*arguments} else ["--store", url]
    done = run("create", *named, *arguments)
    assert (done.exit_code, done.stdout) == (2, "")
    assert done.stderr.startswith(message)
    assert done.stderr.count("\n") == 1
    assert "secret" not in done.stderr


def test_list_shows_the_permissions_of_tokens(url: str) -> None:
    ann = made(url, "--owner", "ann", "--name", "\x1b[2J", "--chat-scope", "shop", "--models", "fast")
    ben = made(url, "--owner", "ben", "--scopes", "admin", "--expires", "30d", "--default", "on_stop=keep")
    shown = access.Token(id=TokenId(ben["id"]), defaults=ben["defaults"])
    assert record_of(shown, 0).lines[2] == "default on_stop=keep"
    done = run("list", "--store", url)
    head, first, second = done.stdout.splitlines()
    assert head.split() == ["ID", "OWNER", "NAME", "ALLOWS", "EXPIRES", "LAST", "USED", "STATE"]
    assert first.split()[:4] == [ben["id"], "ben", "-", "admin,"]
    assert second.startswith(f"{ann['id']}  ann ")
    assert r"\x1b[2J" in second
    assert "\x1b" not in done.output
    assert "turns:run, only conversations of 'shop', only fast" in second
    assert (done.exit_code, done.stderr) == (0, "")
    for token in (ann, ben):
        assert token.pop("token") not in done.output
    assert json.loads(run("list", "--store", url, "--json").stdout) == {"data": [ben, ann]}
    assert json.loads(run("list", "--store", url, "--json", "--owner", "ann").stdout) == {"data": [ann]}


def test_list_shows_the_share_link_of_visitors(url: str) -> None:
    async def visit() -> tuple[str, str]:
        async with await Ledger.open(url) as ledger:
            chat = await ledger.for_owner("ann").conversation()
            share, code = await Host(ledger).shares.create(chat=chat.id, owner="ann")
            await Host(ledger).shares.exchange(code, "n" * 22)
            return chat.id, share.id

    chat, share = asyncio.run(visit())
    [line] = run("list", "--store", url).stdout.splitlines()[1:]
    assert f"chats:read, only {chat}, by {share}" in line


def test_list_without_tokens_prints_how_to_create_one(url: str) -> None:
    made(url, "--owner", "ann")
    done = run("list", "--store", url, "--owner", "eve")
    assert (done.exit_code, done.stdout) == (0, "")
    assert "turnledger tokens create" in done.stderr
    assert run("list", "--store", url, "--owner", "eve", "--json").stdout == '{"data":[]}\n'


def test_list_shows_more_tokens_than_a_page(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("turnledger.cli.backend.read_only_store.ROWS", 2)
    ids = [made(url)["id"] for _ in range(5)]
    listed = json.loads(run("list", "--store", url, "--json").stdout)["data"]
    assert [each["id"] for each in listed] == ids[::-1]


def test_list_shows_ended_tokens_only_on_request(url: str) -> None:
    token = made(url)
    assert run("revoke", token["id"], "--store", url).exit_code == 0
    assert run("list", "--store", url).stdout == ""
    [line] = run("list", "--store", url, "--all").stdout.splitlines()[1:]
    assert line.startswith(token["id"])
    assert line.endswith("revoked")
    expired = Token(
        id=UNKNOWN,
        owner="ann",
        scopes=frozenset(TokenScope),
        created_at=1,
        expires_at=2,
        used_at=1,
        digest=b"",
    )
    assert record_of(show_token(access.Token, expired), 2).cells[-3:] == (
        "1970-01-01 00:00",
        "1970-01-01 00:00",
        "expired",
    )


def test_revoke_includes_the_tokens_made_by_a_token(url: str) -> None:
    parent, other = made(url, "--scopes", "admin"), made(url)
    child, text = use_ledger(
        url, lambda ledger: Host(ledger).tokens.create(scopes=["admin"], parent=parent["id"])
    )
    done = run("revoke", parent["id"], "--store", url)
    assert (done.exit_code, done.stderr) == (0, "")
    lines = [f"Revoked {parent['id']}, and those created with it:", f"  {child.id} of local"]
    assert done.stdout.splitlines() == lines
    for shown, is_valid in ((parent["token"], False), (text, False), (other["token"], True)):
        token = found(url, shown).token
        assert token is not None
        assert (token.revoked_at is None) is is_valid
    revoked = json.loads(run("revoke", parent["id"], "--store", url, "--json").stdout)["data"]
    assert [each["id"] for each in revoked] == [parent["id"], child.id]


def test_revoke_by_token_text_does_not_print_the_text(url: str) -> None:
    token = made(url)
    done = run("revoke", token["token"], "--store", url)
    assert (done.exit_code, done.stdout) == (0, f"Revoked {token['id']}.\n")
    elsewhere = made(url.replace("mine", "other"))
    done = run("revoke", elsewhere["token"], "--store", url)
    assert (done.exit_code, done.stdout) == (2, "")
    assert done.stderr == "token_not_found: a text: No token has this text. Copy it completely.\n"


def test_revoke_continues_after_an_unknown_id(url: str) -> None:
    token = made(url)
    done = run("revoke", UNKNOWN, token["id"], "--store", url)
    assert (done.exit_code, done.stdout) == (2, f"Revoked {token['id']}.\n")
    assert done.stderr == f"token_not_found: {UNKNOWN}: There is no token with that id. List the tokens.\n"


@pytest.mark.parametrize("as_json", [False, True])
def test_revoke_prints_revoked_tokens_before_a_fatal_error(
    url: str, monkeypatch: pytest.MonkeyPatch, as_json: bool
) -> None:
    token, revoke = made(url), StoreBackend.revoke_token

    async def revokes(place: StoreBackend, token: str) -> Sequence[access.Token]:
        if token == UNKNOWN:
            raise StoreFull("No room.")
        return await revoke(place, token)

    monkeypatch.setattr(StoreBackend, "revoke_token", revokes)
    flags = ("--json",) if as_json else ()
    done = run("revoke", token["id"], UNKNOWN, "--store", url, *flags)
    assert (done.exit_code, done.stderr) == (2, "store_full: No room.\n")
    assert token["id"] in done.stdout
    done = run("revoke", UNKNOWN, "--store", url, *flags)
    assert (done.exit_code, done.stdout) == (2, "")


def test_create_as_json_announces_the_first_token(url: str) -> None:
    new_store, first = run("create", "--json", "--store", url).stderr.splitlines()
    assert new_store.startswith(f"Created the store {url}.")
    assert first.startswith("This is the first token: ")
    assert run("create", "--json", "--store", url).stderr == ""


@pytest.mark.parametrize("command", [["list"], ["revoke", UNKNOWN]])
def test_command_does_not_create_a_missing_store(tmp_path: Path, url: str, command: list[str]) -> None:
    done = run(*command, "--store", url)
    assert (done.exit_code, done.stdout) == (2, "")
    assert done.stderr.startswith("not_a_store: No store at ")
    assert not (tmp_path / "mine.db").exists()


def test_revoke_with_an_invalid_id_revokes_no_token(url: str) -> None:
    token = made(url)
    done = run("revoke", token["id"], "tok_1", "--store", url)
    assert (done.exit_code, done.stdout) == (2, "")
    assert done.stderr.startswith("invalid_id: 'tok_1'")
    assert json.loads(run("list", "--store", url, "--json").stdout)["data"][0]["id"] == token["id"]


def test_command_without_a_store_uses_that_of_the_server(tmp_path: Path) -> None:
    token = json.loads(run("create", "--json").stdout)
    [file] = tmp_path.rglob("turnledger/chats.db")
    assert found(f"sqlite:///{file}", token["token"]).token is not None
    assert json.loads(run("list", "--json").stdout)["data"][0]["id"] == token["id"]
    assert list((tmp_path / "here").iterdir()) == []


def test_create_reads_the_store_from_settings_that_could_not_start_a_server(tmp_path: Path, url: str) -> None:
    config = tmp_path / "my.toml"
    config.write_text(f'[server]\nhost = "0.0.0.0"\nstore = "{url}"\napi_key_env = "UNSET"\n')
    done = run("create", "--config", str(config))
    assert done.exit_code == 0, done.output
    assert found(url, done.stdout.strip()).token is not None
    config.write_text("[server]\n\nstore = 7\n")
    done = run("create", "--config", str(config))
    assert done.exit_code == 2
    assert done.stderr.startswith(f"invalid_settings: {config}, line 3: `store` must be a URL in quotes.")
