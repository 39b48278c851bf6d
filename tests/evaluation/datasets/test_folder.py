"""Folders with an images.csv: what they mean, and every way in which one can be wrong."""

from pathlib import Path

import pytest

from elvis.errors import DataSetError
from elvis.evaluation.datasets import load_benchmark
from elvis.evaluation.datasets.folder import read_folder

POCKET = Path(__file__).parents[3] / ".." / "shared" / "pocket"
HEADER = "path,role,label,junk\n"


@pytest.fixture
def folder(tmp_path):
    """A function that writes an images.csv, text or bytes, beside the pictures a.jpg to d.jpg."""

    def write(content, pictures="abcd"):
        data = content if isinstance(content, bytes) else content.encode()
        (tmp_path / "images.csv").write_bytes(data)
        for name in pictures:
            (tmp_path / f"{name}.jpg").write_bytes(b"\xff\xd8\xff")
        return tmp_path

    return write


def judged(benchmark):
    """Query name → (names of positives, names of ignored)."""
    judgement, names = benchmark.judgements[0], [picture.name for picture in benchmark.gallery]
    return {
        query.name: ([names[i] for i in positives], [names[i] for i in ignored])
        for query, positives, ignored in zip(benchmark.queries, judgement.positives, judgement.ignored, strict=True)
    }


def test_roles_labels_and_junk(folder):
    benchmark = read_folder(
        folder(HEADER + "a.jpg,query,1,2;3\nb.jpg,database,1,\nc.jpg,database,2,\nd.jpg,database,3,\ne.jpg,train,1,\n")
    )
    assert judged(benchmark) == {"a.jpg": (["b.jpg"], ["c.jpg", "d.jpg"])}
    assert benchmark.training == 1
    assert benchmark.missing == frozenset()  # a training picture takes no part: whether it is there is no matter
    assert benchmark.protocol.metric_name == "mAP@100"


def test_a_picture_of_both_roles_is_left_out_of_its_own_ranking(folder):
    benchmark = read_folder(folder(HEADER + "a.jpg,both,1,\nb.jpg,both,1,\nc.jpg,both,2,1\n"))
    assert judged(benchmark) == {
        "a.jpg": (["b.jpg"], ["a.jpg"]),
        "b.jpg": (["a.jpg"], ["b.jpg"]),
        "c.jpg": ([], ["a.jpg", "b.jpg", "c.jpg"]),
    }


def test_junk_of_a_database_picture_says_nothing_about_queries(folder):
    benchmark = read_folder(folder(HEADER + "a.jpg,query,1,\nb.jpg,database,1,7\nc.jpg,database,7,1\n"))
    assert judged(benchmark) == {"a.jpg": (["b.jpg"], [])}


def test_junk_labels_that_nobody_has_are_harmless(folder):
    assert judged(read_folder(folder(HEADER + "a.jpg,query,1, 8 ;; 9\nb.jpg,database,1,\n"))) == {
        "a.jpg": (["b.jpg"], [])
    }


def test_a_database_picture_without_label_is_right_for_nobody(folder):
    benchmark = read_folder(folder(HEADER + "a.jpg,query,1,\nb.jpg,database,1,\nc.jpg,database,,\n"))
    assert judged(benchmark) == {"a.jpg": (["b.jpg"], [])}


def test_labels_are_text(folder):
    benchmark = read_folder(folder(HEADER + "a.jpg,query,01,\nb.jpg,database,1,\nc.jpg,database,01,\n"))
    assert judged(benchmark) == {"a.jpg": (["c.jpg"], [])}


@pytest.mark.parametrize(
    "content",
    [
        "\ufeff" + HEADER + "a.jpg,query,1,\nb.jpg,database,1,\n",
        HEADER.replace("\n", "\r\n") + "a.jpg,query,1,\r\nb.jpg,database,1,\r\n",
        '"path","role","label","junk"\n"a.jpg","query","1",""\n"b.jpg","database","1",""\n',
        "junk,label,note,role,path\n,1,x,query,a.jpg\n,1,y,database,b.jpg\n",
        HEADER + "\na.jpg,query, 1 ,\n\nb.jpg, database,1,",
    ],
    ids=["byte-order-mark", "crlf", "quotes", "other-order-and-columns", "blanks-and-no-last-newline"],
)
def test_csv_as_other_programs_write_it(folder, content):
    assert judged(read_folder(folder(content))) == {"a.jpg": (["b.jpg"], [])}


def test_names_with_commas_quotes_newlines_and_other_scripts(folder, tmp_path):
    names = ['x, "y".jpg', "zwei\nzeilen.jpg", "画像.jpg"]
    lines = "".join(f'"{name.replace(chr(34), chr(34) * 2)}",both,1,\n' for name in names)
    for name in names:
        (tmp_path / name).write_bytes(b"x")
    benchmark = read_folder(folder(HEADER + lines))
    assert [picture.name for picture in benchmark.queries] == names
    assert not benchmark.missing


def test_missing_pictures_are_counted_and_named(folder):
    benchmark = read_folder(folder(HEADER + "a.jpg,query,1,\nb.jpg,database,1,\nz.jpg,database,1,\ny.jpg,query,1,\n"))
    assert benchmark.missing == {"y.jpg", "z.jpg"}
    assert "2 pictures missing or unreadable ('y.jpg', 'z.jpg')" in benchmark.summary()
    # What is missing still counts where it would have been right.
    assert judged(benchmark)["a.jpg"][0] == ["b.jpg", "z.jpg"]


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("", "found no path and no role and no label and no junk"),
        ("path,role,label\na.jpg,query,1\n", "found no junk"),
        ("path,role,label,junk,path\n", "a column stands twice"),
        (HEADER, "role query or both, found none"),
        (HEADER + "a.jpg,query,1,\n", "role database or both, found none"),
        (HEADER + "a.jpg,database,1,\n", "role query or both, found none"),
        (HEADER + "a.jpg,query,1,\nb.jpg,database,2,\n", "no query shares its label"),
        (HEADER + "a.jpg,both,1,\n", "no query shares its label"),
        (HEADER + "a.jpg,query,1,\nb.jpg,gallery,1,\n", "line 3: role: expected one of train, query, database, both"),
        (HEADER + "a.jpg,query,1\n", "line 2: expected as many fields as the header has, found fewer"),
        (HEADER + "a.jpg,query,1,,\n", "line 2: expected as many fields as the header has, found more"),
        (HEADER + "a.jpg,query,,\n", "line 2: label: expected one for a query"),
        (HEADER + "a.jpg,query,1,2;1\n", "line 2: junk names the query's own label '1'"),
        (HEADER + "a.jpg,query,1,\nb.jpg,database,1,\na.jpg,both,1,\n", "line 4: path 'a.jpg' stands in line 2"),
        (HEADER + "a.jpg,query,1,\n./a.jpg,database,1,\n", "line 3: path './a.jpg' stands in line 2"),
        (HEADER + "../a.jpg,query,1,\n", "line 2: path '../a.jpg' leads out of the folder"),
        (HEADER + "images/../../a.jpg,query,1,\n", "line 2: path .* leads out of the folder"),
        (HEADER + "/etc/passwd,query,1,\n", "line 2: path '/etc/passwd' is absolute"),
        (HEADER + "C:/a.jpg,query,1,\n", "line 2: path 'C:/a.jpg' is absolute"),
        (HEADER + "images\\a.jpg,query,1,\n", "line 2: path .* holds a backslash"),
        (HEADER + " ,query,1,\n", "line 2: path ' ' is empty"),
        (HEADER + "a\0.jpg,query,1,\n", "line 2: .*NUL"),
        (HEADER + '"a.jpg,query,1,\n', "line 2: unexpected end of data"),
        (HEADER + '"a"b.jpg,query,1,\n', "line 2: "),
        (HEADER + "x" * 200_000 + ",query,1,\n", "line 2: field larger than field limit"),
        (HEADER.encode() + b"caf\xe9.jpg,query,1,\n", "expected UTF-8, got something else at byte 24"),
        ((HEADER + "a.jpg,query,1,\n").encode("utf-16"), "expected UTF-8"),
        (HEADER + "y.jpg,query,1,\nz.jpg,database,1,\n", "names 2 pictures and none is there, as 'y.jpg'"),
    ],
)
def test_a_malformed_file_is_refused_with_its_line(folder, content, message):
    with pytest.raises(DataSetError, match=message) as caught:
        read_folder(folder(content))
    assert "images.csv" in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_path_too_long_for_the_disk_is_missing_and_no_crash(folder):
    benchmark = read_folder(folder(HEADER + f"a.jpg,query,1,\nb.jpg,database,1,\n{'x' * 5000},database,1,\n"))
    assert benchmark.missing == {"x" * 5000}


def test_no_folder_and_no_file(tmp_path):
    with pytest.raises(DataSetError, match="no such folder"):
        load_benchmark(tmp_path / "nowhere")
    with pytest.raises(DataSetError, match="images.csv is missing: expected a CSV file with the columns path, role"):
        load_benchmark(tmp_path)
    (tmp_path / "file").write_text("")
    with pytest.raises(DataSetError, match="no folder but a file"):
        load_benchmark(tmp_path / "file")


def test_the_name_is_the_folders_even_when_given_with_a_slash(folder, monkeypatch):
    place = folder(HEADER + "a.jpg,query,1,\nb.jpg,database,1,\n")
    assert read_folder(Path(f"{place}/")).name == place.name
    monkeypatch.chdir(place)
    assert read_folder(Path(".")).name == place.name


@pytest.mark.parametrize(
    ("name", "queries", "gallery", "positives"),
    [("groceries", 557, 557, None), ("gardens", 400, 200, 1), ("webcams", 607, 607, 1)],
)
def test_pocket_benchmarks(name, queries, gallery, positives):
    if not POCKET.is_dir():
        pytest.skip("the pocket benchmarks are not beside this checkout")
    benchmark = load_benchmark(POCKET / name)
    assert (len(benchmark.queries), len(benchmark.gallery)) == (queries, gallery)
    assert benchmark.missing == frozenset()
    judgement = benchmark.judgements[0]
    if positives:
        assert {len(row) for row in judgement.positives} == {positives}
    else:
        assert all(
            benchmark.gallery[row[0]].name == query.name
            for row, query in zip(judgement.ignored, benchmark.queries, strict=True)
        )
