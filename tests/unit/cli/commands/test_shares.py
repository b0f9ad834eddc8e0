"""`turnledger shares`: output on each stream, and changes to the store."""

from __future__ import annotations

import json
from typing import Any

import pytest
from click.testing import Result
from msgspec.structs import replace
from typer.testing import CliRunner

from tests.unit.cli.commands.test_chats import UNKNOWN as UNKNOWN_CHAT
from tests.unit.cli.commands.test_chats import add_turns, use_ledger
from tests.unit.model.shapes import some_id
from turnledger.api.access import Share
from turnledger.cli.commands.shares import record_of, state_of
from turnledger.cli.main import app
from turnledger.hosting import Host, Visit
from turnledger.model.access.token import digest_of
from turnledger.model.ids import ConversationId, ShareId

UNKNOWN = some_id(ShareId, 1)
NONCE = "made-up-by-the-page-of-a-visitor"
pytestmark = pytest.mark.usefixtures("own_folders")


def run(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["shares", *arguments])


def made(url: str, *arguments: str) -> dict[str, Any]:
    done = run("create", "--store", url, "--json", *arguments)
    assert done.exit_code == 0, done.output
    output: dict[str, Any] = json.loads(done.stdout)
    return output


def visit(url: str, path: str) -> Visit:
    code = path.removeprefix("/share#")
    return use_ledger(url, lambda ledger: Host(ledger).shares.exchange(code, NONCE))


def test_create_prints_only_the_link_on_stdout(url: str) -> None:
    chat = add_turns(url, "k", ("Hello", "Hi."), owner="ann")
    done = run("create", "--chat", chat, "--owner", "ann", "--store", url)
    assert done.exit_code == 0, done.output
    path = done.stdout.removesuffix("\n")
    visitor = visit(url, path)
    assert (visitor.token.conversation, visitor.share.owner) == (chat, "ann")
    created, first, keep = done.stderr.splitlines()
    assert created == f"Created {visitor.share.id}: reads {chat}; never expires."
    assert "every request needs a token" in first
    assert keep == "Keep the link, which is not shown again."
    assert path.removeprefix("/share#") not in done.stderr
    assert "every request" not in run("create", "--scope", "shop", "--store", url).stderr


def test_create_passes_every_bound_on(url: str) -> None:
    add_turns(url, "k", ("Hello", "Hi."))
    numbers = ("max-uses", "per-minute", "max-tokens", "n", "turns", "turns-per-minute", "bytes", "chats")
    flags = [text for number, name in enumerate(numbers, 2) for text in (f"--{name}", str(number))]
    times = ("--expires", "1h", "--visitor-expires", "30m", "--models", "demo, fast", "--name", "Fair")
    share = made(url, "--scope", "shop", *flags, *times)
    assert {name: share[name.replace("-", "_")] for name in numbers} == dict(
        zip(numbers, range(2, 10), strict=True)
    )
    assert (share["kind"], share["scope"], share["name"], share["models"]) == (
        "scope",
        "shop",
        "Fair",
        ["demo", "fast"],
    )
    assert (share["expires_at"] - share["created_at"]) // 60_000 in (59, 60)
    assert share["visitor_expires_in"] == 1800
    plain = made(url, "--scope", "shop")
    assert (plain["per_minute"], plain["visitor_expires_in"], plain["max_uses"]) == (60, 86400, None)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ((), "invalid_input: A link needs a scope or a chat, not both."),
        (("--scope", "shop", "--chat", UNKNOWN_CHAT), "invalid_input: A link needs a scope or a chat"),
        (("--chat", UNKNOWN_CHAT), "conversation_not_found: "),
        (("--scope", "shop", "--models", " "), "invalid_input: --models is empty."),
        (("--scope", "shop", "--expires", "0d"), "invalid_input: lifetime"),
        (("--scope", "shop", "--max-uses", "0"), "invalid_input: max_uses must be 1 to"),
        (("--scope", "shop", "--visitor-expires", "soon"), "invalid_input: --visitor-expires is 'soon'."),
    ],
)
def test_invalid_link_is_refused_and_not_created(url: str, arguments: tuple[str, ...], message: str) -> None:
    add_turns(url, "k", ("Hello", "Hi."))
    done = run("create", *arguments, "--store", url)
    assert (done.exit_code, done.stdout) == (2, "")
    assert done.stderr.startswith(message)
    assert json.loads(run("list", "--json", "--store", url).stdout) == {"data": []}


def test_list_shows_links_that_admit_visitors_and_with_all_the_others(url: str) -> None:
    add_turns(url, "k", ("Hello", "Hi."))
    assert run("list", "--store", url).stderr == "No links. Create one: turnledger shares create\n"
    once, open_, ended = (made(url, "--scope", name, "--max-uses", "1") for name in ("a", "b", "c"))
    visit(url, once["path"])
    assert run("revoke", ended["id"], "--store", url).stdout == f"Revoked {ended['id']}.\n"
    [head, only] = run("list", "--store", url).stdout.splitlines()
    assert head.split() == ["ID", "LEADS", "TO", "NAME", "VISITORS", "EXPIRES", "STATE"]
    assert only.split() == [open_["id"], "chats", "in", "'b'", "-", "0", "of", "1", "never", "valid"]
    listed = run("list", "--all", "--store", url).stdout
    assert [line.split()[-1] for line in listed.splitlines()[1:]] == ["revoked", "valid", "up"]
    assert open_["code"] not in listed + run("list", "--all", "--json", "--store", url).stdout


def test_list_reads_page_after_page(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    add_turns(url, "k", ("Hello", "Hi."))
    monkeypatch.setattr("turnledger.cli.backend.read_only_store.ROWS", 2)
    ids = [made(url, "--scope", "shop")["id"] for _ in range(5)]
    listed = json.loads(run("list", "--json", "--store", url).stdout)["data"]
    assert [each["id"] for each in listed] == ids[::-1]


def test_revoke_ends_the_tokens_of_visitors_and_reports_unknown_links(url: str) -> None:
    add_turns(url, "k", ("Hello", "Hi."))
    share = made(url, "--scope", "shop")
    text = visit(url, share["path"]).text
    done = run("revoke", UNKNOWN, share["id"], "--store", url)
    assert (done.exit_code, done.stdout) == (2, f"Revoked {share['id']}.\n")
    assert (
        done.stderr == f"share_not_found: {UNKNOWN}: There is no share link with that id. List the links.\n"
    )
    found = use_ledger(url, lambda ledger: Host(ledger).tokens.find(digest_of(text))).token
    assert found is not None
    assert found.revoked_at is not None
    again = json.loads(run("revoke", share["id"], "--json", "--store", url).stdout)
    assert again["revoked_at"] is not None


def test_revoke_with_an_invalid_id_revokes_nothing(url: str) -> None:
    add_turns(url, "k", ("Hello", "Hi."))
    share = made(url, "--scope", "shop")
    done = run("revoke", share["id"], "tls_x", "--store", url)
    assert (done.exit_code, done.stdout) == (2, "")
    assert done.stderr.startswith("invalid_id: ")
    assert len(json.loads(run("list", "--json", "--store", url).stdout)["data"]) == 1


def test_expired_link_to_a_chat_is_shown_as_such() -> None:
    chat = some_id(ConversationId, 1)
    share = Share(id=UNKNOWN, chat=chat, name="Trip", expires_at=1_000, uses=3)
    assert [state_of(share, now) for now in (999, 1_000)] == ["valid", "expired"]
    assert state_of(replace(share, revoked_at=1), 0) == "revoked"
    assert record_of(share, 1_000).cells[1:] == (
        f"reads {chat}",
        "Trip",
        "3",
        "1970-01-01 00:00",
        "expired",
    )
