"""How many values a JSON text holds, counted before any of them is built.

A decoder needs some hundred bytes for a value that is two bytes long. A text that comes from outside is
counted first: that takes no memory to speak of, and ends as soon as the bound is passed.
"""

from __future__ import annotations

MOST_VALUES = 400_000
"""Values of one body, or of one line of a file: decoded, they take about 100 MB at most."""
_WINDOW = 256 * 1024
_OPENINGS = (b",", b"[", b"{")
"""Each value but the first stands behind one of these. Keys of objects are not counted by themselves."""


def has_more_values(raw: bytes, most: int) -> bool:
    """Whether the text holds more than `most` values. What is not JSON may be counted wrongly: the decoder
    will refuse it, at a cost of no more than `most` values."""
    if len(raw) <= 2 * most or sum(map(raw.count, _OPENINGS)) < most:
        return False  # also if all of them were outside of strings
    found, is_inside, start = 1, False, 0
    while start < len(raw) and found <= most:
        window = raw[start : start + _WINDOW]
        backslashes = len(window) - len(window.rstrip(b"\\"))
        if backslashes % 2 and len(window) > 1:  # the last one belongs to what follows
            window = window[:-1]
        start += len(window)
        parts = window.replace(b"\\\\", b"").replace(b'\\"', b"").split(b'"')
        outside = b"".join(parts[is_inside::2])
        found += sum(map(outside.count, _OPENINGS))
        is_inside ^= len(parts) % 2 == 0
    return found > most
