"""Plain data: conversations, turns, attempts, items, events, ids and their codec. No input or output."""
