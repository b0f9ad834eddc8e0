"""Transactions on attempts: idempotency, retries, stops, ends, takeovers, and the branches they commit to."""
