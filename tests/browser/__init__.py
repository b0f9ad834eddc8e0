"""A package, so that its fixtures end with it: no test can run a loop while a browser is driven."""
