"""Losses, and that working them off in blocks changes no gradient."""

import math
from dataclasses import replace

import pytest
import torch
from torch.nn import functional

from elvis.training import losses
from elvis.training.batches import BatchMaker
from elvis.training.losses import backward, chance_loss, pair_loss
from elvis.training.start import new_head
from training_examples import tiny_config, toy_examples


def plain_loss(head, batch, config):
    """The loss of a batch as one would write it without thinking of memory."""
    total = 0
    for i in range(len(batch.anchors)):
        real = batch.real[i]
        anchor, some = batch.anchors.select(i), batch.others.select(batch.candidates[i][real])
        logits = head.logits(anchor.select([0] * len(some)), some)
        if config.loss == "bce":
            target = torch.zeros(len(some))
            target[0] = 1
            total = total + functional.binary_cross_entropy_with_logits(logits, target)
        else:
            total = total - functional.log_softmax(logits, dim=0)[0]
    return total / batch.total


@pytest.mark.parametrize("loss", ["bce", "listwise"])
@pytest.mark.parametrize("budget", [1, 1000, 1 << 22])
@pytest.mark.parametrize("head", [{}, {"dustbin": "scalar"}, {"projection": False, "dustbin": "scalar"}])
def test_gradients_in_blocks_are_those_of_the_whole(monkeypatch, loss, budget, head):
    if not head.get("projection", True):
        head = {**head, "dim": 16}
    starts = {"projection_start": "xavier"}
    config = tiny_config(loss=loss, augmented_share=0.5, views=2, head={"rounds": 3, **head}, **starts)
    batch = BatchMaker(toy_examples(), config).batch(2)
    one, other = (new_head(toy_examples(), config) for _ in range(2))
    monkeypatch.setattr(losses, "CPU_ENTRIES", budget)
    found = backward(one, batch, config)
    expected = plain_loss(other, batch, config)
    expected.backward()
    assert float(found) == pytest.approx(expected.item(), rel=1e-5)
    for (name, a), (_, b) in zip(one.named_parameters(), other.named_parameters(), strict=True):
        assert (a.grad is None) == (b.grad is None), name
        if a.grad is not None:
            torch.testing.assert_close(a.grad, b.grad, rtol=2e-3, atol=2e-6, msg=name)


def test_missing_candidates_do_not_count():
    logits = torch.tensor([[1.0, 0.3, 5.0], [2.0, -1.0, 0.4]])
    real = torch.tensor([[True, True, False], [True, True, True]])
    for loss in ("bce", "listwise"):
        alone = pair_loss(logits[:1, :2], real[:1, :2], loss) + pair_loss(logits[1:], real[1:], loss)
        assert float(pair_loss(logits, real, loss)) == pytest.approx(float(alone))
        nobody = pair_loss(logits, torch.zeros_like(real), loss)
        assert float(nobody) == 0


def test_a_head_that_knows_nothing_has_the_loss_of_chance():
    config = tiny_config(batch_negatives=4)
    assert chance_loss(config) == pytest.approx(math.log(6))
    assert chance_loss(replace(config, loss="bce")) == pytest.approx(math.log(2))
    real = torch.ones(3, 6, dtype=torch.bool)
    assert float(pair_loss(torch.full((3, 6), 0.7), real, "listwise")) / 3 == pytest.approx(math.log(6))


def test_mixed_precision_is_close_to_full():
    config = tiny_config()
    batch = BatchMaker(toy_examples(), config).batch(0)
    full, half = (new_head(toy_examples(), config) for _ in range(2))
    a = float(backward(full, batch, config))
    b = float(backward(half, batch, replace(config, precision="bf16")))
    assert a != b
    assert a == pytest.approx(b, rel=0.02)
    assert all(parameter.grad.dtype == torch.float32 for parameter in half.parameters() if parameter.grad is not None)
