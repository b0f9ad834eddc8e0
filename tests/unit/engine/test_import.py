"""Import: a file becomes a valid tree of turns, and every repair and every bad line is reported."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec
import pytest

from turnledger.engine.limits import Limits
from turnledger.engine.transfer import import_parse, import_plan
from turnledger.engine.transfer.import_parse import ChatReader, ParsedChat
from turnledger.engine.transfer.import_plan import Plan, plan_import
from turnledger.errors import InvalidInput
from turnledger.model.ids import BranchId, ConversationId, Id, TurnId
from turnledger.model.item import NOT_ANSWERED, Item, message
from turnledger.model.transfer import (
    BranchLine,
    ChatLine,
    FlagLine,
    ImportOutcome,
    ImportReport,
    ResetLine,
    TurnLine,
)
from turnledger.model.turn import Failure, TurnKind

AT = 1_700_000_000_000
CALL = {"type": "function_call", "call_id": "c", "name": "f", "arguments": "{}"}
RESULT = {"type": "function_call_output", "call_id": "c", "output": "r"}


def raws(*items: Any) -> tuple[msgspec.Raw, ...]:
    return tuple(
        msgspec.Raw(item.raw if isinstance(item, Item) else msgspec.json.encode(item)) for item in items
    )


def header(**changes: Any) -> ChatLine:
    return ChatLine(**{"schema_version": 1, "id": "chat", "created_at": AT, "touched_at": AT, **changes})


def turn(id: str, parent: str | None = None, **changes: Any) -> TurnLine:
    fields = {
        "schema_version": 1,
        "chat": "chat",
        "id": id,
        "parent": parent,
        "kind": "completed",
        "created_at": AT,
        "committed_at": AT,
        "input": raws(message("user", f"ask {id}")),
        "output": raws(message("assistant", f"answer {id}")),
    }
    return TurnLine(**{**fields, **changes})


def plan(chat: ChatLine, *turns: TurnLine, **limits: int) -> Plan:
    return plan_import(chat, 1, list(enumerate(turns, 2)), "ann", Limits(**limits))


def questions_of(plan: Plan, branch: int = 0) -> list[str]:
    return [each.input[0].text for each in plan.line_of(plan.branches[branch][1])]


def reports_of(plan: Plan) -> list[tuple[int, ImportOutcome]]:
    """What is reported, but for ids of another making."""
    return [(each.line, each.did) for each in plan.reports if each.did is not ImportOutcome.RENAMED]


def test_import_derives_the_same_ids_from_foreign_ids_each_time() -> None:
    first = plan(header(), turn("a"), turn("b", "a"))
    again = plan(header(), turn("a"), turn("b", "a"))
    assert first == again
    assert ConversationId(first.conversation.id)
    assert all(TurnId(id) for id in first.turns)
    assert (len(first.branches), questions_of(first)) == (1, ["ask a", "ask b"])
    assert {each.did for each in first.reports} == {ImportOutcome.RENAMED}
    assert plan_import(header(), 1, [], "ben", Limits()).conversation.id != first.conversation.id


def test_import_ends_each_branch_at_its_head_and_shows_the_current_one() -> None:
    chat = header(branches=(BranchLine(id="x", head="c"), BranchLine(id="y", head="d")), current="x")
    made = plan(chat, turn("a"), turn("b", "a"), turn("c", "b"), turn("d", "a"))
    assert reports_of(made) == []
    assert [questions_of(made, 0), questions_of(made, 1)] == [["ask a", "ask b", "ask c"], ["ask a", "ask d"]]
    assert made.conversation.branch == made.branches[0][0]
    assert [each.number for each in made.turns.values()] == [1, 2, 3, 2]


REPAIRED, DROPPED = ImportOutcome.REPAIRED, ImportOutcome.DROPPED


@pytest.mark.parametrize(
    ("head", "turns", "questions", "reports"),
    [
        ("b", [turn("b", "a"), turn("a")], ["ask a", "ask b"], [(1, REPAIRED)]),
        ("d", [turn("a"), turn("c", "b"), turn("d", "c")], ["ask a", "ask c", "ask d"], [(3, REPAIRED)]),
        (
            "a",
            [turn("a"), turn("b", "c"), turn("c", "b")],
            ["ask a"],
            [(1, REPAIRED), (3, DROPPED), (4, DROPPED)],
        ),
        ("a", [turn("a"), turn("b", "a")], ["ask a"], [(3, DROPPED)]),
        (None, [turn("a"), turn("a")], ["ask a"], [(3, DROPPED)]),
        (None, [turn("a"), turn("b", "a", kind="odd")], ["ask a"], [(3, DROPPED)]),
        (None, [turn("a"), turn("b", "a", created_at=-1)], ["ask a"], [(3, DROPPED)]),
        (None, [turn("a"), turn("b", "a", committed_at=10**16)], ["ask a"], [(3, DROPPED)]),
        (
            None,
            [turn("a"), turn("b", "a", input=raws(message("user", "x" * 3_000)))],
            ["ask a"],
            [(3, DROPPED)],
        ),
    ],
    ids=["early", "no-parent", "cycle", "on-no-branch", "twice", "kind", "begin", "end", "size"],
)
def test_import_repairs_or_drops_a_turn_out_of_place_and_reports_it(
    head: str | None, turns: list[TurnLine], questions: list[str], reports: list[tuple[int, ImportOutcome]]
) -> None:
    branches = (BranchLine(id="x", head=head),) if head else ()
    made = plan(header(branches=branches), *turns, turn_bytes=2_000)
    assert questions_of(made) == questions
    assert reports_of(made) == reports


def test_import_of_a_truncated_chat_keeps_the_complete_turns() -> None:
    branches = (BranchLine(id="x", head="c"), BranchLine(id="y", head="d"))
    made = plan(header(branches=branches, current="y", turns=4), turn("a"), turn("b", "a"))
    assert questions_of(made) == ["ask a", "ask b"]
    assert len(made.branches) == 1
    assert made.conversation.branch == made.branches[0][0]
    assert reports_of(made) == [(1, REPAIRED), (1, REPAIRED), (1, DROPPED), (1, REPAIRED)]


DEEP = b'{"type":"odd","deep":' + b"[" * 200 + b"]" * 200 + b"}"


@pytest.mark.parametrize("invalid", [b'{"role":"nobody"}', DEEP], ids=["role", "nesting"])
def test_import_drops_an_invalid_item_and_keeps_flags_on_their_items(invalid: bytes) -> None:
    output = (msgspec.Raw(invalid), *raws(message("assistant", "kept")))
    made = plan(header(), turn("a", output=output, flags=(FlagLine(item=2, to_user=False), FlagLine(item=9))))
    [only] = made.turns.values()
    assert [item.text for item in only.output] == ["kept"]
    assert list(only.flags) == [1]
    assert reports_of(made) == [(2, DROPPED), (2, DROPPED)]


def test_import_closes_a_call_that_only_another_branch_answers() -> None:
    calls = turn("a", output=raws(CALL))
    answers = turn("b", "a", input=raws(RESULT))
    moves_on = turn("c", "a")
    branches = (BranchLine(id="x", head="b"), BranchLine(id="y", head="c"))
    made = plan(header(branches=branches), calls, answers, moves_on)
    _, b, c = made.turns.values()
    assert [item.fields["output"] for item in b.input] == ["r"]
    assert [item.fields.get("output") for item in c.input] == [NOT_ANSWERED, None]
    assert reports_of(made) == [(4, REPAIRED)]


def test_import_drops_a_stray_result_and_the_turn_it_leaves_empty() -> None:
    stray = turn("b", "a", input=raws(RESULT), output=())
    branches = (BranchLine(id="x", head="c"),)
    made = plan(header(branches=branches), turn("a"), stray, turn("c", "b"))
    assert questions_of(made) == ["ask a", "ask c"]
    assert [each.number for each in made.turns.values()] == [1, 2]
    assert reports_of(made) == [(3, REPAIRED), (3, DROPPED)]


def test_import_keeps_instructions_in_force_until_replaced() -> None:
    be_brief = raws(message("system", "Be brief."))
    made = plan(
        header(),
        turn("a", instructions=be_brief),
        turn("b", "a", instructions=be_brief, instructions_once=True),
        turn("c", "b", instructions=()),
        turn("d", "c", instructions=raws(message("user", "no"))),
    )
    assert [each.instructed for each in made.turns.values()] == [1, 1, 0, 0]
    assert reports_of(made) == [(5, DROPPED)]


def test_import_drops_or_truncates_invalid_chat_fields_and_reports_each() -> None:
    made = plan(
        header(
            title="t" * 1000,
            named_by="nobody",
            metadata={"k": "v" * 1000},
            conversation_key="",
            tags=("x" * 1000,),
            expires_after=-1,
            reset_policy=ResetLine(daily_at=99),
        )
    )
    chat = made.conversation
    assert (len(chat.title or ""), chat.named_by, chat.metadata) == (512, None, {})
    assert (chat.conversation_key, chat.expires_after) == (None, None)
    assert chat.tags == ()
    assert len(reports_of(made)) == 7


def test_import_of_a_chat_with_an_invalid_time_is_refused() -> None:
    with pytest.raises(InvalidInput, match="milliseconds"):
        plan(header(created_at=-5))


def test_import_keeps_turn_kinds_and_settled_numbers() -> None:
    made = plan(header(), turn("a", kind="settled"), turn("b", "a", kind="interrupted"))
    assert [each.kind for each in made.turns.values()] == [TurnKind.SETTLED, TurnKind.INTERRUPTED]
    assert [each.settled for each in made.turns.values()] == [1, 1]


def test_import_keeps_native_ids() -> None:
    id = "conv_01890000000070008000000000000000"
    branch = "branch_01890000000070008000000000000000"
    name = "turn_01890000000070008000000000000000"
    chat = header(id=id, branches=(BranchLine(id=branch, head=name),), current=branch, turns=1)
    made = plan(chat, turn(name))
    assert made.reports == ()
    assert (made.conversation.id, made.conversation.branch, list(made.turns)) == (
        id,
        BranchId(branch),
        [name],
    )


def test_import_bounds_the_number_and_length_of_its_reports() -> None:
    output = tuple(msgspec.Raw(b"0") for _ in range(5_000))
    made = plan(
        header(), turn("a", output=output, kind="completed"), turn("b" * 10_000, "a", kind="x" * 10_000)
    )
    assert len(made.reports) == 1_001
    assert max(len(report.why) for report in made.reports) <= 500
    assert max(len(report.turn or "") for report in made.reports) <= 80


def test_import_beyond_the_item_or_branch_limit_drops_the_turn_or_refuses_the_chat() -> None:
    made = plan(header(), turn("a"), turn("b", "a", output=(msgspec.Raw(b"0"),) * 100_001))
    assert questions_of(made) == ["ask a"]
    branches = tuple(BranchLine(id=f"{number}", head=None) for number in range(11))
    with pytest.raises(InvalidInput, match="branches"):
        plan(header(branches=branches), import_turns=10)


def test_import_compares_branch_ids_in_linear_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """A file may name thousands, and others are to be served meanwhile."""
    compared = 0

    class Counted(BranchId):
        __slots__ = ()

        def __eq__(self, other: object) -> bool:
            nonlocal compared
            compared += 1
            return str.__eq__(self, str(other))

        __hash__ = BranchId.__hash__

    def counted(kind: type[Id], text: str, at: int, within: str) -> Id:
        made = import_plan.derive_id(kind, at, within, text)
        return Counted.trusted(made.raw) if kind is BranchId else made

    monkeypatch.setattr(import_plan, "known_id", counted)
    made = plan(header(branches=tuple(BranchLine(id=f"b{each}", head=None) for each in range(300))))
    assert len(made.branches) == 300
    assert compared < 300


@pytest.mark.parametrize("revision", [0, -1, 2**60])
def test_import_reports_an_invalid_revision_and_sets_it_to_one(revision: int) -> None:
    made = plan(header(revision=revision), turn("t1"))
    assert (made.conversation.revision, reports_of(made)) == (1, [(1, REPAIRED)])


def test_import_reports_meaningless_fields_and_drops_them() -> None:
    flags = (FlagLine(item=0, to_user=False), FlagLine(item=0, to_model=False))
    made = plan(
        header(named_by="person"),
        turn("t1", instructions_once=True),
        turn("t2", "t1", flags=flags),
        turn("t3", "t2", kind="settled", failure=Failure("c", "m" * 65_536)),
    )
    assert reports_of(made) == [(line, DROPPED) for line in (1, 2, 3, 4)]
    assert made.conversation.named_by is None
    assert [each.failure for each in made.turns.values()] == [None] * 3


def test_import_encodes_turns_before_the_transaction(monkeypatch: pytest.MonkeyPatch) -> None:
    made = plan(header(), turn("a"), turn("b", "a"))

    def never(*_: object, **__: object) -> None:
        raise AssertionError("encoded too late")

    monkeypatch.setattr(import_plan.Turn, "of", never)
    monkeypatch.setattr(import_plan.event_log, "encode_at_once", never)
    for each in made.turns.values():
        placed = each.turn(BranchId("branch_01890000000070008000000000000000"), {})
        assert placed.items == (*each.input, *each.output)
        assert placed.number == each.number
        assert isinstance(each.log, bytes)


CHAT = {"type": "chat", "schema_version": 1, "id": "a", "created_at": 1, "touched_at": 2}
TURN = {
    "type": "turn",
    "schema_version": 1,
    "chat": "a",
    "id": "t",
    "parent": None,
    "kind": "completed",
    "created_at": 1,
    "committed_at": 2,
    "input": [],
    "output": [],
}


def lines(*values: Any) -> bytes:
    return b"".join(
        value if isinstance(value, bytes) else msgspec.json.encode(value) + b"\n" for value in values
    )


def read(file: bytes, size: int = 1 << 20, **limits: int) -> list[ParsedChat | ImportReport]:
    reader = ChatReader(Limits(**limits))
    found: list[ParsedChat | ImportReport] = []
    for at in range(0, len(file), size):
        found += reader.feed(file[at : at + size])
    return [*found, *reader.close()]


def chats(found: Iterable[ParsedChat | ImportReport]) -> list[ParsedChat]:
    return [each for each in found if isinstance(each, ParsedChat)]


def reports(found: Iterable[ParsedChat | ImportReport]) -> list[ImportReport]:
    all_reports: list[ImportReport] = []
    for each in found:
        all_reports += each.notes.all() if isinstance(each, ParsedChat) else [each]
    return all_reports


@pytest.mark.parametrize("size", [1, 7, 1000])
def test_chat_reader_returns_the_same_chats_for_any_chunk_size(size: int) -> None:
    other = {**CHAT, "id": "b"}
    found = read(lines(CHAT, TURN, {**TURN, "id": "u"}, other), size)
    assert [(each.id, each.line, [line for line, _ in each.turns]) for each in chats(found)] == [
        ("a", 1, [2, 3]),
        ("b", 4, []),
    ]
    assert reports(found) == []


def test_chat_reader_accepts_a_last_line_without_a_newline() -> None:
    [chat] = chats(read(lines(CHAT, TURN)[:-1]))
    assert len(chat.turns) == 1


def test_chat_reader_reports_a_truncated_last_line() -> None:
    found = read(lines(CHAT, TURN, TURN)[:-20])
    assert [len(each.turns) for each in chats(found)] == [1]
    [report] = reports(found)
    assert (report.line, report.did, report.chat) == (3, ImportOutcome.REFUSED, "a")
    assert "cut off" in report.why


@pytest.mark.parametrize(
    ("line", "word"),
    [
        (b"{]\n", "not a JSON object"),
        (b"[1]\n", "not a JSON object"),
        (b"\xff\xfe{}\n", "not a JSON object"),
        (b"{" * 100_000 + b"\n", "not a JSON object"),
        ({"type": "note", "schema_version": 1}, "must be one of chat, turn"),
        ({"type": ["chat"], "schema_version": 1}, "must be one of chat, turn"),
        ({"schema_version": 1}, "must be one of chat, turn"),
        ({**TURN, "schema_version": 2}, "newer"),
        ({**TURN, "schema_version": True}, "schema_version"),
        ({**TURN, "schema_version": "1"}, "schema_version"),
        ({"type": "turn"}, "schema_version"),
        ({**TURN, "input": 1}, "Expected `array`"),
    ],
)
def test_chat_reader_reports_an_unreadable_line_and_continues(line: Any, word: str) -> None:
    found = read(lines(CHAT, line, {**TURN, "id": "u"}))
    [chat] = chats(found)
    assert [turn.id for _, turn in chat.turns] == ["u"]
    [report] = reports(found)
    assert (report.line, report.did) == (2, ImportOutcome.REFUSED)
    assert word in report.why


def test_chat_reader_refuses_a_turn_without_its_chat_before_it() -> None:
    found = read(lines(TURN, CHAT, {**TURN, "chat": "b"}))
    assert [(each.line, each.did, each.turn) for each in reports(found)] == [
        (1, ImportOutcome.REFUSED, "t"),
        (3, ImportOutcome.REFUSED, "t"),
    ]
    assert [each.turns for each in chats(found)] == [[]]


def test_chat_reader_reports_unknown_fields_and_drops_them() -> None:
    found = read(lines({**CHAT, "color": "red"}, {**TURN, "mood": 1}))
    assert [(each.line, each.did, each.turn) for each in reports(found)] == [
        (1, DROPPED, None),
        (2, DROPPED, "t"),
    ]
    assert "color" in reports(found)[0].why
    assert len(chats(found)[0].turns) == 1


@pytest.mark.parametrize("change", [{"schema_version": 2}, {"created_at": "now"}, {"branches": 3}])
def test_chat_reader_refuses_a_chat_with_an_unreadable_line_and_its_turns(change: dict[str, Any]) -> None:
    found = read(lines({**CHAT, **change}, {**TURN, **change}, CHAT))
    refused, taken = chats(found)
    assert refused.refused
    assert refused.id == "a"
    assert taken.refused is None


def test_chat_reader_skips_a_line_beyond_the_limit_without_buffering_it() -> None:
    reader = ChatReader(Limits(import_line_bytes=1000))
    for _ in range(100):
        assert list(reader.feed(b"x" * 1000)) == []
    assert len(reader._rest) <= 1000
    [report] = reader.feed(b"\n")
    assert "has 100000 bytes" in report.why
    assert [each.id for each in chats([*reader.feed(lines(CHAT)), *reader.close()])] == ["a"]


@pytest.mark.parametrize("limits", [{"import_chat_bytes": 1000}, {"import_turns": 99}])
def test_chat_reader_refuses_a_chat_beyond_the_limit_without_buffering_it(limits: dict[str, int]) -> None:
    found = read(lines(CHAT, *[TURN] * 100, {**CHAT, "id": "b"}), **limits)
    large, next_one = chats(found)
    assert "too large" in (large.refused or "")
    assert large.turns == []
    assert next_one.refused is None


@pytest.mark.parametrize(
    ("field", "element"),
    [("input", 0), ("output", {}), ("instructions", 0), ("flags", {"item": 1}), ("effects", 1)],
)
def test_chat_reader_refuses_a_chat_of_small_lines_with_too_many_items(field: str, element: Any) -> None:
    turn = {**TURN, field: [element] * 100}
    large = chats(read(lines(CHAT, *[turn] * 20), import_chat_bytes=40_000))[0]
    assert "too large" in (large.refused or "")
    assert large.turns == []


def test_chat_reader_skips_a_line_with_too_many_json_values(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(import_parse, "MOST_VALUES", 100)
    found = read(lines(CHAT, {**TURN, "output": [0] * 300}, TURN))
    assert [report.why for report in reports(found)] == ["The line holds more than 100 JSON values."]
    assert len(chats(found)[0].turns) == 1


def test_chat_reader_ignores_blank_lines() -> None:
    found = read(b"\n \n" + lines(CHAT) + b"\r\n")
    assert reports(found) == []
    assert [each.line for each in chats(found)] == [3]


@pytest.mark.parametrize("size", [1, 2, 1000])
def test_chat_reader_ignores_a_byte_order_mark(size: int) -> None:
    found = read(b"\xef\xbb\xbf" + lines(CHAT, TURN), size)
    assert [len(chat.turns) for chat in chats(found)] == [1]
    assert reports(found) == []


def test_chat_reader_does_not_report_a_complete_invalid_last_line_as_truncated() -> None:
    [report] = reports(read(lines(CHAT) + b'{"type": nonsense}'))
    assert "The line is not a JSON object" in report.why
