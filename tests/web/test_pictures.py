"""Images: those in the text are there, those elsewhere come when somebody asks for them."""

from __future__ import annotations

import base64
import struct
import zlib

from playwright.sync_api import Request, Route, expect

from tests.web.house import Person, Profile
from tests.web.showing import Watched, foreign
from turnledger.testing.gates import Gate

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


def test_an_image_in_the_text_is_shown_and_stays_within_its_place(profile: Profile, person: Person) -> None:
    watched = Watched(profile, person)
    shown = watched.shows(f"![Red]({in_text(4_000, 300)})\n\nIn line ![small]({in_text(5, 5)}) it is, too.")
    image = shown.get_by_role("img", name="Red")
    expect(image).to_be_visible()
    assert image.evaluate("image => image.naturalWidth") == 4_000
    assert image.bounding_box()["width"] <= shown.bounding_box()["width"]  # type: ignore[index]
    expect(shown.get_by_role("img", name="small")).to_be_visible()
    watched.is_untouched()


def test_an_image_that_is_none_says_so(profile: Profile, person: Person) -> None:
    shown = Watched(profile, person).shows(
        "![Broken](data:image/png;base64,AAAA)\n\n![Drawn](data:image/svg+xml;base64,AAAA)\n\n![Here](/favicon.svg)"
    )
    for words in ("Broken", "Drawn", "Here"):
        expect(shown.get_by_text(f"Image that cannot be shown: {words}")).to_be_visible()
    expect(shown.get_by_role("img")).to_have_count(0)


def test_a_large_image_that_comes_bit_by_bit_is_said_to_be_on_its_way(
    profile: Profile, person: Person
) -> None:
    gate = Gate()
    line = f"![Red]({in_text(300, 200)})"
    watched = Watched(profile, person)
    person.house.model.says(line[:60], gate, line[60:])
    watched.page.goto(person.house.url)
    watched.page.get_by_role("textbox", name="Message").fill("Show me")
    watched.page.keyboard.press("Enter")
    expect(watched.page.get_by_text("Image on its way: Red")).to_be_visible()
    person.house.model.release(gate)
    expect(watched.page.locator("[data-turn]").get_by_role("img", name="Red")).to_be_visible()


def test_an_image_elsewhere_is_loaded_on_a_click_and_not_before(profile: Profile, person: Person) -> None:
    watched = Watched(profile, person)
    asked: list[Request] = []

    def answer(route: Route) -> None:
        asked.append(route.request)
        route.fulfill(body=png(640, 480), content_type="image/png")

    watched.page.context.route("https://pictures.example/**", answer)
    shown = watched.shows(f"![A cat]({ADDRESS})")
    ask = shown.get_by_role("button", name="Load image from pictures.example")
    expect(ask).to_have_attribute("title", ADDRESS)
    expect(shown).to_contain_text("A cat")
    watched.is_untouched()
    ask.click()
    frame = shown.locator("iframe[data-fits]")
    expect(frame).to_have_attribute("title", "A cat")
    expect(frame).to_have_attribute("sandbox", "allow-scripts")
    box = frame.bounding_box()
    assert box is not None
    assert abs(box["width"] / box["height"] - 640 / 480) < 0.02
    [request] = asked
    assert request.url == ADDRESS
    assert "referer" not in request.headers
    assert foreign(watched.asked, person.house.url) == [ADDRESS]


def test_an_image_that_does_not_come_leaves_words(profile: Profile, person: Person) -> None:
    watched = Watched(profile, person)
    watched.page.context.route("https://pictures.example/**", lambda route: route.fulfill(status=404))
    shown = watched.shows(f"![A cat]({ADDRESS})")
    shown.get_by_role("button", name="Load image").click()
    expect(shown.get_by_text("No image came from pictures.example: A cat")).to_be_visible()


def test_nobody_else_tells_the_size_of_an_image(profile: Profile, person: Person) -> None:
    watched = Watched(profile, person)
    watched.page.context.route(
        "https://pictures.example/**", lambda route: route.fulfill(body=png(20, 10), content_type="image/png")
    )
    shown = watched.shows(f"![A cat]({ADDRESS})")
    shown.get_by_role("button", name="Load image").click()
    watched.page.evaluate("postMessage({turnledgerPicture: {width: 9999, height: 1}}, '*')")
    expect(shown.locator("iframe[data-fits]")).to_be_visible()
    assert shown.locator("iframe").evaluate("frame => frame.style.getPropertyValue('--width')") == "20px"


def test_an_image_in_a_link_is_beside_it(profile: Profile, person: Person) -> None:
    watched = Watched(profile, person)
    shown = watched.shows(f"[![A cat]({ADDRESS})](https://site.example/page)")
    expect(shown.get_by_role("link", name="site.example")).to_be_visible()
    expect(shown.get_by_role("link").get_by_role("button")).to_have_count(0)
    expect(shown.get_by_role("button", name="Load image from pictures.example")).to_be_visible()
