"""`turnledger chats`: its output, and its changes to the store."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import Any, TypeVar

import pytest
from click.testing import Result
from typer.testing import CliRunner

from turnledger import Chat, Ledger
from turnledger.chats import Chats
from turnledger.cli.main import app
from turnledger.errors import StoreFull, TurnStopped
from turnledger.model.turn import OnStop

Answer = TypeVar("Answer")
UNKNOWN = "conv_01a1e0bc393673fba6a314494b850c72"


def run(*arguments: str) -> Result:
    return CliRunner().invoke(app, ["chats", *arguments])


def use_ledger(url: str, action: Callable[[Ledger], Awaitable[Answer]]) -> Answer:
    async def answer() -> Answer:
        async with await Ledger.open(url) as ledger:
            return await action(ledger)

    return asyncio.run(answer())


def add_turns(url: str, conversation_key: str, *turns: tuple[str, str], owner: str = "local") -> str:
    """Add turns to a chat; return its id."""

    async def talk(ledger: Ledger) -> str:
        chat = await ledger.for_owner(owner).conversation(conversation_key=conversation_key)
        for question, answer in turns:
            async with chat.turn(question) as turn:
                turn.emit(answer)
        return chat.id

    return use_ledger(url, talk)


def test_show_prints_the_messages_of_a_chat(url: str) -> None:
    id = add_turns(url, "k", ("Hello", "Hi.\nHow are you?"), ("Well", "Good."))
    done = run("show", "k", "--store", url)
    assert done.exit_code == 0, done.output
    lines = done.stdout.splitlines()
    assert id in lines[1]
    messages = [line for line in lines[2:] if line and not line.startswith("[")]
    assert messages == [
        "  user: Hello",
        "  assistant: Hi.",
        "    How are you?",
        "  user: Well",
        "  assistant: Good.",
    ]
    assert run("show", id, "--store", url).stdout == done.stdout
    last = run("show", id, "--turns", "1", "--store", url).stdout
    assert "Well" in last
    assert "Hello" not in last.split("\n\n", 1)[1]


def test_show_marks_a_running_turn(url: str) -> None:
    async def show_while_running(ledger: Ledger) -> Result:
        chat = await ledger.conversation(conversation_key="k")
        async with chat.turn("Hello") as turn:
            turn.emit("Hi.")
        async with chat.turn("Well?") as turn:
            shown = await asyncio.to_thread(run, "show", "k", "--store", url)
            turn.emit("Good.")
        return shown

    shown = use_ledger(url, show_while_running)
    assert shown.stdout.endswith("\n  assistant: Hi.\n\n[running] The next turn is not complete yet.\n")
    assert "[running]" not in run("show", "k", "--store", url).stdout


def test_show_reports_a_turn_that_was_stopped_before_any_text(url: str) -> None:
    async def stop(ledger: Ledger) -> None:
        chat = await ledger.conversation(conversation_key="k")
        with suppress(TurnStopped):
            async with chat.turn("Hello") as turn:
                turn.stop(OnStop.KEEP)

    use_ledger(url, stop)
    shown = run("show", "k", "--store", url).stdout
    assert shown.splitlines()[-2:] == ["  user: Hello", "  assistant: (stopped before any text)"]


def test_unknown_chat_is_reported_with_the_command_that_lists_chats(url: str) -> None:
    add_turns(url, "k", ("Hello", "Hi."))
    for arguments in (("show", "nobody"), ("delete", "nobody")):
        problem = run(*arguments, "--store", url).stderr
        assert problem.startswith("conversation_not_found: ")
        assert problem.endswith(" `turnledger chats list` lists all.\n")


def test_show_as_json_contains_the_stored_items(url: str) -> None:
    id = add_turns(url, "k", ("Hello", "Hi."))
    output: dict[str, Any] = json.loads(run("show", id, "--json", "--store", url).stdout)
    assert (output["id"], output["conversation_key"]) == (id, "k")
    assert [item["role"] for turn in output["turns"] for item in (*turn["input"], *turn["output"])] == [
        "user",
        "assistant",
    ]


def test_show_prints_more_turns_than_a_page_in_order(url: str) -> None:
    add_turns(url, "k", *((f"question {number}", "Yes.") for number in range(120)))
    shown = run("show", "k", "--turns", "110", "--store", url).stdout
    questions = [line for line in shown.splitlines() if "user:" in line]
    assert questions == [f"  user: question {number}" for number in range(10, 120)]


def test_show_stays_on_one_branch_during_an_edit(url: str, monkeypatch: pytest.MonkeyPatch) -> None:
    add_turns(url, "k", *((f"question {number}", "Yes.") for number in range(5)))
    meanwhile(monkeypatch, Chat, "turns", lambda: edit(url, "k", 2))
    monkeypatch.setattr("turnledger.cli.backend.store.PAGE", 2)
    turns = json.loads(run("show", "k", "--json", "--store", url).stdout)["turns"]
    assert [turn["parent"] for turn in turns[1:]] == [turn["id"] for turn in turns[:-1]]
    assert len(turns) == 5


def meanwhile(monkeypatch: pytest.MonkeyPatch, kind: type, name: str, do: Callable[[], None]) -> None:
    """Run `do` in a thread after the first call of the method."""
    original, done = getattr(kind, name), list[None]()

    async def replacement(*arguments: Any, **wish: Any) -> Any:
        answer = await original(*arguments, **wish)
        if not done:
            done.append(None)  # `do` may call the same method
            await asyncio.to_thread(do)
        return answer

    monkeypatch.setattr(kind, name, replacement)


def edit(url: str, conversation_key: str, number: int) -> None:
    """Edit a turn, on a new branch that becomes the current one."""

    async def action(ledger: Ledger) -> None:
        chat = await ledger.conversation(conversation_key=conversation_key)
        [edited] = await chat.turns(before=number + 1, limit=1)
        async with chat.edit(edited.id, "Otherwise") as turn:
            turn.emit("Well.")

    use_ledger(url, action)


SEEN = [{"type": "input_text", "text": "a bird"}, {"type": "input_image", "image_url": "x:y"}]
CALL = {"type": "function_call", "call_id": "c", "name": "look", "arguments": '{"a":1}'}
RESULT = {"type": "function_call_output", "call_id": "c"}


@pytest.mark.parametrize(
    ("input", "output", "lines"),
    [
        ("Hello", [{"role": "assistant", "content": ""}], ["user: Hello", "assistant: (empty answer)"]),
        ("Hello", ["if x:\n\ty\n\t\tz"], ["user: Hello", "assistant: if x:", "      y", "          z"]),
        (
            "Look",
            [CALL, {**RESULT, "output": "a bird\na tree"}, "Seen."],
            ["user: Look", 'look({"a":1})', "result: a bird", "  a tree", "assistant: Seen."],
        ),
        (
            [{"type": "message", "role": "user", "content": SEEN[::-1]}],
            [CALL, {**RESULT, "output": SEEN}],
            ["user: [input_image]a bird", 'look({"a":1})', "result: a bird[input_image]"],
        ),
    ],
)
def test_show_prints_items_line_by_line(url: str, input: Any, output: list[Any], lines: list[str]) -> None:
    async def talk(ledger: Ledger) -> None:
        async with (await ledger.conversation(conversation_key="k")).turn(input) as turn:
            for each in output:
                item = each if isinstance(each, dict) else {"role": "assistant", "content": each}
                await turn.add(item)

    use_ledger(url, talk)
    shown = run("show", "k", "--store", url).stdout.splitlines()
    assert shown[-len(lines) :] == [f"  {line}" for line in lines]


def test_show_omits_hidden_items(url: str) -> None:
    add_turns(url, "k", ("Secret", "Psst."))

    async def hide(ledger: Ledger) -> None:
        chat = await ledger.conversation(conversation_key="k")
        [turn] = await chat.turns()
        await chat.flag(turn.id, 1, to_user=False)

    use_ledger(url, hide)
    shown = run("show", "k", "--store", url).stdout
    assert ("Secret" in shown, "Psst" in shown) == (True, False)


def test_show_list_and_search_render_unicode_spaces_and_joiners_as_plain_text(url: str) -> None:
    text = (
        "Es sind 5\u202fkg\u00a0: \u0645\u06cc\u200c\u062e\u0648\u0627\u0647\u0645 \U0001f469\u200d\U0001f467"
    )
    read = "Es sind 5 kg : \u0645\u06cc\u062e\u0648\u0627\u0647\u0645 \U0001f469\U0001f467"
    id = add_turns(url, "k", (text, text))
    run("rename", id, text, "--store", url)
    shown = run("show", "k", "--store", url).stdout
    assert shown.startswith(f"{read}\n")
    assert shown.endswith(f"  user: {read}\n  assistant: {read}\n")
    assert run("list", "--store", url).stdout.endswith(f"  {read}\n")
    found = run("search", "sind", "--store", url).stdout
    assert found == f"{id}  {read}\n  {read}\n"


def test_show_prints_only_printable_characters(url: str) -> None:
    add_turns(url, "k", ("\x1b[2J\x1b]0;owned\x07 hi\r[9] not a turn", "\u202egnihton\u2028[9] nor this"))
    shown = run("show", "k", "--store", url).stdout
    assert all(line.isprintable() for line in shown.split("\n"))
    assert len([line for line in shown.split("\n")[2:] if line.startswith("[")]) == 1


@pytest.mark.parametrize("command", [("show",), ("rename", "x"), ("delete",), ("restore",)])
def test_command_on_a_chat_of_another_owner_is_not_found(url: str, command: tuple[str, ...]) -> None:
    id = add_turns(url, "k", ("Hello", "Hi."), owner="ada")
    name, *more = command
    done = run(name, id, *more, "--store", url)
    assert done.exit_code == 2
    assert "conversation_not_found" in done.stderr
    assert run(name, id, *more, "--owner", "ada", "--store", url).exit_code == 0


def test_list_shows_the_last_used_first_with_a_cursor(url: str) -> None:
    ids = [add_turns(url, f"k{number}", (f"Question {number}", "Yes.")) for number in range(3)]
    done = run("list", "--store", url)
    head, *rows = done.stdout.splitlines()
    assert head.split() == ["LAST", "USED", "TURNS", "ID", "TITLE"]
    assert [row.split()[3] for row in rows] == ids[::-1]
    assert [row.split("  ")[-1] for row in rows] == ["Question 2", "Question 1", "Question 0"]
    first = run("list", "--limit", "2", "--store", url)
    assert first.stdout.splitlines()[1:] == rows[:2]
    cursor = first.stderr.split("--cursor ")[1].strip()
    assert run("list", "--limit", "2", "--cursor", cursor, "--store", url).stdout.splitlines()[1:] == rows[2:]
    output = json.loads(run("list", "--limit", "2", "--json", "--store", url).stdout)
    assert [(each["id"], each["turn_count"], each["preview"]) for each in output["data"]] == [
        (ids[2], 1, "Yes."),
        (ids[1], 1, "Yes."),
    ]
    assert output["next"] == cursor


def test_list_filters_by_state_tag_scope_and_owner(url: str) -> None:
    ids = [add_turns(url, f"k{number}", ("Hello", "Yes.")) for number in range(4)]

    async def mark(ledger: Ledger) -> None:
        await (await ledger.conversation(ids[0])).update(pinned=True, tags=["work"])
        await (await ledger.conversation(ids[1])).update(archived=True)
        await (await ledger.conversation(ids[2])).delete()

    use_ledger(url, mark)

    def listed(*flags: str) -> list[str]:
        return [
            each["id"] for each in json.loads(run("list", "--json", *flags, "--store", url).stdout)["data"]
        ]

    assert listed() == [ids[3], ids[0]]
    assert listed("--pinned") == [ids[0]]
    assert listed("--tag", "work") == [ids[0]]
    assert listed("--archived") == [ids[1]]
    assert listed("--deleted") == [ids[2]]
    assert listed("--owner", "ada") == listed("--scope", "shop") == []
    assert "[pinned]" in run("list", "--pinned", "--store", url).stdout
    none = run("list", "--owner", "ada", "--store", url)
    assert (none.exit_code, none.stdout, none.stderr) == (0, "", "No chats of this owner found.\n")


def test_search_prints_matching_chats_with_snippets(url: str) -> None:
    id = add_turns(url, "k", ("How is the weather in Rome?", "It rains in Rome."))
    add_turns(url, "other", ("And in Oslo?", "It snows."))
    done = run("search", "rains", "rome", "--store", url)
    assert (done.exit_code, done.stdout.splitlines()) == (
        0,
        [f"{id}  How is the weather in Rome?", "  It rains in Rome."],
    )
    [hit] = json.loads(run("search", "snows", "--json", "--store", url).stdout)["data"]
    assert hit["snippet"] == "It snows."
    assert [hit["snippet"][start:stop] for start, stop in hit["marks"]] == ["snows"]
    none = run("search", 'AND "( NEAR *', "--store", url)
    assert (none.exit_code, none.stdout, none.stderr) == (0, "", "No chats of this owner found.\n")
    assert run("search", "rome", "--owner", "ada", "--store", url).stdout == ""


def test_create_prints_the_id_of_a_chat_with_its_lifetime(url: str) -> None:
    use_ledger(url, lambda ledger: ledger.list())
    done = run("create", "--key", "k", "--expires-after", "2h", "--reset", "daily 4 UTC", "--store", url)
    assert done.exit_code == 0, done.output
    again = json.loads(run("create", "--key", "k", "--json", "--store", url).stdout)
    assert (again["id"], again["expires_after"], again["reset"]) == (done.stdout.strip(), 7200, "daily 4")
    assert run("create", "--internal", "--store", url).exit_code == 0
    assert len(json.loads(run("list", "--json", "--store", url).stdout)["data"]) == 1
    fresh = json.loads(run("create", "--title", "Trip", "--json", "--store", url).stdout)
    assert (fresh["title"], fresh["expires_after"], fresh["reset"]) == ("Trip", None, "never")


def test_create_uses_the_lifetime_of_the_settings_file(url: str, tmp_path: Path) -> None:
    use_ledger(url, lambda ledger: ledger.list())
    settings = tmp_path / "my.toml"
    settings.write_text(f'[server]\nstore = "{url}"\n[chats]\nexpires_after = 60\nreset = "idle 30"\n')
    made = json.loads(run("create", "--key", "k", "--json", "--config", str(settings)).stdout)
    assert (made["expires_after"], made["reset"]) == (60, "idle 30")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--key", "k", "--reset", "weekly"), "invalid_input: Unknown reset policy 'weekly'. Known: never, "),
        (("--expires-after", "soon"), "invalid_input: --expires-after is 'soon'. Use a span"),
    ],
)
def test_create_with_an_invalid_lifetime_is_refused(
    url: str, arguments: tuple[str, ...], message: str
) -> None:
    use_ledger(url, lambda ledger: ledger.list())
    done = run("create", *arguments, "--store", url)
    assert (done.exit_code, done.stdout) == (2, "")
    assert done.stderr.startswith(message)


def test_flag_hides_items_and_shows_them_again(url: str) -> None:
    add_turns(url, "k", ("Hello", "Hi."))
    turn = json.loads(run("show", "k", "--json", "--store", url).stdout)["turns"][0]["id"]
    hidden = run("flag", "k", turn, "--item", "1", "--not-to-model", "--store", url)
    assert hidden.stdout == "Hidden from the model: 1.\nHidden from the user: nothing.\n", hidden.output
    run("flag", "k", turn, "--item", "0", "--not-to-user", "--store", url)
    listed = json.loads(run("flag", "k", turn, "--json", "--store", url).stdout)
    assert listed == {"turn": turn, "hidden": [0], "hidden_from_model": [1]}
    [shown] = json.loads(run("show", "k", "--json", "--store", url).stdout)["turns"]
    assert (len(shown["input"]), len(shown["output"]), shown["hidden_from_model"]) == (0, 1, [0])
    again = run("flag", "k", turn, "--to-model", "--to-user", "--store", url)
    assert again.stdout == "Hidden from the model: nothing.\nHidden from the user: nothing.\n"
    refused = run("flag", "k", turn, "--item", "2", "--not-to-model", "--store", url)
    assert (refused.exit_code, refused.stderr.startswith("invalid_input: ")) == (2, True)


def test_rename_changes_the_title(url: str) -> None:
    id = add_turns(url, "k", ("Hello", "Hi."))
    done = run("rename", "k", "Über uns", "--store", url)
    assert (done.exit_code, done.stdout) == (0, f"Renamed {id} to 'Über uns'.\n")
    assert use_ledger(url, lambda ledger: _title(ledger, id)) == "Über uns"
    assert json.loads(run("rename", id, "Us", "--json", "--store", url).stdout)["title"] == "Us"


async def _title(ledger: Ledger, id: str) -> str | None:
    return (await (await ledger.conversation(id)).info()).title


def test_delete_reports_deleted_and_failed_chats(url: str) -> None:
    one, other = add_turns(url, "one", ("Hello", "Hi.")), add_turns(url, "other", ("Hello", "Hi."))
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


def test_deleted_chat_can_be_restored_or_purged(url: str) -> None:
    ids = [add_turns(url, f"k{number}", ("Hello", "Hi.")) for number in range(2)]
    assert run("delete", *ids, "--store", url).exit_code == 0
    again = add_turns(url, "k1", ("Hello", "Hi."))
    done = run("restore", *ids, again, "--store", url)
    assert done.stdout.splitlines() == [
        f"Restored {ids[0]}.",
        f"Restored {ids[1]}. Another chat now has its conversation_key 'k1'.",
        f"Restored {again}.",
    ]
    assert run("show", "k0", "--store", url).exit_code == 0
    assert run("delete", ids[0], "--store", url).exit_code == 0
    assert run("delete", ids[0], "--purge", "--store", url).stdout == f"Deleted {ids[0]} permanently.\n"
    lost = run("restore", ids[0], "--store", url)
    assert (lost.exit_code, lost.stdout) == (2, "")
    assert lost.stderr.startswith("conversation_deleted: ")


def test_delete_uses_restore_for_of_the_settings_file(url: str, tmp_path: Path) -> None:
    ids = [add_turns(url, f"k{number}", ("Hello", "Hi.")) for number in range(2)]
    config = tmp_path / "turnledger.toml"
    config.write_text(f"[server]\nstore = '{url}'\n[chats]\nrestore_for = 3600\n")
    assert run("delete", ids[0], "--config", str(config)).exit_code == 0
    assert run("delete", ids[1], "--store", url).exit_code == 0
    output = json.loads(run("list", "--deleted", "--json", "--store", url).stdout)["data"]
    until = {each["id"]: each["purge_at"] for each in output}
    assert until[ids[1]] - until[ids[0]] > 29 * 24 * 3600 * 1000
    config.write_text(f"[server]\nstore = '{url}'\n[chats]\nrestore_for = 'long'\n")
    assert "restore_for" in run("delete", ids[1], "--config", str(config)).stderr


@pytest.mark.parametrize(("command", "word"), [("pin", "pinned"), ("archive", "archived")])
def test_pin_and_archive_can_be_set_and_removed(url: str, command: str, word: str) -> None:
    ids = [add_turns(url, f"k{number}", ("Hello", "Hi.")) for number in range(3)]

    def marked() -> list[str]:
        output = json.loads(run("list", f"--{word}", "--json", "--store", url).stdout)
        return [each["id"] for each in output["data"]]

    done = run(command, ids[0], "k1", "--store", url)
    assert (done.exit_code, done.stdout.splitlines()) == (0, [f"{id} is {word}." for id in ids[:2]])
    assert marked() == [ids[1], ids[0]]
    done = run(command, "k0", "--off", "--json", "--store", url)
    output = json.loads(done.stdout)
    assert (output["id"], output[word], output["turn_count"]) == (ids[0], False, 1)
    assert marked() == [ids[1]]
    done = run(command, "nobody", "k2", "--off", "--store", url)
    assert (done.exit_code, done.stdout) == (2, f"{ids[2]} is no longer {word}.\n")
    assert done.stderr.startswith("conversation_not_found: nobody: ")


def test_delete_and_restore_print_json_lines_in_the_http_shape(url: str) -> None:
    ids = [add_turns(url, f"k{number}", ("Hello", "Hi.")) for number in range(2)]
    deleted = [json.loads(line) for line in run("delete", *ids, "--json", "--store", url).stdout.splitlines()]
    assert [(each["id"], each["state"]) for each in deleted] == [(id, "deleted") for id in ids]
    assert all(each["purge_at"] for each in deleted)
    add_turns(url, "k1", ("Hello", "Hi."))
    restored = [
        json.loads(line) for line in run("restore", *ids, "--json", "--store", url).stdout.splitlines()
    ]
    chats = [(each["id"], each["conversation_key"], each["former_conversation_key"]) for each in restored]
    assert chats == [(ids[0], "k0", None), (ids[1], None, "k1")]


def test_rename_with_an_empty_chat_name_is_refused(url: str) -> None:
    add_turns(url, "k", ("Hello", "Hi."))
    done = run("rename", "", "Mine", "--store", url)
    assert (done.exit_code, done.stdout) == (2, "")
    assert done.stderr.startswith("invalid_input: The chat name is empty.")


def test_restore_reports_earlier_failures_before_a_fatal_one(
    url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    add_turns(url, "k", ("Hello", "Hi."))
    restore = Chats.restore

    async def restores(chats: Chats, id: str) -> Chat:
        if id == "full":
            raise StoreFull("No room.")
        return await restore(chats, id)

    monkeypatch.setattr(Chats, "restore", restores)
    done = run("restore", UNKNOWN, "full", "--store", url)
    assert done.exit_code == 2
    assert [line.split(": ")[0] for line in done.stderr.splitlines()] == [
        "conversation_not_found",
        "store_full",
    ]
