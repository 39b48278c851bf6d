"""Where a head starts."""

import numpy as np
import pytest
import torch

from elvis.models import Elvis, ElvisConfig
from elvis.models.base import standardised
from elvis.training.batches import stack
from elvis.training.start import new_head, start_affine, start_whitened
from training_examples import same_weights, tiny_config, toy_examples


@pytest.mark.parametrize("seed", range(3))
def test_f_starts_as_the_line_it_is_said_to_be(seed):
    head = Elvis(ElvisConfig(input_dim=4, dim=4, vote_layernorm=False))
    start_affine(head, seed)
    t = torch.linspace(0, 1, 50)
    torch.testing.assert_close(head.vote(t), torch.sigmoid(5 * (t - 0.4)), rtol=0, atol=1e-5)


def test_whitening_decorrelates_the_training_descriptors():
    config = tiny_config(head={"dim": 8})
    examples = toy_examples()
    head = new_head(examples, config)
    rows = [examples.rows.vectors(int(row)).astype(np.float32) for row in examples.views[~examples.held_out, 0]]
    x = torch.from_numpy(np.concatenate(rows))
    with torch.no_grad():
        y = head.projection[0](x)
    assert float(y.mean(dim=0).abs().max()) < 1e-3
    covariance = torch.cov(y.T, correction=0)
    eigenvalues = torch.linalg.eigvalsh(torch.cov(x.T, correction=0)).flip(0)
    expected = eigenvalues / (eigenvalues + 0.1 * eigenvalues.mean())
    torch.testing.assert_close(covariance, torch.diag(expected[:8]), rtol=0, atol=2e-3)


def test_whitening_sees_what_the_projection_will_see():
    config = tiny_config(head={"dim": 8, "standardise": True})
    examples = toy_examples()
    head = new_head(examples, config)
    rows = [examples.rows.vectors(int(row)).astype(np.float32) for row in examples.views[~examples.held_out, 0]]
    with torch.no_grad():
        y = head.projection[0](standardised(stack(rows)).vectors.flatten(0, 1))
    assert float(y.mean(dim=0).abs().max()) < 1e-3


def test_the_seed_decides_and_the_worlds_random_numbers_stay():
    examples = toy_examples()
    torch.manual_seed(5)
    before = torch.get_rng_state()
    one, same = (new_head(examples, tiny_config(projection_start="xavier", seed=1)) for _ in range(2))
    assert torch.equal(torch.get_rng_state(), before)
    other = new_head(examples, tiny_config(projection_start="xavier", seed=2))
    assert same_weights(one.state_dict(), same.state_dict())
    assert not torch.equal(one.projection[0].weight, other.projection[0].weight)


def test_what_does_not_fit_is_refused():
    with pytest.raises(ValueError, match="vote_start"):
        start_affine(Elvis(ElvisConfig(input_dim=4, dim=4)))
    with pytest.raises(ValueError, match="whitened needs dim of at most 16 channels, got 32"):
        new_head(toy_examples(), tiny_config(head={"dim": 32}))
    with pytest.raises(ValueError, match="whitened needs a head with a projection"):
        start_whitened(Elvis(ElvisConfig(input_dim=16, dim=16, projection=False)), toy_examples())
