"""Extraction on a CPU: the backbone by engine and precision, on real pictures if there are any, and decoding ahead."""

import itertools
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path

import torch
from PIL import Image
from torch import Tensor
from torch.nn.functional import cosine_similarity

from benchmarks import machine
from benchmarks.measure import interleaved
from elvis.backbones import load_backbone
from elvis.backbones.checkpoint import find_checkpoint
from elvis.extract import PRESETS, Extractor
from elvis.images import open_image, to_pixels
from elvis.picture_queue import PictureQueue

PLAIN = "transformers, fp32"
BACKBONE, BLOCK, LONGER_SIDE = "dinov2-small", -2, 518
DISTURBED = 1.25


def run(folders: Sequence[Path], repeats: int) -> list[dict]:
    """A record for each engine and precision, and one for decoding ahead."""
    machine.keep_memory()
    about = machine.description()
    about["versions"] |= {name: _version(name) for name in ("transformers", "openvino")}
    paths = _pictures(folders)
    records = [record | about for record in _engines(paths, repeats)]
    if paths:
        records.append(_pipeline(paths) | about)
    return records


def plain_transformers() -> Callable[[Tensor], Tensor]:
    """The second-to-last block's tokens as a user of `transformers` would get them, with nothing thought of."""
    import transformers

    folder, _ = find_checkpoint(BACKBONE)
    network = transformers.Dinov2Model.from_pretrained(folder, dtype=torch.float32).eval()
    mean, std = (torch.tensor(each)[:, None, None] for each in ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225)))

    def run_once(pixels: Tensor) -> Tensor:
        with torch.no_grad():
            return network((pixels - mean) / std, output_hidden_states=True).hidden_states[BLOCK]

    return run_once


def _engines(paths: Sequence[Path], repeats: int) -> list[dict]:
    images = [open_image(path) for path in paths[:3]] or [Image.effect_noise((800, 600), 80).convert("RGB")]
    pixels = [to_pixels(image, LONGER_SIDE, 14)[None] for image in images]
    networks: dict[str, Callable[[Tensor], object]] = {PLAIN: plain_transformers()}
    for engine, precision in itertools.product(("torch", "openvino"), ("fp32", "bf16")):
        networks[f"{engine}, {precision}"] = load_backbone(BACKBONE, block=BLOCK, precision=precision, engine=engine)
    variants = {
        name: (lambda network=network: [network(each) for each in pixels]) for name, network in networks.items()
    }
    timings = interleaved(variants, len(pixels), repeats)
    exact = [networks["torch, fp32"](each) for each in pixels]
    threads = torch.get_num_threads()
    records = []
    for name, timing in timings.items():
        cosines = []
        if name != PLAIN:
            found = [networks[name](each) for each in pixels]
            cosines = [cosine_similarity(a.grid, b.grid, dim=-1) for a, b in zip(found, exact, strict=True)]
        record = {
            "suite": "extraction",
            "variant": name,
            "threads": threads,
            "pictures": len(pixels),
            "real_pictures": bool(paths),
            "ratio": timings[PLAIN].best / timing.best,
            "ratio_processor": timings[PLAIN].processor / timing.processor,
            **{f"ms_{part}": value for part, value in asdict(timing).items() if part != "repeats"},
            "repeats": timing.repeats,
            "disturbed": any(t.best > DISTURBED * t.processor / threads for t in (timing, timings[PLAIN])),
            "cosine_mean": float(torch.cat([each.flatten() for each in cosines]).mean()) if cosines else 1.0,
            "cosine_min": float(min(each.min() for each in cosines)) if cosines else 1.0,
        }
        records.append(record)
        print(
            f"{name:20s} {timing.best:7.1f} ms  {record['ratio']:.2f}x (processor {record['ratio_processor']:.2f}x)  "
            f"cosine {record['cosine_mean']:.5f}, least {record['cosine_min']:.5f}",
            flush=True,
        )
    return records


def _pipeline(paths: Sequence[Path]) -> dict:
    """Decoding and describing one after the other against the queue that decodes ahead; best of three."""
    extractor = Extractor(PRESETS["balanced"])
    paths = paths[:24]
    files = [(str(path), path.stat().st_size, path.stat().st_mtime_ns) for path in paths]

    def decode() -> list[Image.Image]:
        return [each.image for each in PictureQueue(files, {}, 10**9, threading.Event()) if each.image]

    def together() -> list:
        queue = PictureQueue(files, {}, 10**9, threading.Event())
        return list(extractor.extract(each.image for each in queue if each.image))

    images = decode()
    list(extractor.extract(images[:2]))
    best = dict.fromkeys(("decoding", "describing", "together"), float("inf"))
    for _ in range(3):
        for name, work in (
            ("decoding", decode),
            ("describing", lambda: list(extractor.extract(images))),
            ("together", together),
        ):
            start = time.perf_counter()
            work()
            best[name] = min(best[name], 1e3 * (time.perf_counter() - start) / len(files))
    print("ms a picture: " + ", ".join(f"{name} {value:.1f}" for name, value in best.items()), flush=True)
    return {
        "suite": "extraction",
        "variant": f"whole road by {extractor.engine}, {extractor.precision.partition(' ')[0]}",
        "threads": torch.get_num_threads(),
        "pictures": len(files),
        **{f"ms_{name}": value for name, value in best.items()},
        "hidden_share_of_decoding": (best["decoding"] + best["describing"] - best["together"]) / best["decoding"],
    }


def _pictures(folders: Sequence[Path]) -> list[Path]:
    found = [sorted((folder / "images").glob("*.jpg")) for folder in folders]
    picked = [path for paths in found for path in paths[:: max(1, len(paths) // 8)][:8]]
    return picked[0::8] + [path for place, path in enumerate(picked) if place % 8]


def _version(name: str) -> str:
    from importlib import metadata

    return metadata.version(name)
