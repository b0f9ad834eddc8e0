"""What a model thinks before it speaks, gathered from the pieces in which it streams that beside its text.

Servers have two words for it: `reasoning_content` (DeepSeek's, and of those that follow it) and `reasoning`.
"""

from __future__ import annotations

from turnledger.errors import MalformedItems
from turnledger.model.item import Item, is_unicode
from turnledger.runners.chat_model import Delta


class Thoughts:
    """Gathers text, up to `most` characters."""

    __slots__ = ("_length", "_most", "_pieces")

    def __init__(self, most: int) -> None:
        self._most = most
        self._length = 0
        self._pieces: list[str] = []

    def __bool__(self) -> bool:
        return bool(self._pieces)

    def add(self, delta: Delta) -> None:
        """Take a piece; raises MalformedItems if it is too much. Where both words are said, it is the same
        text twice; what is no text is somebody else's, and passed on only."""
        given = delta.reasoning_content or delta.reasoning
        if not isinstance(given, str):
            return
        self._length += len(given)
        if self._length > self._most:
            raise MalformedItems(f"The turn has grown past {self._most} bytes.")
        self._pieces.append(given)

    def take(self) -> tuple[Item, ...]:
        """All of it as one item, and nothing is left; no item where there is none."""
        text, self._pieces = "".join(self._pieces), []
        if not text:
            return ()
        if not is_unicode(text):  # halves of characters whose other halves never came
            text = text.encode("utf-16", "surrogatepass").decode("utf-16", "replace")
        said = {"type": "reasoning_text", "text": text}
        return (Item.of({"type": "reasoning", "summary": [], "content": [said]}),)
