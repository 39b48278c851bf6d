from __future__ import annotations

from pathlib import Path

from elvis.store.layout import Layout


def test_a_version_needs_what_its_manifest_names_and_its_latest_deletions(tmp_path: Path):
    layout = Layout(tmp_path)
    identity = "8a489f1c-d511-4a08-bcca-7e1be660d9c2"
    layout.versions.mkdir(parents=True)
    layout.manifest(7).write_bytes(b"\0aaa.lance\0 7-x.txn" + bytes.fromhex(identity.replace("-", "")))
    files = [
        "data/aaa.lance",
        "data/aaa/1.blob",
        "data/bbb.lance",
        "data/.tmpXYZ",
        "_transactions/7-x.txn",
        "_transactions/6-y.txn",
        "_deletions/0-3-11.arrow",
        "_deletions/0-6-12.arrow",
        "_deletions/0-7-13.arrow",
        "_deletions/.tmpNJkI4w",
        f"_indices/{identity}/index.idx",
        "_indices/00000000-d511-4a08-bcca-7e1be660d9c2/index.idx",
    ]
    assert layout.needed([7], files) == {
        f"_versions/{layout.manifest(7).name}",
        "data/aaa.lance",
        "data/aaa/1.blob",
        "_transactions/7-x.txn",
        "_deletions/0-6-12.arrow",
        f"_indices/{identity}/index.idx",
    }


def test_cleaning_keeps_what_is_needed(tmp_path: Path):
    layout = Layout(tmp_path)
    layout.versions.mkdir(parents=True)
    (layout.table / "data" / "bbb").mkdir(parents=True)
    for name in ("data/aaa.lance", "data/bbb.lance", "data/bbb/1.blob"):
        (layout.table / name).write_bytes(b"1")
    layout.manifest(1).write_bytes(b"bbb.lance")
    layout.manifest(2).write_bytes(b"aaa.lance")
    assert layout.manifest_versions() == [2, 1]
    removed = layout.clean([2])
    assert set(removed) == {"data/bbb.lance", "data/bbb/1.blob", f"_versions/{layout.manifest(1).name}"}
    assert layout.table_files() == [f"_versions/{layout.manifest(2).name}", "data/aaa.lance"]
    assert not (layout.table / "data" / "bbb").exists()
