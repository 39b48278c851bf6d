"""A backbone's checkpoint folder: found, downloaded, verified. Safetensors only; nothing of it is executed."""

from __future__ import annotations

import hashlib
import json
import logging
from pathlib import Path
from typing import Any

from elvis.backbones.records import BACKBONES, FAMILIES, BackboneRecord
from elvis.errors import UnknownName, WeightsError
from elvis.image_files import shown
from elvis.weights import file_sha256, verify_sha256

logger = logging.getLogger(__name__)

_WANTED = ["config.json", "model*.safetensors", "model.safetensors.index.json"]


def find_checkpoint(name: str | Path) -> tuple[Path, BackboneRecord]:
    """The folder of a backbone's checkpoint and its record, downloaded when it has to be.

    Args:
        name: a name in `BACKBONES`, a folder with `config.json` and `model.safetensors`, or `owner/name` on the
            Hugging Face hub.

    Raises:
        UnknownName: it is none of these.
        WeightsError: it is gated, cannot be downloaded, or is not what it should be.

    Example:
        >>> folder, record = find_checkpoint("dinov2-small")
        >>> record.licence, sorted(path.name for path in folder.iterdir())
        ('Apache-2.0', ['config.json', 'model.safetensors'])
    """
    record = BACKBONES.get(str(name))
    if record is not None:
        if record.folder is None:
            return download(record.hub, licence=record.licence), record
        if record.sha256 is not None:
            verify_sha256(record.folder / "model.safetensors", record.sha256)
        return record.folder, record
    folder = Path(name)
    if folder.is_dir():
        return folder, _unnamed(str(name), read_config(folder))
    parts = str(name).split("/")
    if isinstance(name, str) and len(parts) == 2 and all(parts) and not folder.parent.exists():
        folder = download(name)
        return folder, _unnamed(name, read_config(folder))
    raise UnknownName("backbone", str(name), [*BACKBONES, "a folder with config.json and model.safetensors"])


def _unnamed(name: str, config: dict[str, Any]) -> BackboneRecord:
    family = config["model_type"]
    patch = config.get("vision_config", config)["patch_size"]
    return BackboneRecord(name, name, family, "see its folder", patch, FAMILIES[family].longer_side)


def read_config(folder: Path) -> dict[str, Any]:
    """The parsed config.json of a checkpoint of a supported family.

    Example:
        >>> read_config(find_checkpoint("dinov2-small")[0])["model_type"]
        'dinov2'
    """
    path = folder / "config.json"
    try:
        config = json.loads(path.read_bytes())
    except FileNotFoundError as error:
        raise WeightsError(f"{shown(path)} is missing: give the folder of a transformers checkpoint") from error
    except (OSError, ValueError) as error:
        raise WeightsError(f"{shown(path)} cannot be read as JSON: {shown(str(error))}") from error
    family = config.get("model_type") if isinstance(config, dict) else None
    if family not in FAMILIES:
        raise WeightsError(
            f"{shown(path)} is of type {family!r}, which is not supported: use one of {', '.join(sorted(FAMILIES))}"
        )
    patch = config.get("vision_config", config).get("patch_size")
    if not isinstance(patch, int) or patch < 1:
        raise WeightsError(f"{shown(path)} gives patch_size {patch!r}: expected a whole number of pixels")
    return config


def weight_files(folder: Path) -> list[Path]:
    """The safetensors files of a checkpoint, or why they are not all there.

    Example:
        >>> [path.name for path in weight_files(find_checkpoint("dinov2-small")[0])]
        ['model.safetensors']
    """
    index = folder / "model.safetensors.index.json"
    if index.is_file():
        try:
            names = sorted(set(json.loads(index.read_bytes())["weight_map"].values()))
        except (OSError, ValueError, KeyError, TypeError, AttributeError) as error:
            raise WeightsError(f"{shown(index)} is damaged: download the folder again") from error
    else:
        names = ["model.safetensors"]
    files = [folder / name for name in names]
    for path in files:
        if not path.is_file():
            raise WeightsError(f"{shown(path)} is missing: download the folder again (safetensors only are read)")
    return files


def checkpoint_sha256(folder: Path) -> str:
    """Hexadecimal SHA-256 over config and weight files: changes whenever the features could.

    Example:
        >>> len(checkpoint_sha256(find_checkpoint("dinov2-small")[0]))
        64
    """
    digest = hashlib.sha256()
    for path in [folder / "config.json", *weight_files(folder)]:
        digest.update(f"{path.name} {file_sha256(path)}\n".encode())
    return digest.hexdigest()


def download(
    hub: str, *, licence: str = "see its page", endpoint: str | None = None, cache: Path | None = None
) -> Path:
    """The local folder of a checkpoint on the Hugging Face hub; the network is asked only if it is not there yet.

    Args:
        hub: `owner/name` of the repository.
        licence: named in the log and in the error of a gated repository.
        endpoint: address of a mirror; the hub itself by default.
        cache: where to keep it; the hub's own cache by default.
    """
    from huggingface_hub import snapshot_download
    from huggingface_hub.errors import GatedRepoError, HfHubHTTPError, HFValidationError, RepositoryNotFoundError

    page = f"{endpoint or 'https://huggingface.co'}/{hub}"
    instead = "or give the folder of a copy; `dinov2-small` needs no download"
    wanted: dict[str, Any] = {"allow_patterns": _WANTED, "endpoint": endpoint, "cache_dir": cache}
    try:
        kept = Path(snapshot_download(hub, local_files_only=True, **wanted))
        weight_files(kept)
        return kept
    except (OSError, WeightsError) as error:
        logger.debug("%s is not in the cache: %s", hub, error)
    except HFValidationError as error:
        raise WeightsError(f"{hub!r} is no name of a repository on the hub: expected owner/name") from error
    logger.info("downloading %s (licence: %s)", page, licence)
    try:
        folder = Path(snapshot_download(hub, tqdm_class=_silent_bar(), **wanted))
    except GatedRepoError as error:
        raise WeightsError(
            f"{hub} is gated: accept its licence ({licence}) at {page}, then `hf auth login`, {instead}"
        ) from error
    except RepositoryNotFoundError as error:
        raise WeightsError(
            f"{hub} does not exist at {page}, or needs a login: check the name, `hf auth login`, {instead}"
        ) from error
    except HfHubHTTPError as error:
        status = error.response.status_code
        raise WeightsError(f"{hub} cannot be downloaded: {page} answered {status}; try again, {instead}") from error
    except Exception as error:
        # No network, no name service, a proxy, a full disk, a checksum: each its own class of another package.
        raise WeightsError(f"{hub} cannot be downloaded ({_cause(error)}): connect and try again, {instead}") from error
    weight_files(folder)
    return folder


def _cause(error: BaseException) -> str:
    """The first failure of a chain, in one line: the last one says little more than 'it failed'."""
    while (earlier := error.__cause__ or error.__context__) is not None:
        error = earlier
    return shown(str(error).partition("\n")[0])[:160] or type(error).__name__


def _silent_bar() -> type:
    from tqdm import tqdm

    class SilentBar(tqdm):
        def __init__(self, *args: Any, **kwargs: Any) -> None:
            kwargs.pop("name", None)
            super().__init__(*args, **{**kwargs, "disable": True})

    return SilentBar
