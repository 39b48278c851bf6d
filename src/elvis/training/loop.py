"""The training loop, from top to bottom."""

from __future__ import annotations

import logging
import math
import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import torch
from torch import nn

from elvis.errors import TrainingError
from elvis.models.elvis import Elvis
from elvis.training.batches import Batch, BatchMaker
from elvis.training.checkpoint import FILE, State, load_state, save_state
from elvis.training.config import TrainConfig
from elvis.training.examples import Examples
from elvis.training.journal import Journal
from elvis.training.losses import backward, chance_loss
from elvis.training.processes import Processes, joined
from elvis.training.start import new_head
from elvis.training.validation import Questions, average_precisions, questions
from elvis.weights import state_sha256

logger = logging.getLogger(__name__)

STUCK_STEPS = 50
"""A loss that is at chance, on average over so many steps after the warm-up, is called out."""
STUCK_MARGIN = 0.01


@dataclass(frozen=True, slots=True)
class StepReport:
    """Told after every step.

    Attributes:
        step: how many are done.
        steps: how many there are.
        loss: of this step.
        best_map: of the best head so far on held-out objects, in [0, 1]; None before the first validation.
        seconds_left: at the pace of this process.
    """

    step: int
    steps: int
    loss: float
    best_map: float | None
    seconds_left: float


@dataclass(frozen=True, slots=True, eq=False)
class Trained:
    """What a run gave.

    Attributes:
        head: the best one on held-out objects; the last one where nothing was held out. In inference mode.
        step: after how many steps it was so.
        map: its mAP on the held-out objects, in [0, 1]; None where nothing was held out.
        validations: step and mAP of each validation; step 0 is the start.
        losses: of the last steps.
        stuck: what to change, where the loss stayed at that of guessing; None where it fell.
        anchors: how many valid ones there were.
        last: the head after the last step.
    """

    head: Elvis
    step: int
    map: float | None
    validations: tuple[tuple[int, float], ...]
    losses: tuple[float, ...]
    stuck: str | None
    anchors: int
    last: Elvis


def train(
    examples: Examples,
    config: TrainConfig,
    folder: str | Path | None = None,
    *,
    start: Elvis | None = None,
    resume: bool = False,
    device: str = "cpu",
    tensorboard: bool | None = None,
    on_step: Callable[[StepReport], None] = lambda report: None,
) -> Trained:
    """Trains a head; the same arguments give the same weights, bit for bit on a CPU with as many threads.

    Under `torchrun` every process calls this with the same arguments; each computes its part of every batch.

    Args:
        examples: pictures with labels, neighbours and descriptors.
        config: the recipe.
        folder: for checkpoints and log; None keeps none.
        start: the head to go on from, whose settings stay; None: a new one by the recipe.
        resume: go on from the checkpoint in the folder.
        device: where to compute.
        tensorboard: True needs it, None uses it where it is installed.
        on_step: told after every step, in the first process.

    Raises:
        TrainingError: nothing can be learnt from these examples, or the loss is no number any more.
    """
    with joined(device) as processes:
        batches = BatchMaker(examples, config, rank=processes.rank, world=processes.world)
        head = _first_head(examples, config, start, resume).to(device).train()
        optimiser = torch.optim.AdamW(_groups(head, config), weight_decay=config.weight_decay)
        asked = questions(examples, config)
        belongs_to = {
            "settings": config.to_dict(),
            "pictures": examples.fingerprint,
            "start": None if start is None else state_sha256(start.state_dict()),
        }
        state = State(0, {}, {})
        if resume:
            if folder is None:
                raise ValueError("resume: expected a folder with a checkpoint, got none")
            state = load_state(Path(folder), belongs_to)
            _restore(state, head, optimiser)
        elif folder is not None and processes.first:
            Path(folder).mkdir(parents=True, exist_ok=True)
            (Path(folder) / FILE).unlink(missing_ok=True)
        own_folder = Path(folder) if folder is not None and processes.first else None
        began, first, called_out = time.monotonic(), state.step, None
        with Journal(own_folder, state.step, tensorboard) as journal:
            if not state.validations:
                _validate(state, head, asked, config, device, journal, processes)
            for batch in batches.from_step(state.step):
                _set_rate(optimiser, config, state.step, batches.steps)
                optimiser.zero_grad(set_to_none=True)
                loss, norm = _gradient(head, _moved(batch, device), config, processes, state.step)
                if config.clip is not None:
                    nn.utils.clip_grads_with_norm_(head.parameters(), config.clip, norm)
                optimiser.step()
                state.step += 1
                state.losses = [*state.losses, loss][-STUCK_STEPS:]
                journal.write(state.step, loss=loss, gradient=float(norm), rate=optimiser.param_groups[0]["lr"])
                if state.step % config.validate_every == 0 or state.step == batches.steps:
                    _validate(state, head, asked, config, device, journal, processes)
                if own_folder and (state.step % config.checkpoint_every == 0 or state.step == batches.steps):
                    state.model, state.optimiser = head.state_dict(), optimiser.state_dict()
                    state.torch_random = torch.get_rng_state()
                    save_state(own_folder, state, belongs_to)
                warmed_up = state.step >= round(config.warmup * batches.steps) + STUCK_STEPS
                if warmed_up and not called_out and (called_out := _stuck(state.losses, head, config)):
                    logger.warning("%s", called_out)
                if processes.first:
                    left = (time.monotonic() - began) / (state.step - first) * (batches.steps - state.step)
                    best = state.best_map if asked is not None else None
                    on_step(StepReport(state.step, batches.steps, loss, best, left))
        return _result(state, head, config, batches, asked)


def _first_head(examples: Examples, config: TrainConfig, start: Elvis | None, resume: bool) -> Elvis:
    if start is not None:
        return _copy(start)
    # A resumed one gets its weights from the checkpoint.
    return Elvis(config.head_config(examples.rows.dim)) if resume else new_head(examples, config)


def _gradient(
    head: Elvis, batch: Batch, config: TrainConfig, processes: Processes, step: int
) -> tuple[float, torch.Tensor]:
    """Loss and gradient of the whole batch, of all processes; refuses what is no number before a weight changes."""
    try:
        part = backward(head, batch, config)
        reason = ""
    except ValueError as error:  # values that overflowed are refused where descriptors are checked
        part, reason = torch.full((), torch.nan), f" ({error})"
    processes.add_up([part])
    loss = float(part)
    if math.isfinite(loss):
        processes.add_up_gradients(head)
        gradients = [parameter.grad for parameter in head.parameters() if parameter.grad is not None]
        norm = nn.utils.get_total_norm(gradients)
        if bool(torch.isfinite(norm)):
            return loss, norm
        reason = " in its gradient"
    raise TrainingError(
        f"step {step + 1}: the loss is no number any more{reason}; the last checkpoint is kept as it was: lower lr "
        f"(now {config.lr:g}), set clip to 1, or use precision fp32"
    )


def _validate(
    state: State,
    head: Elvis,
    asked: Questions | None,
    config: TrainConfig,
    device: str,
    journal: Journal,
    processes: Processes,
) -> None:
    """Measures the head, and keeps it where it is the best so far; without held-out objects the last one is."""
    if asked is not None:

        def measure() -> float:
            return float(average_precisions(asked, head.eval(), config, device=device).mean())

        found = float(processes.first_says(measure))
        head.train()
        state.validations.append((state.step, found))
        journal.write(state.step, map=found)
        if found <= state.best_map:
            return
        state.best_map = found
    state.best_step = state.step
    state.best = {name: value.detach().cpu().clone() for name, value in head.state_dict().items()}


def _groups(head: Elvis, config: TrainConfig) -> list[dict[str, Any]]:
    """All parameters, the projection's with their own rate."""
    projection = [parameter for name, parameter in head.named_parameters() if name.startswith("projection.")]
    others = [parameter for name, parameter in head.named_parameters() if not name.startswith("projection.")]
    rates = ((others, config.lr), (projection, config.projection_lr or config.lr))
    return [{"params": some, "lr": rate, "rate": rate} for some, rate in rates if some]


def rate_factor(step: int, steps: int, config: TrainConfig) -> float:
    """What the learning rate is multiplied by at a step: a linear warm-up, then a cosine to 0.

    Example:
        >>> [round(rate_factor(step, 100, TrainConfig()), 3) for step in (0, 10, 55, 99)]
        [0.333, 1.0, 0.5, 0.0]
    """
    warmup = round(config.warmup * steps)
    if step < warmup:
        return config.warmup_start + (1 - config.warmup_start) * step / warmup
    return 0.5 * (1 + math.cos(math.pi * (step - warmup) / max(1, steps - warmup)))


def _set_rate(optimiser: torch.optim.Optimizer, config: TrainConfig, step: int, steps: int) -> None:
    for group in optimiser.param_groups:
        group["lr"] = group["rate"] * rate_factor(step, steps, config)


def _stuck(losses: list[float], head: Elvis, config: TrainConfig) -> str | None:
    """What to change, where the loss is that of guessing."""
    chance = chance_loss(config)
    if len(losses) < STUCK_STEPS or abs(sum(losses) / len(losses) - chance) > STUCK_MARGIN:
        return None
    remedy = "raise lr, train longer, or look whether the labels are right"
    if head.config.calibrate == "sum":
        remedy = "the raw sum of votes into g collapses on small data: set calibrate to mean (preset small)"
    elif head.config.vote and head.config.vote_layernorm:
        remedy = "set vote_layernorm to false (preset small)"
    return f"the loss has stayed at {chance:.3f}, that of guessing, for {len(losses)} steps: {remedy}"


def _restore(state: State, head: Elvis, optimiser: torch.optim.Optimizer) -> None:
    head.load_state_dict(state.model)
    optimiser.load_state_dict(state.optimiser)
    torch.set_rng_state(state.torch_random)


def _moved(batch: Batch, device: str) -> Batch:
    return replace(
        batch,
        **{name: getattr(batch, name).to(device) for name in ("anchors", "others", "candidates", "real")},
    )


def _copy(head: Elvis, weights: dict[str, torch.Tensor] | None = None) -> Elvis:
    copy = Elvis(head.config)
    copy.load_state_dict({name: value.cpu() for name, value in (weights or head.state_dict()).items()})
    return copy


def _result(state: State, head: Elvis, config: TrainConfig, batches: BatchMaker, asked: Questions | None) -> Trained:
    return Trained(
        head=_copy(head, state.best).eval(),
        step=state.best_step,
        map=state.best_map if asked is not None else None,
        validations=tuple(state.validations),
        losses=tuple(state.losses),
        stuck=_stuck(state.losses, head, config),
        anchors=batches.anchors,
        last=_copy(head).eval(),
    )
