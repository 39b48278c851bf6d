"""The verbs as a person types them, with their exit codes; a tiny random backbone."""

import csv
import json
from collections.abc import Callable
from pathlib import Path

import pytest

from elvis.cli import main


class Ended:
    def __init__(self, code: int, out: str, err: str) -> None:
        self.code, self.out, self.err = code, out, err

    @property
    def lines(self) -> list[dict]:
        return [json.loads(line) for line in self.out.splitlines()]


@pytest.fixture
def elvis(monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]) -> Callable[..., Ended]:
    def run(*words: object) -> Ended:
        monkeypatch.setattr("sys.argv", ["elvis", *map(str, words)])
        capsys.readouterr()
        with pytest.raises(SystemExit) as ended:
            main()
        out, err = capsys.readouterr()
        return Ended(int(ended.value.code or 0), out, err)

    return run


@pytest.fixture(scope="module")
def choices(tiny_checkpoint: Callable[[str], Path]) -> list[object]:
    return ["--backbone", tiny_checkpoint("dinov2"), "--size", 112, "--descriptors", 40]


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory, collection: Path, tiny_checkpoint: Callable[[str], Path]) -> Path:
    from elvis.building import index_pictures

    folder = tmp_path_factory.mktemp("indexes") / "photos.index"
    settings = {"backbone": str(tiny_checkpoint("dinov2")), "longer_side": 112, "descriptors": 40}
    index_pictures([collection / "photos"], folder, settings=settings)
    return folder


def test_index_reports_and_comes_up_to_date(
    elvis: Callable[..., Ended], collection: Path, choices: list, tmp_path: Path
) -> None:
    photos, index = tmp_path / "photos", tmp_path / "index"
    photos.mkdir()
    for file in sorted((collection / "photos").iterdir())[:4]:
        (photos / file.name).write_bytes(file.read_bytes())
    (photos / "notes.jpg").write_text("no picture")
    first = elvis("index", photos, "--index", index, *choices)
    assert (first.code, first.out.count("4 added")) == (0, 1)
    assert "notes.jpg" in first.out
    (photos / "thing0-0.png").unlink()
    again = elvis("index", photos, "--index", index, "--prune", "--json").lines[0]
    assert (again["added"], again["unchanged"], again["removed"], again["pictures"]) == (0, 3, 1, 3)
    assert [Path(each["path"]).name for each in again["skipped"]] == ["notes.jpg"]


def test_a_dry_run_writes_nothing(elvis: Callable[..., Ended], collection: Path, choices: list, tmp_path: Path) -> None:
    ended = elvis("index", collection / "photos", "--index", tmp_path / "i", "--dry-run", "--json", *choices)
    assert ended.code == 0
    assert ended.lines[0]["pictures"] == 16
    assert ended.lines[0]["bytes"] > 0
    assert ended.lines[0]["hours"] > 0
    assert not (tmp_path / "i").exists()
    assert (
        "16 pictures to index" in elvis("index", collection / "photos", "-i", tmp_path / "i", "--dry-run", *choices).out
    )


def test_search_as_json(elvis: Callable[..., Ended], place: Path, collection: Path) -> None:
    ended = elvis("search", collection / "queries", "--index", place, "--top", 3, "--json")
    assert ended.code == 0
    assert [Path(line["query"]).name for line in ended.lines] == ["thing1.jpg", "thing4.jpg", "thing6.jpg"]
    hit = ended.lines[0]["hits"][0]
    assert set(hit) == {
        "path", "rank", "score", "rank_before", "global_similarity", "confidence", "box", "query_box", "metadata",
    }  # fmt: skip
    assert "thing1" in hit["path"]
    assert ended.lines[0]["method"] == "chamfer-ot"


def test_search_for_people(elvis: Callable[..., Ended], place: Path, collection: Path) -> None:
    ended = elvis("search", collection / "queries" / "thing4.jpg", "-i", place, "--verbose")
    assert "ranked by chamfer-ot" in ended.out
    assert "thing4-0.png" in ended.out
    assert "(backbone by " in ended.err
    for stage in ("extraction", "nearest", "fetch", "matching"):
        assert f"{stage} " in ended.err


def test_search_together_crop_and_pictures(
    elvis: Callable[..., Ended], place: Path, collection: Path, tmp_path: Path
) -> None:
    together = elvis("search", collection / "queries", "-i", place, "--together", "--json", "--top", 6)
    assert len(together.lines) == 1
    query = collection / "queries" / "thing6.jpg"
    ended = elvis(
        "search", query, "-i", place, "--crop", "0,0,0.5,1", "--top", 2,
        "--sheet", tmp_path / "sheet.png", "--explain", tmp_path / "why",
    )  # fmt: skip
    assert ended.code == 0
    assert (tmp_path / "sheet.png").read_bytes().startswith(b"\x89PNG")
    assert len(list((tmp_path / "why" / "thing6").glob("*.png"))) == 2


@pytest.mark.parametrize(
    ("words", "code", "says"),
    [
        (["--min-score", "1e9"], 10, "nothing found"),
        (["--method", "guess"], 2, "unknown method 'guess'"),
        (["--crop", "1,2"], 2, "crop: expected four numbers"),
        (["--crop", "0.9,0,0.5,1"], 2, "inside the picture"),
        (["--where", "nonsense ="], 2, "nonsense"),
        (["--method", "elvis"], 4, "elvis needs weights"),
        (["--index", "nowhere"], 6, "nowhere"),
        (["--top", "0"], 2, ""),
    ],
)
def test_exit_codes_of_search(
    elvis: Callable[..., Ended], place: Path, collection: Path, words: list, code: int, says: str
) -> None:
    query = collection / "queries" / "thing1.jpg"
    ended = elvis("search", query, *([] if "--index" in words else ["--index", place]), *words)
    assert ended.code == code
    assert says in ended.err


def test_a_query_that_cannot_be_read_does_not_stop_the_others(
    elvis: Callable[..., Ended], place: Path, collection: Path, tmp_path: Path
) -> None:
    bad = tmp_path / "bad.jpg"
    bad.write_bytes(b"\xff\xd8\xff but no more")
    ended = elvis("search", bad, collection / "queries" / "thing1.jpg", "-i", place, "--json")
    assert ended.code == 5
    assert len(ended.lines) == 1
    assert "bad.jpg" in ended.err


def test_groups_in_every_form(elvis: Callable[..., Ended], place: Path, tmp_path: Path) -> None:
    shared = ["groups", "-i", place, "--threshold", "0.08", "--journal", tmp_path / "j"]
    assert "group 8: 2 pictures" in elvis(*shared).out
    for suffix in ("json", "csv", "html"):
        assert elvis(*shared, "--out", tmp_path / f"groups.{suffix}").code == 0
    assert len(json.loads((tmp_path / "groups.json").read_text())) == 8
    with (tmp_path / "groups.csv").open() as stream:
        assert [row["group"] for row in csv.DictReader(stream)].count("3") == 2
    assert (tmp_path / "groups.html").read_text().count("<img ") == 16
    assert elvis(*shared, "--out", tmp_path / "groups.txt").code == 2


def test_info_verify_remove_and_doctor(
    elvis: Callable[..., Ended], collection: Path, choices: list, tmp_path: Path
) -> None:
    index = tmp_path / "index"
    elvis("index", collection / "photos", "-i", index, *choices)
    assert elvis("info", "-i", index, "--json").lines[0]["pictures"] == 16
    assert "chamfer-ot" in elvis("info", "-i", index).out
    assert "16 pictures, all sound" in elvis("verify", "-i", index).out
    assert elvis("remove", collection / "photos" / "thing0-0.png", "-i", index).out.startswith("1 removed, 15 left")
    missing = elvis("remove", "nothing.png", "-i", index)
    assert (missing.code, "not in" in missing.err) == (6, True)
    assert elvis("doctor", "-i", index).code == 0
    data = max((file for file in index.rglob("*") if file.is_file()), key=lambda file: file.stat().st_size)
    content = bytearray(data.read_bytes())
    content[len(content) // 2] ^= 0xFF
    data.write_bytes(content)
    damaged = elvis("verify", "-i", index, "--json")
    assert damaged.code == 8
    assert damaged.lines[0]["sound"] is False


def test_compare_and_explain(elvis: Callable[..., Ended], collection: Path, tmp_path: Path) -> None:
    pair = [collection / "photos" / "thing1-0.png", collection / "photos" / "thing1-1.png"]
    same = elvis("compare", *pair, "--preset", "fast", "--json", "--out", tmp_path / "match.png")
    other = elvis("compare", pair[0], collection / "photos" / "thing2-0.png", "--preset", "fast", "--json")
    assert (same.code, other.code) == (0, 0)
    assert same.lines[0]["score"] > 2 * other.lines[0]["score"]
    assert (tmp_path / "match.png").read_bytes().startswith(b"\x89PNG")
    explained = elvis("explain", *pair, "--preset", "fast", "--out", tmp_path / "why")
    assert explained.code == 0
    assert {file.stem for file in (tmp_path / "why").iterdir()} == {"match", "before", "after", "ignored", "matrices"}
    assert "score" in explained.out


def test_weights_are_listed_with_their_licences(elvis: Callable[..., Ended]) -> None:
    ended = elvis("weights", "list")
    assert "dinov2-small" in ended.out
    assert "Apache-2.0" in ended.out


def test_help_of_every_verb(elvis: Callable[..., Ended]) -> None:
    for verb in ("index", "search", "compare", "explain", "groups", "info", "verify", "remove", "doctor", "weights"):
        ended = elvis(verb, "--help")
        assert ended.code == 0
        assert "--help" in ended.out
