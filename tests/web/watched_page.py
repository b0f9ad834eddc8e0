"""Text of a model in the page, and what the page may be made of by it."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from playwright.sync_api import Locator, Page, expect

from tests.web.chatting import chat_of, said, show, write
from tests.web.page_server import Person, Profile

END = "This is the end of it."
"""The last paragraph of each text: when it is there, all of it is."""

STRANGE = """() => {
  const tags = new Set(("P H2 H3 H4 H5 H6 UL OL LI BLOCKQUOTE PRE CODE EM STRONG DEL BR HR "
    + "TABLE THEAD TBODY TR TH TD A SPAN DIV BDI BUTTON IMG IFRAME").split(" "));
  const attributes = new Set(("class dir role tabindex aria-label aria-level aria-pressed type title start "
    + "align scope href target rel src alt decoding sandbox referrerpolicy data-fits hidden").split(" "));
  const strange = [];
  for (const each of document.querySelectorAll(".markdown *")) {
    if (!tags.has(each.tagName)) strange.push(each.tagName);
    for (const {name, value} of each.attributes)
      if (!attributes.has(name) && `${each.tagName} ${name}` !== "IFRAME style")
        strange.push(`${name}=${value}`);
    const href = each.getAttribute("href");
    if (href !== null && !/^(?:https?:[/][/]|mailto:)/.test(href)) strange.push(href);
    const source = each.getAttribute("src");
    if (source !== null && !/^(?:data:image[/](?!svg)|picture#)/.test(source)) strange.push(source);
  }
  return strange;
}"""


class Watched:
    """A page of somebody's in which anything that runs, and all that is asked for, is seen."""

    def __init__(self, profile: Profile, person: Person) -> None:
        self.person = person
        self.ran: list[str] = []
        self.asked: list[str] = []
        self._chats = itertools.count()
        context = profile(person)
        context.on("request", lambda request: self.asked.append(request.url))
        context.expose_function("owned", lambda *words: self.ran.append(str(words)))
        context.add_init_script(
            "window.alert = window.confirm = window.prompt = (...words) => window.owned(...words)"
        )
        self.page: Page = context.new_page()

    def shows(self, *texts: str) -> Locator:
        """Open a chat in which a model has said this, or each of these; a chat opens with twelve at most."""
        turns = [
            {"input": [said("Tell me")], "output": [said(f"{each}\n\n{END}", "assistant")]} for each in texts
        ]
        show(self.page, self.person, chat_of(self.person, turns, f"Said {next(self._chats)}"))
        return self._shown(len(texts))

    def streams(self, *chunks: str, before: int = 0) -> Locator:
        """Ask a model that says this bit by bit; so many turns were there before."""
        self.person.house.model.says(*chunks, f"\n\n{END}")
        if before == 0:
            self.page.goto(self.person.house.url)
        write(self.page, "Tell me")
        return self._shown(before + 1)

    def is_untouched(self) -> None:
        """Nothing ran, nothing was asked for elsewhere, and the text is made of what it may be made of."""
        strange = self.page.evaluate(STRANGE)
        assert strange == [], strange
        assert self.ran == [], self.ran
        elsewhere = foreign(self.asked, self.person.house.url)
        assert elsewhere == [], elsewhere
        # And it still does what it is asked to.
        self.page.get_by_role("textbox", name="Message").fill("Still here")
        expect(self.page.get_by_role("textbox", name="Message")).to_have_value("Still here")

    def _shown(self, count: int) -> Locator:
        shown = self.page.locator("[data-turn] .markdown").filter(has_text=END)
        expect(shown).to_have_count(count)
        return shown


def foreign(asked: Sequence[str], url: str) -> list[str]:
    """What was asked for that is neither the server's nor in the page itself."""
    return [each for each in asked if not each.startswith((f"{url}/", "data:", "blob:"))]
