from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path
from random import Random
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import parquet

from oversharp.diagnostics.export.samples import SCHEMA, parts, write_samples
from oversharp.diagnostics.ingest.config import ImportConfig
from oversharp.diagnostics.ingest.formats import own_parquet, verl
from oversharp.diagnostics.ingest.formats.contract import Fault, FilePlace, ReadOptions, Recorded
from oversharp.diagnostics.ingest.formats.rows import first_record
from oversharp.diagnostics.ingest.ingest import import_samples
from oversharp.diagnostics.store import Store
from oversharp.trainers.run.directory import RolloutRow, write_rollouts
from tests.audit.stopped_stores import CAP, CAP_OF_BASE, ENOUGH, FIRST, write_stopped
from tests.ingest.formats.reading import reader, samples, write_lines
from tests.ingest.formats.test_bad_input import ROLLOUT
from tests.ingest.formats.trajectory_writers import FORMATS, MadeTurn, make

EXPORTED: dict[str, Any] = {
    "series": "GRPO α=1", "checkpoint": "checkpoint-40", "step": 40, "is_base": False, "task": "countdown",
    "problem_id": "abc", "source_id": "17", "prompt": "q", "gold": "2", "greedy": False, "sample_index": 3,
    "in_first_round": True,
    "text": "It is 2", "n_tokens": 4, "finish_reason": "length", "logp_sum_raw": -1.5, "answer": "2", "mode": None,
    "reward": 1.0, "correct": True, "state": "ok", "reason": "", "verifier": "exact", "settings_id": "0123",
}  # fmt: skip
read = reader(own_parquet)


def rollouts(run: Path) -> Path:
    (run / "rollouts").mkdir(parents=True)
    write_rollouts(run, 20, [RolloutRow(**ROLLOUT | {"problem_id": "abc"})])
    return run / "rollouts" / "step_000020.parquet"


def exported(root: Path, **changed: Any) -> Path:
    path = root / "data" / "GRPO-1" / "step_000040.parquet"
    path.parent.mkdir(parents=True)
    parquet.write_table(pa.Table.from_pylist([EXPORTED | changed], schema=SCHEMA), path)
    return path


def test_rollouts_keep_the_step_that_drew_them(tmp_path: Path) -> None:
    path = rollouts(tmp_path / "grpo")
    assert own_parquet.recognises(path, first_record(path))
    assert own_parquet.place(path) == FilePlace(run="grpo", step=20)
    assert read(path) == [
        Recorded(1, "q", "2", reward=1.0, step=3, problem="abc", n_tokens=4, finish_reason="stop", logp_sum=-1.5)
    ]


def test_the_run_tells_how_its_rollouts_were_drawn(tmp_path: Path) -> None:
    path = rollouts(tmp_path / "grpo")
    assert own_parquet.settings(path) == {}
    config = path.parent.parent / "config.toml"
    config.write_text('[train]\nalgorithm = "grpo"\ntemperature = 1.0\nmax_tokens = "many"\nchat = false\nseed = 3\n')
    assert own_parquet.settings(path) == {"temperature": 1.0, "chat": False}
    config.write_text("[train\n")
    assert own_parquet.settings(path) == {}


def test_an_export_comes_back(tmp_path: Path) -> None:
    path = exported(tmp_path)
    assert own_parquet.recognises(path, first_record(path))
    assert own_parquet.place(path) == FilePlace(run="GRPO-1", step=40)
    assert read(path) == [
        Recorded(1, "q", "It is 2", gold="2", reward=1.0, step=40, problem="17", index=3, answer="2", n_tokens=4,
                 finish_reason="length", logp_sum=-1.5, task="countdown")
    ]  # fmt: skip


def test_of_an_audit_that_sampled_until_solved_only_the_first_round_comes_back(tmp_path: Path) -> None:
    assert read(exported(tmp_path / "later", in_first_round=False)) == [Fault(1, own_parquet.LATER_ROUND)]
    assert len(samples(read(exported(tmp_path / "older", in_first_round=None)))) == 1


@pytest.mark.slow
def test_an_exported_audit_that_sampled_until_solved_is_imported_with_equal_numbers(tmp_path: Path) -> None:
    path = write_stopped(tmp_path / "audit.duckdb")
    with Store.open(path, read_only=True) as store:
        planned = {"run": parts(store, "run")}
        n_written = write_samples(store, planned, tmp_path / "export", lambda n: None)
        first = store.frame("SELECT step, sum(n_correct)::INTEGER AS n FROM problem_counts GROUP BY step ORDER BY step")
        assert n_written == store.frame("SELECT count(*) AS n FROM graded_samples")["n"].item()
    card = (tmp_path / "export" / "README.md").read_text(encoding="utf-8")
    assert f"{FIRST} to {CAP} samples ({CAP_OF_BASE} of the base), until a round left it with {ENOUGH} correct" in card
    result = import_samples([tmp_path / "export"], ImportConfig(store=tmp_path / "imported.duckdb", name="run"))
    with Store.open(result.store_path, read_only=True) as store:
        counts = store.frame("SELECT step, min(n) AS least, max(n) AS most, sum(n_correct)::INTEGER AS n FROM "
                             "sampled_counts GROUP BY step ORDER BY step")  # fmt: skip
    assert set(counts["least"]) == set(counts["most"]) == {FIRST}
    assert counts["n"].tolist() == first["n"].tolist()


def test_a_greedy_sample_stays_greedy_and_null_stays_unknown(tmp_path: Path) -> None:
    (sample,) = read(exported(tmp_path, greedy=True, source_id=None, logp_sum_raw=None, finish_reason=None))
    assert (sample.greedy, sample.problem, sample.logp_sum, sample.finish_reason) == (True, "abc", None, None)


def test_the_card_tells_how_an_export_was_drawn(tmp_path: Path) -> None:
    path = exported(tmp_path)
    told = '{"series": "GRPO α=1", "sampler": "vllm", "temperature": 0.7, "max_tokens": 512.0, "top_p": null}'
    (tmp_path / "README.md").write_text(
        f'# Card\n\n```python\nx\n```\n\n```json\n[{{"series": "other"}}, {told}]\n```\n'
    )
    assert own_parquet.settings(path) == {"temperature": 0.7, "max_tokens": 512}


@pytest.mark.parametrize("card", ["", "```json\n[1]\n```", "```json\n{}\n```", "```json\n[{"])
def test_a_card_that_tells_nothing_is_none(tmp_path: Path, card: str) -> None:
    path = exported(tmp_path)
    (tmp_path / "README.md").write_text(card)
    assert own_parquet.settings(path) == {}


@pytest.mark.slow
def test_what_a_store_exports_is_what_it_was_given(tmp_path: Path) -> None:
    given = tmp_path / "val"
    for step in (0, 40):
        answers = [(problem, answer) for problem in range(4) for answer in range(3)]
        write_lines(given / f"{step}.jsonl", *(
            {"input": f"{problem}+1?", "output": f"#### {n}", "gts": str(problem + 1), "score": float(n > problem)}
            for problem, n in answers
        ))  # fmt: skip
    import_samples([given], ImportConfig(store=tmp_path / "audit.duckdb", temperature=0.7, max_tokens=64))
    with Store.open(tmp_path / "audit.duckdb") as store:
        write_samples(store, {"val": parts(store, "val")}, tmp_path / "out", lambda n: None)
    path = tmp_path / "out" / "data" / "val" / "step_000040.parquet"
    assert own_parquet.settings(path) == {"temperature": 0.7, "max_tokens": 64}

    def content(items: Iterable[Recorded | Fault]) -> set[tuple[object, ...]]:
        return {(one.prompt, one.response, one.gold, one.reward) for one in samples(items)}

    assert content(read(path)) == content(verl.read_samples(given / "40.jsonl", ReadOptions()))


@pytest.mark.slow
def test_an_exported_trajectory_comes_back_without_a_difference(tmp_path: Path) -> None:
    random = Random(4)
    made = [[make(random, FORMATS["prime_rl"]) for _ in range(12)] for _ in range(2)]
    given = tmp_path / "run" / "rollouts"
    for step, of_step in zip((0, 40), made, strict=True):
        folder = given / f"step_{step}" / "eval" / "all"
        folder.mkdir(parents=True)
        FORMATS["prime_rl"].write(folder, [*of_step, [MadeTurn(text="plain")]])
    import_samples([tmp_path / "run"], ImportConfig(store=tmp_path / "first.duckdb"))
    with Store.open(tmp_path / "first.duckdb", read_only=True) as store:
        (series,) = store.frame("SELECT series FROM current_audits")["series"]
        write_samples(store, {series: parts(store, series)}, tmp_path / "out", lambda n: None)
    import_samples([tmp_path / "out"], ImportConfig(store=tmp_path / "second.duckdb"))
    turns = "SELECT response_id, turns::VARCHAR AS turns FROM trajectories ORDER BY response_id"
    texts = "SELECT sample_index, response_id, text FROM samples ORDER BY ALL"
    rows = []
    for name in ("first.duckdb", "second.duckdb"):
        with Store.open(tmp_path / name, read_only=True) as store:
            rows.append([store.frame(query).values.tolist() for query in (turns, texts)])
    assert rows[0] == rows[1]
    assert len(rows[0][0]) > 20
    assert len(rows[0][1]) == 26
