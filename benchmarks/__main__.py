"""Run a suite, guard against a slow-down, or render the page.

    python -m benchmarks transport        measure; results/transport.jsonl keeps the lines of other machines
    python -m benchmarks transport_gpu    the same on a GPU
    python -m benchmarks training         a training step: time and memory
    python -m benchmarks extraction PICTURES…       engines and precisions on a CPU; PICTURES are data sets of real ones
    python -m benchmarks accuracy PICTURES… --cache DIR [--table preset]      their cost in mAP, and that of storage
    python -m benchmarks search --scratch DIR --sizes 1000,10000 --first 300000     a whole search in made-up indexes
    python -m benchmarks guard            measure again, fail where a ratio fell by a fifth against the committed one
    python -m benchmarks render           docs/benchmarks.md and its plots, from all results

Every ratio is against the published algorithm or the plain way in the same run: machines differ, and the same machine
differs from minute to minute. Runs take turns, and the best of many counts.
"""

import argparse
import os
import sys
from pathlib import Path

QUIET = {"OMP_WAIT_POLICY": "passive", "KMP_BLOCKTIME": "0"}
"""Idle threads of torch sleep instead of spinning on the processors that the next variant needs."""


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m benchmarks", description=__doc__.splitlines()[0])
    suites = ["transport", "transport_gpu", "training", "extraction", "accuracy", "search"]
    parser.add_argument("what", choices=[*suites, "guard", "render"])
    parser.add_argument("pictures", nargs="*", type=Path, help="data sets: folders with images/ and images.csv")
    parser.add_argument("--repeats", type=int, default=30, help="rounds of all variants; the best counts")
    parser.add_argument("--cache", type=Path, help="accuracy: where descriptors are kept")
    parser.add_argument("--table", choices=["engine", "storage", "preset"], help="accuracy: one table only")
    parser.add_argument("--queries", type=int, default=200, help="accuracy: of each data set")
    parser.add_argument("--scratch", type=Path, help="search: where indexes are made and deleted")
    parser.add_argument("--sizes", default="1000,10000", help="search: pictures of the indexes; 158 MB a thousand")
    parser.add_argument("--first", default="", help="search: sizes for the first stage alone; 1.8 MB a thousand")
    parser.add_argument("--store", choices=["float16", "int8"], default="float16", help="search: how it is stored")
    asked = parser.parse_args()
    if asked.what == "accuracy" and asked.cache is None or asked.what == "search" and asked.scratch is None:
        parser.error("accuracy needs --cache, search needs --scratch")
    if any(os.environ.get(name) != value for name, value in QUIET.items()):
        os.environ.update(QUIET)  # read when torch is loaded: start again
        os.execv(sys.executable, [sys.executable, "-m", "benchmarks", *sys.argv[1:]])
    from benchmarks import render, results, transport

    if asked.what == "render":
        render.write()
        return 0
    if asked.what == "guard":
        return results.guard("transport", transport.run(asked.repeats))
    results.replace(asked.what, _measured(asked))
    return 0


def _measured(asked: argparse.Namespace) -> list[dict]:
    from benchmarks import accuracy, extraction, search, training, transport, transport_gpu

    match asked.what:
        case "extraction":
            return extraction.run(asked.pictures, asked.repeats)
        case "accuracy":
            return accuracy.run(asked.pictures, asked.cache, asked.queries, asked.table)
        case "search":
            sizes, first = ([int(each) for each in text.split(",") if each] for text in (asked.sizes, asked.first))
            return search.run(sizes, asked.scratch, asked.store) + search.run_first_stage(first, asked.scratch)
        case name:
            suites = {"transport": transport, "transport_gpu": transport_gpu, "training": training}
            return suites[name].run(asked.repeats)


if __name__ == "__main__":
    sys.exit(main())
