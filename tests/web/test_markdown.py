"""Markdown renders the same streamed and whole. Inline images are shown; remote ones load on click."""

from __future__ import annotations

import base64
import struct
import zlib

from playwright.sync_api import Page, Request, Route, ViewportSize, expect

from tests.long_form import long_only
from tests.web.axe import violations_in_each_theme
from tests.web.page_server import Person, Profile
from tests.web.watched_page import END, WatchedPage, foreign_urls
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


def send_question(page: Page, person: Person) -> None:
    page.goto(person.server.url)
    page.get_by_role("textbox", name="Message").fill("Tell me")
    page.keyboard.press("Enter")


def test_streamed_markdown_ends_equal_to_unstreamed_markdown(profile: Profile, person: Person) -> None:
    watched = WatchedPage(profile, person)
    gate = Gate()
    whole = f"{TEXT}\n{END}"
    person.server.model.add_script(
        *(whole[at : at + 5] for at in range(0, len(whole), 5)), "\n\n", gate, "More."
    )
    send_question(watched.page, person)
    coming = watched.page.locator("[data-state=running] .markdown").filter(has_text=END)
    expect(coming.locator(".code-keyword").first).to_be_visible()
    expect(coming.get_by_role("link", name="one")).to_be_visible()
    then = coming.inner_html()
    person.server.model.release(gate)
    shown = watched.page.locator("[data-turn] .markdown").filter(has_text="More.")
    expect(shown.locator(".code-keyword").first).to_be_visible()
    assert shown.inner_html().startswith(then)
    watched.expect_unharmed()


@long_only
def test_completed_markdown_blocks_are_not_rendered_again_while_streaming(
    profile: Profile, person: Person
) -> None:
    page = WatchedPage(profile, person).page
    first, second = Gate(), Gate()
    person.server.model.add_script(
        "One.\n\nTwo.\n\n```\ncode", first, "\nmore\n```\n\nThree.\n\nFour", second, "."
    )
    send_question(page, person)
    coming = page.locator("[data-state=running] .markdown")
    expect(coming.locator("pre")).to_have_text("code")
    marked = "place => [...place.querySelectorAll('p, pre')].forEach(each => { each.marked = true; })"
    coming.evaluate(marked)
    person.server.model.release(first)
    expect(coming.get_by_text("Four")).to_be_visible()
    kept = "place => [...place.querySelectorAll('p, pre')].map(each => each.marked === true)"
    assert coming.filter(has_text="Four").evaluate(kept) == [True, True, True, False, False]
    person.server.model.release(second)
    shown = page.locator("[data-turn] .markdown")
    expect(shown).to_contain_text("Four.")
    assert shown.evaluate(kept) == [True, True, True, False, False]


@long_only
def test_code_and_wide_tables_scroll_within_their_own_boxes(profile: Profile, person: Person) -> None:
    watched = WatchedPage(profile, person)
    page = watched.page
    page.set_viewport_size(NARROW)
    names = [f"Column{number}" for number in range(12)]
    table = f"|{'|'.join(names)}|\n|{'-|' * 12}\n|{'|'.join(names)}|"
    code = "```python\nx = '" + "long " * 100 + "'\n```\n\n- nested:\n\n  ```ts\n  const a = 1\n  ```"
    shown = watched.show_texts(code, table)
    python, ts = (shown.get_by_role("group", name=f"{name} code") for name in ("Python", "TypeScript"))
    expect(python.locator(".code-string")).to_be_visible()
    expect(ts.locator(".code-keyword")).to_have_text("const")
    for region in (python, shown.get_by_role("group", name="Table")):
        region.focus()
        page.keyboard.press("ArrowRight")
        page.wait_for_function("region => region.scrollLeft > 0", arg=region.element_handle())
    block = page.locator(".code-block").first
    block.get_by_role("button", name="Wrap").click()
    expect(block.get_by_role("button", name="Wrap")).to_have_attribute("aria-pressed", "true")
    assert python.evaluate("pre => pre.scrollWidth <= pre.clientWidth")
    expect(shown.get_by_role("columnheader")).to_have_text(names)
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")


@long_only
def test_copy_button_copies_code_verbatim_or_selects_it_without_clipboard_access(
    profile: Profile, person: Person
) -> None:
    watched = WatchedPage(profile, person)
    watched.page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    shown = watched.show_texts(
        "```python\ndef f():\n\n\treturn '\u202ex'\n```", "```\none\n\ntwo\n```\n\nOther"
    )
    first, second = shown.first, shown.last
    first.get_by_role("button", name="Copy").click()
    expect(first.get_by_role("status")).to_have_text("Copied")
    assert watched.page.evaluate("navigator.clipboard.readText()") == "def f():\n\n\treturn '\u202ex'"
    watched.page.evaluate(
        """() => { navigator.clipboard.writeText = () =>
             Promise.reject(new DOMException("No.", "NotAllowedError")) }"""
    )
    second.get_by_role("button", name="Copy").click()
    expect(second.get_by_role("status")).to_have_text("Text selected. Copy it with your keyboard or menu.")
    assert watched.page.evaluate("getSelection().toString()").strip() == "one\n\ntwo"


@long_only
def test_markdown_headings_directions_and_tasks_have_correct_semantics(
    profile: Profile, person: Person
) -> None:
    headed, directed, tasks = (
        WatchedPage(profile, person)
        .show_texts(
            "### A\n\n# B\n\n## C\n\n###### D\n\n# E",
            "שלום world\n\nHello עולם\n\n- פריט\n- item\n\n```\nקוד = 1\n```\n\n1. one\n2. שתיים",
            "- [x] this\n- [ ] that",
        )
        .all()
    )
    # Headings are below that of the page, and leave no level out.
    level = "heading => [heading.innerText, +(heading.ariaLevel ?? heading.tagName[1])]"
    levels = [each.evaluate(level) for each in headed.get_by_role("heading").all()]
    assert levels == [["A", 2], ["B", 2], ["C", 3], ["D", 4], ["E", 2]]
    # Each paragraph runs its own way.
    direction = "each => getComputedStyle(each).direction"
    assert [each.evaluate(direction) for each in directed.locator("p").all()] == ["rtl", "ltr", "ltr"]
    assert directed.locator("ul").evaluate(direction) == "rtl"
    assert directed.locator("pre").evaluate(direction) == "ltr"
    # Items stay beside their bullets.
    side = "each => getComputedStyle(each).textAlign"
    assert [each.evaluate(side) for each in directed.locator("li").all()] == ["right"] * 2 + ["left"] * 2
    # Tasks show whether they are done.
    expect(tasks.get_by_role("listitem").first.get_by_role("img", name="Done")).to_be_visible()
    expect(tasks.get_by_role("listitem").last.get_by_role("img", name="To do")).to_be_visible()


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


@long_only
def test_markdown_of_every_kind_has_no_axe_violation(profile: Profile, person: Person) -> None:
    watched = WatchedPage(profile, person)
    shown = watched.show_texts(EVERYTHING)
    expect(shown.locator(".code-type").first).to_be_visible()
    assert violations_in_each_theme(watched.page) == {}


ADDRESS = "https://pictures.example/cat.png?a=b&c=%20d"


def png(width: int, height: int) -> bytes:
    """A red image."""

    def chunk(kind: bytes, body: bytes) -> bytes:
        return struct.pack(">I", len(body)) + kind + body + struct.pack(">I", zlib.crc32(kind + body))

    head = struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0)
    rows = (b"\0" + b"\xff\0\0" * width) * height
    return (
        b"\x89PNG\r\n\x1a\n"
        + chunk(b"IHDR", head)
        + chunk(b"IDAT", zlib.compress(rows))
        + chunk(b"IEND", b"")
    )


def in_text(width: int, height: int) -> str:
    return f"data:image/png;base64,{base64.b64encode(png(width, height)).decode()}"


@long_only
def test_inline_image_is_shown_within_its_column_or_reported_as_unavailable(
    profile: Profile, person: Person
) -> None:
    watched = WatchedPage(profile, person)
    shown = watched.show_texts(
        f"![Red]({in_text(4_000, 300)})\n\nIn line ![small]({in_text(5, 5)}) it is, too.",
        "![Broken](data:image/png;base64,AAAA)\n\n![Drawn](data:image/svg+xml;base64,AAAA)\n\n![Here](/favicon.svg)",
    )
    image = shown.get_by_role("img", name="Red")
    expect(image).to_be_visible()
    assert image.evaluate("image => image.naturalWidth") == 4_000
    assert image.bounding_box()["width"] <= shown.first.bounding_box()["width"]  # type: ignore[index]
    expect(shown.get_by_role("img", name="small")).to_be_visible()
    for words in ("Broken", "Drawn", "Here"):
        expect(shown.get_by_text(f"Image could not be displayed: {words}")).to_be_visible()
    expect(shown.last.get_by_role("img")).to_have_count(0)
    watched.expect_unharmed()


@long_only
def test_inline_image_that_is_still_streaming_shows_a_placeholder(profile: Profile, person: Person) -> None:
    gate = Gate()
    line = f"![Red]({in_text(300, 200)})"
    watched = WatchedPage(profile, person)
    person.server.model.add_script(line[:60], gate, line[60:])
    watched.page.goto(person.server.url)
    watched.page.get_by_role("textbox", name="Message").fill("Show me")
    watched.page.keyboard.press("Enter")
    expect(watched.page.get_by_text("Image loading: Red")).to_be_visible()
    person.server.model.release(gate)
    expect(watched.page.locator("[data-turn]").get_by_role("img", name="Red")).to_be_visible()


def test_remote_image_is_loaded_only_on_click(profile: Profile, person: Person) -> None:
    watched = WatchedPage(profile, person)
    requests: list[Request] = []

    def answer(route: Route) -> None:
        requests.append(route.request)
        if "gone" in route.request.url:
            route.fulfill(status=404)
        else:
            route.fulfill(body=png(640, 480), content_type="image/png")

    watched.page.context.route("https://pictures.example/**", answer)
    shown = watched.show_texts(
        f"![A cat]({ADDRESS})",
        "![A dog](https://pictures.example/gone.png)",
        f"[![A bird]({ADDRESS})](https://site.example/page)",
    )
    cat, dog, bird = shown.all()
    button = cat.get_by_role("button", name="Load image from pictures.example")
    expect(button).to_have_attribute("title", ADDRESS)
    expect(cat).to_contain_text("A cat")
    watched.expect_unharmed()
    button.click()
    # Only the frame knows its size.
    watched.page.evaluate("postMessage({turnledgerPicture: {width: 9999, height: 1}}, '*')")
    frame = cat.locator("iframe[data-fits]")
    expect(frame).to_have_attribute("title", "A cat")
    expect(frame).to_have_attribute("sandbox", "allow-scripts")
    assert frame.evaluate("frame => frame.style.getPropertyValue('--width')") == "640px"
    box = frame.bounding_box()
    assert box is not None
    assert abs(box["width"] / box["height"] - 640 / 480) < 0.02
    [request] = requests
    assert request.url == ADDRESS
    assert "referer" not in request.headers
    assert foreign_urls(watched.requested, person.server.url) == [ADDRESS]

    # One that does not come leaves words.
    dog.get_by_role("button", name="Load image").click()
    expect(dog.get_by_text("No image received from pictures.example: A dog")).to_be_visible()

    # One in a link is beside it.
    expect(bird.get_by_role("link", name="site.example")).to_be_visible()
    expect(bird.get_by_role("link").get_by_role("button")).to_have_count(0)
    expect(bird.get_by_role("button", name="Load image from pictures.example")).to_be_visible()
