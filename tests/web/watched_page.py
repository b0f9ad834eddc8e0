"""A page that shows text of a model, watched for scripts, requests and forbidden elements."""

from __future__ import annotations

import itertools
from collections.abc import Sequence

from playwright.sync_api import Locator, Page, expect

from tests.web.page_server import Person, Profile
from tests.web.thread import import_chat, message_item, open_chat, send

END = "This is the end of it."
"""The last paragraph of each text, shown when the whole text is."""

STRANGE = """() => {
  const tags = new Set(("P H2 H3 H4 H5 H6 UL OL LI BLOCKQUOTE PRE CODE EM STRONG DEL BR HR "
    + "TABLE THEAD TBODY TR TH TD A SPAN DIV BDI BUTTON IMG IFRAME").split(" "));
  const formula = new Set(("math mrow mi mn mo ms mtext mspace mfrac msqrt mroot mstyle mpadded mphantom "
    + "menclose msub msup msubsup munder mover munderover mtable mtr mtd").split(" "));
  const shape = new Set(("class display displaystyle scriptlevel mathsize mathvariant notation accent "
    + "accentunder fence separator stretchy symmetric largeop movablelimits form lspace rspace minsize "
    + "maxsize linethickness width height depth voffset").split(" "));
  const attributes = new Set(("class dir role tabindex aria-label aria-level aria-pressed type title start "
    + "align scope href target rel src alt decoding sandbox referrerpolicy data-fits hidden").split(" "));
  const strange = [];
  for (const each of document.querySelectorAll(".markdown *")) {
    if (each.namespaceURI.endsWith("MathML")) {
      if (!formula.has(each.tagName)) strange.push(each.tagName);
      for (const {name} of each.attributes) if (!shape.has(name)) strange.push(`${each.tagName} ${name}`);
      continue;
    }
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


class WatchedPage:
    """Records the scripts and requests of a page."""

    def __init__(self, profile: Profile, person: Person) -> None:
        self.person = person
        self.ran: list[str] = []
        self.requested: list[str] = []
        self._chats = itertools.count()
        context = profile(person)
        context.on("request", lambda request: self.requested.append(request.url))
        context.expose_function("owned", lambda *words: self.ran.append(str(words)))
        context.add_init_script(
            "window.alert = window.confirm = window.prompt = (...words) => window.owned(...words)"
        )
        self.page: Page = context.new_page()

    def show_texts(self, *texts: str) -> Locator:
        """Open a chat with these answers; a chat opens with twelve at most."""
        turns = [
            {"input": [message_item("Tell me")], "output": [message_item(f"{each}\n\n{END}", "assistant")]}
            for each in texts
        ]
        open_chat(self.page, self.person, import_chat(self.person, turns, f"Said {next(self._chats)}"))
        return self._shown(len(texts))

    def stream(self, *chunks: str, before: int = 0) -> Locator:
        """Run a turn whose answer arrives in these chunks, after `before` other turns."""
        self.person.server.model.add_script(*chunks, f"\n\n{END}")
        if before == 0:
            self.page.goto(self.person.server.url)
        send(self.page, "Tell me")
        return self._shown(before + 1)

    def expect_unharmed(self) -> None:
        """Expect no script, no foreign request and only allowed elements, in a page that still works."""
        strange = self.page.evaluate(STRANGE)
        assert strange == [], strange
        assert self.ran == [], self.ran
        elsewhere = foreign_urls(self.requested, self.person.server.url)
        assert elsewhere == [], elsewhere
        self.page.get_by_role("textbox", name="Message").fill("Still here")
        expect(self.page.get_by_role("textbox", name="Message")).to_have_value("Still here")

    def _shown(self, count: int) -> Locator:
        shown = self.page.locator("[data-turn] .markdown").filter(has_text=END)
        expect(shown).to_have_count(count)
        return shown


def foreign_urls(requested: Sequence[str], url: str) -> list[str]:
    return [each for each in requested if not each.startswith((f"{url}/", "data:", "blob:"))]
