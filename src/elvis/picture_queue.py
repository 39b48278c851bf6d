"""Decoding ahead: a thread opens the next pictures while the current one is described."""

from __future__ import annotations

import contextlib
import os
import queue
import signal
import threading
from collections.abc import Generator, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import FrameType

from PIL import Image

from elvis.errors import UnreadableImage
from elvis.image_files import shown, why_not_opened
from elvis.images import open_image
from elvis.store import Stamp
from elvis.weights import file_sha256

_AHEAD = 2  # decoded pictures that wait; one of 64 megapixels takes 192 MB


@dataclass(frozen=True, slots=True, eq=False)
class Decoded:
    """One file that was looked at.

    Attributes:
        path: absolute.
        stamp: size and time before reading, hash of what was read.
        image: the picture; None where it need not or cannot be described.
        reason: why it cannot; None together with no image: the content is what the index knows.
    """

    path: str
    stamp: Stamp
    image: Image.Image | None = None
    reason: str | None = None


class PictureQueue:
    """Decodes files in order in a thread of its own, a few ahead; iterate over it once.

    Args:
        files: absolute path, size and time stamp.
        known: what an index holds by path: files of equal content are not decoded.
        max_pixels: larger pictures are refused.
        stop: once set, no further picture comes.
    """

    def __init__(
        self,
        files: Sequence[tuple[str, int, int]],
        known: Mapping[str, Stamp],
        max_pixels: int,
        stop: threading.Event,
    ) -> None:
        self._files, self._known, self._max_pixels, self._stop = files, known, max_pixels, stop
        self._ready: queue.Queue[Decoded | BaseException | None] = queue.Queue(_AHEAD)
        self._closed = threading.Event()
        self._thread = threading.Thread(target=self._work, name="elvis-decoder", daemon=True)
        self._thread.start()

    def __iter__(self) -> Iterator[Decoded]:
        while not self._stop.is_set() and (each := self._ready.get()) is not None:
            if isinstance(each, BaseException):
                raise each
            yield each

    def close(self) -> None:
        """Ends the thread; what it has decoded is dropped."""
        self._closed.set()
        while self._thread.is_alive():
            with contextlib.suppress(queue.Empty):
                self._ready.get(timeout=0.05)

    def _work(self) -> None:
        try:
            for path, size, mtime_ns in self._files:
                if self._closed.is_set() or self._stop.is_set():
                    break
                self._ready.put(self._decoded(path, size, mtime_ns))
            self._ready.put(None)
        except BaseException as error:  # whatever it is, the one who waits has to hear of it
            self._ready.put(error)

    def _decoded(self, path: str, size: int, mtime_ns: int) -> Decoded:
        nothing = Stamp(size, mtime_ns, "")
        try:
            stamp = Stamp(size, mtime_ns, file_sha256(Path(path)))
            before = self._known.get(path)
            if before is not None and (before.size, before.sha256) == (stamp.size, stamp.sha256):
                return Decoded(path, stamp)
            image = open_image(path, max_pixels=self._max_pixels)
            status = os.stat(path)
        except UnreadableImage as error:
            return Decoded(path, nothing, reason=str(error).removeprefix(f"{shown(path)}: "))
        except OSError as error:
            return Decoded(path, nothing, reason=why_not_opened(error))
        if (status.st_size, status.st_mtime_ns) != (size, mtime_ns):
            return Decoded(path, nothing, reason="it changed while it was read: index it again")
        return Decoded(path, stamp, image)


@contextlib.contextmanager
def interruptible() -> Generator[threading.Event]:
    """Turns the first Ctrl-C into an event to look at; the second one raises KeyboardInterrupt as usual.

    Only in the main thread and where nobody else has taken Ctrl-C over; elsewhere the event is never set.
    """
    stop = threading.Event()
    if (
        threading.current_thread() is not threading.main_thread()
        or signal.getsignal(signal.SIGINT) is not signal.default_int_handler
    ):
        yield stop
        return

    def first(number: int, frame: FrameType | None) -> None:
        signal.signal(signal.SIGINT, signal.default_int_handler)
        stop.set()

    signal.signal(signal.SIGINT, first)
    try:
        yield stop
    finally:
        signal.signal(signal.SIGINT, signal.default_int_handler)
