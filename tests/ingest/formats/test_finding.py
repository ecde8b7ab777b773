"""Files of a folder: their importers, and reasons for those that are not read."""

from __future__ import annotations

import gzip
from pathlib import Path

import pyarrow as pa
import pytest
import torch
from pyarrow import parquet

from oversharp.diagnostics.ingest.config import ImportConfig
from oversharp.diagnostics.ingest.formats import RECORDS_ASKED, FoundFiles, find_files
from oversharp.diagnostics.ingest.formats.rows import NOT_AN_OBJECT, NOT_JSON
from oversharp.diagnostics.ingest.ingest import import_samples
from oversharp.diagnostics.ingest.plan import plan_import
from oversharp.diagnostics.records.errors import ImportFileError
from tests.ingest.test_ingest import dump, line

GOOD = "".join(line(1, repeat, right=True, step=20) + "\n" for repeat in range(3))
COMPLETION = {"step": 3, "prompt": "q", "completion": "2", "right": 1.0, "advantage": 0.5}
DAMAGED = {
    "empty.jsonl": (b"", "is empty"),
    "blank.jsonl": (b" \n\n", "is empty"),
    "nul.jsonl": (bytes(9000), "has only NUL bytes; copy it again"),
    "utf16.jsonl": (GOOD.encode("utf-16"), "not UTF-8 text (UTF-16?); save it as UTF-8"),
    "utf16_without_mark.jsonl": (GOOD.encode("utf-16-le"), "not UTF-8 text (UTF-16?); save it as UTF-8"),
    "cut.jsonl": (GOOD[:40].encode(), f"no readable record; line 1: {NOT_JSON}"),
    "texts.jsonl": (b'"2"\n"3"\n', f"no readable record; line 1: {NOT_AN_OBJECT}"),
    "lists.jsonl": (b'["2", 1]\n["3", 0]\n', f"no readable record; line 1: {NOT_AN_OBJECT}"),
    "pointer.jsonl": (
        b"version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 12345\n",
        "is a Git LFS pointer, not the file; run `git lfs pull` in its repository",
    ),
    "pointer.parquet": (
        b"version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 12345\n",
        "is a Git LFS pointer, not the file; run `git lfs pull` in its repository",
    ),
    "pointer.eval": (
        b"version https://git-lfs.github.com/spec/v1\noid sha256:4d7a\nsize 12345\n",
        "is a Git LFS pointer, not the file; run `git lfs pull` in its repository",
    ),
    "page.jsonl": (b"\n<!DOCTYPE html>\n<html>", "is a web page (HTML), not the file; download the file itself"),
    "cut.eval": (b"PK\x03\x04 and no end", "is a truncated ZIP archive; copy it again"),
    "empty.pt": (b"", "is empty"),
    "40.jsonl.gz": (b"no gzip", "not a readable .gz file (Not a gzipped file (b'no')); copy it again"),
    "cut.jsonl.gz": (
        gzip.compress(GOOD.encode())[:20],
        "not a readable .gz file (Compressed file ended before the end-of-stream marker was reached); copy it again",
    ),
    "40.parquet.gz": (gzip.compress(b"PAR1"), "this format cannot be read compressed; unpack the file first"),
}


def names(inside: FoundFiles) -> dict[str, str]:
    return {one.path.name: one.importer.name for one in inside.files}


@pytest.mark.parametrize("name", DAMAGED)
def test_a_damaged_file_is_refused_with_its_cause_among_good_ones_and_alone(tmp_path: Path, name: str) -> None:
    content, why = DAMAGED[name]
    (tmp_path / name).write_bytes(content)
    with pytest.raises(ImportFileError) as alone:
        find_files([tmp_path])
    assert str(alone.value) == f"{tmp_path / name}: {why}"
    (tmp_path / "20.jsonl").write_text(GOOD)
    inside = find_files([tmp_path])
    assert (names(inside), inside.unknown) == ({"20.jsonl": "verl"}, ())
    assert inside.refused == {tmp_path / name: why}


def test_a_parquet_file_that_is_cut_short_has_the_same_cause_with_and_without_its_format(tmp_path: Path) -> None:
    cut = tmp_path / "completions_00003.parquet"
    parquet.write_table(pa.Table.from_pylist([COMPLETION] * 100), cut)
    cut.write_bytes(cut.read_bytes()[:-50])
    for name in (None, "trl"):
        with pytest.raises(ImportFileError, match=r"00003\.parquet: not a readable Parquet file \(.+\); copy it again"):
            find_files([tmp_path], name=name)
    parquet.write_table(pa.Table.from_pylist([COMPLETION]), tmp_path / "completions_00004.parquet")
    inside = find_files([tmp_path])
    assert names(inside) == {"completions_00004.parquet": "trl"}
    assert list(inside.refused) == [cut]
    assert inside.refused[cut].startswith("not a readable Parquet file (")


@pytest.mark.parametrize("n_foreign", [1, RECORDS_ASKED - 1, RECORDS_ASKED])
def test_foreign_and_broken_lines_before_the_first_good_one_do_not_lose_the_file(
    tmp_path: Path, n_foreign: int
) -> None:
    path = tmp_path / "10.jsonl"
    path.write_text('{"foo"\n' * 50 + '{"foo": 1}\n' * n_foreign + GOOD)
    if n_foreign < RECORDS_ASKED:
        assert names(find_files([path])) == {"10.jsonl": "verl"}
    else:
        with pytest.raises(ImportFileError, match=r"unrecognized format \(foo\); name the fields with --map"):
            find_files([path])


def test_a_first_and_a_last_line_that_are_lists_do_not_make_the_file_an_array(tmp_path: Path) -> None:
    path = tmp_path / "10.jsonl"
    path.write_text(f"[1]\n{GOOD}[2]\n")
    assert names(find_files([path])) == {"10.jsonl": "verl"}


def test_a_pickle_that_nobody_allowed_is_left_out_alone(tmp_path: Path) -> None:
    pickle, reason = tmp_path / "0.pt", "is a pickle, which can run code when it is read; pass --allow-pickle if"
    torch.save({"rollout_id": 0, "samples": []}, pickle)
    with pytest.raises(ImportFileError, match=reason):
        plan_import([tmp_path], ImportConfig())
    (tmp_path / "20.jsonl").write_text(GOOD)
    plan = plan_import([tmp_path], ImportConfig())
    assert [file.path.name for file in plan.files] == ["20.jsonl"]
    assert list(plan.refused) == [pickle]
    assert plan.refused[pickle].startswith(reason)
    assert not plan.unknown
    with pytest.raises(ImportFileError, match=reason):  # a base that was asked for is not left out
        plan_import([tmp_path / "20.jsonl"], ImportConfig(base=pickle))
    allowed = plan_import([tmp_path], ImportConfig(allow_pickle=True))
    assert {file.importer.name for file in allowed.files} == {"verl", "slime"}
    assert not allowed.refused


def test_what_is_refused_at_the_base_is_told_too(tmp_path: Path) -> None:
    for folder in ("run", "base"):
        (tmp_path / folder).mkdir()
        (tmp_path / folder / "20.jsonl").write_text(GOOD)
        (tmp_path / folder / "40.jsonl").touch()
    plan = plan_import([tmp_path / "run"], ImportConfig(base=tmp_path / "base"))
    assert plan.refused == {tmp_path / folder / "40.jsonl": "is empty" for folder in ("run", "base")}


@pytest.mark.slow
def test_what_oversharp_leaves_beside_a_store_is_never_a_dump(tmp_path: Path) -> None:
    folder = dump(tmp_path / "val")
    import_samples([folder], ImportConfig(store=folder / "audit.duckdb"))
    assert (folder / "audit.made.json").is_file()
    (folder / "audit.tokens").mkdir()
    parquet.write_table(pa.Table.from_pylist([{"token_logps": [0.5]}]), folder / "audit.tokens" / "a.parquet")
    for inside in (find_files([folder], name="mapped"), find_files(sorted(folder.rglob("*.*son*")), name="mapped")):
        assert names(inside) == {f"{step}.jsonl": "mapped" for step in (0, 10, 20)}
        assert (inside.unknown, dict(inside.refused)) == ((), {})
    assert not find_files([folder]).unknown


def test_a_folder_of_files_that_need_names_for_their_fields_says_so(tmp_path: Path) -> None:
    (tmp_path / "all.csv").write_text("q,a,s\n1+1?,2,1\n")
    for path in (tmp_path, tmp_path / "all.csv"):
        with pytest.raises(
            ImportFileError, match=r"all\.csv: unrecognized format \(q, a, s\); name the fields with --map"
        ):
            find_files([path])
    assert names(find_files([tmp_path], name="mapped")) == {"all.csv": "mapped"}


def test_tables_beside_dumps_are_not_passed_over_in_silence(tmp_path: Path) -> None:
    (tmp_path / "20.jsonl").write_text(GOOD)
    for name in ("more.csv", "more.ndjson", "summary.json"):
        (tmp_path / name).write_text("q,a,s\n1+1?,2,1\n")
    inside = find_files([tmp_path])
    assert (names(inside), dict(inside.refused)) == ({"20.jsonl": "verl"}, {})
    assert [path.name for path in inside.unknown] == ["more.csv", "more.ndjson"]


def test_a_compressed_file_that_was_unpacked_beside_it_is_passed_over(tmp_path: Path) -> None:
    (tmp_path / "20.jsonl.gz").write_bytes(gzip.compress(GOOD.encode()))
    (tmp_path / "20.jsonl").write_text(GOOD)
    inside = find_files([tmp_path])
    assert (names(inside), dict(inside.refused)) == ({"20.jsonl": "verl"}, {})
