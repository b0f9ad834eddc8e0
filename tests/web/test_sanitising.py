"""The sanitiser by itself, in a real browser: HTML as no text can come to, and what is left of it."""

from __future__ import annotations

import os
import re
import subprocess
from collections.abc import Iterator

import pytest
from playwright.sync_api import Browser, Page

from tests.node_packages import built
from tools.node_package import PAGE

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


@pytest.mark.parametrize("html", KEPT)
def test_what_a_text_is_made_of_is_left(html: str, hands: Page) -> None:
    assert hands.evaluate("html => hands.left(html)", html) == html


@pytest.mark.parametrize("html", GONE)
def test_nothing_else_is_left(html: str, hands: Page) -> None:
    left = hands.evaluate("html => hands.left(html)", html)
    assert re.fullmatch(SILENT, left), left


def test_in_a_real_browser_texts_that_come_bit_by_bit_end_the_same_too(hands: Page) -> None:
    assert hands.evaluate("hands.differing()") == []
