"""Markdown in the page: shown as it comes, and the same when it has come."""

from __future__ import annotations

from typing import Literal

from playwright.sync_api import Page, ViewportSize, expect

from tests.web.axe import violations
from tests.web.house import Person, Profile
from tests.web.showing import END, Watched
from turnledger.testing.gates import Gate

TEXT = """# Of the text

Some **bold**, *leaning*, ~~gone~~ and `short` words, and [one] that is explained later.

- one
  - deeper
- [x] done
- [ ] open

1. first

   and more of it
2. second

> quoted
> > twice

```python
def answer(question: str) -> int:
    return 42
```

| Name | Amount |
|:-----|-------:|
| Apple | 12 |

[one]: https://one.example "The one"
"""
NARROW = ViewportSize(width=390, height=844)
THEMES: tuple[Literal["light", "dark"], ...] = ("light", "dark")


def ask(page: Page, person: Person) -> None:
    page.goto(person.house.url)
    page.get_by_role("textbox", name="Message").fill("Tell me")
    page.keyboard.press("Enter")


def test_what_comes_bit_by_bit_ends_as_what_came_at_once(profile: Profile, person: Person) -> None:
    watched = Watched(profile, person)
    gate = Gate()
    whole = f"{TEXT}\n{END}"
    person.house.model.says(*(whole[at : at + 5] for at in range(0, len(whole), 5)), "\n\n", gate, "More.")
    ask(watched.page, person)
    coming = watched.page.locator("[data-state=running] .markdown").filter(has_text=END)
    expect(coming.locator(".code-keyword").first).to_be_visible()
    expect(coming.get_by_role("link", name="one")).to_be_visible()
    then = coming.inner_html()
    person.house.model.release(gate)
    shown = watched.page.locator("[data-turn] .markdown").filter(has_text="More.")
    expect(shown.locator(".code-keyword").first).to_be_visible()
    assert shown.inner_html().startswith(then)
    watched.is_untouched()


def test_what_cannot_change_any_more_is_not_made_anew(profile: Profile, person: Person) -> None:
    page = Watched(profile, person).page
    first, second = Gate(), Gate()
    person.house.model.says("One.\n\nTwo.\n\n```\ncode", first, "\nmore\n```\n\nThree.\n\nFour", second, ".")
    ask(page, person)
    coming = page.locator("[data-state=running] .markdown")
    expect(coming.locator("pre")).to_have_text("code")
    marked = "place => [...place.querySelectorAll('p, pre')].forEach(each => { each.marked = true; })"
    coming.evaluate(marked)
    person.house.model.release(first)
    expect(coming.get_by_text("Four")).to_be_visible()
    kept = "place => [...place.querySelectorAll('p, pre')].map(each => each.marked === true)"
    assert coming.filter(has_text="Four").evaluate(kept) == [True, True, True, False, False]
    person.house.model.release(second)
    shown = page.locator("[data-turn] .markdown")
    expect(shown).to_contain_text("Four.")
    assert shown.evaluate(kept) == [True, True, True, False, False]


def test_code_has_a_language_colours_and_its_own_scrolling(profile: Profile, person: Person) -> None:
    page = Watched(profile, person).page
    page.set_viewport_size(NARROW)
    watched_text = "```python\nx = '" + "long " * 100 + "'\n```\n\n- nested:\n\n  ```ts\n  const a = 1\n  ```"
    person.house.model.says(f"{watched_text}\n\n{END}")
    person.say("Tell me")
    page.goto(person.house.url)
    python, ts = (
        page.get_by_role("group", name="Python code"),
        page.get_by_role("group", name="TypeScript code"),
    )
    expect(python.locator(".code-string")).to_be_visible()
    expect(ts.locator(".code-keyword")).to_have_text("const")
    python.focus()
    page.keyboard.press("ArrowRight")
    page.wait_for_function("pre => pre.scrollLeft > 0", arg=python.element_handle())
    block = page.locator(".code-block").first
    block.get_by_role("button", name="Wrap").click()
    expect(block.get_by_role("button", name="Wrap")).to_have_attribute("aria-pressed", "true")
    assert python.evaluate("pre => pre.scrollWidth <= pre.clientWidth")
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


def test_code_is_copied_as_it_was_written(profile: Profile, person: Person) -> None:
    watched = Watched(profile, person)
    watched.page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    shown = watched.shows("```python\ndef f():\n\n\treturn '\u202ex'\n```")
    shown.get_by_role("button", name="Copy").click()
    expect(shown.get_by_role("status")).to_have_text("Copied")
    assert watched.page.evaluate("navigator.clipboard.readText()") == "def f():\n\n\treturn '\u202ex'"


def test_where_nothing_may_be_copied_it_is_selected(profile: Profile, person: Person) -> None:
    watched = Watched(profile, person)
    refuse = (
        "navigator.clipboard.writeText = () => Promise.reject(new DOMException('No.', 'NotAllowedError'))"
    )
    watched.page.add_init_script(refuse)
    shown = watched.shows("```\none\n\ntwo\n```\n\nOther")
    shown.get_by_role("button", name="Copy").click()
    expect(shown.get_by_role("status")).to_have_text("Selected: copy it with your keyboard or menu")
    assert watched.page.evaluate("getSelection().toString()").strip() == "one\n\ntwo"


def test_a_wide_table_scrolls_by_itself_and_names_its_columns(profile: Profile, person: Person) -> None:
    watched = Watched(profile, person)
    watched.page.set_viewport_size(NARROW)
    names = [f"Column{number}" for number in range(12)]
    table = f"|{'|'.join(names)}|\n|{'-|' * 12}\n|{'|'.join(names)}|"
    shown = watched.shows(table)
    region = shown.get_by_role("group", name="Table")
    region.focus()
    watched.page.keyboard.press("ArrowRight")
    watched.page.wait_for_function("region => region.scrollLeft > 0", arg=region.element_handle())
    expect(shown.get_by_role("columnheader")).to_have_text(names)
    assert watched.page.evaluate("document.documentElement.scrollWidth <= innerWidth")


def test_headings_are_below_that_of_the_page_and_leave_no_level_out(profile: Profile, person: Person) -> None:
    shown = Watched(profile, person).shows("### A\n\n# B\n\n## C\n\n###### D\n\n# E")
    level = "heading => [heading.innerText, +(heading.ariaLevel ?? heading.tagName[1])]"
    levels = [each.evaluate(level) for each in shown.get_by_role("heading").all()]
    assert levels == [["A", 2], ["B", 2], ["C", 3], ["D", 4], ["E", 2]]


def test_each_paragraph_runs_its_own_way(profile: Profile, person: Person) -> None:
    shown = Watched(profile, person).shows("שלום world\n\nHello עולם\n\n- פריט\n- item\n\n```\nקוד = 1\n```")
    direction = "each => getComputedStyle(each).direction"
    assert [each.evaluate(direction) for each in shown.locator("p").all()] == ["rtl", "ltr", "ltr"]
    assert shown.locator("ul").evaluate(direction) == "rtl"
    assert shown.locator("pre").evaluate(direction) == "ltr"


def test_tasks_say_whether_they_are_done(profile: Profile, person: Person) -> None:
    shown = Watched(profile, person).shows("- [x] this\n- [ ] that")
    expect(shown.get_by_role("listitem").first.get_by_role("img", name="Done")).to_be_visible()
    expect(shown.get_by_role("listitem").last.get_by_role("img", name="To do")).to_be_visible()


LINES = "a line of code\n" * 4_000
EVERYTHING = f"""{TEXT}
> A [link](https://a.example), `code` and **strong** words in a quotation.

![From elsewhere](https://pictures.example/a.png) and ![none](data:image/svg+xml;base64,AAAA)

[https://bank.example](https://thief.example) and <kbd>no HTML</kbd>.

שלום עולם

```diff
+ added
- removed
```

```ts
// A comment
@mark class A<T> {{ x: string = `y`; f() {{ return 1 }} }}
```

{"x" * 21_000}

```
{LINES}
```
"""


def test_nothing_in_a_text_keeps_anybody_from_reading_it(profile: Profile, person: Person) -> None:
    watched = Watched(profile, person)
    shown = watched.shows(EVERYTHING)
    expect(shown.locator(".code-type").first).to_be_visible()
    for theme in THEMES:
        watched.page.emulate_media(color_scheme=theme)
        found = violations(watched.page)
        assert found == [], found
