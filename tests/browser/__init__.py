"""A package, so that its fixtures end with it: while a browser is driven, no test can run a loop of its own."""
