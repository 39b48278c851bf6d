"""Training the detector that chooses descriptors: `SpatialAttention2d` on a frozen backbone.

The published loss is missing from its repository. Ours: a picture's descriptor is what the detector makes of all its
patches, the mean over places of (L2-normalised conv map × weight), L2-normalised; it shall be nearer to that of another
picture of the same object than to those of other objects. The loss is InfoNCE, in both directions of a softmax over
cosines divided by a temperature of 0.07: for each anchor the positive against its mined negative and against the
positives and negatives of all other triplets that show other objects. Triplets are drawn as for a head.

`conv1` starts as the identity and `conv2` near zero, so that the first descriptor is the plain mean of normalised
tokens, and weights grow apart from there: on a few hundred pictures a random start forgets what the backbone knows.
Patches come from the same store as descriptors for heads, with all of a picture kept.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from safetensors.torch import save
from torch import Tensor, nn
from torch.nn import functional

from elvis.detector import SpatialAttention2d, strongest
from elvis.errors import TrainingError
from elvis.evaluation.cache import write_atomically
from elvis.evaluation.progress import OnProgress, no_progress
from elvis.extract import BOTH_CUES, ExtractionSettings, Extractor
from elvis.image_files import Skipped, shown
from elvis.models import Matcher, load_model
from elvis.training.batches import BatchMaker
from elvis.training.config import TrainConfig
from elvis.training.examples import DescriptorRows, Examples
from elvis.training.gather import gather
from elvis.training.loop import StepReport, rate_factor
from elvis.training.sources import find_pictures
from elvis.training.validation import average_precisions, questions

ALL_PATCHES = 1 << 16
"""As a number of descriptors: more than any picture has."""


def _recipe() -> TrainConfig:
    # Views are left out: crops of the picture are drawn from its patches instead.
    return TrainConfig().changed(
        {
            "steps": 300,
            "triplets": 32,
            "min_positives": 1,
            "min_negatives": 1,
            "lr": 1e-3,
            "weight_decay": 1e-4,
            "validate_every": 50,
            "validation_descriptors": 200,
        }
    )


@dataclass(frozen=True, slots=True)
class DetectorConfig:
    """How a detector is trained.

    Attributes:
        recipe: steps, triplets, mining, rates, hold-out and extraction, as for a head; what concerns only heads is not
            looked at. Its extraction keeps `chosen` descriptors when the detector is measured.
        temperature: of the softmax.
        patches: of each picture a step, drawn anew; bounds the memory.
        chosen: how many descriptors a picture both ways of choosing may keep when they are compared.
    """

    recipe: TrainConfig = field(default_factory=_recipe)
    temperature: float = 0.07
    patches: int = 300
    chosen: int = 200

    def changed(self, values: dict[str, Any]) -> DetectorConfig:
        """The same with other values of the recipe."""
        return replace(self, recipe=self.recipe.changed(values))


@dataclass(frozen=True, slots=True, eq=False)
class FittedDetector:
    """What training a detector brought.

    Attributes:
        file: of the detector, in the published layout.
        before: mAP in [0, 1] of standardised chamfer-ot with the descriptors that `both-cues` chooses.
        after: the same with those that the detector chooses; NaN both where nothing was held out.
        queries: how many were asked.
        step: after how many steps the detector was best.
        skipped: files that were left out.
        notes: what else a person should know.
    """

    file: Path
    before: float
    after: float
    queries: int
    step: int
    skipped: tuple[Skipped, ...]
    notes: tuple[str, ...]

    def to_dict(self) -> dict[str, Any]:
        """As plain JSON values; mAP in percent."""
        return {
            "detector": str(self.file),
            "map": {"both-cues": round(100 * self.before, 2), "detector": round(100 * self.after, 2)},
            "queries": self.queries,
            "best_step": self.step,
            "skipped": [{"path": str(each.path), "reason": each.reason} for each in self.skipped],
            "notes": list(self.notes),
        }


def fit_detector(
    place: str | Path,
    out: str | Path,
    config: DetectorConfig | None = None,
    *,
    overwrite: bool = False,
    cache: str | Path | None = None,
    device: str = "cpu",
    on_progress: OnProgress = no_progress,
    on_step: Callable[[StepReport], None] = lambda report: None,
) -> FittedDetector:
    """Trains a detector on a person's own labelled pictures and saves it for `ExtractionSettings(selection=FILE)`.

    Args:
        place: what `find_pictures` takes.
        out: file ending in `.safetensors`.
        config: the recipe.
        overwrite: whether a file that is there is replaced.
        cache: folder for extracted patches; None: the user's.
        device: where to compute.
        on_progress: told while pictures are read and described.
        on_step: told after every step.
    """
    config, out = config or DetectorConfig(), Path(out)
    if out.suffix != ".safetensors" or out.is_dir():
        raise TrainingError(f"{shown(out)}: expected the name of a file that ends in .safetensors")
    if out.exists() and not overwrite:
        raise TrainingError(f"{shown(out)} is there already: name another file, or add --overwrite")
    if not out.resolve().parent.is_dir():
        raise TrainingError(f"{shown(out)}: its folder does not exist")
    recipe = config.recipe.changed({"extraction": {"descriptors": ALL_PATCHES, "selection": BOTH_CUES}})
    extractor = Extractor(recipe.extraction, device=device)
    gathered = gather(find_pictures(place), recipe, extractor, cache, on_progress=on_progress)
    detector, step = train_detector(gathered.examples, config, device=device, on_step=on_step)
    asked, model = questions(gathered.examples, recipe), load_model("chamfer-ot", standardise=True)
    before = after = float("nan")
    if asked is not None:
        measured = recipe.changed({"validation_descriptors": config.chosen})
        before = float(average_precisions(asked, model, measured, device=device).mean())
        after = _map_of(gathered.examples, detector, model, measured, config.chosen, device)
    try:
        write_atomically(out, detector_file(detector, recipe.extraction))
    except OSError as error:
        raise TrainingError(f"{shown(out)} cannot be written: {error.strerror}") from error
    return FittedDetector(
        out, before, after, 0 if asked is None else len(asked), step, gathered.skipped, gathered.notes
    )


def detector_file(detector: SpatialAttention2d, extraction: ExtractionSettings) -> bytes:
    """A detector as safetensors with the published names; what it was trained for stands in the metadata."""
    state = {name: value.detach().cpu().contiguous() for name, value in detector.state_dict().items()}
    note = {name: str(value) for name, value in asdict(extraction).items() if name in ("backbone", "block")}
    return save(state, note)


def train_detector(
    examples: Examples,
    config: DetectorConfig,
    *,
    device: str = "cpu",
    on_step: Callable[[StepReport], None] = lambda report: None,
) -> tuple[SpatialAttention2d, int]:
    """The detector that is best on held-out objects (the last one where there are none), and after which step.

    Args:
        examples: rows hold all patches of each picture.
        config: the recipe.
        device: where to compute.
        on_step: told after every step.
    """
    recipe = config.recipe
    batches = BatchMaker(examples, recipe)
    detector = new_detector(examples.rows.dim, recipe.seed).to(device)
    optimiser = torch.optim.AdamW(detector.parameters(), lr=recipe.lr, weight_decay=recipe.weight_decay)
    asked, model = questions(examples, recipe), load_model("chamfer-ot", standardise=True)
    best, best_step, best_map = _copy(detector), 0, -1.0
    began = time.monotonic()
    for step in range(batches.steps):
        for group in optimiser.param_groups:
            group["lr"] = recipe.lr * rate_factor(step, batches.steps, recipe)
        triplets = batches.triplets(step)
        tokens = _patches(examples.rows, triplets.rows, config, recipe.seed, step).to(device)
        labels = torch.from_numpy(examples.labels[triplets.pictures]).to(device)
        pictures = torch.from_numpy(triplets.pictures).to(device)
        loss = contrast(picture_descriptor(detector.train(), tokens), labels, pictures, config.temperature)
        if not bool(torch.isfinite(loss)):
            raise TrainingError(f"step {step + 1}: the loss is no number any more: lower lr (now {recipe.lr:g})")
        optimiser.zero_grad(set_to_none=True)
        loss.backward()
        optimiser.step()
        last = step + 1 == batches.steps
        if asked is not None and (last or (step + 1) % recipe.validate_every == 0):
            found = _map_of(examples, detector, model, recipe, config.chosen, device)
            if found > best_map:
                best, best_step, best_map = _copy(detector), step + 1, found
        elif asked is None and last:
            best, best_step = _copy(detector), step + 1
        left = (time.monotonic() - began) / (step + 1) * (batches.steps - step - 1)
        on_step(StepReport(step + 1, batches.steps, loss.item(), best_map if best_map >= 0 else None, left))
    return best.eval(), best_step


def new_detector(dim: int, seed: int = 0) -> SpatialAttention2d:
    """A detector whose first descriptor is the plain mean of the normalised tokens."""
    detector = SpatialAttention2d(dim)
    generator = torch.Generator().manual_seed(seed)
    with torch.no_grad():
        assert detector.conv1.bias is not None
        assert detector.conv2.bias is not None
        detector.conv1.weight.copy_(torch.eye(dim)[:, :, None, None])
        detector.conv1.bias.zero_()
        detector.conv2.weight.copy_(0.01 * torch.randn(1, dim, 1, 1, generator=generator))
        detector.conv2.bias.zero_()
    return detector


def picture_descriptor(detector: SpatialAttention2d, tokens: Tensor) -> Tensor:
    """(B, D) unit vectors: the mean over places of (L2-normalised conv map × weight) of (B, n, D) tokens."""
    mapped = detector.bn(detector.conv1(tokens.permute(0, 2, 1)[..., None]))
    weight = functional.softplus(detector.conv2(functional.relu(mapped)))
    pooled = (functional.normalize(mapped, dim=1) * weight).mean(dim=(2, 3))
    return functional.normalize(pooled, dim=1)


def contrast(descriptors: Tensor, labels: Tensor, pictures: Tensor, temperature: float) -> Tensor:
    """InfoNCE of (3T, D) descriptors, three a triplet: anchor, positive, negative.

    Each anchor's positive stands against all positives and negatives of the batch that show another object, and each
    positive's anchor likewise. Unlabelled pictures (−1) show other objects than every other picture does.
    """
    triplets = descriptors.unflatten(0, (-1, 3))
    losses: list[Tensor] = []
    for one, other in ((0, 1), (1, 0)):
        near = triplets[:, one] @ torch.cat([triplets[:, other], triplets[:, 2]]).T / temperature
        company = torch.cat([labels[:, other], labels[:, 2]])
        seen = torch.cat([pictures[:, other], pictures[:, 2]])
        same = ((company == labels[:, one, None]) & (company >= 0)) | (seen == pictures[:, one, None])
        own = torch.eye(len(triplets), len(company), dtype=torch.bool, device=near.device)
        near = near.masked_fill(same & ~own, -torch.inf)
        losses.append(functional.cross_entropy(near, torch.arange(len(triplets), device=near.device)))
    return (losses[0] + losses[1]) / 2


def _patches(rows: DescriptorRows, wanted: NDArray[np.int64], config: DetectorConfig, seed: int, step: int) -> Tensor:
    """(3T, patches, D) some patches of each picture; of a smaller one, some twice."""
    rng = np.random.default_rng((seed, 7004, step))
    chosen: list[NDArray[np.float32]] = []
    for row in wanted.ravel():
        every = rows.vectors(int(row))
        order = rng.permutation(len(every))
        chosen.append(np.asarray(every[np.resize(order, config.patches)], np.float32))
    return torch.from_numpy(np.stack(chosen))


class _Chosen:
    """Rows with the patches that a detector finds strongest; a `DescriptorRows`."""

    def __init__(self, rows: DescriptorRows, detector: SpatialAttention2d, count: int, device: str) -> None:
        self._rows, self._detector, self._count, self._device = rows, detector.eval(), count, device
        self.dim = rows.dim

    @torch.no_grad()
    def vectors(self, row: int) -> NDArray[np.floating]:
        every = np.asarray(self._rows.vectors(row), np.float32)
        strength = self._detector(torch.from_numpy(every)[None, None].to(self._device)).cpu()
        return every[strongest(strength, self._count)[0].numpy()]


def _map_of(
    examples: Examples, detector: SpatialAttention2d, model: Matcher, recipe: TrainConfig, chosen: int, device: str
) -> float:
    rows = _Chosen(examples.rows, detector, chosen, device)
    asked = questions(replace(examples, rows=rows), recipe)
    assert asked is not None  # the caller has asked before
    return float(
        average_precisions(asked, model, recipe.changed({"validation_descriptors": chosen}), device=device).mean()
    )


def _copy(detector: nn.Module) -> SpatialAttention2d:
    state = {name: value.detach().cpu().clone() for name, value in detector.state_dict().items()}
    copy = SpatialAttention2d(state["conv1.weight"].shape[0])
    copy.load_state_dict(state)
    return copy
