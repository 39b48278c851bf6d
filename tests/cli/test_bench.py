"""`elvis bench` from words to table, with the carried backbone on tiny pictures."""

import json

import numpy as np
import pytest
import torch
from PIL import Image

from elvis.cli import main
from elvis.models import Elvis, ElvisConfig


@pytest.fixture
def elvis(monkeypatch, capsys):
    """Run the command line; exit code, stdout, stderr."""

    def run(*words):
        monkeypatch.setattr("sys.argv", ["elvis", *map(str, words)])
        try:
            main()
            code = 0
        except SystemExit as ended:
            code = int(ended.code or 0)
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return run


@pytest.fixture
def toys(tmp_path):
    folder = tmp_path / "toys"
    folder.mkdir()
    lines = ["path,role,label,junk"]
    for seed in range(3):
        blocks = np.random.default_rng(seed).integers(0, 255, (6, 6, 3), dtype=np.uint8)
        whole = Image.fromarray(blocks).resize((96, 96), Image.Resampling.NEAREST)
        for view, image in (("left", whole.crop((0, 0, 80, 96))), ("right", whole.crop((16, 0, 96, 96)))):
            image.save(folder / f"{seed}_{view}.png")
            lines.append(f"{seed}_{view}.png,both,{seed},")
    (folder / "images.csv").write_text("\n".join(lines) + "\n")
    return folder


def test_list_names_data_sets_and_methods(elvis):
    code, out, _ = elvis("bench", "--list")
    assert code == 0
    assert "folder: any folder of your own" in out
    assert "chamfer-ot@raw" in out
    assert "mAP@100" in out


@pytest.mark.weights
def test_from_pictures_to_table_results_and_rankings(elvis, toys, tmp_path):
    torch.manual_seed(0)
    Elvis(ElvisConfig(input_dim=384, dim=16)).save_pretrained(tmp_path / "head")
    words = ["bench", toys, "--methods", "global,chamfer-ot,elvis", "--head", tmp_path / "head", "--size", 70]
    words += ["--precision", "fp32", "--cache", tmp_path / "cache", "--split-by", "left|right"]
    words += ["--out", tmp_path / "out", "--rankings", tmp_path / "rankings.jsonl"]
    code, out, err = elvis(*words)
    assert code == 0
    assert "toys: 6 queries, 6 gallery pictures, mAP@100" in err
    assert "toys: descriptors: 6 of 6" in err
    table = [line for line in out.splitlines() if line.startswith("|")]
    assert table[0] == "| method | toys | toys: left | toys: right |"
    assert [line.split(" | ")[0] for line in table[2:5]] == ["| global", "| chamfer-ot", "| elvis"]
    lines = [json.loads(line) for line in (tmp_path / "out" / "results.jsonl").read_text().splitlines()]
    assert [(line["method"], line["split"]) for line in lines[:3]] == [
        ("global", ""),
        ("global", "left"),
        ("global", "right"),
    ]
    assert lines[0]["extraction"]["longer_side"] == 70
    assert lines[0]["precision"] == "fp32"
    assert lines[-1]["model_settings"]["input_dim"] == 384
    rankings = [json.loads(line) for line in (tmp_path / "rankings.jsonl").read_text().splitlines()]
    assert len(rankings) == 18
    assert all(len(line["ranked"]) == len(line["scores"]) == 5 for line in rankings)
    assert {file.suffix for file in (tmp_path / "out").glob("table.*")} == {".md", ".tex", ".html"}
    table = (tmp_path / "out" / "table.md").read_text()
    assert out.endswith(table)
    # Without data sets the same table is rendered from the results alone.
    assert elvis("bench", "--out", tmp_path / "out") == (0, table, "")
    code, latex, _ = elvis("bench", "--out", tmp_path / "out", "--format", "latex", "--baseline", "elvis")
    assert (code, latex) == (0, (tmp_path / "out" / "table.tex").read_text())
    assert "difference to elvis" in latex


@pytest.mark.weights
def test_a_damaged_cache_is_refused_in_one_line(elvis, toys, tmp_path):
    words = ["bench", toys, "--methods", "global", "--size", 28, "--cache", tmp_path / "cache"]
    assert elvis(*words)[0] == 0
    file = sorted((tmp_path / "cache").glob("*/*/*.safetensors"))[0]
    content = bytearray(file.read_bytes())
    vector = json.loads(content[8 : 8 + int.from_bytes(content[:8], "little")])["image_vector"]["data_offsets"][0]
    content[8 + int.from_bytes(content[:8], "little") + vector] ^= 1
    file.write_bytes(content)
    code, out, err = elvis(*words)
    assert (code, out) == (12, "")
    assert f"elvis: {file} is damaged (checksum of image_vector): delete it and run again" in err


@pytest.mark.parametrize(
    ("words", "code", "message"),
    [
        (["no/such/folder"], 11, "no/such/folder: no such folder"),
        ([], 2, "data sets: expected at least one folder with an images.csv, got none"),
        (["TOYS", "--methods", "shamfer"], 2, "unknown method 'shamfer'"),
        (["TOYS", "--methods", "elvis"], 4, "elvis needs weights"),
        (["TOYS", "--format", "word"], 2, "unknown table format 'word': choose one of html, latex, markdown"),
        (["TOYS", "--baseline", "chamfer", "--methods", "global"], 2, "unknown baseline 'chamfer'"),
        (["TOYS", "--block", "3"], 2, "block: expected a place from the end"),
        (["TOYS", "--preset", "slow"], 2, "unknown preset 'slow': choose one of accurate, balanced, fast"),
        (["TOYS", "--depth", "0"], 2, "--depth"),
    ],
)
def test_what_cannot_work_is_one_line_and_a_code(elvis, toys, words, code, message):
    found, _, err = elvis("bench", *(toys if word == "TOYS" else word for word in words))
    assert found == code
    assert message in err


def test_a_malformed_folder_is_named_with_its_line(elvis, toys):
    (toys / "images.csv").write_text("path,role,label,junk\n../x.png,query,1,\n")
    code, _, err = elvis("bench", toys)
    assert code == 11
    assert "images.csv, line 2: path '../x.png' leads out of the folder" in err
