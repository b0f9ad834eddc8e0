"""Formulas: shown as MathML by a chunk that loads on demand, and as typed wherever that is not possible."""

from __future__ import annotations

from playwright.sync_api import ViewportSize, expect

from tests.long_form import long_only
from tests.web.axe import violations, violations_in_each_theme
from tests.web.page_server import Person, Profile
from tests.web.thread import send
from tests.web.watched_page import END, WatchedPage
from turnledger.testing.gates import Gate

NARROW = ViewportSize(width=320, height=640)
INLINE = "so \\(\\frac{a}{b}\\), $x_1*y*z$, costs $5 or $6"
BLOCKS = "\\[\na\n=\n- b\n\\]\n\nand\n$$\n\\begin{aligned}a&=b\\\\c&=\\mathbb{R}\\end{aligned}\n$$\nafter"
WRONG = "\\(\\frac{a\\) and $$\\unknown{x}$$ and `\\(x\\)`"
LONG = f"\\[{'+'.join(f'x_{{{number}}}' for number in range(60))}\\] and ${'+y' * 60}$"


def loaded(watched: WatchedPage) -> list[str]:
    return [url for url in watched.requested if "/assets/katex-" in url]


def test_formulas_are_shown_as_mathml_and_copied_as_typed(profile: Profile, person: Person) -> None:
    watched = WatchedPage(profile, person)
    page = watched.page
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    watched.show_texts("No formula, but $5, $6 and `\\(x\\)`.")
    assert loaded(watched) == []
    inline, blocks, wrong, long = watched.show_texts(INLINE, BLOCKS, WRONG, LONG).all()
    expect(inline.locator("math")).to_have_count(2)
    expect(blocks.locator(".maths-block math")).to_have_count(2)
    expect(long.locator("math")).to_have_count(2)
    assert len(loaded(watched)) == 1
    expect(inline.locator("mfrac")).to_be_visible()
    expect(inline).to_contain_text("costs $5 or $6")
    expect(inline.locator("em")).to_have_count(0)
    expect(blocks.locator("mtable")).to_contain_text("ℝ")
    expect(blocks.locator("ul, h2, h3")).to_have_count(0)
    expect(blocks.get_by_text("after")).to_be_visible()
    # An error leaves the formula as typed.
    expect(wrong.locator("math")).to_have_count(0)
    expect(wrong).to_contain_text("\\(\\frac{a\\) and $$\\unknown{x}$$ and \\(x\\)")
    expect(wrong.locator("code")).to_have_text("\\(x\\)")
    # A fraction is taller than its line, and stands on it: its bar is near the middle of the letters.
    line, bar = (inline.locator(which).first.bounding_box() for which in ("p", "mfrac"))
    assert line is not None
    assert bar is not None
    assert line["y"] - 1 <= bar["y"]
    assert bar["y"] + bar["height"] <= line["y"] + line["height"] + 1
    # Selected text has the formulas as typed, like the message that the button copies.
    inline.locator("p").first.evaluate("p => getSelection().selectAllChildren(p)")
    page.keyboard.press("ControlOrMeta+c")
    assert page.evaluate("navigator.clipboard.readText()").strip() == INLINE
    assert violations_in_each_theme(page) == {}
    page.set_viewport_size(NARROW)
    for formula in long.locator(".maths-box").all():
        expect(formula).to_have_attribute("tabindex", "0")
        expect(formula).to_have_attribute("aria-label", "Formula")
    expect(inline.locator(".maths-box[tabindex]")).to_have_count(0)
    assert page.evaluate("document.documentElement.scrollWidth <= innerWidth")
    assert page.evaluate("document.querySelector('.thread').scrollWidth <= innerWidth")
    assert violations(page) == []
    watched.expect_unharmed()


@long_only
def test_unfinished_formula_streams_as_typed_and_stays_so_without_katex(
    profile: Profile, person: Person
) -> None:
    watched = WatchedPage(profile, person)
    page = watched.page
    first, second = Gate(), Gate()
    person.server.model.add_script("So \\(a_1*b*c", first, "\\) and \\[x", second, f"\\].\n\n{END}")
    page.goto(person.server.url)
    send(page, "Tell me")
    coming = page.locator("[data-state=running] .markdown")
    expect(coming).to_have_text("So \\(a_1*b*c")
    person.server.model.release(first)
    expect(coming.locator("math")).to_have_count(1)
    expect(coming).to_contain_text("and \\[x")
    person.server.model.release(second)
    expect(page.locator("[data-turn] .markdown math")).to_have_count(2)

    without = WatchedPage(profile, person)
    without.page.route("**/assets/katex-*", lambda route: route.abort("blockedbyclient"))
    shown = without.show_texts("So \\(a_1*b*c\\) is")
    with without.page.expect_event("requestfailed"):
        without.page.reload()
    expect(shown.first).to_contain_text("So \\(a_1*b*c\\) is")
    without.expect_unharmed()
