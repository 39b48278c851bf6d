"""Results as JSON lines, one file a suite: read, replaced for this machine, compared with."""

import json
from pathlib import Path

FOLDER = Path(__file__).parent / "results"
FALL = 0.8
"""The guard fails where a ratio is below this share of the committed one."""


def read(suite: str) -> list[dict]:
    """All lines of a suite, of all machines."""
    path = FOLDER / f"{suite}.jsonl"
    return [json.loads(line) for line in path.read_text().splitlines()] if path.exists() else []


NAMES = ("machine", "variant", "channels", "threads", "table", "dataset", "pictures")
"""What tells lines of a suite apart, as far as they have it."""


def replace(suite: str, records: list[dict]) -> None:
    """Write this machine's lines in place of its old ones; suites that are run in parts keep the other parts."""
    in_parts = suite in ("accuracy", "search")
    names = NAMES if in_parts else NAMES[:1]
    new = {tuple(record.get(name) for name in names) for record in records}
    kept = [record for record in read(suite) if tuple(record.get(name) for name in names) not in new]
    FOLDER.mkdir(exist_ok=True)
    lines = [json.dumps(_rounded(record), ensure_ascii=False) + "\n" for record in kept + records]
    (FOLDER / f"{suite}.jsonl").write_text("".join(lines), encoding="utf-8")


def guard(suite: str, records: list[dict]) -> int:
    """Compare with the committed lines of the same machine kind; 1 if a ratio fell by a fifth, 2 if there are none."""

    def key(record: dict) -> tuple:
        return record["machine"], record["variant"], record["channels"], record["threads"]

    committed = {key(record): record for record in read(suite)}
    compared = [(record, committed[key(record)]) for record in records if key(record) in committed]
    if not compared:
        print(f"no committed result of this machine kind ({records[0]['machine']}): nothing to compare with")
        return 2
    fallen = 0
    for now, then in compared:
        # Others on the machine stretch the clock but not the processor time.
        which = "ratio_processor" if now["disturbed"] or then["disturbed"] else "ratio"
        if now[which] < FALL * then[which]:
            fallen += 1
            print(
                f"slower: {now['variant']}, D {now['channels']}, {now['threads']} threads: {now[which]:.1f}x, "
                f"committed {then[which]:.1f}x"
            )
    print(f"{len(compared) - fallen} of {len(compared)} ratios held")
    return 1 if fallen else 0


def _rounded(record: dict) -> dict:
    return {name: float(f"{value:.4g}") if isinstance(value, float) else value for name, value in record.items()}
