"""`import elvis` is free: nothing heavy or optional, no download, no global flag."""

import subprocess
import sys

HEAVY = (
    "transformers",
    "lancedb",
    "pyarrow",
    "matplotlib",
    "llvmlite",
    "triton",
    "ray",
    "fastapi",
    "cv2",
    "PIL",
    "typer",
)

SCRIPT = f"""
import logging, sys, warnings
import torch
before = (torch.get_num_threads(), torch.get_default_dtype(), torch.is_grad_enabled(), torch.random.initial_seed(),
          list(warnings.filters), list(logging.getLogger().handlers))
import socket
def refuse(*args, **kwargs):
    raise AssertionError("import opened a connection")
socket.socket.connect = refuse
import elvis
after = (torch.get_num_threads(), torch.get_default_dtype(), torch.is_grad_enabled(), torch.random.initial_seed(),
         list(warnings.filters), list(logging.getLogger().handlers))
assert before == after, (before, after)
print(",".join(sorted(name for name in {HEAVY!r} if name in sys.modules)))
"""


def test_import_is_free() -> None:
    ended = subprocess.run([sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.strip() == ""


def test_every_public_name_is_listed() -> None:
    import elvis

    assert elvis.__all__ == sorted(elvis.__all__)
    assert all(hasattr(elvis, name) for name in elvis.__all__)
