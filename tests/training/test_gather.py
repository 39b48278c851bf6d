"""From picture files to examples: extracted once, judged first, reused by content."""

import numpy as np
import pytest
import torch
from PIL import Image

from elvis import Descriptors
from elvis.errors import CacheError, TrainingError
from elvis.training.features import FeatureStore
from elvis.training.gather import gather
from elvis.training.sources import find_pictures
from elvis.training.triplets import UNLABELLED
from training_examples import tiny_config

DIM = 12


class CellExtractor:
    """Sixteen cells of a picture, each described by a fixed random function of its mean colour."""

    fingerprint = "0123456789abcdef0123456789abcdef"
    precision = "fp32"
    dim = DIM

    def __init__(self, broken_after=None):
        self.extracted = 0
        self.broken_after = broken_after
        self._weight = torch.randn(3, DIM, generator=torch.Generator().manual_seed(5))

    def extract(self, pictures):
        for image in pictures:
            if self.extracted == self.broken_after:
                raise KeyboardInterrupt
            self.extracted += 1
            cells = torch.tensor(np.asarray(image.resize((4, 4), Image.Resampling.BOX)) / 255).float().reshape(16, 3)
            yield Descriptors(
                torch.sin(4 * cells @ self._weight)[None],
                xy=torch.rand(1, 16, 2),
                image_vector=torch.nn.functional.normalize(cells.mean(0) - 0.4, dim=0)[None],
            )


def picture(seed, variant=0):
    blocks = np.random.default_rng(seed).integers(0, 255, (4, 4, 3))
    noise = np.random.default_rng([seed, variant]).integers(-30, 30, (4, 4, 3))
    return Image.fromarray(np.clip(blocks + noise, 0, 255).astype(np.uint8)).resize((40, 32), Image.Resampling.NEAREST)


@pytest.fixture
def photos(tmp_path):
    folder = tmp_path / "photos"
    for thing in range(6):
        (folder / f"thing{thing}").mkdir(parents=True)
        for variant in range(3):
            picture(thing, variant).save(folder / f"thing{thing}" / f"{variant}.png")
    return folder


def config(**changes):
    return tiny_config(views=2, augmented_share=0.5, **changes)


def test_pictures_become_examples(photos, tmp_path):
    extractor, reports = CellExtractor(), []
    found = gather(find_pictures(photos), config(), extractor, tmp_path / "cache", on_progress=reports.append)
    examples = found.examples
    assert (found.pictures, found.objects, found.extracted, extractor.extracted) == (18, 6, 54, 54)
    assert examples.labels.tolist() == [thing for thing in range(6) for _ in range(3)]
    assert examples.views.shape == (18, 3)
    assert len(set(examples.views.flat)) == 54
    assert examples.names[4] == "thing1/1.png"
    assert examples.rows.dim == DIM
    assert examples.held_out.sum() == 6
    assert examples.view_neighbours is None
    assert ((examples.view_similarity > -1) & (examples.view_similarity < 1)).all()
    (direct,) = CellExtractor().extract([picture(1, 1)])
    row = examples.views[4, 0]
    np.testing.assert_array_equal(examples.rows.vectors(row), direct.vectors[0].half().numpy())
    near = examples.neighbours
    vectors = examples.rows.image_vectors(examples.views[:, 0])
    assert near.similarities[4, 0] == pytest.approx(np.sort(vectors @ vectors[4])[-2], abs=1e-6)
    stages = {report.stage: (report.done, report.total) for report in reports}
    assert stages == {"photos: reading": (18, 18), "photos: descriptors": (54, 54)}


def test_nothing_is_extracted_twice_wherever_it_lies(photos, tmp_path):
    first = gather(find_pictures(photos), config(), CellExtractor(), tmp_path / "cache").examples
    moved = photos.rename(tmp_path / "elsewhere")
    again = gather(find_pictures(moved), config(seed=3, lr=0.1), CellExtractor(), tmp_path / "cache")
    assert again.extracted == 0
    assert again.examples.fingerprint == first.fingerprint
    picture(9).save(moved / "thing0" / "new.png")
    more = gather(find_pictures(moved), config(), CellExtractor(), tmp_path / "cache")
    assert more.extracted == 3
    assert more.examples.fingerprint != first.fingerprint
    other_views = gather(find_pictures(moved), config(data_seed=1), CellExtractor(), tmp_path / "cache")
    assert other_views.extracted == 2 * 19


def test_an_interrupted_run_keeps_what_it_had(photos, tmp_path):
    with pytest.raises(KeyboardInterrupt):
        gather(find_pictures(photos), config(), CellExtractor(broken_after=20), tmp_path / "cache")
    assert gather(find_pictures(photos), config(), CellExtractor(), tmp_path / "cache").extracted == 34


def test_unreadable_pictures_are_listed_before_anything_is_extracted(photos, tmp_path):
    (photos / "thing0" / "0.png").write_bytes(b"no picture")
    (photos / "thing1" / "x.txt").write_text("text")
    found = gather(find_pictures(photos), config(), CellExtractor(), tmp_path / "cache")
    assert found.pictures == 17
    assert [(each.path.name, each.reason) for each in found.skipped] == [
        ("x.txt", "not a picture (.txt)"),
        ("0.png", "it is damaged, or in no format that is read"),
    ]
    for thing in range(6):
        for variant in (1, 2):
            (photos / f"thing{thing}" / f"{variant}.png").write_bytes(b"no picture")
    extractor = CellExtractor()
    with pytest.raises(TrainingError, match="every object has one picture only"):
        gather(find_pictures(photos), config(), extractor, tmp_path / "other")
    assert extractor.extracted == 0


def test_copies_are_left_out_and_contradictions_refused(photos, tmp_path):
    content = (photos / "thing0" / "0.png").read_bytes()
    (photos / "thing0" / "copy.png").write_bytes(content)
    found = gather(find_pictures(photos), config(), CellExtractor(), tmp_path / "cache")
    assert found.pictures == 18
    assert found.notes == ("1 pictures are exact copies of others and were left out",)
    (photos / "thing1" / "copy.png").write_bytes(content)
    with pytest.raises(TrainingError, match=r"thing0/0.png and thing1/copy.png are the same file under two labels"):
        gather(find_pictures(photos), config(), CellExtractor(), tmp_path / "cache")


def test_without_labels_views_ask_for_their_picture(photos, tmp_path):
    recipe = tiny_config(views=2, augmented_share=1.0)
    found = gather(find_pictures(photos, self_supervised=True), recipe, CellExtractor(), tmp_path / "cache")
    examples = found.examples
    assert (examples.labels == UNLABELLED).all()
    assert found.objects == 0
    near = examples.view_neighbours
    originals = examples.rows.image_vectors(examples.views[:, 0])
    first_views = examples.rows.image_vectors(examples.views[:, 1])
    assert near.ids[3].tolist() == np.argsort(-(originals @ first_views[3]), kind="stable").tolist()
    # Labelled and unlabelled runs share their descriptors.
    assert gather(find_pictures(photos), config(), CellExtractor(), tmp_path / "cache").extracted == 0


def test_a_picture_that_changes_meanwhile_is_noticed(photos, tmp_path):
    class Changing(CellExtractor):
        def extract(self, pictures):
            for descriptors in super().extract(pictures):
                (photos / "thing5" / "2.png").write_bytes((photos / "thing4" / "2.png").read_bytes())
                yield descriptors

    with pytest.raises(TrainingError, match=r"2.png changed while the pictures were read: run again"):
        gather(find_pictures(photos), config(), Changing(), tmp_path / "cache")


def test_a_cache_that_cannot_be_written_is_one_line(photos, tmp_path, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    FeatureStore(tmp_path / "cache", "x" * 32, {})
    monkeypatch.setattr("elvis.training.features.write_atomically", full)
    with pytest.raises(CacheError, match="cannot be written: No space left on device"):
        gather(find_pictures(photos), config(), CellExtractor(), tmp_path / "cache")
