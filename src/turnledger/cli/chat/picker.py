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

from turnledger.cli.chat.backend import SeenChat
from turnledger.cli.chat.prompt import fitted, within
from turnledger.cli.chat.sanitize import harmless, on_one_line
from turnledger.cli.chat.turn_view import age_of
from turnledger.errors import TurnledgerError

Search = Callable[[str, int], Awaitable[list[SeenChat]]]

MOST_ROWS = 12
PAGE = 50
"""Chats fetched at first; reaching the last one fetches as many more."""
MOST = 1_000
"""Chats that a user can scroll through; a search finds the others."""
TYPING = 0.12
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
        self._chats: Sequence[SeenChat] = ()
        self._chosen = 0
        self._wanted = PAGE
        self._found_by: str | None = None  # the search text of the current list
        self._is_entered = False
        self._hint = "looking…"
        self._looking: asyncio.Task[None] | None = None
        self._words = Buffer(multiline=False, on_text_changed=self._typed)
        self._words.text = words
        self._words.cursor_position = len(words)
        self._application = self._made()

    async def pick(self) -> SeenChat | None:
        self._look(0)
        try:
            return await self._application.run_async(handle_sigint=False)
        finally:
            if self._looking is not None:
                self._looking.cancel()

    def _made(self) -> Application[SeenChat | None]:
        field = Window(BufferControl(self._words, [BeforeInput("Search: ", "class:dim")]), height=1)
        rows = Window(FormattedTextControl(self._rows), height=self._height, dont_extend_height=True)
        hint = Window(FormattedTextControl(lambda: [("class:hint", self._hint_line())]), height=1)
        application: Application[SeenChat | None] = Application(
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
        room = max(1, min(MOST_ROWS, self._application.output.get_size().rows - 3))
        return max(1, min(room, self._lines_each() * len(self._chats)))

    def _lines_each(self) -> int:
        return 2 if any(chat.found for chat in self._chats) else 1

    def _hint_line(self) -> str:
        return fitted(self._hint or "Enter opens, Esc leaves, typing searches", self._columns() - 1)

    def _rows(self) -> StyleAndTextTuples:
        shown: StyleAndTextTuples = []
        room = max(1, self._height() // self._lines_each())
        first = max(0, self._chosen - room + 1)
        for place, chat in list(enumerate(self._chats))[first : first + room]:
            shown += self._row(chat, is_chosen=place == self._chosen)
        return shown[:-1]

    def _row(self, chat: SeenChat, *, is_chosen: bool) -> StyleAndTextTuples:
        age = age_of(chat.touched_at, self._now())
        marks = [*(["pinned"] if chat.is_pinned else []), *(["running"] if chat.is_running else [])]
        about = f"  {', '.join([*marks, age])}"
        columns = self._columns() - 3
        about = about if columns > 40 else ""
        title = fitted(title_of(chat), columns - len(about))
        row: StyleAndTextTuples = [
            ("class:chosen" if is_chosen else "", f"{'›' if is_chosen else ' '} {title}"),
            ("class:dim", about),
            ("", "\n"),
        ]
        if self._lines_each() == 2:
            row += [("", "    "), *_marked(chat, columns - 4), ("", "\n")]
        return row

    def _bindings(self) -> KeyBindings:
        bindings = KeyBindings()

        def move(by: int) -> Callable[[KeyPressEvent], None]:
            def moved(event: KeyPressEvent) -> None:
                self._chosen = max(0, min(len(self._chats) - 1, self._chosen + by))
                if by > 0 and self._is_at_end and not self._is_looking:
                    self._wanted += PAGE
                    self._look(0)

            return moved

        for names, by in ((("up", "c-p"), -1), (("down", "c-n", "tab"), 1)):
            for name in names:
                bindings.add(name)(move(by))
        bindings.add("pageup")(move(-MOST_ROWS + 1))
        bindings.add("pagedown")(move(MOST_ROWS - 1))

        @bindings.add("enter")
        def _(event: KeyPressEvent) -> None:
            # A fast typist means the coming results, not those still shown.
            self._is_entered = self._found_by != self._words.text
            if not self._is_entered and self._chosen < len(self._chats):
                event.app.exit(result=self._chats[self._chosen])

        @bindings.add("escape", eager=True)
        @bindings.add("c-c")
        @bindings.add("c-d")
        def _(event: KeyPressEvent) -> None:
            event.app.exit(result=None)

        return bindings

    @property
    def _is_at_end(self) -> bool:
        """Whether the last one is near, and there may be more."""
        return len(self._chats) >= self._wanted < MOST and self._chosen >= len(self._chats) - MOST_ROWS

    @property
    def _is_looking(self) -> bool:
        return self._looking is not None and not self._looking.done()

    def _typed(self, buffer: Buffer) -> None:
        if self._looking is not None:  # otherwise it is not shown yet
            self._wanted, self._chosen = PAGE, 0
            self._look(TYPING)

    def _look(self, pause: float) -> None:
        if self._looking is not None:
            self._looking.cancel()
        self._looking = asyncio.create_task(self._find(self._words.text, pause), name="turnledger search")

    async def _find(self, words: str, pause: float) -> None:
        await asyncio.sleep(pause)
        try:
            self._chats = await self._search(words, self._wanted)
            self._hint = "" if self._chats else "Nothing was found." if words else "There are no chats yet."
        except TurnledgerError as problem:
            self._hint = f"{problem.code}: {on_one_line(str(problem))}"
        self._found_by = words
        self._chosen = max(0, min(len(self._chats) - 1, self._chosen))
        if self._is_entered and self._chats:
            self._application.exit(result=self._chats[self._chosen])
        self._is_entered = False
        self._application.invalidate()


def title_of(chat: SeenChat) -> str:
    return on_one_line(chat.title or chat.preview or "(nothing was said yet)")


def _marked(chat: SeenChat, columns: int) -> StyleAndTextTuples:
    """Return the found passage on one line, with the matches marked."""
    pieces: list[tuple[str, str]] = []
    end = 0
    for start, stop in (*chat.marks, (len(chat.found), len(chat.found))):
        pieces += [("class:dim", chat.found[end:start]), ("class:mark", chat.found[start:stop])]
        end = stop
    shown: StyleAndTextTuples = []
    for style, text in pieces:
        kept = within(harmless(text), columns)
        shown.append((style, kept))
        columns -= get_cwidth(kept)
    return shown
