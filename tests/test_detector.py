import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors.torch import save_file

from elvis.detector import SpatialAttention2d, load_detector, strength_by_both_cues, strongest
from elvis.errors import WeightsError


def random_detector(dim=6):
    torch.manual_seed(2)
    detector = SpatialAttention2d(dim)
    with torch.no_grad():
        detector.bn.running_mean.normal_()
        detector.bn.running_var.uniform_(0.5, 2)
        for parameter in detector.parameters():
            parameter.normal_()
    return detector.eval()


@pytest.mark.parametrize("form", ["safetensors", "published"])
def test_a_detector_file_gives_the_same_weights_again(tmp_path, form):
    detector, grid = random_detector(), torch.randn(2, 3, 4, 6)
    state = dict(detector.state_dict())
    path = tmp_path / "detector"
    if form == "safetensors":
        path = path.with_suffix(".safetensors")
        save_file(state, path)
    else:
        torch.save({"state": state, "epoch": 3, "optim": {}}, path)
    assert torch.equal(load_detector(path)(grid), detector(grid))


def test_the_weight_is_what_the_published_steps_give():
    detector, grid = random_detector(), torch.randn(1, 2, 3, 6)
    state = detector.state_dict()
    tokens = grid.flatten(0, 2)
    inner = tokens @ state["conv1.weight"][:, :, 0, 0].T + state["conv1.bias"]
    inner = (inner - state["bn.running_mean"]) / (state["bn.running_var"] + 1e-5).sqrt()
    inner = (inner * state["bn.weight"] + state["bn.bias"]).clamp_min(0)
    weight = (1 + (inner @ state["conv2.weight"][0, :, 0, 0] + state["conv2.bias"]).exp()).log()
    assert torch.allclose(detector(grid)[0], weight, atol=1e-5)
    assert (detector(grid) > 0).all()


@pytest.mark.parametrize("change", ["missing", "extra", "shape", "other"])
def test_a_file_that_is_no_detector_is_refused_in_one_line(tmp_path, change):
    state = dict(random_detector().state_dict())
    if change == "missing":
        del state["bn.running_mean"]
    elif change == "extra":
        state["conv3.bias"] = torch.zeros(1)
    elif change == "shape":
        state["conv2.weight"] = torch.zeros(1, 5, 1, 1)
    else:
        state = {"dust_bin": torch.zeros(1)}
    save_file(state, tmp_path / "bad.safetensors")
    with pytest.raises(WeightsError, match=r"bad.safetensors holds no detector: [^\n]+$"):
        load_detector(tmp_path / "bad.safetensors")


def test_both_cues_count_alike():
    grid = torch.ones(1, 1, 4, 2)
    grid[0, 0, 3] = torch.tensor([1.0, -1.0])
    attention = torch.tensor([[[0.4, 0.3, 0.2, 0.1]]])
    strength = strength_by_both_cues(grid, attention)[0]
    # The last patch has the least attention but stands out most; among the rest attention decides.
    assert strength[3] == strength[0] == 1
    assert strength[0] > strength[1] > strength[2] > 0


@given(st.integers(0, 10_000), st.integers(1, 5), st.integers(1, 5))
def test_strength_ignores_the_order_of_patches_and_the_other_pictures(seed, rows, columns):
    generator = torch.Generator().manual_seed(seed)
    grid = torch.randn(3, rows, columns, 4, generator=generator, dtype=torch.float64)
    attention = torch.rand(3, rows, columns, generator=generator)
    strength = strength_by_both_cues(grid, attention)
    assert strength.min() >= 0
    assert strength.max() <= 2
    alone = strength_by_both_cues(grid[1:2], attention[1:2])
    assert torch.equal(alone[0], strength[1])
    order = torch.randperm(rows * columns, generator=generator)
    shuffled = strength_by_both_cues(
        grid.flatten(1, 2)[:, order].unflatten(1, (rows, columns)),
        attention.flatten(1)[:, order].unflatten(1, (rows, columns)),
    )
    assert torch.allclose(shuffled, strength[:, order])


def test_one_patch_has_a_strength():
    assert strength_by_both_cues(torch.ones(1, 1, 1, 3), torch.ones(1, 1, 1)).tolist() == [[0.0]]


def test_the_strongest_come_first_and_equals_in_order():
    strength = torch.tensor([[1.0, 3.0, 3.0, 2.0], [0.0, 0.0, 0.0, 1.0]])
    assert strongest(strength, 3).tolist() == [[1, 2, 3], [3, 0, 1]]
    assert strongest(strength, 9).shape == (2, 4)
    with pytest.raises(ValueError, match="count: expected at least 1, got 0"):
        strongest(strength, 0)
