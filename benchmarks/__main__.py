"""Run a suite, guard against a slow-down, or render the page.

    python -m benchmarks transport        measure; results/transport.jsonl keeps the lines of other machines
    python -m benchmarks transport_gpu    the same on a GPU
    python -m benchmarks training         a training step: time and memory
    python -m benchmarks guard            measure again, fail where a ratio fell by a fifth against the committed one
    python -m benchmarks render           docs/benchmarks.md and its plots, from all results

Every figure is a ratio against the published algorithm in the same run: machines differ, and the same machine differs
from minute to minute. Runs take turns, and the best of many counts.
"""

import argparse
import os
import sys

QUIET = {"OMP_WAIT_POLICY": "passive", "KMP_BLOCKTIME": "0"}
"""Idle threads of torch sleep instead of spinning on the processors that the next variant needs."""


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__.splitlines()[0])
    parser.add_argument("what", choices=["transport", "transport_gpu", "training", "guard", "render"])
    parser.add_argument("--repeats", type=int, default=30, help="rounds of all variants; the best counts")
    asked = parser.parse_args()
    if any(os.environ.get(name) != value for name, value in QUIET.items()):
        os.environ.update(QUIET)  # read when torch is loaded: start again
        os.execv(sys.executable, [sys.executable, "-m", "benchmarks", *sys.argv[1:]])
    from benchmarks import render, results, training, transport, transport_gpu

    if asked.what == "render":
        render.write()
        return 0
    if asked.what == "guard":
        return results.guard("transport", transport.run(asked.repeats))
    suites = {"transport": transport, "transport_gpu": transport_gpu, "training": training}
    results.replace(asked.what, suites[asked.what].run(asked.repeats))
    return 0


if __name__ == "__main__":
    sys.exit(main())
