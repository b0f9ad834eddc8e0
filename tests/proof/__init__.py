"""Proofs that take too long for every test run. Each module here is one, with a function `prove`."""
