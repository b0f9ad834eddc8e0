"""A list of chats to pick from: typing searches, the arrows choose, Enter opens."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable, Sequence

from prompt_toolkit.application import Application
from prompt_toolkit.buffer import Buffer
from prompt_toolkit.formatted_text import StyleAndTextTuples
from prompt_toolkit.key_binding import KeyBindings, KeyPressEvent
from prompt_toolkit.layout import BufferControl, FormattedTextControl, HSplit, Layout, Window
from prompt_toolkit.layout.processors import BeforeInput
from prompt_toolkit.styles import Style
from prompt_toolkit.utils import get_cwidth

from turnledger.api.chats import ChatInfo
from turnledger.cli.chat.prompt import fit_line, truncate
from turnledger.cli.chat.turn_view import age_of
from turnledger.cli.output.sanitize import sanitize, sanitize_line
from turnledger.errors import TurnledgerError

Search = Callable[[str, int], Awaitable[Sequence[ChatInfo]]]

MAX_ROWS = 12
PAGE = 50
"""Chats fetched at first; reaching the last one fetches as many more."""
MAX_CHATS = 1_000
"""Chats that a user can scroll through; a search finds the others."""
SEARCH_DELAY = 0.12
"""Seconds without a key before the search starts."""
STYLE = Style.from_dict(
    {
        "dim": "dim",
        "chosen": "reverse",
        "mark": "bold underline",
        "hint": "dim",
    }
)


class Picker:
    """Lets the user pick a chat. Used once."""

    def __init__(self, search: Search, words: str, now: Callable[[], float]) -> None:
        self._search = search
        self._now = now
        self._chats: Sequence[ChatInfo] = ()
        self._selected = 0
        self._limit = PAGE
        self._results_query: str | None = None  # the search text of the current list
        self._is_confirmed = False
        self._hint = "searching…"
        self._search_task: asyncio.Task[None] | None = None
        self._words = Buffer(multiline=False, on_text_changed=self._on_text_changed)
        self._words.text = words
        self._words.cursor_position = len(words)
        self._application = self._make_application()

    async def pick(self) -> ChatInfo | None:
        self._start_search(0)
        try:
            return await self._application.run_async(handle_sigint=False)
        finally:
            if self._search_task is not None:
                self._search_task.cancel()

    def _make_application(self) -> Application[ChatInfo | None]:
        field = Window(BufferControl(self._words, [BeforeInput("Search: ", "class:dim")]), height=1)
        rows = Window(FormattedTextControl(self._rows), height=self._height, dont_extend_height=True)
        hint = Window(FormattedTextControl(lambda: [("class:hint", self._hint_line())]), height=1)
        application: Application[ChatInfo | None] = Application(
            Layout(HSplit([field, rows, hint]), field),
            key_bindings=self._bindings(),
            style=STYLE,
            erase_when_done=True,
        )
        application.ttimeoutlen = 0.05
        return application

    def _columns(self) -> int:
        return self._application.output.get_size().columns

    def _height(self) -> int:
        room = max(1, min(MAX_ROWS, self._application.output.get_size().rows - 3))
        return max(1, min(room, self._lines_per_chat() * len(self._chats)))

    def _lines_per_chat(self) -> int:
        return 2 if any(chat.snippet for chat in self._chats) else 1

    def _hint_line(self) -> str:
        return fit_line(self._hint or "Type to search, Enter opens, Esc cancels", self._columns() - 1)

    def _rows(self) -> StyleAndTextTuples:
        fragments: StyleAndTextTuples = []
        room = max(1, self._height() // self._lines_per_chat())
        first = max(0, self._selected - room + 1)
        for index, chat in list(enumerate(self._chats))[first : first + room]:
            fragments += self._row(chat, is_selected=index == self._selected)
        return fragments[:-1]

    def _row(self, chat: ChatInfo, *, is_selected: bool) -> StyleAndTextTuples:
        age = age_of(chat.touched_at, self._now())
        marks = [*(["pinned"] if chat.pinned else []), *(["running"] if chat.is_running else [])]
        details = f"  {', '.join([*marks, age])}"
        columns = self._columns() - 3
        details = details if columns > 40 else ""
        title = fit_line(title_of(chat), columns - len(details))
        row: StyleAndTextTuples = [
            ("class:chosen" if is_selected else "", f"{'›' if is_selected else ' '} {title}"),
            ("class:dim", details),
            ("", "\n"),
        ]
        if self._lines_per_chat() == 2:
            row += [("", "    "), *_highlight(chat, columns - 4), ("", "\n")]
        return row

    def _bindings(self) -> KeyBindings:
        bindings = KeyBindings()

        def move(by: int) -> Callable[[KeyPressEvent], None]:
            def on_key(event: KeyPressEvent) -> None:
                self._selected = max(0, min(len(self._chats) - 1, self._selected + by))
                if by > 0 and self._is_at_end and not self._is_searching:
                    self._limit += PAGE
                    self._start_search(0)

            return on_key

        for names, by in ((("up", "c-p"), -1), (("down", "c-n", "tab"), 1)):
            for name in names:
                bindings.add(name)(move(by))
        bindings.add("pageup")(move(-MAX_ROWS + 1))
        bindings.add("pagedown")(move(MAX_ROWS - 1))

        @bindings.add("enter")
        def _(event: KeyPressEvent) -> None:
            # A fast typist means the coming results, not those still shown.
            self._is_confirmed = self._results_query != self._words.text
            if not self._is_confirmed and self._selected < len(self._chats):
                event.app.exit(result=self._chats[self._selected])

        @bindings.add("escape", eager=True)
        @bindings.add("c-c")
        @bindings.add("c-d")
        def _(event: KeyPressEvent) -> None:
            event.app.exit(result=None)

        return bindings

    @property
    def _is_at_end(self) -> bool:
        """Whether the last one is near, and there may be more."""
        return len(self._chats) >= self._limit < MAX_CHATS and self._selected >= len(self._chats) - MAX_ROWS

    @property
    def _is_searching(self) -> bool:
        return self._search_task is not None and not self._search_task.done()

    def _on_text_changed(self, buffer: Buffer) -> None:
        if self._search_task is not None:  # otherwise it is not shown yet
            self._limit, self._selected = PAGE, 0
            self._start_search(SEARCH_DELAY)

    def _start_search(self, pause: float) -> None:
        if self._search_task is not None:
            self._search_task.cancel()
        self._search_task = asyncio.create_task(self._find(self._words.text, pause), name="turnledger search")

    async def _find(self, words: str, pause: float) -> None:
        await asyncio.sleep(pause)
        try:
            self._chats = await self._search(words, self._limit)
            self._hint = "" if self._chats else "No chats found." if words else "There are no chats yet."
        except TurnledgerError as problem:
            self._hint = f"{problem.code}: {sanitize_line(str(problem))}"
        self._results_query = words
        self._selected = max(0, min(len(self._chats) - 1, self._selected))
        if self._is_confirmed and self._chats:
            self._application.exit(result=self._chats[self._selected])
        self._is_confirmed = False
        self._application.invalidate()


def title_of(chat: ChatInfo) -> str:
    return sanitize_line(chat.title or chat.preview or "(empty chat)")


def _highlight(chat: ChatInfo, columns: int) -> StyleAndTextTuples:
    """Return the found passage on one line, with the matches marked."""
    pieces: list[tuple[str, str]] = []
    end = 0
    for start, stop in (*chat.marks, (len(chat.snippet), len(chat.snippet))):
        pieces += [("class:dim", chat.snippet[end:start]), ("class:mark", chat.snippet[start:stop])]
        end = stop
    fragments: StyleAndTextTuples = []
    for style, text in pieces:
        kept = truncate(sanitize(text), columns)
        fragments.append((style, kept))
        columns -= get_cwidth(kept)
    return fragments
