import json
import shutil
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
import torch
from safetensors.torch import load_file, save_file

from elvis.backbones import BACKBONES, load_backbone
from elvis.backbones.checkpoint import checkpoint_sha256, download, find_checkpoint
from elvis.errors import UnknownName, WeightsError

COMMIT = "a" * 40


def one_line(caught):
    message = str(caught.value)
    assert "\n" not in message
    return message


@pytest.fixture
def folder(tiny_checkpoint, tmp_path):
    return shutil.copytree(tiny_checkpoint("dinov2"), tmp_path / "backbone")


def test_the_records_are_consistent():
    for name, record in BACKBONES.items():
        assert record.name == name
        assert record.longer_side % record.patch == 0
        assert record.gated == name.startswith("dinov3")
    assert {BACKBONES[name].hub for name in ("dinov2", "dinov3", "siglip2")} == {
        "facebook/dinov2-with-registers-base",
        "facebook/dinov3-vitl16-pretrain-lvd1689m",
        "google/siglip2-so400m-patch16-512",
    }


def test_the_carried_file_is_checked(monkeypatch, tmp_path):
    record = BACKBONES["dinov2-small"]
    copy = shutil.copytree(record.folder, tmp_path / "copy")
    with (copy / "model.safetensors").open("r+b") as stream:
        stream.seek(1_000_000)
        stream.write(b"\x01\x02")
    from dataclasses import replace

    monkeypatch.setitem(BACKBONES, "dinov2-small", replace(record, folder=copy))
    with pytest.raises(WeightsError, match="model.safetensors is damaged .*: install the package again"):
        load_backbone("dinov2-small")


def test_a_folder_becomes_a_record(folder):
    found, record = find_checkpoint(folder)
    assert found == folder
    assert (record.family, record.patch, record.longer_side) == ("dinov2", 14, 770)


def test_the_hash_follows_the_weights(folder):
    before = checkpoint_sha256(folder)
    state = load_file(folder / "model.safetensors")
    state["layernorm.bias"][0] += 1
    save_file(state, folder / "model.safetensors", metadata={"format": "pt"})
    assert checkpoint_sha256(folder) != before


def test_a_name_that_is_nothing_lists_those_that_are(tmp_path):
    for name in ("dinov9", str(tmp_path / "nowhere"), "a/b/c", str(tmp_path) + "/x"):
        with pytest.raises(UnknownName, match="unknown backbone .*: choose one of .*dinov2-small.*siglip2"):
            find_checkpoint(name)


@pytest.mark.parametrize(
    ("name", "content", "reason"),
    [
        ("config.json", None, "config.json is missing"),
        ("config.json", b"{", "cannot be read as JSON"),
        ("config.json", b"[]", "is of type None, which is not supported"),
        ("config.json", b'{"model_type": "bert"}', "is of type 'bert', which is not supported: use one of dinov2"),
        ("config.json", b'{"model_type": "dinov2", "patch_size": "x"}', "gives patch_size 'x'"),
        ("model.safetensors", None, "model.safetensors is missing: download the folder again"),
        ("model.safetensors", b"", "is damaged or no Dinov2Model"),
        ("model.safetensors", b"garbage, more than eight bytes of it", "is damaged or no Dinov2Model"),
        ("model.safetensors.index.json", b"{}", "index.json is damaged: download the folder again"),
        (
            "model.safetensors.index.json",
            b'{"weight_map": {"a": "model-00001-of-00002.safetensors"}}',
            "model-00001-of-00002.safetensors is missing",
        ),
    ],
)
def test_a_damaged_folder_says_what_is_wrong(folder, name, content, reason):
    if content is None:
        (folder / name).unlink()
    else:
        (folder / name).write_bytes(content)
    with pytest.raises(WeightsError) as caught:
        load_backbone(folder)
    assert reason in one_line(caught)


def test_a_truncated_weight_file_is_refused(folder):
    content = (folder / "model.safetensors").read_bytes()
    (folder / "model.safetensors").write_bytes(content[: len(content) // 2])
    with pytest.raises(WeightsError) as caught:
        load_backbone(folder)
    assert "is damaged or no Dinov2Model" in one_line(caught)


def test_missing_weights_are_never_made_up(folder):
    state = load_file(folder / "model.safetensors")
    gone = next(name for name in state if "layer.1" in name and name.endswith("weight"))
    del state[gone]
    save_file(state, folder / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(WeightsError, match="is no complete Dinov2Model: 1 weights are missing or of another size"):
        load_backbone(folder)


def test_weights_of_another_size_are_refused(folder):
    state = load_file(folder / "model.safetensors")
    state["layernorm.bias"] = torch.zeros(8)
    save_file(state, folder / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(WeightsError) as caught:
        load_backbone(folder)
    assert "1 weights are missing or of another size, as layernorm.bias" in one_line(caught)


@pytest.fixture
def hub(folder):
    """A stand-in for the Hugging Face hub on this machine; `answers` decides what a repository does."""
    answers = {}

    class Handler(BaseHTTPRequestHandler):
        def log_message(self, *_):
            pass

        def refuse(self, status, code):
            self.send_response(status)
            self.send_header("X-Error-Code", code)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def do_GET(self):
            path = self.path.partition("?")[0]
            behaviour = next((what for name, what in answers.items() if name in path), (404, "RepoNotFound"))
            if isinstance(behaviour, tuple):
                return self.refuse(*behaviour)
            if path.startswith("/api/models/"):
                files = [{"rfilename": each.name} for each in folder.iterdir()]
                tree = [
                    {"type": "file", "path": each.name, "size": each.stat().st_size, "oid": "b" * 40}
                    for each in folder.iterdir()
                ]
                body = tree if "/tree/" in path else {"id": "a/b", "sha": COMMIT, "siblings": files}
                body = json.dumps(body).encode()
            elif behaviour == "gated files":
                return self.refuse(403, "GatedRepo")
            else:
                body = (folder / path.rpartition("/")[2]).read_bytes()
            self.send_response(200)
            self.send_header("Content-Length", str(len(body)))
            self.send_header("X-Repo-Commit", COMMIT)
            self.send_header("ETag", f'"{len(body)}"')
            self.end_headers()
            if self.command == "GET":
                self.wfile.write(body)
            return None

        do_HEAD = do_GET

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://127.0.0.1:{server.server_port}", answers
    server.shutdown()
    server.server_close()


def test_a_checkpoint_is_downloaded_once(hub, tmp_path, capfd):
    endpoint, answers = hub
    answers["owner/tiny"] = "open"
    found = download("owner/tiny", endpoint=endpoint, cache=tmp_path / "cache")
    assert load_backbone(found, precision="fp32").dim == 32
    answers.clear()
    assert download("owner/tiny", endpoint=endpoint, cache=tmp_path / "cache") == found
    printed = capfd.readouterr()
    assert (printed.out, printed.err) == ("", "")


@pytest.mark.parametrize(
    ("behaviour", "reason"),
    [
        ((401, "GatedRepo"), "is gated: accept its licence (Strict) at {page}, then `hf auth login`"),
        ("gated files", "is gated: accept its licence (Strict) at {page}, then `hf auth login`"),
        ((404, "RepoNotFound"), "does not exist at {page}, or needs a login"),
        ((500, ""), "owner/it cannot be downloaded"),
    ],
)
def test_what_the_hub_refuses_ends_in_one_line(hub, tmp_path, behaviour, reason):
    endpoint, answers = hub
    answers["owner/it"] = behaviour
    with pytest.raises(WeightsError) as caught:
        download("owner/it", licence="Strict", endpoint=endpoint, cache=tmp_path / "cache")
    message = one_line(caught)
    assert reason.format(page=f"{endpoint}/owner/it") in message
    assert message.endswith("or give the folder of a copy; `dinov2-small` needs no download")


def test_without_network_the_cause_is_named(tmp_path):
    with pytest.raises(WeightsError) as caught:
        download("owner/it", endpoint="http://127.0.0.1:9", cache=tmp_path / "cache")
    assert "owner/it cannot be downloaded" in one_line(caught)
    assert "efused" in one_line(caught)


def test_a_name_the_hub_cannot_have_is_refused(tmp_path):
    with pytest.raises(WeightsError, match="is no name of a repository on the hub"):
        download("owner/..", cache=tmp_path / "cache")
