"""Benchmarks: ratios against a bare floor, measured side by side in one run. `make bench` prints them."""
