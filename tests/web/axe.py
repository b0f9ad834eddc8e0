"""Accessibility violations that axe finds. The tool is read from node_modules and never served."""

from __future__ import annotations

from functools import cache
from pathlib import Path

from playwright.sync_api import Page

from tests.node_packages import skip_or_fail

SOURCE = Path(__file__).parents[2] / "web" / "node_modules" / "axe-core" / "axe.min.js"
MISSING = "axe-core is not installed. Run `npm ci` in web/."
TAGS = ("wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice")
COLOURS = ("color-contrast", "link-in-text-block")
"""Rules of `cat.color`: those that a theme can break."""
# Evaluated text is not subject to the policy of the page, which forbids it.
RUN = """async only => {
  const isEndless = (each) => each.effect.getComputedTiming().iterations === Infinity;
  const moving = document.getAnimations().filter((each) => !isEndless(each));
  await Promise.all(moving.map((each) => each.finished.catch(() => {})));
  const { violations } = await axe.run(document, { runOnly: only, resultTypes: ["violations"] });
  const why = ({ any, all, none }) => [...any, ...all, ...none].map((each) => each.message).join(" ");
  return violations.flatMap(({ id, help, nodes }) =>
    nodes.map((node) => `${id} (${help}): ${node.target.join(" ")}: ${why(node)}`));
}"""


@cache
def source() -> str:
    """Read the tool. Without it the test is skipped, or fails in CI."""
    if not SOURCE.is_file():
        skip_or_fail(MISSING)
    return SOURCE.read_text()


def violations(page: Page, *, only: tuple[str, ...] = TAGS) -> list[str]:
    """Return violations of these tags or rules, each with rule, element and reason."""
    if not page.evaluate("'axe' in window"):
        page.evaluate(source())
    found: list[str] = page.evaluate(RUN, list(only))
    return found


def violations_in_each_theme(page: Page) -> dict[str, list[str]]:
    """Return violations by theme."""
    page.emulate_media(color_scheme="light")
    found = {"light": violations(page)}
    page.emulate_media(color_scheme="dark")
    found["dark"] = violations(page, only=COLOURS)
    return {theme: each for theme, each in found.items() if each}
