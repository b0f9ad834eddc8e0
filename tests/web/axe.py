"""What axe finds wrong with a page. It is a tool of tests: read from where npm put it, and never served."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from playwright.sync_api import Page

from tests.node_packages import lacks

SOURCE = Path(__file__).parents[2] / "web" / "node_modules" / "axe-core" / "axe.min.js"
MISSING = "axe-core is not installed. Run `npm ci` in web/."
TAGS = ("wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice")
COLOURS = ("color-contrast", "link-in-text-block")
"""The rules of `cat.color` among these: all that another theme can break."""
# The evaluated text of the tool runs beside the page's own policy, which forbids it to the page itself.
RUN = """async only => {
  const isEndless = (each) => each.effect.getComputedTiming().iterations === Infinity;
  const moving = document.getAnimations().filter((each) => !isEndless(each));
  await Promise.all(moving.map((each) => each.finished.catch(() => {})));
  const { violations } = await axe.run(document, { runOnly: only });
  const why = ({ any, all, none }) => [...any, ...all, ...none].map((each) => each.message).join(" ");
  return violations.flatMap(({ id, help, nodes }) =>
    nodes.map((node) => `${id} (${help}): ${node.target.join(" ")}: ${why(node)}`));
}"""


@cache
def source() -> str:
    """The tool. Without it the test is skipped, but where changes are judged it fails."""
    if not SOURCE.is_file():
        lacks(MISSING)
    return SOURCE.read_text()


def violations(page: Page, *, only: tuple[str, ...] = TAGS) -> list[str]:
    """What is wrong in the page as it is, by these tags or rules, each with the rule, the element and why."""
    if not page.evaluate("'axe' in window"):
        page.evaluate(source())
    found: list[str] = page.evaluate(RUN, list(only))
    return found


def violations_in_each_theme(page: Page) -> dict[str, list[str]]:
    """The same, by theme where something is wrong."""
    page.emulate_media(color_scheme="light")
    found = {"light": violations(page)}
    page.emulate_media(color_scheme="dark")
    found["dark"] = violations(page, only=COLOURS)
    return {theme: each for theme, each in found.items() if each}
