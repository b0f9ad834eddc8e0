"""`turnledger chats rename`, `pin`, `archive`, `delete` and `restore`: what they change and say."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.unit.cli.commands.test_chats import UNKNOWN, asked, run, say
from turnledger import Chat, Ledger
from turnledger.errors import StoreFull


def test_rename_gives_a_name(url: str) -> None:
    id = say(url, "k", ("Hello", "Hi."))
    done = run("rename", "k", "Über uns", "--store", url)
    assert (done.exit_code, done.stdout) == (0, f"{id} is called 'Über uns'.\n")
    assert asked(url, lambda ledger: _title(ledger, id)) == "Über uns"
    assert json.loads(run("rename", id, "Us", "--json", "--store", url).stdout)["title"] == "Us"


async def _title(ledger: Ledger, id: str) -> str | None:
    return (await (await ledger.conversation(id)).info()).title


def test_delete_tells_what_went_and_what_did_not(url: str) -> None:
    one, other = say(url, "one", ("Hello", "Hi.")), say(url, "other", ("Hello", "Hi."))
    done = run("delete", "one", UNKNOWN, "nobody", "conv_x", other, "--store", url)
    assert done.exit_code == 2
    gone, also = done.stdout.splitlines()
    assert gone.startswith(f"Deleted {one}. It can be restored until 20")
    assert also.startswith(f"Deleted {other}. ")
    assert [line.split(": ")[:2] for line in done.stderr.splitlines()] == [
        ["conversation_not_found", UNKNOWN],
        ["conversation_not_found", "nobody"],
        ["invalid_id", "conv_x"],
    ]
    assert run("show", one, "--store", url).stderr.startswith("conversation_deleted: ")


def test_what_is_deleted_comes_back_or_goes_for_good(url: str) -> None:
    ids = [say(url, f"k{number}", ("Hello", "Hi.")) for number in range(2)]
    assert run("delete", *ids, "--store", url).exit_code == 0
    again = say(url, "k1", ("Hello", "Hi."))
    done = run("restore", *ids, again, "--store", url)
    assert done.stdout.splitlines() == [
        f"Restored {ids[0]}.",
        f"Restored {ids[1]}. Its conversation_key 'k1' is another chat's by now.",
        f"Restored {again}.",
    ]
    assert run("show", "k0", "--store", url).exit_code == 0
    assert run("delete", ids[0], "--store", url).exit_code == 0
    assert run("delete", ids[0], "--purge", "--store", url).stdout == f"Deleted {ids[0]} for good.\n"
    lost = run("restore", ids[0], "--store", url)
    assert (lost.exit_code, lost.stdout) == (2, "")
    assert lost.stderr.startswith("conversation_deleted: ")


def test_what_is_deleted_can_be_restored_as_long_as_the_servers_file_says(url: str, tmp_path: Path) -> None:
    ids = [say(url, f"k{number}", ("Hello", "Hi.")) for number in range(2)]
    config = tmp_path / "turnledger.toml"
    config.write_text(f"[server]\nstore = '{url}'\n[chats]\nrestore_for = 3600\n")
    assert run("delete", ids[0], "--config", str(config)).exit_code == 0
    assert run("delete", ids[1], "--store", url).exit_code == 0
    told = json.loads(run("list", "--deleted", "--json", "--store", url).stdout)["data"]
    until = {each["id"]: each["purge_at"] for each in told}
    assert until[ids[1]] - until[ids[0]] > 29 * 24 * 3600 * 1000
    config.write_text(f"[server]\nstore = '{url}'\n[chats]\nrestore_for = 'long'\n")
    assert "restore_for" in run("delete", ids[1], "--config", str(config)).stderr


@pytest.mark.parametrize(("command", "word"), [("pin", "pinned"), ("archive", "archived")])
def test_chats_are_marked_and_not_any_more(url: str, command: str, word: str) -> None:
    ids = [say(url, f"k{number}", ("Hello", "Hi.")) for number in range(3)]

    def marked() -> list[str]:
        told = json.loads(run("list", f"--{word}", "--json", "--store", url).stdout)
        return [each["id"] for each in told["data"]]

    done = run(command, ids[0], "k1", "--store", url)
    assert (done.exit_code, done.stdout.splitlines()) == (0, [f"{id} is {word}." for id in ids[:2]])
    assert marked() == [ids[1], ids[0]]
    done = run(command, "k0", "--off", "--json", "--store", url)
    told = json.loads(done.stdout)
    assert (told["id"], told[word], told["turn_count"]) == (ids[0], False, 1)
    assert marked() == [ids[1]]
    done = run(command, "nobody", "k2", "--off", "--store", url)
    assert (done.exit_code, done.stdout) == (2, f"{ids[2]} is not {word} any more.\n")
    assert done.stderr.startswith("conversation_not_found: nobody: ")


def test_programs_are_told_each_chat_on_a_line_as_http_does(url: str) -> None:
    ids = [say(url, f"k{number}", ("Hello", "Hi.")) for number in range(2)]
    deleted = [json.loads(line) for line in run("delete", *ids, "--json", "--store", url).stdout.splitlines()]
    assert [(each["id"], each["state"]) for each in deleted] == [(id, "deleted") for id in ids]
    assert all(each["purge_at"] for each in deleted)
    say(url, "k1", ("Hello", "Hi."))
    restored = [
        json.loads(line) for line in run("restore", *ids, "--json", "--store", url).stdout.splitlines()
    ]
    told = [(each["id"], each["conversation_key"], each["former_conversation_key"]) for each in restored]
    assert told == [(ids[0], "k0", None), (ids[1], None, "k1")]


def test_an_empty_name_names_no_chat(url: str) -> None:
    say(url, "k", ("Hello", "Hi."))
    done = run("rename", "", "Mine", "--store", url)
    assert (done.exit_code, done.stdout) == (2, "")
    assert done.stderr.startswith("invalid_input: A chat is named by its id")


def test_what_was_wrong_before_is_told_if_something_else_ends_it(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    say(url, "k", ("Hello", "Hi."))
    restore = Ledger.restore

    async def restores(ledger: Ledger, id: str, **wish: str) -> Chat:
        if id == "full":
            raise StoreFull("No room.")
        return await restore(ledger, id, **wish)

    monkeypatch.setattr(Ledger, "restore", restores)
    done = run("restore", UNKNOWN, "full", "--store", url)
    assert done.exit_code == 2
    assert [line.split(": ")[0] for line in done.stderr.splitlines()] == [
        "conversation_not_found",
        "store_full",
    ]
