import json
import shutil

import pytest
import torch
from safetensors.torch import load_file, save_file

from elvis.backbones import BACKBONES, load_backbone, resolve_precision
from elvis.errors import WeightsError

FAMILIES = ["dinov2", "dinov2_with_registers", "dinov3_vit", "siglip", "siglip_vision_model"]


def pixels(batch, patch, rows=3, columns=5, seed=0):
    return torch.rand(batch, 3, rows * patch, columns * patch, generator=torch.Generator().manual_seed(seed))


def eager_reference(folder, images, block):
    """Tokens, attention and global vector by transformers' own slow path, which returns every attention."""
    import transformers

    model_type = json.loads((folder / "config.json").read_text())["model_type"]
    siglip = model_type.startswith("siglip")
    model_class = transformers.SiglipVisionModel if siglip else transformers.AutoModel
    network = model_class.from_pretrained(folder, attn_implementation="eager").eval()
    mean, std = ([0.5] * 3, [0.5] * 3) if siglip else ([0.485, 0.456, 0.406], [0.229, 0.224, 0.225])
    normal = (images - torch.tensor(mean)[:, None, None]) / torch.tensor(std)[:, None, None]
    options = {"interpolate_pos_encoding": True} if siglip else {}
    with torch.no_grad():
        answer = network(normal, output_hidden_states=True, output_attentions=True, **options)
    patches = (images.shape[2] // network.config.patch_size) * (images.shape[3] // network.config.patch_size)
    tokens = answer.last_hidden_state if block == -1 else answer.hidden_states[block]
    attention = None if siglip else answer.attentions[block][:, :, 0].mean(1)[:, -patches:]
    return tokens[:, -patches:], attention, torch.nn.functional.normalize(answer.pooler_output, dim=1)


@pytest.mark.parametrize("block", [-1, -2, -3])
@pytest.mark.parametrize("family", FAMILIES)
def test_every_family_equals_the_eager_network(tiny_checkpoint, family, block):
    folder = tiny_checkpoint(family)
    backbone = load_backbone(folder, block=block, precision="fp32")
    images = pixels(2, backbone.patch)
    found = backbone(images)
    tokens, attention, vector = eager_reference(folder, images, block)
    assert found.grid.shape == (2, 3, 5, 32)
    assert torch.allclose(found.grid.flatten(1, 2), tokens, atol=2e-5)
    assert torch.allclose(found.image_vector, vector, atol=2e-5)
    assert (backbone.dim, backbone.image_dim) == (32, 32)
    if attention is not None:
        assert torch.allclose(found.attention.flatten(1), attention, atol=1e-5)


def test_pooling_attention_of_siglip_weighs_the_patches(tiny_checkpoint):
    backbone = load_backbone(tiny_checkpoint("siglip"), precision="fp32")
    attention = backbone(pixels(2, 16)).attention
    assert attention.shape == (2, 3, 5)
    assert torch.allclose(attention.sum(dim=(1, 2)), torch.ones(2), atol=1e-5)
    assert attention.std() > 1e-4


@pytest.mark.parametrize("family", FAMILIES)
def test_alone_and_in_a_batch_are_the_same(tiny_checkpoint, family):
    backbone = load_backbone(tiny_checkpoint(family), block=-2, precision="fp32")
    images = pixels(4, backbone.patch)
    together = backbone(images)
    for place in range(4):
        alone = backbone(images[place : place + 1])
        assert torch.allclose(alone.grid[0], together.grid[place], atol=1e-5)
        assert torch.allclose(alone.attention[0], together.attention[place], atol=1e-6)
        assert torch.allclose(alone.image_vector[0], together.image_vector[place], atol=1e-6)


@pytest.mark.parametrize("precision", ["bf16", "fp16"])
@pytest.mark.parametrize("family", FAMILIES)
def test_half_precisions_stay_close(tiny_checkpoint, family, precision):
    exact = load_backbone(tiny_checkpoint(family), block=-2, precision="fp32")
    half = load_backbone(tiny_checkpoint(family), block=-2, precision=precision)
    images = pixels(1, exact.patch)
    found, expected = half(images), exact(images)
    assert found.grid.dtype == found.attention.dtype == found.image_vector.dtype == torch.float32
    cosine = torch.nn.functional.cosine_similarity(found.grid, expected.grid, dim=-1)
    assert cosine.min() > 0.995
    assert (found.image_vector * expected.image_vector).sum() > 0.995


def test_nothing_stays_behind_after_a_call(tiny_checkpoint):
    backbone = load_backbone(tiny_checkpoint("dinov2"), block=-2, precision="fp32")
    backbone(pixels(1, 14))
    assert not any(module._forward_hooks or module._forward_pre_hooks for module in backbone._network.modules())
    assert not any(parameter.requires_grad for parameter in backbone._network.parameters())


@pytest.mark.parametrize("shape", [(1, 3, 15, 14), (3, 14, 14), (1, 1, 14, 14), (1, 3, 0, 14)])
def test_a_size_that_is_no_multiple_of_the_patch_is_refused(tiny_checkpoint, shape):
    with pytest.raises(ValueError, match="pixels: expected .* multiples of 14, got"):
        load_backbone(tiny_checkpoint("dinov2"))(torch.zeros(shape))


@pytest.mark.parametrize("block", [0, 1, -4])
def test_a_block_that_does_not_exist_is_refused(tiny_checkpoint, block):
    with pytest.raises(ValueError, match=f"block: expected -1 .* to -3 .*, got {block}"):
        load_backbone(tiny_checkpoint("dinov2"), block=block)


def test_an_overflow_is_named(tiny_checkpoint, tmp_path):
    folder = shutil.copytree(tiny_checkpoint("dinov2"), tmp_path / "huge")
    state = load_file(folder / "model.safetensors")
    state = {name: value * 1e5 if name.startswith("layernorm") else value for name, value in state.items()}
    save_file(state, folder / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(WeightsError, match="overflows in torch.float16: use the precision bf16 or fp32"):
        load_backbone(folder, precision="fp16")(pixels(1, 14))


def test_precision_and_device_are_checked(tiny_checkpoint):
    with pytest.raises(ValueError, match="precision: expected auto, fp32, bf16, fp16, got 'fp8'"):
        resolve_precision("fp8", "cpu")
    if not torch.cuda.is_available():
        with pytest.raises(ValueError, match="device: expected one this machine has, got 'cuda'"):
            load_backbone(tiny_checkpoint("dinov2"), device="cuda")
    assert resolve_precision("auto", "cpu") in (torch.float32, torch.bfloat16)


def test_other_programs_noise_settings_are_put_back(tiny_checkpoint, capfd):
    from transformers.utils import logging

    level, bars = logging.get_verbosity(), logging.is_progress_bar_enabled()
    load_backbone(tiny_checkpoint("siglip"))
    assert (logging.get_verbosity(), logging.is_progress_bar_enabled()) == (level, bars)
    printed = capfd.readouterr()
    assert (printed.out, printed.err) == ("", "")


@pytest.mark.weights
def test_the_carried_backbone_knows_two_crops_of_one_picture():
    backbone = load_backbone("dinov2-small", precision="fp32")
    assert backbone.record is BACKBONES["dinov2-small"]
    generator = torch.Generator().manual_seed(1)
    pictures = torch.rand(2, 3, 12, 12, generator=generator)
    pictures = torch.nn.functional.interpolate(pictures, (224, 224), mode="bicubic").clamp(0, 1)
    vectors = torch.cat([backbone(pictures[:, :, :196, :196]).image_vector, backbone(pictures).image_vector])
    similarity = vectors @ vectors.T
    assert similarity[0, 2] > similarity[0, 3]
    assert similarity[1, 3] > similarity[1, 2]
