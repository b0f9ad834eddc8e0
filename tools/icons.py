"""Draw the icons of the installed page, from `web/public/favicon.svg`: `python -m tools.icons`.

Browsers cache them for good, like all files in `assets`: after a change of the drawing, raise VERSION here,
in `web/src/turnledger.webmanifest` and in `web/index.html`.
"""

from __future__ import annotations

from pathlib import Path

from playwright.sync_api import Page

from tests.browser.chromium import browsing

VERSION = 1
WEB = Path(__file__).parents[1] / "web"
INTO = WEB / "public" / "assets"
GROUND = "#3150c8"
# Launchers cut a maskable icon to a circle of four fifths, and blacken transparent parts of a touch icon.
ICONS = {"192": (192, 1.0), "512": (512, 1.0), "maskable-512": (512, 0.6), "touch-180": (180, 0.7)}


def draw(page: Page, size: int, part: float) -> bytes:
    drawing = (WEB / "public" / "favicon.svg").read_text()
    is_filled = part < 1
    ground = f"background: {GROUND}" if is_filled else ""
    page.set_viewport_size({"width": size, "height": size})
    page.set_content(
        f"<style>body {{ margin: 0; display: grid; place-items: center; height: 100vh; {ground} }}</style>"
        + drawing.replace("<svg ", f'<svg width="{size * part}" height="{size * part}" ')
    )
    return page.screenshot(omit_background=not is_filled)


def main() -> None:
    INTO.mkdir(exist_ok=True)
    with browsing(is_light=True) as browser:
        page = browser.new_page()
        for name, (size, part) in ICONS.items():
            (INTO / f"icon-{VERSION}-{name}.png").write_bytes(draw(page, size, part))


if __name__ == "__main__":
    main()
