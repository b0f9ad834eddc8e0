"""Hostile text has no effect, and the sanitiser in a real browser keeps allowed HTML only."""

from __future__ import annotations

import itertools
import json
import os
import re
import subprocess
from collections.abc import Iterator
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect

from bench.hostile_texts import TEXTS
from tests.long_form import long_only, sample
from tests.node_packages import built
from tests.web.page_server import PageServer, Person, Profile
from tests.web.thread import import_chat, message_item, messages, send
from tests.web.watched_page import END, WatchedPage
from tools.node_package import PAGE
from turnledger.testing.upstream import Status

HTML = [
    "<script>owned('script')</script>",
    "<img src=x onerror=owned('img')>",
    "<img src=x onerror\n=\nowned('img')>",
    "<svg onload=owned('svg')></svg>",
    "<svg><script>owned('svg script')</script></svg>",
    "<iframe src=javascript:owned('iframe')></iframe>",
    '<iframe srcdoc="<script>parent.owned(1)</script>"></iframe>',
    "<math><mtext><table><mglyph><style><!--</style><img title=\"--&gt;&lt;img src onerror=owned('m')&gt;\">",
    "<form><math><mtext></form><form><mglyph><style></math><img src onerror=owned('m2')>",
    "<svg></p><style><a id=\"</style><img src=1 onerror=owned('m3')>\">",
    '<noscript><p title="</noscript><img src=x onerror=owned(4)>">',
    "<select><template><img src=x onerror=owned('t')></template></select>",
    "<body onload=owned('body')>",
    "<details open ontoggle=owned('details')>",
    "<input autofocus onfocus=owned('focus')>",
    "<video><source onerror=owned('video')></video>",
    "<object data=javascript:owned('object')></object>",
    "<embed src=javascript:owned('embed')>",
    "<base href=https://elsewhere.example/>",
    "<link rel=stylesheet href=https://elsewhere.example/a.css>",
    "<link rel=prefetch href=https://elsewhere.example/p>",
    "<link rel=dns-prefetch href=//elsewhere.example>",
    "<meta http-equiv=refresh content='0;url=https://elsewhere.example/'>",
    "<style>* { background: url(https://elsewhere.example/s) }</style>",
    "<p style='background: url(https://elsewhere.example/p)'>styled</p>",
    "<form id=page action=https://elsewhere.example><input name=attributes><button>x</button></form>",
    "<a id=page name=cookie href='cid:owned'>clobbering</a>",
    "<!--><img src=x onerror=owned('comment')>-->",
    "<![CDATA[<img src=x onerror=owned('cdata')>]]>",
    "<?php <img src=x onerror=owned('pi')> ?>",
    "<x/onpointerenter=owned('x') style=position:fixed;inset:0>",
    "<a href=\"javascript:owned('a')\">a</a>",
]

LINKS = [
    "javascript:owned(1)",
    "JaVaScRiPt:owned(2)",
    "java\tscript:owned(3)",
    " javascript:owned(4)",
    "\x01javascript:owned(5)",
    "javascript&colon;owned(6)",
    "javascript&#58;owned(7)",
    "&#106;avascript:owned(8)",
    "&#x6A&#x61vascript:owned(9)",
    "java&Tab;script:owned(10)",
    "java&NewLine;script:owned(11)",
    "javascript%3Aowned(12)",
    "vbscript:owned(13)",
    "data:text/html,<script>owned(14)</script>",
    "data:text/html;base64,PHNjcmlwdD5vd25lZCgxNSk8L3NjcmlwdD4=",
    "data:image/svg+xml,<svg onload=owned(16)>",
    "blob:https://elsewhere.example/17",
    "file:///etc/passwd",
    "#new",
    "#conv_x",
    "/api/chats",
    "//elsewhere.example/18",
    "\\\\elsewhere.example\\19",
    "https:elsewhere",
    "view-source:https://elsewhere.example",
    "feed:javascript:owned(20)",
    "jar:javascript:owned(21)!",
    "x-javascript:owned(22)",
    "javascript://elsewhere.example/%0Aowned(23)",
    "java\\script:owned(24)",
]

LOADING = [
    "![a](https://elsewhere.example/a.png)",
    "![a](//elsewhere.example/b.png)",
    "![a](/picture)",
    "![a](\"onerror=owned('x') https://elsewhere.example/c)",
    '![a" onerror="owned(1)](https://elsewhere.example/d "t" onerror="owned(2)")',
    "![a](javascript:owned(3))",
    "![a](data:image/svg+xml;base64,PHN2ZyBvbmxvYWQ9b3duZWQoNCk+)",
    "![a](data:text/html;base64,PHNjcmlwdD5vd25lZCg1KTwvc2NyaXB0Pg==)",
    "![a][r]\n\n[r]: https://elsewhere.example/r.png 'onload=owned(6)'",
    "[![a](https://elsewhere.example/e.png)](https://elsewhere.example/f)",
    "[a]: https://elsewhere.example/never",
    '```"><img src=x onerror=owned(7)>\ncode\n```',
    '```js" onmouseover="owned(8)\ncode\n```',
    '- ```html"><img src=x onerror=owned(9)>\n  code\n  ```',
    '| a |\n|:-:" onclick="owned(10)|\n| <img src=x onerror=owned(11)> |',
    '1000000000000" onclick="owned(12). a',
    '<https://elsewhere.example/"onmouseover="owned(13)>',
    '[x](https://elsewhere.example/"onmouseover="owned(14) "&quot;onclick=owned(15)")',
    "[<img src=x onerror=owned(16)>](https://elsewhere.example)",
    "`<img src=x onerror=owned(17)>`",
    "&lt;img src=x onerror=owned(18)&gt;",
    "&#60;img src=x onerror=owned(19)&#62;",
    "\\<img src=x onerror=owned(20)>",
]

TURNING = set("\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069")

MODELS = {"object": "list", "data": [{"id": "scripted"}, {"id": "one \u202ereh"}, {"id": "one \u202emih"}]}


def as_links(address: str) -> str:
    return f"[in line]({address}) [pointed](<{address}>) <{address}> {address} [named]\n\n[named]: {address}"


GIVEN = {
    "html": "\n\n".join(HTML),
    "html in lines": "\n".join(f"- {each} **b** {each}" for each in HTML),
    "links": "\n\n---\n\n".join(as_links(each) for each in LINKS),
    "loading": "\n\n".join(LOADING),
}


def test_hostile_text_is_shown_as_text_without_side_effects(profile: Profile, person: Person) -> None:
    watched = WatchedPage(profile, person)
    shown = watched.show_texts(*GIVEN.values(), "\n\n".join(f"[words](<{each}>)" for each in LINKS))
    for place in shown.locator("a").all():
        place.hover()
    watched.expect_unharmed()
    for each in ("<script>owned('script')</script>", "<img src=x onerror=owned('img')>", "<!--><img src=x"):
        expect(shown.first).to_contain_text(each)
    # What leads nowhere is no link; https:elsewhere is a place.
    expect(shown.last.get_by_text("words").first).to_be_visible()
    expect(shown.last.get_by_role("link", name="words")).to_have_count(1)


@long_only
def test_hostile_text_has_no_side_effects_while_streaming(profile: Profile, person: Person) -> None:
    watched = WatchedPage(profile, person)
    for before, (piece, text) in enumerate(itertools.product((1, 7), GIVEN.values())):
        watched.stream(*(text[at : at + piece] for at in range(0, len(text), piece)), before=before)
        watched.expect_unharmed()


TWISTED = {
    "a token of a million letters": "x" * 1_000_000,
    "a million digits in code": f"```json\n{'1' * 1_000_000}\n```",
    "deep quotations": ">" * 10_000 + " deep",
    "deep quotations with spaces": "> " * 10_000 + "deep",
    "deep lists": "- " * 10_000 + "deep",
    "deep lists, line by line": "\n".join("  " * depth + "- a" for depth in range(600)),
    "deep emphases": "*a _b " * 5_000 + "_ *" * 5_000,
    "emphases that never end": "*a_" * 30_000,
    "strong ones": "**a " * 5_000 + "a** " * 5_000,
    "brackets": "[" * 50_000,
    "brackets that end": "[" * 10_000 + "]" * 10_000,
    "links in links": "[a" * 5_000 + "](b)" * 5_000,
    "images in images": "![" * 5_000 + "](b)" * 5_000,
    "ticks": " ".join("`" * length for length in range(300)),
    "pipes": f"{'|' * 10_000}\n{'-|' * 10_000}\n{'|' * 10_000}",
    "underlines in a word": "a_" * 9_000,
    "exclamations": "!" * 19_000,
    "letters that only machines see": "\U000e0041" * 50_000,
    "code that starts": "`" * 19_000,
    "rules of tables": "-|" * 9_000 + "\n" + "-|" * 9_000,
    "backslashes": "\\" * 50_000,
    "references": "[a]: b\n" * 3_000 + "[a]" * 3_000,
    "definitions without end": f'[a]: b "{chr(10).join("x" for _ in range(20_000))}',
    "underlines": "a\n-" * 10_000,
    "pointed": "<" * 50_000,
    "addresses": "http://" * 5_000 + "www." * 5_000 + "a@" * 5_000,
    "spaces": " " * 100_000 + "x" + "\t" * 100_000,
    "empty lines": "\n" * 100_000,
    "marks on a letter": "a" + "\u0301" * 50_000,
    "strings that never end": "```js\n" + "'`${" * 4_000 + "\n```",
    "markup that never ends": "```html\n" + "<a b='" * 3_000 + "\n```",
    "markdown in markdown": "````md\n" + "[a](b *_`" * 2_000 + "\n````",
    "a slow style": "```css\n" + "a:a " * 4_000 + "\n```",
    "a slow shell": "```bash\n" + "$((" * 5_000 + "\n```",
    "formulas": "$x$ " * 4_900,
    "formulas that never end": "\\(" * 5_000 + "\n\n" + "$$ x " * 2_000 + "\n\n\\]",
    "formulas in formulas": "$$" + "{" * 900 + "x" + "}" * 900 + "$$\n\n$" + "\\sqrt{" * 35 + "}" * 35 + "$",
    "formulas that grow": "$$\\def\\a{xx}\\def\\b{\\a\\a}\\b$$ " + f"$${'x_1+' * 480}$$\n\n" * 12,
    "formulas that move": "$\\rule{9em}{99em}\\raisebox{-99em}{x}\\kern-99em\\hspace{999em}\\Huge y$ " * 90,
}


def in_chats() -> Iterator[list[str]]:
    """The names of those that a chat shows when it is opened: there are bounds for their number and size."""
    chat: list[str] = []
    size = 0
    for name, text in TWISTED.items():
        size += len(json.dumps(text))
        if len(chat) == 10 or (chat and size > 700_000):
            yield chat
            chat, size = [], len(json.dumps(text))
        chat.append(name)
    yield chat


@pytest.mark.parametrize("names", sample(list(in_chats()), 1), ids=lambda names: f"{names[0]} to {names[-1]}")
def test_pathological_text_neither_freezes_the_page_nor_overflows_the_thread(
    names: list[str], profile: Profile, person: Person
) -> None:
    watched = WatchedPage(profile, person)
    watched.show_texts(*(TWISTED[name] for name in names))
    watched.expect_unharmed()
    wide = "document.querySelector('.thread').scrollWidth - document.querySelector('.thread').clientWidth"
    assert watched.page.evaluate(wide) <= 0


@long_only
def test_endless_word_in_a_stream_keeps_the_page_responsive(profile: Profile, person: Person) -> None:
    watched = WatchedPage(profile, person)
    shown = watched.stream(*["x" * 5_000] * 100)
    watched.expect_unharmed()
    shown.get_by_role("button", name="Show all 500,000 characters").click()
    expect(shown.get_by_role("button", name="Show all")).to_have_count(0)
    expect(shown).to_contain_text("x" * 1_000)
    watched.expect_unharmed()


@long_only
def test_long_code_unfolds_on_request_and_long_text_is_shown_to_its_end(
    profile: Profile, person: Person
) -> None:
    code = "```\n" + "a line\n" * 10_000 + "the last line\n```"
    # Long texts are shown over several frames: what is behind them must not come before.
    shown = WatchedPage(profile, person).show_texts(
        code, "\n\n".join(f"{number} " + "*a_" * 190 for number in range(100))
    )
    expect(shown.first).not_to_contain_text("the last line")
    shown.first.get_by_role("button", name="Show all 70,013 characters").click()
    expect(shown.first).to_contain_text("the last line")
    expect(shown.last.locator(":scope > *")).to_have_count(101)
    expect(shown.last.locator(":scope > *").last).to_have_text(END)


TURNS_ROUND = """\
Words \u202eturned\u202c and &#x2066;isolated&#x2069;, [a \u202elink](https://a.example).

`a\u202eb`

```py
if x: #\u2066 ok\u2069
    a\u200bb = 1
```"""

PRETENDS = {
    "[https://bank.example/login](https://thief.example/a)": "https://bank.example/login (thief.example)",
    "[bank.example](https://bank.example.thief.example)": "bank.example (bank.example.thief.example)",
    "[www.bank.example](https://bank.example/x)": "www.bank.example",
    "[Sign in](https://bank.example@thief.example/)": "Sign in (thief.example)",
    "[you@bank.example](mailto:me@thief.example)": "you@bank.example (me@thief.example)",
    "[ba\u200bnk.example](https://thief.example)": "ba\u200bnk.example (thief.example)",
    "[see here](https://fine.example 'https://bank.example')": "see here",
}


def test_bidi_controls_and_misleading_links_are_exposed(profile: Profile, person: Person) -> None:
    """Bidi controls are visible in code and removed elsewhere; a misleading link shows its target."""
    both = WatchedPage(profile, person).show_texts(TURNS_ROUND, "\n\n".join(PRETENDS))
    shown = both.first
    for letter in TURNING:
        expect(shown).not_to_contain_text(letter)
    expect(shown).to_contain_text("Words turned and isolated, a link.")
    expect(shown.locator("p > code")).to_have_text("a⟨U+202E⟩b")
    expect(shown.locator("pre")).to_contain_text("#⟨U+2066⟩ ok⟨U+2069⟩")
    expect(shown.locator("pre")).to_contain_text("a⟨U+200B⟩b")
    links = both.last.get_by_role("link")
    assert links.all_inner_texts() == list(PRETENDS.values())
    assert links.last.get_attribute("title") == "https://bank.example (fine.example)"
    assert links.last.get_attribute("target") == "_blank"
    assert links.last.get_attribute("rel") == "noopener noreferrer nofollow"


NAME = "a\u202eb\u2067c<img src=x onerror=owned('name')>"

TURNED = """() => {
  const turning = /[\\u202a-\\u202e\\u2066-\\u2069]/;
  const found = turning.test(document.title) ? ["the title of the document"] : [];
  for (const each of document.querySelectorAll("body *")) {
    const words = [...each.childNodes].filter(node => node instanceof Text).map(({data}) => data);
    const texts = [...words, ...[...each.attributes].map(({value}) => value)];
    if (texts.some(text => turning.test(text))) found.push(each.className);
  }
  return found;
}"""


def hostile_turns() -> list[dict[str, Any]]:
    """Turns of programs that name everything as they like, and of tools that give back whatever they like."""
    call = {"type": "function_call", "call_id": "c", "name": NAME * 20, "arguments": json.dumps({NAME: NAME})}
    result = {"type": "function_call_output", "call_id": "c", "output": [None, {"type": ["file"]}]}
    lost = {"type": "function_call", "call_id": "d", "name": "f", "arguments": "{}"}
    given = {"type": "function_call_output", "call_id": "d", "output": f"Not started: {NAME}"}
    thought = {"type": "reasoning", "summary": [None, {"type": "summary_text", "text": NAME}]}
    output = [
        thought,
        call,
        result,
        lost,
        given,
        {"type": NAME, "x": NAME},
        message_item("needle", "assistant"),
    ]
    note = {"type": "message", "role": "developer", "content": [{"type": "input_text", "text": NAME}]}
    details = {"model": NAME, "usage": {"total_tokens": NAME}}
    return [
        {"input": [note, message_item(f"Look for the needle {NAME}")], "output": output, "details": details}
    ]


@long_only
def test_hostile_names_break_no_layout_or_direction_and_copying_keeps_the_original(
    page_server: PageServer, profile: Profile
) -> None:
    """A copied message has its original text."""
    person = page_server.person(owner=f"{NAME} of test_hostile")
    watched = WatchedPage(profile, person)
    page = watched.page
    page.context.grant_permissions(["clipboard-read", "clipboard-write"])
    page.route("**/v1/models", lambda route: route.fulfill(json=MODELS))
    chat = import_chat(person, hostile_turns(), title=NAME)
    person.fetch("POST", "/api/chats", {"scope": NAME})
    page.goto(f"{page_server.url}/?scope=#{chat}")
    expect(messages(page)).to_contain_text("Look for the needle abc<img")
    expect(page.locator("h1")).to_contain_text("abc<img")
    expect(page).to_have_title(re.compile("^abc<img"))
    expect(page.locator(".step-name").first).to_contain_text("abc<img")
    expect(page.locator(".usage")).to_contain_text("abc<img")
    expect(page.locator(".owner")).to_contain_text("abc<img")
    page.get_by_role("button", name="Copy message").click()
    expect(page.get_by_text("Copied")).to_be_attached()
    assert page.evaluate("navigator.clipboard.readText()") == f"Look for the needle {NAME}"
    for folded in page.locator("[data-turn] details > summary").all():
        folded.click()
    expect(page.get_by_role("log")).to_contain_text("Not started: a⟨U+202E⟩b")
    assert page.evaluate(TURNED) == []
    page.get_by_role("button", name="Model: scripted").click()
    expect(page.get_by_role("option")).to_have_text(["scripted", "one reh", "one mih"])
    assert page.evaluate(TURNED) == []
    page.keyboard.press("Escape")
    page.get_by_role("button", name="Scope: All").click()
    expect(page.get_by_role("menuitemradio", name="abc<img")).to_be_visible()
    assert page.evaluate(TURNED) == []
    page.keyboard.press("Escape")
    page.get_by_role("searchbox").fill("needle")
    expect(page.locator(".snippet")).to_contain_text("needle abc<img")
    assert page.evaluate(TURNED) == []
    page.get_by_role("searchbox").fill("")
    refusal = {"error": {"message": f"{NAME} is not allowed {'here' * 500}", "code": NAME}}
    page_server.model.add_script(Status(400, json.dumps(refusal).encode()))
    send(page, "Again")
    expect(page.get_by_role("group", name="Failed message")).to_contain_text(r"a\u202eb\u2067c<img")
    assert page.evaluate(TURNED) == []
    line = page.get_by_role("link", name="abc<img").first
    line.hover()
    page.get_by_role("button", name="Options for “abc<img").click()
    page.get_by_role("menuitem", name="Delete").click()
    page.get_by_role("menuitem", name="Delete?").click()
    expect(page.get_by_role("region", name="Notifications")).to_contain_text("('name')>”.")
    assert page.evaluate(TURNED) == []
    assert page.evaluate("document.documentElement.scrollWidth - innerWidth") <= 0
    watched.expect_unharmed()


BUILD = """
import { build } from "vite";
const lib = { entry: "test/markdown/in-browser.ts", formats: ["iife"], name: "hands", fileName: "hands" };
const into = { outDir: process.env.INTO, lib, copyPublicDir: false };
await build({ configFile: false, logLevel: "error", build: into });
"""

KEPT = [
    "<p>a <em>b</em> <strong>c</strong> <del>d</del> <code>e</code><br></p>",
    '<ol start="3"><li>a</li></ol>',
    '<table><thead><tr><th scope="col" align="right">a</th></tr></thead></table>',
    "<table><tbody><tr><td>b</td></tr></tbody></table>",
    '<a href="https://a.example" title="b">c</a>',
    '<a href="mailto:a@b.example">c</a>',
    '<span data-picture="https://a.example" data-alt="b"></span>',
    '<pre data-language="js">a</pre>',
]

GONE = [
    "<script>owned()</script>",
    "<p onclick=owned()>",
    "<img src=x onerror=owned()>",
    "<svg><a href=javascript:owned()></a><animate onbegin=owned()></svg>",
    "<math><mi href=javascript:owned()></mi></math>",
    "<iframe src=https://a.example></iframe>",
    "<form action=https://a.example><input name=x><button></button></form>",
    "<style>p {}</style>",
    "<p style='color: red' class=x>",
    "<p id=page name=body>",
    "<a href=javascript:owned()>",
    "<a href='java&Tab;script:owned()'>",
    "<a href=#new>",
    "<a href=/api/chats>",
    "<a href=//a.example>",
    "<link rel=prefetch href=https://a.example><base href=https://a.example>",
    "<p aria-label=x data-x=y role=alert>",
    "<template><img src=x onerror=owned()></template>",
    "<form><math><mtext></form><form><mglyph><style></math><img src onerror=owned()>",
    "<math><mtext><table><mglyph><style><!--</style><img title='--&gt;&lt;img src=1 onerror=owned()&gt;'>",
    "<svg></p><style><a id='</style><img src=1 onerror=owned()>'>",
    "<noscript><p title='</noscript><img src=x onerror=owned()>'></noscript>",
    "<svg><foreignobject><p><style><!--</style><img src=x onerror=owned()>--></style>",
    "<a xlink:href=javascript:owned()>",
    "<p is=x-x slot=y part=z popovertarget=w>",
    "<div><template shadowrootmode=open><script>owned()</script></template></div>",
]

SILENT = r"(?:[^<]|</?[pa]>)*"
"""What may be left of those: words, and what neither does anything nor leads anywhere."""


@pytest.fixture(scope="module")
def hands(browser: Browser, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Page]:
    """A page that has the sanitiser in its hands."""
    into = tmp_path_factory.mktemp("hands")
    command = ["node", "--input-type=module", "-e", BUILD]
    subprocess.run(command, cwd=built(PAGE), env=os.environ | {"INTO": str(into)}, check=True)
    context = browser.new_context()
    page = context.new_page()
    page.add_script_tag(path=into / "hands.iife.js")
    yield page
    context.close()


def test_sanitiser_keeps_allowed_html_and_removes_everything_else(hands: Page) -> None:
    left = {html: hands.evaluate("html => hands.left(html)", html) for html in (*KEPT, *GONE)}
    assert [html for html in KEPT if left[html] != html] == []
    assert [(html, left[html]) for html in GONE if not re.fullmatch(SILENT, left[html])] == []


@long_only
def test_streamed_markdown_in_a_real_browser_ends_equal_to_unstreamed_markdown(hands: Page) -> None:
    assert hands.evaluate("hands.differing()") == []


BOUNDS = {"nodes": 70_000, "atOnce": 12_000, "formulas": 500, "calls": 2_500_000}
"""Of a text of 30 kB. Calls of functions stand for time: their number is the same in each run."""


def test_hostile_texts_of_30_kb_stay_within_bounds_of_nodes_formulas_and_work(hands: Page) -> None:
    devtools = hands.context.new_cdp_session(hands)
    devtools.send("Profiler.enable")
    devtools.send("Profiler.startPreciseCoverage", {"callCount": True, "detailed": False})
    beyond = {}
    for name, text in sample([*TEXTS.items()], 20):
        devtools.send("Profiler.takePreciseCoverage")
        made = hands.evaluate("text => hands.counts(text)", text)
        scripts = devtools.send("Profiler.takePreciseCoverage")["result"]
        made["calls"] = sum(each["ranges"][0]["count"] for script in scripts for each in script["functions"])
        if any(made[each] > most for each, most in BOUNDS.items()):
            beyond[name] = made
    devtools.detach()
    assert beyond == {}


def test_blocks_of_a_segment_are_sanitized_in_one_document(hands: Page) -> None:
    """A document costs more than a short block: hundreds of them made a frame of seconds."""
    hands.evaluate("""() => {
      const parse = DOMParser.prototype.parseFromString;
      window.documents = 0;
      DOMParser.prototype.parseFromString = function (...given) {
        window.documents += 1;
        return parse.apply(this, given);
      };
    }""")
    lists = hands.evaluate("text => hands.shown(text)", "- a\n+ a\n" * 100)
    assert lists == '<ul dir="auto"><li>a</li></ul>' * 200
    assert hands.evaluate("documents") == 1
