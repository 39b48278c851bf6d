"""Methods by name."""

import pytest
import torch

from elvis.errors import UnknownName, WeightsError
from elvis.evaluation.methods import known_methods, load_methods
from elvis.models import MODELS, Chamfer, ChamferTransport, Elvis, ElvisConfig


@pytest.fixture
def head(tmp_path):
    def make(name):
        torch.manual_seed(1)
        Elvis(ElvisConfig(input_dim=12, dim=4)).save_pretrained(tmp_path / name)
        return str(tmp_path / name)

    return make


def test_hand_made_methods_are_standardised_unless_raw():
    methods = {method.label: method for method in load_methods(["global", "chamfer", "chamfer@raw", "chamfer-ot"])}
    assert methods["global"].model is None
    assert type(methods["chamfer"].model) is Chamfer
    assert methods["chamfer"].config["standardise"] is True
    assert methods["chamfer@raw"].config["standardise"] is False
    assert type(methods["chamfer-ot"].model) is ChamferTransport
    assert methods["chamfer"].fingerprint != methods["chamfer@raw"].fingerprint
    assert all(method.hand_made and method.weights is None for method in methods.values())


def test_a_trained_method_takes_part_once_for_every_head(head):
    one, two = head("one"), head("two")
    (alone,) = load_methods(["elvis"], [one])
    assert (alone.label, alone.weights, alone.hand_made) == ("elvis", one, False)
    assert alone.config["input_dim"] == 12
    assert [method.label for method in load_methods(["global", "elvis"], [one, f"elvis={two}"])] == [
        "global",
        "elvis:one",
        "elvis:two",
    ]


def test_every_model_of_the_library_is_a_method():
    assert set(MODELS) < set(known_methods())


def test_wrong_names_and_heads(head, tmp_path):
    with pytest.raises(UnknownName, match="unknown method 'shamfer': choose one of .*chamfer-ot@raw"):
        load_methods(["shamfer"])
    with pytest.raises(UnknownName, match="unknown method 'elvis@raw'"):
        load_methods(["elvis@raw"])
    with pytest.raises(ValueError, match="expected every one once, got chamfer again"):
        load_methods(["chamfer", "global", "chamfer"])
    with pytest.raises(ValueError, match="no method among global, chamfer takes .*one"):
        load_methods(["global", "chamfer"], [head("one")])
    with pytest.raises(WeightsError, match="holds no head"):
        load_methods(["elvis"], [str(tmp_path)])
