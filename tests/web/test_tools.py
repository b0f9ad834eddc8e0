"""What was done for an answer: tools, thoughts, pictures, and things that nobody knows yet."""

from __future__ import annotations

import asyncio
import json
import re
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from typing import Any

from playwright.sync_api import Locator, Page, expect

from tests.web.chatting import answers, chat_of, committed, said, show
from tests.web.house import PATIENCE, Person
from tools.node_package import PAGE
from turnledger import Ledger
from turnledger.engine.attempt.unfinished import OUTCOME_UNKNOWN
from turnledger.errors import TurnStopped
from turnledger.model.messages.calls import NOT_ANSWERED, NOT_STARTED
from turnledger.testing.gates import Gate
from turnledger.testing.scripted_model import ScriptedModel, Think, Tool

DOT = "data:image/gif;base64,R0lGODlhAQABAIAAAAAAAP///yH5BAEAAAAALAAAAAABAAEAAAIBRAA7"


def call(name: str, call_id: str, **arguments: Any) -> dict[str, Any]:
    return {"type": "function_call", "call_id": call_id, "name": name, "arguments": json.dumps(arguments)}


def result(call_id: str, output: Any) -> dict[str, Any]:
    return {"type": "function_call_output", "call_id": call_id, "output": output}


def shown(tab: Page, person: Person, *turns: Any) -> None:
    show(tab, person, chat_of(person, turns))
    expect(committed(tab)).to_have_count(len(turns))


def step(tab: Page, name: str) -> Locator:
    return tab.locator(".step").filter(has=tab.locator(".step-name", has_text=name))


def test_a_tool_is_a_step_that_unfolds_to_what_it_was_given_and_gave_back(tab: Page, person: Person) -> None:
    """And what was said around it can be copied as it was written, with what it took below."""
    output = [
        call("find_order", "c1", number=42),
        result("c1", '{"state": "shipped"}'),
        said("It is *on* its way.", "assistant"),
    ]
    usage = {"prompt_tokens": 1_200, "completion_tokens": 4}
    details = {"model": "scripted", "usage": usage}
    shown(tab, person, {"input": [said("Where is **it**?")], "output": output, "details": details})
    found = step(tab, "find_order")
    expect(found).to_contain_text("Done")
    expect(found.get_by_text("shipped")).to_have_count(0)
    found.locator("summary").press("Enter")
    expect(found).to_contain_text('"number": 42')
    expect(found).to_contain_text('"state": "shipped"')
    expect(answers(tab)).to_have_text("It is on its way.")
    expect(tab.locator(".usage")).to_contain_text("1,204 tokens · 0.9 s")
    expect(tab.locator(".usage")).to_have_attribute(
        "title", "1,204 tokens: 1,200 read, 4 written. Took 0.9 s"
    )
    tab.context.grant_permissions(["clipboard-read", "clipboard-write"])
    for name, text in (("Copy message", "Where is **it**?"), ("Copy answer", "It is *on* its way.")):
        tab.get_by_role("button", name=name).click()
        expect(tab.get_by_role("button", name=name)).to_have_attribute("title", "Copied")
        assert tab.evaluate("navigator.clipboard.readText()") == text


def test_ids_of_calls_that_repeat_are_paired_each_with_its_own_result(tab: Page, person: Person) -> None:
    output = [
        call("first", "c1"),
        result("c1", "of the first"),
        call("second", "c1"),
        result("c1", "of the second"),
        said("Both.", "assistant"),
    ]
    shown(tab, person, {"input": [said("Twice")], "output": output})
    for name in ("first", "second"):
        step(tab, name).locator("summary").click()
        expect(step(tab, name)).to_contain_text(f"of the {name}")


def test_results_that_came_with_the_next_message_stand_at_their_calls(tab: Page, person: Person) -> None:
    asked = {"input": [said("Look it up")], "output": [call("look_up", "c1")]}
    told = {"input": [result("c1", "a red coat")], "output": [said("A red coat.", "assistant")]}
    shown(tab, person, asked, told)
    expect(tab.locator(".step")).to_have_count(1)
    step(tab, "look_up").locator("summary").click()
    expect(step(tab, "look_up")).to_contain_text("a red coat")


def test_an_interrupted_turn_says_of_each_tool_what_is_known_of_it(tab: Page, person: Person) -> None:
    turns = [
        {
            "input": [said("Pay my bills")],
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
                said("I have", "assistant", status="incomplete"),
            ],
        }
    ]
    shown(tab, person, *turns)
    expect(step(tab, "look")).to_contain_text("Done")
    expect(step(tab, "pay")).to_contain_text("Started, outcome unknown")
    expect(step(tab, "thank")).to_contain_text("Not started")
    expect(step(tab, "report")).to_contain_text("Done")
    expect(tab.locator("[data-turn]")).to_contain_text("Interrupted. It is kept as far as it got.")


def test_a_tool_is_seen_to_run_and_who_stops_it_is_told_what_is_known(tab: Page, person: Person) -> None:
    gate = Gate()
    begun: Future[tuple[str, asyncio.AbstractEventLoop]] = Future()

    async def pay(ledger: Ledger) -> None:
        chat = await ledger.conversation(owner=person.owner)
        begun.set_result((str(chat.id), asyncio.get_running_loop()))
        model = ScriptedModel(["I pay it. ", Tool("pay", gate=gate), "Paid."])
        with suppress(TurnStopped):
            await chat.run(model, "Pay my bill")

    with ThreadPoolExecutor(1) as elsewhere:
        paying = elsewhere.submit(person.house.on_ledger, pay)
        chat, loop = begun.result(PATIENCE)
        try:
            show(tab, person, chat)
            expect(step(tab, "pay")).to_contain_text("Running…")
            expect(committed(tab)).to_have_count(0)
            tab.get_by_role("button", name="Stop", exact=True).click()
            expect(committed(tab)).to_have_attribute("data-kind", "interrupted")
        finally:
            with suppress(RuntimeError):  # it has ended
                loop.call_soon_threadsafe(gate.release)
        paying.result(PATIENCE)
    expect(step(tab, "pay")).to_contain_text("Started, outcome unknown")
    step(tab, "pay").locator("summary").click()
    expect(step(tab, "pay")).to_contain_text(OUTCOME_UNKNOWN)
    expect(answers(tab)).to_have_text("I pay it.")


def test_the_page_knows_the_words_of_the_ledger_from_those_of_a_tool() -> None:
    source = (PAGE.folder / "src" / "thread" / "turn-parts.ts").read_text()
    known = source.partition("GIVEN: ")[2].partition("]);")[0].replace('" +\n      "', "")
    assert dict(re.findall(r'\[\s*"([^"]+)",\s*"([^"]+)",?\s*\]', known)) == {
        NOT_STARTED: "not started",
        OUTCOME_UNKNOWN: "unknown",
        NOT_ANSWERED: "not answered",
    }


def test_a_settled_turn_says_that_it_failed_and_shows_what_its_tools_did(tab: Page, person: Person) -> None:
    async def fail(ledger: Ledger) -> str:
        chat = await ledger.conversation(owner=person.owner)
        model = ScriptedModel(
            [Tool("pay", result="paid 40"), RuntimeError("the model broke")], ["Anything else?"]
        )
        with suppress(RuntimeError):
            await chat.run(model, "Pay my bill")
        await chat.run(model, "Hello?")
        return str(chat.id)

    show(tab, person, person.house.on_ledger(fail))
    expect(committed(tab)).to_have_count(2)
    expect(tab.locator('[data-kind="settled"]')).to_contain_text("This failed. What its tools did is kept.")
    expect(step(tab, "pay")).to_contain_text("Done")


def test_thoughts_are_folded(tab: Page, person: Person) -> None:
    async def think(ledger: Ledger) -> str:
        chat = await ledger.conversation(owner=person.owner)
        await chat.run(ScriptedModel([Think("They want a number."), "Forty-two."]), "What is it?")
        return str(chat.id)

    show(tab, person, person.house.on_ledger(think))
    expect(answers(tab)).to_have_text("Forty-two.")
    expect(tab.get_by_text("They want a number.")).to_have_count(0)
    tab.locator(".thought summary").click()
    expect(tab.get_by_text("They want a number.")).to_be_visible()


def test_pictures_are_shown_in_questions_and_results(tab: Page, person: Person) -> None:
    picture = {"type": "input_image", "image_url": DOT}
    asked = {
        "type": "message",
        "role": "user",
        "content": [{"type": "input_text", "text": "What is this?"}, picture],
    }
    output = [call("draw", "c1"), result("c1", [picture]), said("A dot.", "assistant")]
    shown(tab, person, {"input": [asked], "output": output})
    expect(tab.locator(".asked img")).to_have_count(1)
    step(tab, "draw").locator("summary").click()
    expect(step(tab, "draw").locator("img")).to_have_count(1)


def test_what_is_hidden_is_not_shown_and_what_is_unknown_is_a_step(tab: Page, person: Person) -> None:
    output = [
        said("Not for you.", "assistant"),
        {"type": "future_thing", "of": "another version"},
        {"type": "web_search_call", "id": "ws_1", "status": "completed"},
        {"type": "mcp_call", "id": "mcp_1", "name": "ask_map", "arguments": "{}", "status": "failed"},
        call("print", "c1"),
        {**result("c1", "No paper."), "status": "failed"},
        said("For you.", "assistant"),
    ]
    flags = [{"item": 1, "to_user": False}]
    shown(tab, person, {"input": [said("Well?")], "output": output, "flags": flags})
    expect(answers(tab)).to_have_text(["For you."])
    expect(tab.locator(".step").first).to_contain_text("future_thing")
    expect(step(tab, "web search")).to_contain_text("Done")
    expect(step(tab, "ask_map")).to_contain_text("Failed")
    expect(step(tab, "print")).to_contain_text("Failed")
