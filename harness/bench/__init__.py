"""Benchmarks that print tables: ratios measured in one run, interleaved, never compared across runs."""
