from __future__ import annotations

from pathlib import Path

import pandas as pd
import pyarrow as pa
import pytest
import yaml
from datasets import load_dataset
from huggingface_hub import DatasetCard
from pyarrow import parquet

from oversharp import open_store
from oversharp.diagnostics.export.samples import (
    COLUMN_RELATIONS,
    SCHEMA,
    _card_metadata,
    parts,
    read_part,
    write_samples,
)
from oversharp.diagnostics.store.views import meaning_of

pytestmark = pytest.mark.xdist_group("audited_store")

HELD = """
SELECT g.*, p.prompt
FROM graded_samples AS g
JOIN problems AS p USING (problem_id)
ORDER BY g.series, g.step, g.problem_id, g.greedy DESC, g.sample_index
"""


def exported(store_path: Path, folder: Path, series: tuple[str, ...]) -> tuple[int, int]:
    """Samples written, and samples that the progress heard of."""
    heard: list[int] = []
    with open_store(store_path) as store:
        planned = {name: parts(store, name) for name in series}
        return write_samples(store, planned, folder, heard.append), sum(heard)


@pytest.mark.slow
def test_datasets_loads_the_folder_and_finds_every_sample(audited_store: Path, tmp_path: Path) -> None:
    folder = tmp_path / "samples"
    folder.mkdir()
    n_written, n_heard = exported(audited_store, folder, ("grpo", "iac, seed 1"))
    loaded = load_dataset(str(folder), split="samples", cache_dir=str(tmp_path / "cache"))
    with open_store(audited_store) as store:
        held = store.frame(HELD)
    assert n_written == n_heard == len(loaded) == len(held) == 2 * 4 * ((16 + 1) + 2 * (8 + 1))
    assert loaded.column_names == SCHEMA.names
    taken = loaded.to_pandas().sort_values(
        ["series", "step", "problem_id", "greedy", "sample_index"], ascending=[True, True, True, False, True]
    )
    for column in ("series", "step", "prompt", "text", "answer", "correct", "logp_sum_raw", "n_tokens", "greedy"):
        assert taken[column].tolist() == held[column].tolist(), column


@pytest.mark.slow
def test_the_card_says_what_every_column_means_and_how_the_samples_were_drawn(
    audited_store: Path, tmp_path: Path
) -> None:
    exported(audited_store, tmp_path, ("grpo",))
    card = (tmp_path / "README.md").read_text(encoding="utf-8")
    for field in SCHEMA:
        told = meaning_of(COLUMN_RELATIONS.get(field.name, "graded_samples"), field.name).text
        assert f"| `{field.name}` | {field.type} |" in card
        assert told in card
    assert '"sampler": "transformers"' in card
    assert "140 responses" in card
    with open_store(audited_store) as store:
        verdict = store.verdict("grpo")
    assert verdict is not None
    assert f"- grpo: {verdict.sentence}" in card
    assert 'load_dataset(".", split="samples")' in card


@pytest.mark.slow
def test_the_hub_reads_the_head_of_the_card_whatever_a_series_is_called(audited_store: Path, tmp_path: Path) -> None:
    names = ("grpo", "iac, seed 1")
    exported(audited_store, tmp_path, names)
    head = DatasetCard.load(tmp_path / "README.md").data.to_dict()
    assert head["pretty_name"] == "Graded responses of grpo, iac, seed 1"
    assert head["size_categories"] == ["n<1K"]
    assert head["configs"][0]["data_files"] == [{"split": "samples", "path": "data/*/*.parquet"}]
    odd = yaml.safe_load("\n".join(_card_metadata(['a: "b" 😀 #---'], 10_000_000)[1:-1]))
    assert odd["pretty_name"] == 'Graded responses of a: "b" 😀 #---'
    assert odd["size_categories"] == ["10M<n<100M"]


def test_what_another_tool_did_not_tell_is_null(imported_store: Path, tmp_path: Path) -> None:
    assert exported(imported_store, tmp_path, ("val",))[0] == 2 * 6 * 4
    table = pa.concat_tables([parquet.read_table(path) for path in sorted(tmp_path.rglob("*.parquet"))])
    assert table.schema.equals(SCHEMA)
    for column in ("n_tokens", "logp_sum_raw", "mode"):
        assert table[column].null_count == len(table), column
    frame: pd.DataFrame = table.to_pandas()
    assert frame.groupby("step")["correct"].sum().tolist() == [12, 6]
    assert set(frame["verifier"]) == {"recorded:verl"}
    assert set(frame["prompt"]) == {f'What is 7 × {problem}?\nSay "it" | or —' for problem in range(6)}


@pytest.mark.slow
@pytest.mark.parametrize("part_bytes", [1, 2000, 1 << 30])
def test_samples_are_the_same_however_they_are_cut(audited_store: Path, part_bytes: int) -> None:
    with open_store(audited_store) as store:
        whole = pa.concat_tables([read_part(store, "grpo", part) for part in parts(store, "grpo")])
        cut = parts(store, "grpo", part_bytes=part_bytes)
        tables = [read_part(store, "grpo", part) for part in cut]
    assert pa.concat_tables(tables).equals(whole)
    assert sum(part.n for part in cut) == len(whole)
    if part_bytes == 1:  # a greedy response shares its part with the sample of index 0
        assert max(len(table) for table in tables) == 2
    elif part_bytes == 1 << 30:
        assert len(cut) == 3
    else:
        assert max(table.nbytes for table in tables) < 2 * part_bytes
