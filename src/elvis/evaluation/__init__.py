"""Benchmarks: data sets, metrics, the harness that runs methods on them, and tables of its results."""
