"""ELViS against the published answers, its settings, its files."""

import json
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import Tensor

from elvis import Descriptors, load_model
from elvis.errors import WeightsError
from elvis.models import Elvis, ElvisConfig
from elvis.models.published import convert_elvis, published_padded_score
from examples import random_pictures, small_elvis

CASES = range(6)


class Oracle:
    """One case of `oracles/elvis.npz`."""

    def __init__(self, folder: Path, case: int) -> None:
        with np.load(folder / "elvis.npz") as stored:
            self.arrays = {
                name.split(".")[1]: torch.from_numpy(stored[name])
                for name in stored.files
                if name.startswith(f"{case}.")
            }
        self.query = self._descriptors("query")
        self.gallery = self._descriptors("gallery")

    def _descriptors(self, side: str) -> Descriptors:
        padding = self.arrays.get(f"{side}_mask")
        return Descriptors(self.arrays[side], None if padding is None else ~padding)

    def __getitem__(self, name: str) -> Tensor:
        return self.arrays[name]


@pytest.fixture(params=CASES)
def oracle(request: pytest.FixtureRequest, oracles: Path) -> Oracle:
    return Oracle(oracles, request.param)


@pytest.fixture(scope="module")
def published(oracles: Path) -> Elvis:
    return convert_elvis(oracles / "elvis.safetensors")


def padded(descriptors: Descriptors, count: int) -> Descriptors:
    """With `count` more padded places, filled with something that would be noticed."""
    pictures, _, dim = descriptors.vectors.shape
    return Descriptors(
        torch.cat([descriptors.vectors, torch.full((pictures, count, dim), 50.0)], dim=1),
        torch.cat([descriptors.mask, torch.zeros(pictures, count, dtype=torch.bool)], dim=1),
    )


def assert_close(ours: Tensor, theirs: Tensor) -> None:
    torch.testing.assert_close(ours, theirs, rtol=0, atol=1e-4 * float(theirs.abs().max()))


@pytest.mark.parametrize("gradients", [False, True], ids=["scalings", "reference"])
@pytest.mark.parametrize("padding", [0, 9])
def test_batch_gives_the_published_answers(published: Elvis, oracle: Oracle, padding: int, gradients: bool) -> None:
    query, gallery = padded(oracle.query, padding), padded(oracle.gallery, padding)
    with torch.set_grad_enabled(gradients):
        assert_close(published(query, gallery).detach(), oracle["score"])
        assert_close(published.logits(query, gallery).detach(), oracle["logit"])
        strengths = published.strengths(published.prepare(query), published.prepare(gallery))
        m, n = oracle.query.mask.shape[1], oracle.gallery.mask.shape[1]
        both = torch.cat([strengths.query[:, :m], strengths.gallery[:, :n]], dim=1)
        assert_close(both.detach(), oracle["strengths"])


def test_each_pair_alone_gives_the_published_answers(published: Elvis, oracle: Oracle) -> None:
    with torch.no_grad():
        for pair in range(len(oracle.query)):
            query, gallery = oracle.query.select(pair), oracle.gallery.select(pair)
            query = query.strongest(int(query.counts))
            gallery = gallery.strongest(int(gallery.counts))
            assert_close(published(query, gallery), oracle["score"][pair : pair + 1])


def test_published_padding_on_request(published: Elvis, oracle: Oracle) -> None:
    query, gallery = oracle.query, oracle.gallery
    if "padding" in oracle.arrays:
        query, gallery = (padded(each, int(oracle["padding"])) for each in (query, gallery))
    assert_close(published_padded_score(published, query, gallery), oracle["score_official_padded"])


def test_ablations_have_no_published_padding() -> None:
    pictures = random_pictures(1, 5, 12, seed=0)
    with pytest.raises(ValueError, match="published form, got an ablation"):
        published_padded_score(small_elvis(dustbin="scalar"), pictures, pictures)


@pytest.mark.parametrize(
    "settings",
    [
        {},
        {"calibrate": "mean", "vote_layernorm": False, "gain_tanh": False},
        {"dustbin": "scalar", "learn_temperature": True},
        {"dustbin": "none", "calibrate": "none"},
        {"vote": False, "calibrate": "none"},
        {"projection": False, "dim": 4},
        {"standardise": True, "rounds": 3, "temperature": 0.5},
    ],
    ids=str,
)
def test_gradcheck_of_the_whole_model(settings: dict) -> None:
    head = small_elvis(**{"input_dim": 4, "dim": 3, "rounds": 3, "temperature": 0.3, **settings}).double()
    query, gallery = (random_pictures(1, 3, 4, seed=seed, dtype=torch.float64).vectors for seed in (1, 2))
    parameters = [p for p in head.parameters() if p.numel() < 10]

    def logits(query: Tensor, gallery: Tensor, *_: Tensor) -> Tensor:
        return head.logits(Descriptors(query), Descriptors(gallery))

    assert torch.autograd.gradcheck(logits, (query.requires_grad_(), gallery.requires_grad_(), *parameters), atol=1e-4)


def test_every_parameter_learns() -> None:
    head = small_elvis(learn_temperature=True)
    head.logits(random_pictures(2, 9, 12, seed=1), random_pictures(2, 7, 12, seed=2)).sum().backward()
    assert all(p.grad is not None and p.grad.abs().sum() > 0 for p in head.parameters())


def test_parameter_counts_of_the_published_form() -> None:
    count = {d: sum(p.numel() for p in Elvis(ElvisConfig(input_dim=d)).parameters()) for d in (768, 1024, 1152)}
    assert count == {768: 115_604, 1024: 148_372, 1152: 164_756}


def test_without_dustbins_unequal_counts_are_refused() -> None:
    head = small_elvis(dustbin="none")
    same = head(random_pictures(2, 6, 12, seed=1), random_pictures(2, 6, 12, seed=2))
    assert same.isfinite().all()
    with pytest.raises(ValueError, match="same number of descriptors, got 6 and 5"):
        head(random_pictures(2, 6, 12, seed=1), random_pictures(2, 5, 12, seed=2))


def test_mean_vote_does_not_depend_on_the_number_of_descriptors() -> None:
    head = small_elvis(calibrate="none", vote=False)
    picture = random_pictures(1, 30, 12, seed=3)
    score = head(picture, picture)
    torch.testing.assert_close(head.logits(picture, picture), torch.logit(score / 60))


def test_explanation_adds_up() -> None:
    head = small_elvis()
    query, gallery = random_pictures(1, 9, 12, seed=1), padded(random_pictures(3, 7, 12, seed=2), 2)
    seen = head.explain(query, gallery)
    torch.testing.assert_close(seen.score, head(query, gallery).detach())
    torch.testing.assert_close(seen.query_votes.sum(1) + seen.gallery_votes.sum(1), seen.score)
    assert seen.refined.shape == seen.similarity.shape == (3, 9, 9)
    assert seen.query.gain.shape == (3, 9)
    assert int(seen.query_partners.max()) < 7
    best = seen.refined[1, 4, seen.query_partners[1, 4]]
    assert best == seen.refined[1, 4].max() == seen.query_strengths[1, 4]
    assert seen.similarity[1, 4, seen.query_partners_before[1, 4]] == seen.similarity[1, 4, :7].max()
    assert seen.gallery_votes[:, 7:].abs().sum() == 0


def test_bad_input_is_named() -> None:
    head = small_elvis()
    with pytest.raises(ValueError, match="expected 12 channels as the head was trained with, got 5"):
        head.prepare(random_pictures(1, 3, 5, seed=0))
    pictures = random_pictures(3, 4, 12, seed=0)
    with pytest.raises(ValueError, match="batch of 1 or of 3 pictures as the gallery has, got 2"):
        head(pictures.select([0, 1]), pictures)
    with pytest.raises(ValueError, match="query: expected descriptors from this head's `prepare`"):
        head.score(Descriptors(torch.randn(1, 4, 8)), head.prepare(pictures))


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"rounds": 0}, "rounds: expected at least 1, got 0"),
        ({"temperature": -1.0}, "temperature: expected a number above 0"),
        ({"dustbin": "some"}, "dustbin: expected descriptor, scalar or none, got 'some'"),
        ({"calibrate": "x"}, "calibrate: expected sum, mean, affine or none, got 'x'"),
        ({"projection": False}, "dim: without a projection expected input_dim = 768, got 128"),
    ],
)
def test_bad_settings_are_named(wrong: dict, words: str) -> None:
    with pytest.raises(ValueError, match=words):
        ElvisConfig(**wrong)


def test_numbers_too_large_to_project_are_refused_not_scored() -> None:
    with pytest.raises(ValueError, match="expected finite numbers"):
        small_elvis()(Descriptors(torch.full((1, 2, 12), 3e38)), random_pictures(1, 2, 12, seed=0))


class TestFiles:
    def test_a_head_comes_back_as_it_was_saved(self, tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
        head = small_elvis(calibrate="mean", rounds=7, learn_temperature=True)
        head.save_pretrained(tmp_path / "head")
        card = json.loads((tmp_path / "head" / "config.json").read_text())
        assert card["rounds"] == 7
        assert (tmp_path / "head" / "model.safetensors").is_file()
        again = load_model("elvis", tmp_path / "head")
        assert isinstance(again, Elvis)
        assert again.config == head.config
        assert again.fingerprint == head.fingerprint
        pictures = random_pictures(2, 5, 12, seed=0)
        torch.testing.assert_close(again(pictures, pictures), head(pictures, pictures))
        assert not again.training
        assert capfd.readouterr() == ("", "")

    def test_fingerprint_follows_settings_and_weights_not_provenance(self) -> None:
        head = small_elvis()
        assert small_elvis(rounds=9).fingerprint != head.fingerprint
        assert small_elvis(card={"author": "me"}).fingerprint == head.fingerprint
        other = small_elvis()
        with torch.no_grad():
            other.corner.add_(1e-3)
        assert other.fingerprint != head.fingerprint

    def test_a_damaged_folder_is_named(self, tmp_path: Path) -> None:
        head = small_elvis()
        head.save_pretrained(tmp_path / "head")
        weights = tmp_path / "head" / "model.safetensors"
        whole = weights.read_bytes()
        weights.write_bytes(whole[: len(whole) // 2])
        with pytest.raises(WeightsError, match="does not hold a whole Elvis head"):
            load_model("elvis", tmp_path / "head")
        weights.unlink()
        with pytest.raises(WeightsError, match="does not hold a whole Elvis head"):
            load_model("elvis", tmp_path / "head")
        (tmp_path / "head" / "config.json").write_text("{")
        with pytest.raises(WeightsError, match="is no JSON"):
            load_model("elvis", tmp_path / "head")
        (tmp_path / "empty").mkdir()
        with pytest.raises(WeightsError, match="holds no head"):
            load_model("elvis", tmp_path / "empty")

    def test_weights_of_another_shape_are_refused(self, tmp_path: Path) -> None:
        small_elvis().save_pretrained(tmp_path / "head")
        card = json.loads((tmp_path / "head" / "config.json").read_text())
        (tmp_path / "head" / "config.json").write_text(json.dumps({**card, "input_dim": 13}))
        with pytest.raises(WeightsError, match="size mismatch"):
            load_model("elvis", tmp_path / "head")

    def test_without_weights_the_error_says_what_to_pass(self) -> None:
        with pytest.raises(WeightsError, match="pass a folder or hub name"):
            load_model("elvis")
        with pytest.raises(TypeError, match="settings are saved with its weights"):
            load_model("elvis", "x", rounds=3)
