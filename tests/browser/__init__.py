"""A package, so that its fixtures end with it: Playwright blocks event loops of other tests."""
