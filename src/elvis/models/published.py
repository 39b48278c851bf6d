"""ELViS as it was published: its checkpoints under our names, and its score of padded batches."""

from __future__ import annotations

import re
from pathlib import Path

import torch
from torch import Tensor, nn

from elvis.errors import WeightsError
from elvis.models.elvis import Elvis, ElvisConfig
from elvis.transport import reference
from elvis.transport.similarity import cosines
from elvis.values import Descriptors
from elvis.weights import read_published

PUBLISHED_NAMES = {
    "dust_bin": "corner",
    "dust_bin_mlp": "gain_function",
    "remap_local": "projection",
    "f": "vote_function",
    "g": "calibration",
}
"""First part of a published parameter's name → ours; what follows is the same."""


def convert_elvis(path: str | Path) -> Elvis:
    """A head from a published ELViS checkpoint; D′, D and the presence of g are read from the weights.

    λ, rounds and Tanh are not stored in such files and take their published values: 0.1, 10, and Tanh in h.
    """
    state = read_published(path)
    if "remap_local.0.W" in state:
        raise WeightsError(f"{path} is a binarised ELViS head, which is not supported: expected remap_local.0.weight")
    for name in ("remap_local.0.weight", "f.0.weight", "dust_bin", "dust_bin_mlp.0.weight"):
        if name not in state:
            raise WeightsError(f"{path} is no published ELViS head: {name} is missing")
    dim, input_dim = state["remap_local.0.weight"].shape
    has_norm = "f.1.weight" in state
    config = ElvisConfig(
        input_dim=input_dim,
        dim=dim,
        vote_layernorm=has_norm,
        calibrate="sum" if any(name.startswith("g.") for name in state) else "none",
        card={"source": f"converted from the published checkpoint {Path(path).name}"},
    )
    head = Elvis(config)
    ours = {_our_name(name): value for name, value in state.items()}
    try:
        head.load_state_dict(ours, strict=True)
    except RuntimeError as error:
        reason = re.sub(r"\s+", " ", str(error).partition("\n")[2]).strip()
        raise WeightsError(f"{path} is no published ELViS head: {reason}") from error
    return head.eval()


def _our_name(name: str) -> str:
    first, dot, rest = name.partition(".")
    return PUBLISHED_NAMES.get(first, first) + dot + rest


@torch.no_grad()
def published_padded_score(head: Elvis, query: Descriptors, gallery: Descriptors) -> Tensor:
    """(B,) what the published code answers for a batch with padding, from descriptors that are not prepared.

    There a padded descriptor (a zero row) keeps its unit of mass, which must go to a dust-bin, gets a gain from h of
    the projected zero, and counts in the marginals; so the score depends slightly on the padding. Only for comparison
    with published figures: `Elvis.score` is exact.
    """
    if head.projection is None or not isinstance(head.gain_function, nn.Module):
        raise ValueError("published_padded_score: expected a head of the published form, got an ablation")
    full = [Descriptors(each.vectors.masked_fill(~each.mask[:, :, None], 0)) for each in (query, gallery)]
    q, x = (head.prepare(each) for each in full)
    real = query.mask[:, :, None] & gallery.mask[:, None, :]
    plan = reference.sinkhorn(
        cosines(q, x).masked_fill(~real, -torch.inf),
        q.gain,
        x.gain,
        head.corner if head.corner is not None else 0.0,
        temperature=head.temperature,
        rounds=head.config.rounds,
        query_mask=q.mask,
        gallery_mask=x.mask,
    )
    rows = head.vote(plan.row_max).masked_fill(~query.mask, 0)
    columns = head.vote(plan.column_max).masked_fill(~gallery.mask, 0)
    return rows.sum(dim=1) + columns.sum(dim=1)


CONVERTERS = {"elvis": convert_elvis}
"""Method → what turns its published checkpoint into ours."""
