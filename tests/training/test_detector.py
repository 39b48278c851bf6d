"""Training the detector: it learns which patches tell objects apart."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from PIL import Image
from torch.nn import functional

from elvis.detector import SpatialAttention2d, load_detector, strength_by_both_cues
from elvis.errors import TrainingError
from elvis.extract import ExtractionSettings, Extractor
from elvis.training.detector import (
    DetectorConfig,
    contrast,
    detector_file,
    fit_detector,
    new_detector,
    picture_descriptor,
    train_detector,
)
from training_examples import same_weights, tiny_config, toy_examples


def config(**changes):
    return DetectorConfig(recipe=tiny_config(steps=40, triplets=16, lr=3e-3, **changes), patches=14, chosen=6)


def test_the_first_descriptor_is_the_mean_of_the_normalised_tokens():
    tokens = torch.randn(3, 9, 5)
    detector = new_detector(5).eval()
    with torch.no_grad():
        found = picture_descriptor(detector, tokens)
    mean = functional.normalize(functional.normalize(tokens, dim=2).mean(dim=1), dim=1)
    assert float((found * mean).sum(dim=1).min()) > 0.999


def test_the_descriptor_is_the_published_one():
    torch.manual_seed(0)
    detector = SpatialAttention2d(5).eval()
    tokens = torch.randn(2, 9, 5)
    with torch.no_grad():
        mapped = detector.bn(detector.conv1(tokens.reshape(2, 3, 3, 5).permute(0, 3, 1, 2)))
        weight = detector(tokens.reshape(2, 3, 3, 5)).reshape(2, 1, 3, 3)
        expected = functional.normalize((functional.normalize(mapped, dim=1) * weight).mean(dim=(2, 3)), dim=1)
        torch.testing.assert_close(picture_descriptor(detector, tokens), expected)


def test_the_loss_is_a_softmax_over_pictures_of_other_objects():
    torch.manual_seed(1)
    vectors = functional.normalize(torch.randn(6, 4), dim=1)
    labels = torch.tensor([[0, 0, 1], [2, 2, 0]])
    pictures = torch.tensor([[0, 1, 2], [3, 4, 1]])
    found = contrast(vectors, labels, pictures, 0.5)
    cosine = vectors @ vectors.T / 0.5

    def one(anchor, positive, others):
        return -cosine[anchor, positive] + torch.logsumexp(cosine[anchor, [positive, *others]], dim=0)

    # Slots: 0 1 2 are anchor, positive and negative of the first triplet (objects 0 0 1), 3 4 5 of the second (2 2 0).
    forward = (one(0, 1, [4, 2]) + one(3, 4, [1, 2, 5])) / 2
    back = (one(1, 0, [3, 2]) + one(4, 3, [0, 2, 5])) / 2
    assert float(found) == pytest.approx(float((forward + back) / 2), rel=1e-5)


def test_it_learns_and_the_best_is_kept():
    reports = []
    detector, step = train_detector(toy_examples(), config(), on_step=reports.append)
    losses = [report.loss for report in reports]
    assert np.mean(losses[-8:]) < np.mean(losses[:8]) - 0.3
    assert step in (30, 40)
    again, _ = train_detector(toy_examples(), config())
    assert same_weights(detector.state_dict(), again.state_dict())
    last, step = train_detector(toy_examples(config=config(holdout=0.0).recipe), config(holdout=0.0))
    assert step == 40
    assert not last.training


def test_a_loss_that_is_no_number_stops():
    broken = toy_examples()
    broken = replace(broken, rows=type(broken.rows)([np.full_like(row, np.inf) for row in broken.rows.rows]))
    with pytest.raises(TrainingError, match="step 1: the loss is no number any more"):
        train_detector(broken, config(holdout=0.0))


def test_the_file_is_in_the_published_layout(tmp_path):
    detector, _ = train_detector(toy_examples(), config())
    file = tmp_path / "detector.safetensors"
    file.write_bytes(detector_file(detector, ExtractionSettings()))
    loaded = load_detector(file)
    assert same_weights(loaded.state_dict(), detector.state_dict())
    tokens = torch.randn(1, 2, 3, 16)
    assert torch.equal(loaded(tokens), detector(tokens).detach())


@pytest.mark.weights
def test_from_pictures_to_a_detector_that_extraction_takes(tmp_path):
    for thing in range(6):
        tiles = np.random.default_rng(thing).integers(0, 255, (6, 6, 3), dtype=np.uint8)
        whole = Image.fromarray(tiles).resize((96, 96), Image.Resampling.NEAREST)
        folder = tmp_path / "photos" / f"thing{thing}"
        folder.mkdir(parents=True)
        whole.crop((0, 0, 80, 96)).save(folder / "left.png")
        whole.crop((16, 0, 96, 96)).save(folder / "right.png")
    recipe = DetectorConfig(patches=10, chosen=4).changed(
        {"steps": 2, "triplets": 4, "extraction": {"longer_side": 70, "precision": "fp32"}}
    )
    out = tmp_path / "detector.safetensors"
    fitted = fit_detector(tmp_path / "photos", out, recipe, cache=tmp_path / "cache")
    assert 0 <= fitted.before <= 1
    assert 0 <= fitted.after <= 1
    assert fitted.queries == 4
    assert fitted.to_dict()["detector"] == str(out)
    settings = ExtractionSettings(longer_side=70, descriptors=5, selection=str(out), precision="fp32")
    (one,) = Extractor(settings).extract([Image.new("RGB", (60, 40), "red")])
    assert one.vectors.shape == (1, 5, 384)
    grid = torch.randn(1, 3, 3, 384)
    assert not torch.equal(load_detector(out)(grid), strength_by_both_cues(grid, torch.rand(1, 3, 3)))
    with pytest.raises(TrainingError, match="is there already: name another file, or add --overwrite"):
        fit_detector(tmp_path / "photos", out, recipe)
    for wrong, message in ((tmp_path, "ends in .safetensors"), (tmp_path / "no" / "x.safetensors", "does not exist")):
        with pytest.raises(TrainingError, match=message):
            fit_detector(tmp_path / "photos", wrong, recipe)
