"""The events of a turn: logged while it runs, read from any process, and its outcome awaited."""
