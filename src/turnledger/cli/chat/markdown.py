"""Markdown on a terminal: the blocks of an answer, each rendered by itself, so that finished ones stay.

The text is not trusted. Parsing produces new characters, from entities and in addresses, so the result is
sanitized again. HTML is shown as text, links are written out, and nothing is left out.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from typing import ClassVar

from markdown_it import MarkdownIt
from markdown_it.token import Token
from msgspec import Struct
from rich import markdown as rich_markdown
from rich.console import Console, ConsoleOptions, JustifyMethod, RenderResult
from rich.segment import Segment
from rich.syntax import Syntax
from rich.text import Text
from rich.theme import Theme

from turnledger.cli.output.sanitize import sanitize, sanitize_line

THEME = Theme(
    {
        "markdown.h1": "bold underline",
        "markdown.h2": "bold",
        "markdown.h3": "bold",
        "markdown.h4": "bold italic",
        "markdown.h5": "italic",
        "markdown.h6": "italic",
        "markdown.code": "cyan",
        "markdown.item.bullet": "dim",
        "markdown.item.number": "dim",
        "markdown.block_quote": "italic",
        "markdown.link": "underline",
        "markdown.link_url": "dim",
        "markdown.hr": "dim",
        "markdown.table.border": "dim",
        "markdown.table.header": "bold",
    }
)
MAX_BLOCK = 16 * 1024
"""Characters of a block that is parsed as Markdown; a larger one is shown as plain text."""
MIN_TEXT_WIDTH = 16
"""Columns that lists and quotes must leave for text."""
MAX_INDENT = 5
"""Most columns that a list or a quote takes."""

MAX_DEPTH = 18
"""Depth of nested lists and quotes that are rendered."""

_LISTS = ("bullet_list_open", "ordered_list_open")

parser = MarkdownIt("commonmark", {"html": False}).enable(["strikethrough", "table"])
parser.disable("reference")  # otherwise a line that defines an address is not shown
splitter = MarkdownIt("commonmark", {"html": False}).enable("table").disable(["reference", "inline"])
"""Finds the same blocks without parsing their contents, which would take most of the time."""


class MarkdownBlock(Struct, frozen=True):
    """A part of an answer that is rendered by itself: a paragraph, an item of a list, a piece of code."""

    text: str
    joins: bool = False
    """Whether no empty line separates it from the one before."""
    is_item: bool = False
    opens: bool = True
    """False for code that continues the previous block."""
    closes: bool = True
    """False for code that continues in the next block."""


class Markdown(rich_markdown.Markdown):
    elements: ClassVar[dict[str, type[rich_markdown.MarkdownElement]]]

    def __init__(self, block: MarkdownBlock, *, code_theme: str) -> None:
        super().__init__("", code_theme=code_theme, hyperlinks=False)
        self.block = block
        self._text = sanitize(block.text)
        if len(self._text) <= MAX_BLOCK:
            self.parsed = list(_sanitize_tokens(parser.parse(self._text)))

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        deepest = max((token.level for token in self.parsed), default=0)
        is_wide = options.max_width - MAX_INDENT * deepest // 2 >= MIN_TEXT_WIDTH
        # The parser drops what is nested deeper than its limit.
        if len(self._text) > MAX_BLOCK or not is_wide or deepest >= MAX_DEPTH:
            yield Text(self._text.strip("\n"))
            return
        yield from super().__rich_console__(console, options)


class _Code(rich_markdown.CodeBlock):
    """Code between its fences: readable without colours, and without borders that would be copied."""

    @classmethod
    def create(cls, markdown: rich_markdown.Markdown, token: Token) -> _Code:
        element = cls(token.info.partition(" ")[0] or "text", markdown.code_theme)
        element.block = markdown.block if isinstance(markdown, Markdown) else MarkdownBlock("")
        element.info = token.info
        return element

    block: MarkdownBlock
    info: str

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        style = console.get_style("markdown.hr")
        if self.block.opens:
            yield Text(f"```{self.info}", style)
        code = str(self.text).removesuffix("\n")
        yield Syntax(code, self.lexer_name, theme=self.theme, word_wrap=True, background_color="default")
        if self.block.closes:
            yield Text("```", style)


class _Heading(rich_markdown.Heading):
    LEVEL_ALIGN: ClassVar[dict[str, JustifyMethod]] = {}


class _Rule(rich_markdown.HorizontalRule):
    def __rich_console__(self, console: Console, options: ConsoleOptions) -> RenderResult:
        yield Text("─" * min(options.max_width, 40), console.get_style("markdown.hr"))


class _Item(rich_markdown.ListItem):
    """Has the same indentation whatever follows, which may not be known yet."""

    def render_bullet(self, console: Console, options: ConsoleOptions) -> RenderResult:
        return self._render_marked(" • ", "markdown.item.bullet", console, options)

    def render_number(
        self, console: Console, options: ConsoleOptions, number: int, last_number: int
    ) -> RenderResult:
        return self._render_marked(f"{number}. ".rjust(4), "markdown.item.number", console, options)

    def _render_marked(
        self, mark: str, style: str, console: Console, options: ConsoleOptions
    ) -> RenderResult:
        room = options.update(width=max(1, options.max_width - len(mark)))
        first = mark
        for line in console.render_lines(self.elements, room, style=self.style, pad=False):
            yield Segment(first, console.get_style(style))
            yield from line
            yield Segment.line()
            first = " " * len(mark)


Markdown.elements = {
    **rich_markdown.Markdown.elements,
    "fence": _Code,
    "code_block": _Code,
    "heading_open": _Heading,
    "hr": _Rule,
    "list_item_open": _Item,
}


def blocks_of(text: str) -> list[MarkdownBlock]:
    """Return the blocks of a text. Each item of a list is one, so that long lists need not be held."""
    lines, starts = text.split("\n"), list(_block_starts(splitter.parse(text)))
    if not starts:
        return []
    ends = [line for line, *_ in starts[1:]] + [len(lines)]
    start, blocks = 0, []
    for (_, is_item, joins), end in zip(starts, ends, strict=True):
        blocks.append(MarkdownBlock("\n".join(lines[start:end]), joins=joins, is_item=is_item))
        start = end
    return blocks


def _block_starts(tokens: Iterable[Token]) -> Iterator[tuple[int, bool, bool]]:
    """Yield the first line of each block, whether it is an item of a list, and whether not the first."""
    is_first = True
    for token in tokens:
        if token.level == 0 and token.nesting >= 0:
            is_first = True
        if token.map is None or token.nesting < 0:
            continue
        is_item = token.level == 1 and token.type == "list_item_open"
        if is_item or (token.level == 0 and token.type not in _LISTS):
            yield token.map[0], is_item, is_item and not is_first
            is_first = False


def _sanitize_tokens(tokens: Iterable[Token]) -> Iterator[Token]:
    for token in tokens:
        token.content = sanitize(token.content)
        token.info = sanitize_line(token.info)
        token.attrs = {
            name: sanitize_line(value) if isinstance(value, str) else value
            for name, value in token.attrs.items()
        }
        if token.type == "softbreak":
            token.type = "hardbreak"  # line breaks in a chat are meant
        if token.type == "image":
            yield _text(f"[{token.content or 'image'}] ({token.attrs.get('src', '')})")
            continue
        if token.children:
            token.children = list(_drop_bare_addresses(list(_sanitize_tokens(token.children))))
        yield token


def _drop_bare_addresses(tokens: list[Token]) -> Iterator[Token]:
    """Leave out the address of a link whose text is its address."""
    bare = False
    for index, token in enumerate(tokens):
        if token.type == "link_open":
            link_text = tokens[index + 1].content if index + 1 < len(tokens) else ""
            bare = link_text.removeprefix("mailto:") == str(token.attrs.get("href", "")).removeprefix(
                "mailto:"
            )
        if not (bare and token.type in ("link_open", "link_close")):
            yield token


def _text(content: str) -> Token:
    return Token("text", "", 0, content=content)
