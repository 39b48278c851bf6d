"""Result lines: what a run wrote down, and reading it back.

`results.jsonl` holds a line a data set (judgement, split) and method, with all that the figure depends on;
`queries/*.json` the AP of every query, from which intervals are computed. Tables are rendered from these alone.
"""

from __future__ import annotations

import hashlib
import json
import re
import subprocess
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from elvis.errors import CacheError
from elvis.evaluation.cache import write_atomically
from elvis.evaluation.metrics import mean_over_queries

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Result:
    """One figure.

    Attributes:
        dataset: name of the data set.
        judgement: "" or one of several ways to judge it (Medium, Hard).
        split: "" for all queries, or the group of queries that the figure is of.
        method: as it was asked for.
        hand_made: whether nothing of it was trained for re-ranking.
        metric: as a table writes it.
        ap: of each query in [0, 1], in the data set's order; NaN for those that do not count.
        recall: share of each query's positives within the depth of the first stage; NaN likewise.
        details: everything else that the figure depends on.
    """

    dataset: str
    judgement: str
    split: str
    method: str
    hand_made: bool
    metric: str
    ap: Floats
    recall: Floats
    details: Mapping[str, Any] = field(default_factory=dict[str, Any])

    @property
    def map(self) -> float:
        """Mean AP in percent."""
        return 100 * mean_over_queries(self.ap)

    @property
    def identity(self) -> tuple[str, str, str, str]:
        """What a later result replaces."""
        return self.dataset, self.judgement, self.split, self.method

    def line(self) -> dict[str, Any]:
        """What stands in `results.jsonl`."""
        return {
            "dataset": self.dataset,
            "judgement": self.judgement,
            "split": self.split,
            "method": self.method,
            "hand_made": self.hand_made,
            "metric": self.metric,
            "map": round(self.map, 4),
            "first_stage_recall": round(100 * mean_over_queries(self.recall), 4),
            "counted_queries": int((~np.isnan(self.ap)).sum()),
            **self.details,
            "per_query": f"queries/{self._file_name()}",
        }

    def _file_name(self) -> str:
        name = "-".join(filter(None, self.identity))
        return "".join(c if c.isalnum() or c in "-_.@" else "_" for c in name) + ".json"


def save_results(folder: Path, results: Iterable[Result]) -> None:
    """Add results to a folder; one with the same data set and method replaces the older one."""
    results = list(results)
    try:
        (folder / "queries").mkdir(parents=True, exist_ok=True)
        lines = {_identity(line): line for line in _read_lines(folder / "results.jsonl")}
        for result in results:
            values = {"ap": _with_null(result.ap), "recall": _with_null(result.recall)}
            line = result.line()
            write_atomically(folder / line["per_query"], json.dumps(values).encode())
            lines[_identity(line)] = line
        text = "".join(json.dumps(line) + "\n" for line in lines.values())
        write_atomically(folder / "results.jsonl", text.encode())
    except OSError as error:
        raise CacheError(f"{folder} cannot be written: {error.strerror}") from error


def load_results(folder: Path) -> list[Result]:
    """The results in a folder, in the order in which they were first written."""
    results: list[Result] = []
    named = ("dataset", "judgement", "split", "method", "hand_made", "metric")
    for number, line in enumerate(_read_lines(folder / "results.jsonl"), 1):
        try:
            values = json.loads((folder / line["per_query"]).read_bytes())
            ap, recall = (np.array(values[name], np.float64) for name in ("ap", "recall"))
            known = {name: line[name] for name in named}
        except (OSError, ValueError, KeyError, TypeError) as error:
            raise CacheError(
                f"{folder / 'results.jsonl'}, line {number}: its queries cannot be read ({error})"
            ) from error
        computed = ("map", "first_stage_recall", "counted_queries", "per_query")
        rest = {name: value for name, value in line.items() if name not in (*named, *computed)}
        results.append(Result(**known, ap=ap, recall=recall, details=rest))
    return results


def _read_lines(file: Path) -> list[dict[str, Any]]:
    if not file.exists():
        return []
    lines: list[dict[str, Any]] = []
    for number, text in enumerate(file.read_text("utf-8").splitlines(), 1):
        try:
            line = json.loads(text)
            _identity(line)
        except (ValueError, KeyError, TypeError) as error:
            raise CacheError(f"{file}, line {number} is no result: mend it or name another folder") from error
        lines.append(line)
    return lines


def _identity(line: Mapping[str, Any]) -> tuple[str, ...]:
    return tuple(str(line[name]) for name in ("dataset", "judgement", "split", "method"))


def _with_null(values: Floats) -> list[float | None]:
    return [None if np.isnan(value) else float(value) for value in values]


def split_queries(names: Sequence[str], pattern: str) -> dict[str, NDArray[np.bool_]]:
    """Groups of queries by what a regular expression finds in their names: its first group, or all of the match.

    Queries in whose name it finds nothing form the group "other".

    Example:
        >>> groups = split_queries(["images/day_1.jpg", "images/night_1.jpg"], "day|night")
        >>> {name: members.tolist() for name, members in groups.items()}
        {'day': [True, False], 'night': [False, True]}
    """
    try:
        expression = re.compile(pattern)
    except re.error as error:
        raise ValueError(f"split-by: {pattern!r} is no regular expression ({error})") from error
    found: list[str] = []
    for name in names:
        match = expression.search(name)
        found.append((match[1] if expression.groups else match[0]) or "other" if match else "other")
    return {group: np.array([each == group for each in found]) for group in dict.fromkeys(found)}


def library_code() -> str:
    """SHA-256 over the library's own source files: what kept scores were computed by, edited checkouts included."""
    package = Path(__file__).resolve().parent.parent
    digest = hashlib.sha256()
    for file in sorted(package.rglob("*.py")):
        digest.update(f"{file.relative_to(package).as_posix()}\0".encode() + file.read_bytes())
    return digest.hexdigest()


def library_commit() -> str | None:
    """The commit of the checkout this library runs from, with "+changes" when edited; None if it is installed."""
    package = Path(__file__).resolve().parent.parent

    def git(*arguments: str) -> str | None:
        try:
            run = subprocess.run(["git", "-C", str(package), *arguments], capture_output=True, text=True, timeout=10)
        except (OSError, subprocess.TimeoutExpired):
            return None
        return run.stdout.strip() if run.returncode == 0 else None

    # A package installed below somebody's own repository is not that repository's commit.
    if git("ls-files", "--error-unmatch", "evaluation/results.py") is None:
        return None
    commit = git("rev-parse", "HEAD")
    return commit and commit + ("+changes" if git("status", "--porcelain", "--untracked-files=no", ".") else "")
