"""Random checkpoints of every family, small enough to make and run in a moment."""

from pathlib import Path

import torch
from safetensors.torch import save_file


def _config(family):
    import transformers

    small = {"hidden_size": 32, "num_hidden_layers": 3, "num_attention_heads": 2, "intermediate_size": 64}
    match family:
        case "dinov2":
            return transformers.Dinov2Config(**small, image_size=56, patch_size=14, mlp_ratio=2)
        case "dinov2_with_registers":
            return transformers.Dinov2WithRegistersConfig(
                **small, image_size=56, patch_size=14, mlp_ratio=2, num_register_tokens=4
            )
        case "dinov3_vit":
            return transformers.DINOv3ViTConfig(**small, image_size=64, patch_size=16, num_register_tokens=4)
        case "siglip_vision_model":
            return transformers.SiglipVisionConfig(**small, image_size=64, patch_size=16)
        case "siglip":
            text = {**small, "vocab_size": 50, "projection_size": 32}
            vision = {**small, "image_size": 64, "patch_size": 16}
            return transformers.SiglipConfig(vision_config=vision, text_config=text)


CLASSES = {
    "dinov2": "Dinov2Model",
    "dinov2_with_registers": "Dinov2WithRegistersModel",
    "dinov3_vit": "DINOv3ViTModel",
    "siglip": "SiglipModel",
    "siglip_vision_model": "SiglipVisionModel",
}


def make_checkpoint(family: str, folder: Path) -> Path:
    """Saves a random checkpoint, every parameter different from its start value."""
    import transformers

    torch.manual_seed(11)
    network = getattr(transformers, CLASSES[family])(_config(family))
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.add_(0.2 * torch.randn_like(parameter))
    network.config.save_pretrained(folder)
    state = {name: value.clone() for name, value in network.state_dict().items()}
    save_file(state, folder / "model.safetensors", metadata={"format": "pt"})
    return folder
