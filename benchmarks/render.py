"""The page of the documentation: tables and plots, from the results alone."""

from pathlib import Path

from benchmarks import results, sections

PAGE = Path(__file__).parent.parent / "docs" / "benchmarks.md"
PRESETS = PAGE.with_name("presets.md")


def write() -> None:
    """Write docs/benchmarks.md and one plot a machine."""
    records = results.read("transport") + results.read("transport_gpu")
    machines = list(dict.fromkeys(record["machine"] for record in records))
    parts = [INTRODUCTION]
    PAGE.parent.mkdir(exist_ok=True)
    for number, machine in enumerate(machines, 1):
        lines = [record for record in records if record["machine"] == machine]
        plot = PAGE.with_name(f"benchmarks-transport-{number}.svg")
        _plot(lines, plot)
        parts.append(_section(machine, lines, plot.name))
    parts += [sections.extraction(), sections.search()]
    PAGE.write_text("\n".join(parts), encoding="utf-8")
    print(f"wrote {PAGE}")
    if presets := sections.presets():
        PRESETS.write_text(presets, encoding="utf-8")
        print(f"wrote {PRESETS}")


INTRODUCTION = """# Benchmarks

This page is written by `python -m benchmarks render` from the files in `benchmarks/results`; `python -m benchmarks
transport` measures, `python -m benchmarks guard` compares with what is committed.

## Matching

One query against 20 pictures (500 on a GPU), 600 descriptors each, 10 rounds, λ = 0.1. The yardstick is the published
algorithm (log domain, float32, plain PyTorch, the whole batch): malloc keeps its memory, idle threads sleep, variants
take turns, and the best repeat counts. *Ratio* is how many times faster than it by the clock; a star marks runs that
other processes on the machine kept waiting, and then only the ratio *by processor time* means something. *Error* is the
largest difference of a strength (0 to 1) from the same computation in float64 on the descriptors as stored; *with
storage* from that on the descriptors in float32. The GPU kernel has not been measured unless a GPU stands below:
`python -m benchmarks transport_gpu`.
"""


def _section(machine: str, records: list[dict], plot: str) -> str:
    first = records[0]
    versions = ", ".join(f"{name} {version}" for name, version in first["versions"].items())
    lines = [
        f"\n### {machine}\n",
        f"{first['cpu']}; {', '.join(first['features'])}; {versions}; commit {first['commit']}, {first['date']}.\n",
        f"![How many times faster than the published algorithm]({plot})\n",
    ]
    for channels in dict.fromkeys(record["channels"] for record in records):
        lines += [
            f"\n**D = {channels}**\n",
            "| variant | threads | ms a pair, best | median | p90 | ratio | by processor time | error | with storage |",
            "| --- | --: | --: | --: | --: | --: | --: | --: | --: |",
        ]
        for r in records:
            if r["channels"] == channels:
                lines.append(
                    f"| {r['variant']} | {r['threads']} | {r['ms_best']:.3f} | {r['ms_p50']:.3f} | {r['ms_p90']:.3f} | "
                    f"{r['ratio']:.1f}{'*' * r['disturbed']} | {r['ratio_processor']:.1f} | {r['error']:.0e} | "
                    f"{r['error_with_storage']:.0e} |"
                )
    return "\n".join(lines) + "\n"


def _plot(records: list[dict], path: Path) -> None:
    import matplotlib

    matplotlib.use("Agg")
    matplotlib.rcParams["svg.hashsalt"] = "elvis"  # the same file from the same results
    from matplotlib import pyplot as plt

    shown = [r for r in records if r["channels"] == records[0]["channels"]]
    names = list(dict.fromkeys(r["variant"] for r in shown))
    disturbed = any(r["disturbed"] for r in shown)
    figure, axes = plt.subplots(figsize=(8, 0.45 * len(names) + 1.2), layout="constrained")
    threads = sorted({r["threads"] for r in shown})
    height = 0.8 / len(threads)
    for place, count in enumerate(threads):
        bars = {r["variant"]: r["ratio_processor" if disturbed else "ratio"] for r in shown if r["threads"] == count}
        at = [names.index(name) + (place - (len(threads) - 1) / 2) * height for name in bars]
        drawn = axes.barh(at, list(bars.values()), height * 0.9, label=f"{count} thread{'s' * (count > 1)}")
        axes.bar_label(drawn, fmt="%.1f", padding=3, fontsize=8)
    axes.set_yticks(range(len(names)), names)
    axes.invert_yaxis()
    measure = "processor time" if disturbed else "the clock"
    axes.set_xlabel(f"times faster than the published algorithm by {measure}, D = {records[0]['channels']}")
    axes.spines[["top", "right"]].set_visible(False)
    axes.legend(frameon=False, loc="lower right")
    figure.savefig(path, metadata={"Date": None})
    plt.close(figure)
