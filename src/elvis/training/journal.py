"""What a run writes down as it goes: one JSON line a step, and TensorBoard where it is installed."""

from __future__ import annotations

import json
import logging
import os
from importlib.util import find_spec
from pathlib import Path
from types import TracebackType
from typing import Any

from elvis.errors import MissingExtra

logger = logging.getLogger(__name__)

FILE = "log.jsonl"


class Journal:
    """Appends to `log.jsonl` and to TensorBoard; after a resume, lines beyond the checkpoint are taken back first.

    Args:
        folder: of the run; None writes nothing.
        from_step: where the run goes on.
        tensorboard: True needs it, None uses it where it is installed, False does not.
    """

    def __init__(self, folder: Path | None, from_step: int = 0, tensorboard: bool | None = None) -> None:
        self._stream = None
        self._writer: Any = None
        if folder is None:
            return
        file = folder / FILE
        if file.exists():
            _cut(file, from_step)
        self._writer = _writer(folder / "tensorboard", from_step, tensorboard)
        self._stream = file.open("a", encoding="utf-8")

    def __enter__(self) -> Journal:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        for each in (self._stream, self._writer):
            if each is not None:
                each.close()

    def write(self, step: int, **values: float) -> None:
        """Numbers after a step."""
        if self._stream is not None:
            self._stream.write(json.dumps({"step": step, **values}) + "\n")
            self._stream.flush()
        if self._writer is not None:
            for name, value in values.items():
                self._writer.add_scalar(name, value, step)


def read_journal(folder: Path) -> list[dict[str, float]]:
    """The lines of a run's `log.jsonl`; a last line that a kill cut short is left out."""
    lines: list[dict[str, float]] = []
    for text in (folder / FILE).read_text(encoding="utf-8").splitlines():
        try:
            lines.append(json.loads(text))
        except json.JSONDecodeError:
            logger.info("%s: an unfinished line is left out", folder / FILE)
    return lines


def _cut(file: Path, from_step: int) -> None:
    kept = [json.dumps(line) for line in read_journal(file.parent) if line["step"] <= from_step]
    temporary = file.with_name(f".{file.name}.{os.getpid()}.tmp")
    temporary.write_text("".join(f"{line}\n" for line in kept), encoding="utf-8")
    os.replace(temporary, file)


def _writer(folder: Path, from_step: int, wanted: bool | None) -> Any:
    if wanted is False:
        return None
    if find_spec("tensorboard") is None:
        if wanted:
            raise MissingExtra("tensorboard", "train")
        logger.info("no TensorBoard logs: pip install 'elvis-retrieval[train]' brings them")
        return None
    from torch.utils.tensorboard import SummaryWriter

    return SummaryWriter(str(folder), purge_step=from_step + 1)
