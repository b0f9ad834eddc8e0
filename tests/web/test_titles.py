"""Titles that the answering model writes, in the page."""

from __future__ import annotations

from pathlib import Path

from playwright.sync_api import expect

from tests.web.chats import chat_lines
from tests.web.page_server import Profile, run_page_server
from tests.web.thread import expect_turns, open_new_chat, send
from turnledger.testing.gates import Gate


def test_title_by_the_model_appears_in_two_tabs_and_never_replaces_one_by_a_person(
    tmp_path: Path, profile: Profile
) -> None:
    with run_page_server(tmp_path, "[chats]") as server:
        person, gates = server.person(), (Gate(), Gate())
        context = profile(person)
        tab, other = context.new_page(), context.new_page()
        server.model.add_script("It rains.")
        server.model.add_script(gates[0], "Weather in Rome")
        other.goto(server.url)
        open_new_chat(tab, person)
        send(tab, "How is it outside?")
        expect_turns(tab, 1)  # the answer does not wait for the title
        tab.reload()
        for page in (tab, other):
            expect(chat_lines(page)).to_have_text(["How is it outside?"])
        server.model.release(gates[0])
        for page in (tab, other):
            expect(chat_lines(page)).to_have_text(["Weather in Rome"])
        expect(tab.get_by_role("heading", level=1)).to_have_text("Weather in Rome")

        server.model.add_script("Soup.")
        server.model.add_script(gates[1], "Dinner ideas")
        open_new_chat(tab, person)
        send(tab, "What is there to eat?")
        expect_turns(tab, 1)
        [chat] = [each for each in person.chats() if each["title"] == "What is there to eat?"]
        person.fetch("PATCH", f"/api/chats/{chat['id']}", {"title": "Mine"})
        server.model.release(gates[1])
        expect(tab.get_by_role("heading", level=1)).to_have_text("Mine")
        send(tab, "And to drink?")
        expect_turns(tab, 2)
        expect(chat_lines(other)).to_have_text(["Mine", "Weather in Rome"])
        assert len(server.model.received) == 5  # one request for each title
