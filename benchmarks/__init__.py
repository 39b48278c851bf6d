"""How fast the parts are, against the published algorithm: `python -m benchmarks`, see `__main__.py`."""
