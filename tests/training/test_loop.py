"""The loop: it learns, it can be interrupted, and it says when it does not learn."""

import json
import logging
from dataclasses import replace

import numpy as np
import pytest
import torch

from elvis.errors import MissingExtra, TrainingError
from elvis.training import journal, loop
from elvis.training.checkpoint import load_state
from elvis.training.journal import read_journal
from elvis.training.loop import rate_factor, train
from elvis.training.validation import average_precisions, questions
from training_examples import ArrayRows, same_weights, tiny_config, toy_examples


def test_the_loss_falls_and_the_held_out_objects_are_found():
    examples, reports = toy_examples(), []
    trained = train(examples, tiny_config(), on_step=reports.append)
    losses = [report.loss for report in reports]
    assert np.mean(losses[-10:]) < np.mean(losses[:10]) - 0.2
    assert [step for step, _ in trained.validations] == [0, 30, 60]
    start, best = trained.validations[0][1], max(found for _, found in trained.validations)
    assert best > start + 0.1
    assert trained.map == best == dict(trained.validations)[trained.step]
    assert trained.stuck is None
    assert [(report.step, report.steps) for report in reports] == [(step, 60) for step in range(1, 61)]
    assert reports[-1].seconds_left == 0
    # The head that is returned is the one that was best.
    asked = questions(examples, tiny_config())
    assert average_precisions(asked, trained.head, tiny_config()).mean() == pytest.approx(best)
    assert not trained.head.training


def test_without_labels_it_learns_too():
    config = tiny_config(augmented_share=1.0, views=2)
    reports = []
    trained = train(toy_examples(labelled=False, config=config), config, on_step=reports.append)
    losses = [report.loss for report in reports]
    assert np.mean(losses[-10:]) < np.mean(losses[:10]) - 0.1
    assert trained.map > trained.validations[0][1]


def test_the_published_form_trains_by_epochs():
    config = tiny_config(epochs=2, loss="bce", descriptor_choice="strongest", holdout=0.0)
    trained = train(toy_examples(config=config), config)
    assert trained.map is None
    assert trained.validations == ()
    assert trained.step == 2 * -(-60 // 8)
    assert same_weights(trained.head.state_dict(), trained.last.state_dict())


def test_the_same_seed_gives_the_same_weights_and_another_gives_others():
    one, same, other = (train(toy_examples(), tiny_config(steps=5, seed=seed)).last for seed in (0, 0, 1))
    assert same_weights(one.state_dict(), same.state_dict())
    assert not same_weights(one.state_dict(), other.state_dict())


class Interrupted(Exception):
    pass


def stop_at(step):
    def on_step(report):
        if report.step == step:
            raise Interrupted

    return on_step


@pytest.mark.parametrize("stopped", [3, 13, 25])
def test_a_resumed_run_ends_with_the_same_bits(tmp_path, stopped):
    config = tiny_config(steps=26, checkpoint_every=10, validate_every=7, augmented_share=0.5, views=2)
    straight = train(toy_examples(), config, tmp_path / "straight")
    (tmp_path / "broken").mkdir()
    with pytest.raises(Interrupted):
        train(toy_examples(), config, tmp_path / "broken", on_step=stop_at(stopped))
    if stopped < 10:
        with pytest.raises(TrainingError, match="there is nothing to resume"):
            train(toy_examples(), config, tmp_path / "broken", resume=True)
        return
    torch.rand(3)  # what happens elsewhere in between does not matter
    resumed = train(toy_examples(), config, tmp_path / "broken", resume=True)
    assert same_weights(resumed.last.state_dict(), straight.last.state_dict())
    assert same_weights(resumed.head.state_dict(), straight.head.state_dict())
    assert (resumed.validations, resumed.losses, resumed.step) == (
        straight.validations,
        straight.losses,
        straight.step,
    )
    assert read_journal(tmp_path / "broken") == read_journal(tmp_path / "straight")
    # A finished run can be "resumed" too: it is simply there.
    again = train(toy_examples(), config, tmp_path / "broken", resume=True)
    assert same_weights(again.head.state_dict(), straight.head.state_dict())


def test_a_checkpoint_of_other_settings_or_pictures_is_refused(tmp_path):
    config = tiny_config(steps=2)
    train(toy_examples(), config, tmp_path)
    with pytest.raises(TrainingError, match="was trained with settings .* and this run has .*--overwrite"):
        train(toy_examples(), replace(config, lr=0.5), tmp_path, resume=True)
    with pytest.raises(TrainingError, match="was trained with pictures"):
        train(toy_examples(seed=1), config, tmp_path, resume=True)
    (tmp_path / "checkpoint.pt").write_bytes((tmp_path / "checkpoint.pt").read_bytes()[:1000])
    with pytest.raises(TrainingError, match="is damaged: train anew"):
        train(toy_examples(), config, tmp_path, resume=True)


class Fetched:
    def __reduce__(self):
        return print, ("a checkpoint ran code",)


def test_a_checkpoint_cannot_run_code(tmp_path, capsys):
    torch.save({"belongs_to": "{}", "schema": 1, "step": Fetched()}, tmp_path / "checkpoint.pt")
    with pytest.raises(TrainingError, match="is damaged"):
        load_state(tmp_path, {})
    assert capsys.readouterr().out == ""


def test_a_head_is_trained_further(tmp_path):
    examples = toy_examples()
    first = train(examples, tiny_config(steps=30)).head
    before = {name: value.clone() for name, value in first.state_dict().items()}
    more = train(examples, tiny_config(steps=5, lr=1e-3), tmp_path, start=first)
    assert more.validations[0][1] == pytest.approx(
        average_precisions(questions(examples, tiny_config()), first, tiny_config()).mean()
    )
    assert same_weights(first.state_dict(), before)
    assert not same_weights(more.last.state_dict(), before)
    with pytest.raises(TrainingError, match="was trained with start"):
        train(examples, tiny_config(steps=5, lr=1e-3), tmp_path, resume=True)


def test_a_loss_that_is_no_number_stops_before_the_checkpoint_is_overwritten(tmp_path):
    config = tiny_config(steps=20, checkpoint_every=5, projection_start="xavier")
    with pytest.raises(Interrupted):
        train(toy_examples(), config, tmp_path, on_step=stop_at(7))
    before = (tmp_path / "checkpoint.pt").read_bytes()
    examples = toy_examples()
    # From now on every picture's descriptors are so large that the projection overflows.
    broken = replace(examples, rows=ArrayRows([row.astype(np.float32) * 1e37 for row in examples.rows.rows]))
    with pytest.raises(TrainingError, match=r"step 6: the loss is no number any more.*lower lr \(now 0.01\)"):
        train(broken, config, tmp_path, resume=True)
    assert (tmp_path / "checkpoint.pt").read_bytes() == before


def test_a_loss_that_stays_at_chance_is_called_out(caplog):
    # The published form on small data: raw sums into g, LayerNorm in f.
    head = {"calibrate": "sum", "vote_layernorm": True}
    config = tiny_config(loss="bce", head=head, vote_start="xavier", projection_start="xavier", warmup=0.0)
    with caplog.at_level(logging.WARNING):
        trained = train(toy_examples(config=config), config)
    message = "the loss has stayed at 0.693, that of guessing, for 50 steps: the raw sum of votes into g collapses"
    assert message in trained.stuck
    assert caplog.text.count("the loss has stayed at 0.693") == 1


def test_the_rate_warms_up_and_falls_as_a_cosine():
    config = tiny_config(steps=40, projection_lr=1e-3, lr=4e-3, warmup=0.25)
    factors = [rate_factor(step, 40, config) for step in range(40)]
    assert factors[0] == pytest.approx(1 / 3)
    assert factors[10] == 1
    np.testing.assert_allclose(np.diff(factors[:11]), (2 / 3) / 10)
    np.testing.assert_allclose(factors[10:], 0.5 * (1 + np.cos(np.pi * np.arange(30) / 30)))


def test_the_projection_has_a_rate_of_its_own(monkeypatch):
    groups = []
    step = torch.optim.AdamW.step

    def watched(self, *args):
        groups.append([(len(group["params"]), group["lr"], group["weight_decay"]) for group in self.param_groups])
        return step(self, *args)

    monkeypatch.setattr(torch.optim.AdamW, "step", watched)
    trained = train(toy_examples(), tiny_config(steps=1, projection_lr=1e-4, lr=3e-3, warmup=0.0))
    parameters = len(list(trained.head.parameters()))
    assert groups == [[(parameters - 4, 3e-3, 5e-4), (4, 1e-4, 5e-4)]]


def test_clipping_and_mixed_precision_change_the_weights():
    plain, clipped, mixed = (
        train(toy_examples(), tiny_config(steps=3, **changes)).last.state_dict()
        for changes in ({}, {"clip": 1e-3}, {"precision": "bf16"})
    )
    assert not same_weights(plain, clipped)
    assert not same_weights(plain, mixed)
    torch.testing.assert_close(plain["projection.0.weight"], mixed["projection.0.weight"], rtol=0, atol=0.05)


def test_the_log_has_a_line_a_step_and_tensorboard_beside_it(tmp_path):
    pytest.importorskip("tensorboard", reason="the extra `train` is not installed")
    train(toy_examples(), tiny_config(steps=3, validate_every=2), tmp_path, tensorboard=True)
    lines = [json.loads(text) for text in (tmp_path / "log.jsonl").read_text().splitlines()]
    assert [(line["step"], *sorted(line.keys() - {"step"})) for line in lines] == [
        (0, "map"),
        (1, "gradient", "loss", "rate"),
        (2, "gradient", "loss", "rate"),
        (2, "map"),
        (3, "gradient", "loss", "rate"),
        (3, "map"),
    ]
    assert list((tmp_path / "tensorboard").iterdir())


def test_missing_tensorboard_is_one_line(tmp_path, monkeypatch, caplog):
    monkeypatch.setattr(journal, "find_spec", lambda name: None)
    with caplog.at_level(logging.INFO):
        train(toy_examples(), tiny_config(steps=1), tmp_path)
    assert caplog.text.count("no TensorBoard logs: pip install 'elvis-retrieval[train]'") == 1
    with pytest.raises(MissingExtra, match=r"this needs tensorboard: pip install 'elvis-retrieval\[train\]'"):
        train(toy_examples(), tiny_config(steps=1), tmp_path, tensorboard=True)


def test_a_full_disk_is_one_line(tmp_path, monkeypatch):
    def full(*_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr("elvis.training.checkpoint.os.replace", full)
    with pytest.raises(TrainingError, match="cannot be written .No space left on device.: make room, then go on with"):
        train(toy_examples(), tiny_config(steps=1), tmp_path)
    assert not list(tmp_path.glob(".checkpoint*"))


def test_stuck_needs_enough_steps():
    head = train(toy_examples(), tiny_config(steps=1)).head
    config = tiny_config(loss="bce")
    assert loop._stuck([0.6931] * 49, head, config) is None
    assert loop._stuck([0.6931] * 50, head, config)
    assert loop._stuck([0.6931] * 25 + [0.5] * 25, head, config) is None
