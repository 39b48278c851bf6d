"""The wheel: built by the README's command, weights inside, used where there is no checkout."""

import os
import subprocess
import sys
import sysconfig
import venv
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
LIMIT = 100 * 1000 * 1000

USE = """
import sys
from pathlib import Path
import elvis
from PIL import Image

assert Path(elvis.__file__).is_relative_to(sys.prefix), elvis.__file__
picture = Image.effect_noise((160, 120), 80).convert("RGB")
picture.save("a.png")
picture.crop((10, 10, 150, 110)).save("b.png")
with elvis.index_pictures(["a.png"], "pictures.index", settings={"longer_side": 112}) as index:
    print(elvis.Searcher(index).search("b.png")[0].path)
"""


@pytest.mark.slow
def test_the_wheel_works_outside_the_checkout(tmp_path: Path) -> None:
    subprocess.run(
        [sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", tmp_path, ROOT],
        check=True,
        capture_output=True,
    )
    (wheel,) = tmp_path.glob("elvis_retrieval-*.whl")
    assert wheel.stat().st_size < LIMIT
    names = zipfile.ZipFile(wheel).namelist()
    assert "elvis/data/dinov2-small/model.safetensors" in names
    assert any(name.endswith("licenses/NOTICE") for name in names)
    assert not [name for name in names if name.startswith(("tests", "demo", "benchmarks"))]

    place = tmp_path / "elsewhere"
    venv.create(place / "venv", with_pip=False)
    python = place / "venv" / "bin" / "python"
    site = Path(sysconfig.get_path("purelib", vars={"base": str(place / "venv")}))
    # The dependencies of this environment are lent, without the editable install's own link to the checkout.
    (site / "lent.pth").write_text(sysconfig.get_path("purelib") + "\n")
    zipfile.ZipFile(wheel).extractall(site)
    clean = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    ended = subprocess.run([python, "-c", USE], cwd=place, env=clean, capture_output=True, text=True, check=False)
    assert ended.returncode == 0, ended.stderr
    assert ended.stdout.strip().endswith("a.png")
    command = subprocess.run(
        [python, "-m", "elvis", "doctor"], cwd=place, env=clean, capture_output=True, text=True, check=False
    )
    assert command.returncode == 0, command.stderr
    assert "everything is in order" in command.stdout
