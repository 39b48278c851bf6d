"""Parts of the documentation that are tables alone: extraction, search, and what presets and storage cost."""

import math
from collections.abc import Sequence

from benchmarks import results
from benchmarks.search import STAGES

MILLION = 1_000_000

EXTRACTION = """
## Extraction

DINOv2-small at 518 pixels, one picture at a time: milliseconds for the backbone alone (`python -m benchmarks
extraction PICTURES…`). *Ratio* is how many times faster than `transformers` in fp32 as one would write it; a star
marks runs that other processes kept waiting, of which the ratio by processor time means more. *Cosine* of patch tokens
to those in fp32.
"""
SEARCH = """
## Search

Made-up indexes, 400 candidates, 600 descriptors of 128 channels a picture, 10 hits with boxes: milliseconds from the
described query to the list, median (95th percentile). Cold: the pages of the index are dropped from the system's cache
before every query. `python -m benchmarks search --scratch DIR --sizes 1000,10000,100000 --first 300000`.
"""
PRESETS = """# Presets, engines and storage: what they cost

Written by `python -m benchmarks render`; measured by `python -m benchmarks accuracy GROCERIES GARDENS … --cache DIR`.
mAP@100 in percent of Chamfer similarity after transport, standardised, depth 100, on evenly spaced queries of real
data sets. In brackets the change against the first line of the table; 0.7 is noise.
"""


def extraction() -> str:
    """Engines and precisions against plain `transformers`."""
    records = results.read("extraction")
    if not records:
        return ""
    parts = [EXTRACTION]
    for machine in dict.fromkeys(record["machine"] for record in records):
        lines = [record for record in records if record["machine"] == machine]
        engines = [record for record in lines if "ratio" in record]
        parts += [_about(lines[0])]
        parts += _table(
            ("engine", "ms, best", "median", "ratio", "by processor time", "mean cosine", "least"),
            [
                (
                    r["variant"],
                    f"{r['ms_best']:.0f}",
                    f"{r['ms_p50']:.0f}",
                    f"{r['ratio']:.2f}{'*' * r['disturbed']}",
                    f"{r['ratio_processor']:.2f}",
                    f"{r['cosine_mean']:.5f}",
                    f"{r['cosine_min']:.4f}",
                )
                for r in engines
            ],
        )
        for r in lines:
            if "ms_together" in r:
                parts.append(
                    f"\nThe {r['variant']}: decoding {r['ms_decoding']:.1f} ms a picture, describing "
                    f"{r['ms_describing']:.0f} ms, with decoding ahead {r['ms_together']:.0f} ms: "
                    f"{100 * min(1.0, max(0.0, r['hidden_share_of_decoding'])):.0f} % of decoding is hidden.\n"
                )
    return "\n".join(parts) + "\n"


def search() -> str:
    """A whole search by stage and size, and the first stage alone."""
    records = results.read("search")
    if not records:
        return ""
    parts = [SEARCH]
    for machine in dict.fromkeys(record["machine"] for record in records):
        here = sorted((r for r in records if r["machine"] == machine), key=lambda r: (r["variant"], r["pictures"]))
        whole = [r for r in here if "warm_total_p50" in r]
        first = [r for r in here if "recall" in r]
        parts += [_about(here[0])]
        parts += _table(
            ("pictures", "stored as", "cache", *STAGES, "together", "best", "memory", "on disk"),
            [
                (
                    f"{r['pictures']:,}",
                    r["variant"],
                    kind,
                    *(f"{r[f'{kind}_{stage}_p50']:.0f} ({r[f'{kind}_{stage}_p95']:.0f})" for stage in STAGES),
                    f"{r[f'{kind}_total_p50']:.0f} ({r[f'{kind}_total_p95']:.0f})",
                    f"{r[f'{kind}_total_best']:.0f}",
                    f"{r['mib']:.0f} MiB",
                    f"{r['bytes'] / 1e9:.2f} GB",
                )
                for r in whole
                for kind in ("warm", "cold")
            ],
        )
        if first:
            parts.append("\nThe first stage alone (global vectors of 384 numbers; exact up to 200,000 pictures):\n")
            parts += _table(
                ("pictures", "opening, ms", "nearest, ms", "p95", "recall of the exact 400", "memory"),
                [
                    (
                        f"{r['pictures']:,}",
                        f"{r['opening_ms']:.0f}",
                        f"{r['nearest_p50']:.0f}",
                        f"{r['nearest_p95']:.0f}",
                        f"{r['recall']:.4f}",
                        f"{r['mib']:.0f} MiB",
                    )
                    for r in first
                ],
            )
        parts += _growth(whole)
    return "\n".join(parts) + "\n"


def _growth(whole: Sequence[dict]) -> list[str]:
    """Power laws through the sizes of one stored form, read off at a million."""
    lines = []
    for variant in dict.fromkeys(r["variant"] for r in whole):
        points = [r for r in whole if r["variant"] == variant]
        if len(points) < 2:
            continue
        said = []
        for name, unit in (("warm_nearest_best", "ms nearest"), ("warm_fetch_best", "ms fetch"), ("bytes", "bytes")):
            power, at = fitted([(r["pictures"], max(r[name], 1e-3)) for r in points])
            said.append(f"{unit} grows as pictures^{power:.2f}, {at:,.0f} at a million")
        lines.append(f"\nFitted through {len(points)} sizes as {variant}: {'; '.join(said)}.\n")
    return lines


def fitted(points: Sequence[tuple[float, float]]) -> tuple[float, float]:
    """Least squares of log y on log x: the exponent, and y at a million."""
    xs, ys = [math.log(x) for x, _ in points], [math.log(y) for _, y in points]
    mean_x, mean_y = sum(xs) / len(xs), sum(ys) / len(ys)
    spread = sum((x - mean_x) ** 2 for x in xs)
    power = sum((x - mean_x) * (y - mean_y) for x, y in zip(xs, ys, strict=True)) / spread
    return power, math.exp(mean_y + power * (math.log(MILLION) - mean_x))


def presets() -> str:
    """The page on presets, engines and stored forms; empty without results."""
    records = results.read("accuracy")
    if not records:
        return ""
    parts = [PRESETS]
    titles = {"preset": "Presets", "engine": "Engines and precisions", "storage": "How descriptors are stored"}
    for table, title in titles.items():
        lines = [record for record in records if record["table"] == table]
        if not lines:
            continue
        sets = list(dict.fromkeys(r["dataset"] for r in lines))
        rows = []
        baseline: dict[str, float] = {}
        for variant in dict.fromkeys(r["variant"] for r in lines):
            found = {r["dataset"]: r for r in lines if r["variant"] == variant}
            one = next(iter(found.values()))
            baseline = baseline or {name: r["map"] for name, r in found.items()}
            cells = [
                f"{found[name]['map']:.2f} ({found[name]['map'] - baseline[name]:+.2f})" if name in found else "–"
                for name in sets
            ]
            settings = one["extraction"]
            rows.append(
                (
                    variant,
                    f"{settings['longer_side'] or 518} px",
                    str(settings["descriptors"]),
                    one["computed_in"],
                    *cells,
                    f"{one['bytes_a_picture'] / 1000:.0f} kB",
                )
            )
        queries = ", ".join(f"{name} {max(r['queries'] for r in lines if r['dataset'] == name)}" for name in sets)
        parts.append(f"\n## {title}\n\nQueries: {queries}.\n")
        parts += _table(("", "longer side", "descriptors", "computed in", *sets, "a picture"), rows)
    return "\n".join(parts) + "\n"


def _about(record: dict) -> str:
    versions = ", ".join(f"{name} {version}" for name, version in record["versions"].items())
    return f"\n### {record['machine']}\n\n{record['cpu']}; {versions}; commit {record['commit']}, {record['date']}.\n"


def _table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> list[str]:
    marks = ["---", *["--:"] * (len(head) - 1)]
    return [f"| {' | '.join(line)} |" for line in (head, marks, *rows)]
