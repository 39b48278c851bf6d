"""How often pictures above a mean vote show the same thing: where the default of `elvis groups` comes from.

Reads what `elvis bench FOLDER… --methods chamfer-ot --rankings FILE` wrote. As in `elvis groups`, each picture's twenty
best candidates count, and the weaker direction where both pictures were queries.

    python tools/group_threshold.py rankings.jsonl ../shared/pocket/groceries ../shared/pocket/webcams
"""

from __future__ import annotations

import csv
import json
import sys
from collections import defaultdict
from pathlib import Path

import numpy as np

METHOD = "chamfer-ot"
CANDIDATES = 20
DESCRIPTORS = 1200
"""Of both pictures together, with the balanced preset: what turns a score into a mean vote."""
THRESHOLDS = (0.006, 0.007, 0.008, 0.009, 0.010, 0.012)


def main(rankings: Path, folders: list[Path]) -> None:
    """Prints a Markdown table."""
    scores: dict[str, dict[str, dict[str, float]]] = defaultdict(dict)
    for line in rankings.open():
        answer = json.loads(line)
        if answer["method"] == METHOD:
            scores[answer["dataset"]][answer["query"]] = dict(zip(answer["ranked"], answer["scores"], strict=True))
    print("| mean vote from | " + " | ".join(f"{folder.name}: right / found" for folder in folders) + " |")
    print("| --- " * (len(folders) + 1) + "|")
    links = [strengths(scores[folder.name], folder) for folder in folders]
    for threshold in THRESHOLDS:
        cells: list[str] = []
        for same, other in links:
            right, wrong = (same >= threshold).sum(), (other >= threshold).sum()
            cells.append(f"{100 * right / max(1, right + wrong):.0f} % / {100 * right / len(same):.0f} %")
        print(f"| {threshold} | " + " | ".join(cells) + " |")


def strengths(scores: dict[str, dict[str, float]], folder: Path) -> tuple[np.ndarray, np.ndarray]:
    """Mean votes of pairs of the same thing, and of others."""
    rows = {row["path"]: row for row in csv.DictReader((folder / "images.csv").open())}
    found: dict[bool, list[float]] = {True: [], False: []}
    for query, answer in scores.items():
        best = sorted(answer, key=lambda path: -answer[path])[:CANDIDATES]
        junk = set(rows[query]["junk"].split(";")) - {""}
        for path in best:
            if rows[path]["label"] in junk:
                continue
            back = scores.get(path, {}).get(query, answer[path])
            found[rows[path]["label"] == rows[query]["label"]].append(min(answer[path], back) / DESCRIPTORS)
    return np.array(found[True]), np.array(found[False])


if __name__ == "__main__":
    main(Path(sys.argv[1]), [Path(folder) for folder in sys.argv[2:]])
