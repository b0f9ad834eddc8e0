"""The cost of the chat page in a real browser: `python -m bench.page [--rounds N] [--texts]`.

It needs the built page (`make page`) and Chromium (`CHROMIUM` names another than the one on the path). A
server with one chat of 10,000 turns, one of 10 and one of 200 runs beside a model that sends 1,000 pieces of
Markdown. The page is opened in fresh profiles; the long chat and the short one are opened alternately; and
the 1,000 pieces are streamed into the thread of 200 while the browser records its frame times. Frames are
also recorded in an empty page while a program reads the same answer: that is the noise of the machine. At
last the list of 5,000 chats is scrolled from end to end, and the long chat from its last turn backwards.

With `--texts`, it opens instead a chat for each hostile text, and reports its longest frame, the heap and the
nodes.
"""

from __future__ import annotations

import argparse
import asyncio
import gzip
import json
import os
import re
import shutil
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from statistics import median
from typing import Any, NamedTuple
from urllib.request import Request, urlopen

from playwright.sync_api import Browser, Page, sync_playwright

from bench.hostile_texts import TEXTS
from bench.http.__main__ import started
from turnledger import Ledger
from turnledger.server.chat_page.files import FOLDER, is_built

PAUSE = 0.005
"""Seconds between the pieces of the streamed answer."""
MOST_INTERACTIVE, MOST_FRAME, MOST_RATIO, MOST_KB = 300.0, 50.0, 1.5, 150
MOST_TEXT_FRAME, MOST_TEXT_MB = 1_000.0, 100.0
END = "This is the end of it."
"""The last paragraph of each hostile text: it is shown when the whole text is."""
ANSWER = """\
Here is what I found, with **some** emphasis, a [link](https://example.com) and `code`:

1. the first thing, which takes a line of its own
2. the second one

```python
def answer(question: str) -> str:
    return f"{question} is a good question"
```

| name | value |
|---|---|
| one | 1 |

"""
READY = """
(() => {
  const look = () => {
    const line = document.querySelector("textarea");
    const isShown = document.querySelector("[data-turn]") !== null;
    if (line && !line.disabled && isShown) window.readyAt = performance.now();
    else requestAnimationFrame(look);
  };
  requestAnimationFrame(look);
})();
"""
WHEN_READY = """
() => new Promise((resolve) => {
  const look = () => {
    const [painted] = performance.getEntriesByName("first-contentful-paint");
    if (painted && window.readyAt !== undefined) resolve([painted.startTime, window.readyAt]);
    else setTimeout(look, 10);
  };
  look();
})
"""
WHEN_MORE = """
(count) => new Promise((resolve) => {
  const isThere = () => document.querySelectorAll("[data-turn]").length > count;
  const look = () => (isThere() ? resolve() : setTimeout(look, 50));
  look();
})
"""
FRAMES = """
() => {
  window.frames_ = { longest: 0, over: 0, count: 0, tasks: [], times: [] };
  let last = performance.now();
  const next = (now) => {
    const took = now - last;
    last = now;
    window.frames_.count += 1;
    window.frames_.times.push(took);
    window.frames_.longest = Math.max(window.frames_.longest, took);
    if (took > 50) window.frames_.over += 1;
    if (window.frames_.isOn !== false) requestAnimationFrame(next);
  };
  requestAnimationFrame(next);
  new PerformanceObserver((list) => {
    for (const each of list.getEntries()) window.frames_.tasks.push(each.duration);
  }).observe({ type: "long-animation-frame", buffered: false });
}
"""
WHEN_SHOWN = """
([end]) => new Promise((resolve) => {
  let idle = 0;
  const look = () => {
    const isShown = document.querySelector("[data-turn] .markdown")?.lastElementChild?.textContent === end;
    // Formulas are typeset and code is highlighted over the frames that follow.
    idle = isShown && window.frames_.times.at(-1) < 30 ? idle + 1 : 0;
    if (idle > 30) resolve();
    else requestAnimationFrame(look);
  };
  requestAnimationFrame(look);
})
"""
SCROLLED = """
([selector, step, frames]) => new Promise((resolve) => {
  const box = document.querySelector(selector);
  let left = frames;
  const next = () => {
    box.scrollBy({ top: step, behavior: "instant" });
    if (--left > 0) requestAnimationFrame(next);
    else resolve(document.querySelectorAll("[data-turn]").length);
  };
  requestAnimationFrame(next);
})
"""
OPENED = """
([id, text]) => new Promise((resolve) => {
  const started = performance.now();
  const isThere = () => {
    const turns = document.querySelectorAll("[data-turn]");
    return turns.length > 0 && turns[turns.length - 1].textContent.includes(text);
  };
  const look = () => {
    if (isThere()) resolve(performance.now() - started);
    else requestAnimationFrame(look);
  };
  location.hash = id;
  requestAnimationFrame(look);
})
"""


class Size(NamedTuple):
    """Turns of the opened chats, and pieces of the streamed answer."""

    long: int = 10_000
    short: int = 10
    thread: int = 200
    chunks: int = 1_000
    chats: int = 5_000
    frames: int = 600
    """Frames for which each list is scrolled."""


QUICK = Size(long=20, short=5, thread=10, chunks=5, chats=50, frames=20)


class Frames(NamedTuple):
    """Frame times of a period, in milliseconds."""

    count: int
    longest: float
    over: int
    """How many took more than 50."""
    busy: list[float]
    """Those in which the page itself was busy for longer than that."""
    p95: float


def pieces(count: int) -> list[bytes]:
    text = ANSWER * (1 + count * 6 // len(ANSWER))
    deltas = [text[place * 6 : place * 6 + 6] for place in range(count)]
    chunks: list[dict[str, Any]] = [{"index": 0, "delta": {"content": delta}} for delta in deltas]
    chunks.append({"index": 0, "delta": {}, "finish_reason": "stop"})
    payloads = [
        json.dumps({"id": "x", "object": "chat.completion.chunk", "model": "m", "choices": [each]})
        for each in chunks
    ]
    return [f"data: {each}\n\n".encode() for each in (*payloads, "[DONE]")]


@contextmanager
def model(chunks: int) -> Iterator[str]:
    """Run a model that always gives the same answer, piece by piece, in a thread."""
    loop, answered = asyncio.new_event_loop(), pieces(chunks)

    async def answer(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        head = (await reader.readuntil(b"\r\n\r\n")).lower()
        if head.startswith(b"post"):
            writer.write(b"HTTP/1.1 200 OK\r\ncontent-type: text/event-stream\r\nconnection: close\r\n\r\n")
            for piece in answered:
                writer.write(piece)
                await asyncio.sleep(PAUSE)
        writer.close()

    server = loop.run_until_complete(asyncio.start_server(answer, "127.0.0.1", 0))
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    yield f"http://127.0.0.1:{server.sockets[0].getsockname()[1]}/v1"
    loop.call_soon_threadsafe(loop.stop)
    thread.join()


async def fill(store: str, size: Size) -> dict[int, str]:
    """Create the chats; return them by their number of turns."""
    ledger = await Ledger.open(store)
    made = {}
    for length in (size.long, size.short, size.thread):
        chat = await ledger.for_owner("local").conversation(title=f"{length} turns")
        for number in range(length):
            async with chat.turn(f"Question {number + 1} of {length}") as turn:
                turn.emit(ANSWER)
        made[length] = str(chat.id)
    for number in range(size.chats):
        async with ledger.for_owner("local").turn(f"Chat {number}") as turn:
            turn.emit("Yes.")
    await ledger.close()
    return made


def interactive(browser: Browser, url: str, chat: str) -> tuple[float, float]:
    """Return the milliseconds until a fresh profile saw something, and until it could write behind the last
    turn."""
    context = browser.new_context()
    context.add_init_script(READY)
    page = context.new_page()
    page.goto(f"{url}/#{chat}")
    painted, ready = page.evaluate(WHEN_READY)
    context.close()
    return painted, ready


def opening(page: Page, url: str, chats: dict[int, str], size: Size, rounds: int) -> tuple[float, float]:
    """Return the milliseconds until the end of the long chat is shown, and of the short one, alternately. The
    page is reloaded before each, so that nothing is cached."""
    took: dict[int, list[float]] = {size.long: [], size.short: []}
    for _ in range(rounds):
        for length, times in took.items():
            page.goto("about:blank")
            page.goto(f"{url}/#new")
            page.wait_for_selector("textarea:enabled")
            times.append(page.evaluate(OPENED, [chats[length], f"Question {length} of {length}"]))
    return median(took[size.long]), median(took[size.short])


def frames_of(page: Page) -> Frames:
    page.evaluate("window.frames_.isOn = false")
    recorded = page.evaluate("window.frames_")
    times = sorted(recorded["times"]) or [0.0]
    p95 = times[int(len(times) * 0.95)]
    return Frames(recorded["count"], recorded["longest"], recorded["over"], recorded["tasks"], p95)


def streamed(page: Page, url: str, chat: str, turns: int) -> Frames:
    """Return the frames of the page while the answer arrives."""
    page.goto(f"{url}/#{chat}")
    page.wait_for_selector("[data-turn]")
    while (count := page.locator("[data-turn]").count()) < turns:
        page.locator("[data-turn]").first.scroll_into_view_if_needed()
        page.evaluate(WHEN_MORE, count)
    page.locator("[data-turn]").last.scroll_into_view_if_needed()
    page.locator("textarea").first.fill("Tell me everything")
    page.evaluate(FRAMES)
    page.keyboard.press("Enter")
    page.evaluate(WHEN_MORE, count)
    return frames_of(page)


def scrolled(page: Page, url: str, chat: str, size: Size) -> tuple[Frames, Frames, int]:
    """Return the frames while the list of chats is scrolled down, those while the thread is scrolled up, and
    how many turns it then holds."""
    page.goto("about:blank")
    page.goto(f"{url}/#{chat}")
    page.wait_for_selector("[data-turn]")
    page.wait_for_selector(".lines .line-main")
    page.evaluate(FRAMES)
    page.evaluate(SCROLLED, [".lines", max(1, size.chats * 36 // size.frames), size.frames])
    listed = frames_of(page)
    page.evaluate(FRAMES)
    turns = page.evaluate(SCROLLED, [".thread", -400, size.frames])
    return listed, frames_of(page), turns


async def fill_texts(store: str, names: list[str]) -> dict[str, str]:
    """Create a chat for each of these texts; return the chats by name."""
    ledger = await Ledger.open(store)
    made = {}
    for name in names:
        chat = await ledger.for_owner("local").conversation(title=name)
        async with chat.turn("Tell me") as turn:
            turn.emit(f"{TEXTS[name]}\n\n{END}")
        made[name] = str(chat.id)
    await ledger.close()
    return made


def measure_texts(browser: Browser, url: str, chats: dict[str, str]) -> None:
    """Open each chat in a fresh page."""
    for name, chat in chats.items():
        context = browser.new_context()
        context.add_init_script(f"({FRAMES})()")
        page = context.new_page()
        page.goto(f"{url}/#{chat}")
        page.evaluate(WHEN_SHOWN, [END])
        frames = frames_of(page)
        devtools = context.new_cdp_session(page)
        devtools.send("HeapProfiler.collectGarbage")
        heap = devtools.send("Runtime.getHeapUsage")["usedSize"] / 1e6
        show(f"{name}: longest frame, ms", frames.longest, MOST_TEXT_FRAME)
        show(f"{name}: heap, MB", heap, MOST_TEXT_MB)
        show(f"{name}: nodes", page.evaluate("document.querySelectorAll('*').length"))
        context.close()


def compressed_size() -> int:
    """Return the bytes that a first visit loads, compressed: neither formulas, nor another language, nor
    dialogs."""
    on_demand = re.compile(r"katex-|german-|(?:[a-z]+-)*dialog-")
    kinds = (".html", ".js", ".css", ".svg")
    files = [path for path in FOLDER.rglob("*") if path.suffix in kinds and not on_demand.match(path.name)]
    return sum(len(gzip.compress(path.read_bytes(), 9)) for path in files)


def empty(page: Page, url: str) -> Frames:
    """Return the frames of an empty page while a program reads the same answer."""
    page.goto("about:blank")
    page.evaluate(FRAMES)
    done = threading.Event()

    def read() -> None:
        body = json.dumps({"model": "m", "input": "Tell me everything", "stream": True}).encode()
        sent = Request(f"{url}/api/turns", body, {"content-type": "application/json"})
        with urlopen(sent) as answer:
            while answer.read1(65536):
                pass
        done.set()

    threading.Thread(target=read, daemon=True).start()
    while not done.is_set():
        page.wait_for_timeout(50)
    return frames_of(page)


def show(name: str, value: float, most: float | None = None) -> None:
    verdict = "" if most is None else f"{most:8g}  {'holds' if value <= most else 'MISSED'}"
    print(f"{name:66} {value:9.2f} {verdict}")


def measure(browser: Browser, url: str, chats: dict[int, str], size: Size, rounds: int) -> None:
    if rounds > 1:  # the first is slower than all others
        interactive(browser, url, chats[size.short])
    opened = [interactive(browser, url, chats[size.short]) for _ in range(rounds)]
    show("ms from navigation to first paint, p50", median(painted for painted, _ in opened))
    show(
        "ms from first paint to interactive, p50",
        median(max(0, ready - painted) for painted, ready in opened),
        MOST_INTERACTIVE,
    )
    show("ms from navigation to interactive, p50", median(ready for _, ready in opened))
    page = browser.new_page()
    long, short = opening(page, url, chats, size, rounds)
    show(f"ms to open {size.short} turns, p50", short)
    show(f"opening {size.long:,} turns, p50, of {size.short}", long / short, MOST_RATIO)
    floor = empty(page, url)
    show("longest frame of an empty page meanwhile, ms", floor.longest)
    frames = streamed(page, url, chats[size.thread], size.thread)
    show(f"frames while {size.chunks:,} chunks come into {size.thread} turns", frames.count)
    show("longest of them, ms", frames.longest, MOST_FRAME)
    show("those over 50 ms", frames.over, 0)
    show("those over 50 ms that the page itself was busy for", len(frames.busy), 0)
    listed, thread, turns = scrolled(page, url, chats[size.long], size)
    show(f"frames while {size.chats:,} chats are scrolled, p95, ms", listed.p95, MOST_FRAME)
    show("longest of them, ms", listed.longest)
    show(f"frames while {size.long:,} turns are scrolled upwards, p95, ms", thread.p95, MOST_FRAME)
    show("longest of them, ms", thread.longest)
    show("turns loaded meanwhile", turns)
    show("kB of a first visit, compressed", compressed_size() / 1000, MOST_KB)


def main() -> None:
    parser = argparse.ArgumentParser(prog="python -m bench.page", description=__doc__)
    parser.add_argument("--rounds", type=int, default=11)
    parser.add_argument("--texts", nargs="*", metavar="NAME", help="open these hostile texts instead, or all")
    parser.add_argument("--quick", action="store_true", help="small chats, one round, to see that it runs")
    options = parser.parse_args()
    size, rounds = (QUICK, 1) if options.quick else (Size(), options.rounds)
    if not is_built():
        parser.error("the page is not built; run `make page` first")
    chromium = os.environ.get("CHROMIUM") or shutil.which("chromium")
    with tempfile.TemporaryDirectory() as folder, model(size.chunks) as upstream, sync_playwright() as driver:
        config, store = Path(folder) / "turnledger.toml", f"sqlite:///{folder}/chats.db"
        config.write_text(f'[models.m]\nupstream = "{upstream}"\n')
        filled: dict[int, str] = {}
        texts: dict[str, str] = {}

        def fill_store() -> None:
            if options.texts is not None:
                texts.update(asyncio.run(fill_texts(store, options.texts or list(TEXTS))))
            else:
                filled.update(asyncio.run(fill(store, size)))

        # The driver has a loop of its own in this thread.
        filling = threading.Thread(target=fill_store)
        filling.start()
        filling.join()
        command = ("-m", "turnledger", "serve", "--port", "0", "--store", store, "--config", str(config))
        with started(*command, "--log-level", "warning") as server:
            browser = driver.chromium.launch(executable_path=chromium, chromium_sandbox=False)
            url = f"http://127.0.0.1:{server.port}"
            if options.texts is not None:
                measure_texts(browser, url, texts)
            else:
                measure(browser, url, filled, size, rounds)
            browser.close()


if __name__ == "__main__":
    main()
