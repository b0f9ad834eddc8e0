"""Steps of an answer: tool calls, reasoning, images, and unknown items."""

from __future__ import annotations

import asyncio
import json
import re
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from typing import Any

from playwright.sync_api import Locator, Page, expect

from tests.long_form import long_only
from tests.web.page_server import PATIENCE, Person, Profile
from tests.web.thread import answers, import_chat, message_item, open_chat, turns_in_history
from tools.node_package import PAGE
from turnledger import Ledger
from turnledger.errors import TurnStopped
from turnledger.model.item import NOT_ANSWERED, NOT_STARTED, OUTCOME_UNKNOWN
from turnledger.testing.gates import Gate
from turnledger.testing.scripted_model import ScriptedModel, Think, Tool

DOT = "data:image/gif;base64,R0lGODlhAQABAIAAAAAAAP///yH5BAEAAAAALAAAAAABAAEAAAIBRAA7"


def call(name: str, call_id: str, **arguments: Any) -> dict[str, Any]:
    return {"type": "function_call", "call_id": call_id, "name": name, "arguments": json.dumps(arguments)}


def result(call_id: str, output: Any) -> dict[str, Any]:
    return {"type": "function_call_output", "call_id": call_id, "output": output}


def step(within: Page | Locator, name: str) -> Locator:
    page = within.page if isinstance(within, Locator) else within
    return within.locator(".step").filter(has=page.locator(".step-name").get_by_text(name, exact=True))


PICTURE = {"type": "input_image", "image_url": DOT}
USAGE = {"prompt_tokens": 1_200, "completion_tokens": 4}
TURNS: list[dict[str, Any]] = [
    {
        "input": [message_item("Where is **it**?")],
        "output": [
            call("find_order", "c1", number=42),
            result("c1", '{"state": "shipped"}'),
            message_item("It is *on* its way.", "assistant"),
        ],
        "details": {"model": "scripted", "usage": USAGE},
    },
    {
        "input": [message_item("The same id twice")],
        "output": [
            call("first", "c1"),
            result("c1", "of the first"),
            call("second", "c1"),
            result("c1", "of the second"),
            message_item("Both.", "assistant"),
        ],
    },
    {"input": [message_item("Look it up")], "output": [call("look_up", "c1")]},
    {"input": [result("c1", "a red coat")], "output": [message_item("A red coat.", "assistant")]},
    {
        "input": [message_item("Pay my bills")],
        "kind": "interrupted",
        "output": [
            call("look", "c1"),
            result("c1", "two bills"),
            call("pay", "c2"),
            call("thank", "c3"),
            result("c2", OUTCOME_UNKNOWN),
            result("c3", NOT_STARTED),
            call("report", "c4"),
            result("c4", "Not started: the printer was off. Three letters were sent."),
            message_item("I have", "assistant", status="incomplete"),
        ],
    },
    {
        "input": [
            {
                "type": "message",
                "role": "user",
                "content": [{"type": "input_text", "text": "What is this?"}, PICTURE],
            }
        ],
        "output": [call("draw", "c1"), result("c1", [PICTURE]), message_item("A dot.", "assistant")],
    },
    {
        "input": [message_item("Well?")],
        "output": [
            message_item("Not for you.", "assistant"),
            {"type": "future_thing", "of": "another version"},
            {"type": "web_search_call", "id": "ws_1", "status": "completed"},
            {"type": "mcp_call", "id": "mcp_1", "name": "ask_map", "arguments": "{}", "status": "failed"},
            call("print", "c1"),
            {**result("c1", "No paper."), "status": "failed"},
            message_item("For you.", "assistant"),
        ],
        "flags": [{"item": 1, "to_user": False}],
    },
]


def test_tool_calls_images_and_unknown_items_are_shown_as_steps(tab: Page, person: Person) -> None:
    open_chat(tab, person, import_chat(person, TURNS))
    turns = turns_in_history(tab)
    expect(turns).to_have_count(len(TURNS))

    # A tool unfolds to what it was given and gave back.
    found = step(tab, "find_order")
    expect(found).to_contain_text("Done")
    expect(found.get_by_text("shipped")).to_have_count(0)
    found.locator("summary").press("Enter")
    expect(found).to_contain_text('"number": 42')
    expect(found).to_contain_text('"state": "shipped"')

    # Both messages can be copied in their original form; the usage is shown below.
    first = turns.first
    expect(first.locator(".message.assistant")).to_have_text("It is on its way.")
    expect(first.locator(".usage")).to_contain_text("1,204 tokens · 0.9 s")
    expect(first.locator(".usage")).to_have_attribute(
        "title", "1,204 tokens: 1,200 input, 4 output. Took 0.9 s"
    )
    tab.context.grant_permissions(["clipboard-read", "clipboard-write"])
    for name, text in (("Copy message", "Where is **it**?"), ("Copy answer", "It is *on* its way.")):
        first.get_by_role("button", name=name).click()
        expect(first.get_by_role("button", name=name)).to_have_attribute("title", "Copied")
        assert tab.evaluate("navigator.clipboard.readText()") == text

    # Each result stands at its call: where an id repeats, and where it arrived with the next message.
    for name, text in (("first", "of the first"), ("second", "of the second"), ("look_up", "a red coat")):
        step(tab, name).locator("summary").click()
        expect(step(tab, name)).to_contain_text(text)
    expect(turns.nth(2).locator(".step")).to_have_count(1)
    expect(turns.nth(3).locator(".step")).to_have_count(0)

    # An interrupted turn shows the state of each tool.
    interrupted = turns.nth(4)
    for name, text in (
        ("look", "Done"),
        ("pay", "Outcome unknown"),
        ("thank", "Not started"),
        ("report", "Done"),
    ):
        expect(step(interrupted, name)).to_contain_text(text)
    expect(interrupted).to_contain_text("Interrupted. The answer so far was kept.")

    # Pictures are shown in questions and results.
    expect(turns.nth(5).locator(".input img")).to_have_count(1)
    step(tab, "draw").locator("summary").click()
    expect(step(tab, "draw").locator("img")).to_have_count(1)

    # What is hidden is not shown, and what is unknown is a step.
    last = turns.last
    expect(last.locator(".message.assistant")).to_have_text(["For you."])
    expect(last.locator(".step").first).to_contain_text("future_thing")
    expect(step(tab, "web search")).to_contain_text("Done")
    expect(step(tab, "ask_map")).to_contain_text("Failed")
    expect(step(tab, "print")).to_contain_text("Failed")


def test_running_tool_is_shown_and_has_an_unknown_outcome_after_a_stop(tab: Page, person: Person) -> None:
    gate = Gate()
    begun: Future[tuple[str, asyncio.AbstractEventLoop]] = Future()

    async def pay(ledger: Ledger) -> None:
        chat = await ledger.for_owner(person.owner).conversation()
        begun.set_result((str(chat.id), asyncio.get_running_loop()))
        model = ScriptedModel(["I pay it. ", Tool("pay", gate=gate), "Paid."])
        with suppress(TurnStopped):
            await chat.run(model, "Pay my bill")

    with ThreadPoolExecutor(1) as elsewhere:
        paying = elsewhere.submit(person.server.on_ledger, pay)
        chat, loop = begun.result(PATIENCE)
        try:
            open_chat(tab, person, chat)
            expect(step(tab, "pay")).to_contain_text("Running…")
            expect(turns_in_history(tab)).to_have_count(0)
            tab.get_by_role("button", name="Stop", exact=True).click()
            expect(turns_in_history(tab)).to_have_attribute("data-kind", "interrupted")
        finally:
            with suppress(RuntimeError):  # it has ended
                loop.call_soon_threadsafe(gate.release)
        paying.result(PATIENCE)
    expect(step(tab, "pay")).to_contain_text("Outcome unknown")
    step(tab, "pay").locator("summary").click()
    expect(step(tab, "pay")).to_contain_text(OUTCOME_UNKNOWN)
    expect(answers(tab)).to_have_text("I pay it.")


@long_only
def test_reasoning_and_a_call_are_shown_while_they_stream_in(tab: Page, person: Person) -> None:
    begun: Future[tuple[str, asyncio.AbstractEventLoop]] = Future()
    gates = [Gate(), Gate()]

    async def think_and_ask(ledger: Ledger) -> None:
        chat = await ledger.for_owner(person.owner).conversation()
        begun.set_result((str(chat.id), asyncio.get_running_loop()))
        async with chat.turn("Where to?") as turn:
            turn.emit_reasoning("I compare **cities**.")
            await gates[0].pass_through()
            turn.emit("Let me look.")
            turn.begin_call("c", "weather")
            turn.emit_arguments("c", '{"city": "Ro')
            await gates[1].pass_through()
            turn.emit_arguments("c", 'me"}')

    with ThreadPoolExecutor(1) as elsewhere:
        running = elsewhere.submit(person.server.on_ledger, think_and_ask)
        chat, loop = begun.result(PATIENCE)
        try:
            open_chat(tab, person, chat)
            thought = tab.locator(".thought")
            expect(thought).to_contain_text("Thinking…")
            expect(thought.locator("strong")).to_have_count(0)
            thought.locator("summary").click()
            expect(thought.locator("strong")).to_have_text("cities")
            loop.call_soon_threadsafe(gates[0].release)
            step(tab, "weather").locator("summary").click()
            expect(step(tab, "weather")).to_contain_text('{"city": "Ro')
        finally:
            for gate in gates:
                with suppress(RuntimeError):  # it has ended
                    loop.call_soon_threadsafe(gate.release)
        running.result(PATIENCE)
    expect(turns_in_history(tab)).to_have_count(1)
    expect(step(tab, "weather")).to_contain_text("Rome")
    expect(tab.locator(".thought")).to_contain_text("Reasoning")
    expect(tab.locator(".thought strong")).to_have_text("cities")  # still unfolded
    expect(answers(tab)).to_have_text("Let me look.")


def test_page_recognises_the_tool_results_supplied_by_the_ledger() -> None:
    source = (PAGE.folder / "src" / "thread" / "turn-parts.ts").read_text()
    known = source.partition("LEDGER_RESULTS: ")[2].partition("]);")[0].replace('" +\n      "', "")
    assert dict(re.findall(r'\[\s*"([^"]+)",\s*"([^"]+)",?\s*\]', known)) == {
        NOT_STARTED: "not started",
        OUTCOME_UNKNOWN: "unknown",
        NOT_ANSWERED: "not answered",
    }


@long_only
def test_settled_turn_is_marked_as_failed_and_reasoning_is_folded(tab: Page, person: Person) -> None:
    async def fail(ledger: Ledger) -> str:
        chat = await ledger.for_owner(person.owner).conversation()
        model = ScriptedModel(
            [Tool("pay", result="paid 40"), RuntimeError("the model broke")],
            [Think("They want a number."), "Forty-two."],
        )
        with suppress(RuntimeError):
            await chat.run(model, "Pay my bill")
        await chat.run(model, "What is it?")
        return str(chat.id)

    open_chat(tab, person, person.server.on_ledger(fail))
    expect(turns_in_history(tab)).to_have_count(2)
    expect(tab.locator('[data-kind="settled"]')).to_contain_text("Failed. Tool results were kept.")
    expect(step(tab, "pay")).to_contain_text("Done")
    expect(answers(tab).last).to_have_text("Forty-two.")
    expect(tab.get_by_text("They want a number.")).to_have_count(0)
    tab.locator(".thought summary").click()
    expect(tab.get_by_text("They want a number.")).to_be_visible()


@long_only
def test_state_of_a_step_stays_on_one_line_beside_a_long_name(person: Person, profile: Profile) -> None:
    output = [call("send_" * 13, "1"), message_item("Sent", "assistant")]
    page = profile(person, viewport={"width": 320, "height": 640}).new_page()
    open_chat(page, person, import_chat(person, [{"input": [message_item("Send it")], "output": output}]))
    chip = page.locator(".step .chip")
    expect(chip).to_have_text("No result")
    box = chip.bounding_box()
    assert box is not None
    assert box["height"] < 30
