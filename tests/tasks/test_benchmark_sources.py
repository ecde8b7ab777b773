"""Sources of a benchmark: local copies of every kind, and the cache of ``datasets``."""

import json
import sys
from pathlib import Path

import datasets
import pytest

from oversharp.diagnostics.records.errors import ProblemError
from oversharp.diagnostics.tasks import load_problems
from oversharp.diagnostics.tasks.benchmark_sources import FOLDER_VARIABLE, data_rows
from oversharp.diagnostics.tasks.benchmarks import BENCHMARKS

COPIES = Path(__file__).parent / "benchmarks"
ONE = [{"question": "Six and seven?", "answer": "6 + 7 = <<6+7=13>>13\n#### 13"}]


@pytest.fixture(autouse=True)
def no_network_and_no_shared_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(datasets.config, "HF_HUB_OFFLINE", True)
    monkeypatch.setattr(datasets.config, "HF_DATASETS_CACHE", tmp_path / "cache")
    monkeypatch.delenv(FOLDER_VARIABLE, raising=False)


def originals(name: str) -> list[dict[str, object]]:
    return [json.loads(line) for line in (COPIES / f"{name}.jsonl").read_text().splitlines()]


@pytest.mark.parametrize("name", BENCHMARKS)
def test_a_saved_data_set_and_a_parquet_file_give_the_rows_that_were_put_in(tmp_path: Path, name: str) -> None:
    known = BENCHMARKS[name]
    made = datasets.Dataset.from_list(originals(name))
    made.save_to_disk(tmp_path / "saved")
    made.to_parquet(tmp_path / "copy.parquet")
    wanted = [tuple(row[column] for column in known.columns) for row in originals(name)]
    for local in (tmp_path / "saved", tmp_path / "copy.parquet"):
        rows = data_rows(name, known.data, local=local)
        assert [tuple(row.fields[column] for column in known.columns) for row in rows] == wanted


def test_a_saved_dictionary_of_splits_gives_the_right_split(tmp_path: Path) -> None:
    other = datasets.Dataset.from_list([{"question": "x", "answer": "#### 1"}])
    datasets.DatasetDict({"train": other, "test": datasets.Dataset.from_list(ONE)}).save_to_disk(tmp_path / "gsm8k")
    [problem] = load_problems(None, f"benchmark:gsm8k={tmp_path}/gsm8k", limit=5)
    assert problem.gold == "13"


def test_a_directory_with_the_hubs_own_files_will_do(tmp_path: Path) -> None:
    (tmp_path / "test.jsonl").write_text((COPIES / "math500.jsonl").read_text())
    assert len(list(data_rows("math500", BENCHMARKS["math500"].data, tmp_path))) == 3


def test_a_single_file_needs_no_datasets_and_a_directory_says_what_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "datasets", None)
    assert len(load_problems(None, f"benchmark:gsm8k={COPIES}/gsm8k.jsonl")) == 3
    with pytest.raises(ProblemError, match=r"pip install '\.\[tasks\]'.*benchmark:NAME=FILE"):
        load_problems(None, f"benchmark:gsm8k={tmp_path}")


@pytest.mark.parametrize("kind", ["directory", "jsonl", "parquet"])
def test_copies_are_found_by_name_in_the_directory_of_the_variable(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    made = datasets.Dataset.from_list(ONE)
    write = {"directory": made.save_to_disk, "jsonl": made.to_json, "parquet": made.to_parquet}[kind]
    write(tmp_path / ("gsm8k" if kind == "directory" else f"gsm8k.{kind}"))
    monkeypatch.setenv(FOLDER_VARIABLE, str(tmp_path))
    assert [problem.prompt for problem in load_problems(None, "benchmark:gsm8k")] == ["Six and seven?"]
    # what is named in the task itself comes first
    assert len(load_problems(None, f"benchmark:gsm8k={COPIES}/gsm8k.jsonl")) == 3


def test_a_variable_that_names_no_directory_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(FOLDER_VARIABLE, str(tmp_path / "none"))
    with pytest.raises(ProblemError, match=f"^{FOLDER_VARIABLE}=.*none: no such directory"):
        load_problems(None, "benchmark:gsm8k")


@pytest.mark.parametrize("name", BENCHMARKS)
def test_without_a_network_one_line_says_how_to_make_a_copy_of_the_pinned_commit(name: str) -> None:
    with pytest.raises(ProblemError) as raised:
        load_problems(None, f"benchmark:{name}")
    message = str(raised.value)
    assert "\n" not in message
    data = BENCHMARKS[name].data
    copied = (f'.save_to_disk("{name}")', f"--task benchmark:{name}={name}")
    for part in ("cannot be fetched", data.path, f'split="{data.split}"', f'revision="{data.revision}"', *copied):
        assert part in message


def cached(folder: Path, revision: str) -> None:
    """The cache as ``datasets`` leaves it after a download of GSM8K at ``revision``."""
    place = folder / "openai___gsm8k" / "main" / "0.0.0" / revision
    place.mkdir(parents=True)
    made = datasets.Dataset.from_list(ONE)
    with datasets.arrow_writer.ArrowWriter(path=str(place / "gsm8k-test.arrow"), features=made.features) as writer:
        writer.write_table(made.data.table)
        writer.finalize()
    split = datasets.SplitInfo(name="test", num_bytes=1, num_examples=1, dataset_name="gsm8k")
    info = datasets.DatasetInfo(
        features=made.features,
        builder_name="parquet",
        dataset_name="gsm8k",
        config_name="main",
        version="0.0.0",
        splits=datasets.SplitDict({"test": split}),
    )
    info.write_to_directory(str(place))


def test_what_was_downloaded_before_is_read_from_the_cache_but_never_another_commit(tmp_path: Path) -> None:
    revision = BENCHMARKS["gsm8k"].data.revision
    cached(tmp_path / "cache", revision)
    assert [problem.gold for problem in load_problems(None, "benchmark:gsm8k")] == ["13"]
    cached(tmp_path / "cache", "f" * 40)
    (tmp_path / "cache" / "openai___gsm8k" / "main" / "0.0.0" / revision).rename(tmp_path / "gone")
    with pytest.raises(ProblemError, match=f"has openai/gsm8k at {'f' * 40}, not at {revision}; on a machine"):
        load_problems(None, "benchmark:gsm8k")


def test_paths_that_hold_no_data_set_are_named(tmp_path: Path) -> None:
    with pytest.raises(ProblemError, match="no local copy of gsm8k;"):
        load_problems(None, f"benchmark:gsm8k={tmp_path}/none")
    (tmp_path / "empty").mkdir()
    with pytest.raises(ProblemError, match="empty: cannot be read as a data set"):
        load_problems(None, f"benchmark:gsm8k={tmp_path}/empty")
    datasets.DatasetDict({"train": datasets.Dataset.from_list(ONE)}).save_to_disk(tmp_path / "wrong")
    with pytest.raises(ProblemError, match='no split "test", only train'):
        load_problems(None, f"benchmark:gsm8k={tmp_path}/wrong")
