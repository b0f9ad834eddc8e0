"""The events of a turn: logged while it runs, readable from any process."""
