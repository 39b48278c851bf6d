"""The published training files as examples."""

from __future__ import annotations

import numpy as np

from elvis.importing.research import ResearchFiles
from elvis.training.config import TrainConfig
from elvis.training.examples import Examples, examples_fingerprint, hold_out
from elvis.training.sources import check_trainable, label_numbers
from elvis.training.triplets import Neighbours


def research_examples(files: ResearchFiles, config: TrainConfig, name: str) -> tuple[Examples, list[str]]:
    """Examples whose descriptors are read from the published file, and what a person should know.

    There are no augmented views of them: only recipes with `augmented_share` 0 can be used.
    """
    if config.augmented_share > 0:
        raise ValueError(
            "augmented_share: published files hold no augmented views: expected 0, as preset published has"
        )
    notes = check_trainable(name, files.labels, config, labelled=True)
    labels = label_numbers(files.labels)
    held_out = hold_out(labels, config.holdout, config.data_seed)
    examples = Examples(
        rows=files.local,
        labels=labels,
        views=np.arange(len(labels))[:, None],
        neighbours=Neighbours(files.neighbours, files.similarities),
        held_out=held_out,
        view_similarity=np.ones(len(labels), np.float32),
        names=files.paths,
        fingerprint=examples_fingerprint([files.fingerprint], labels, held_out, config),
    )
    return examples, notes
