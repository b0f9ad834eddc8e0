"""The turns of a branch: where they are stored, how a turn reads them, and what is sent to the model."""
