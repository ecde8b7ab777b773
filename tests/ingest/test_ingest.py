"""Imports end to end: real stores, dumps in verl's layout."""

from __future__ import annotations

import json
import random
from collections import Counter
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

import oversharp
from oversharp.diagnostics.app.cli import main
from oversharp.diagnostics.audit.counts.series import read_counts
from oversharp.diagnostics.ingest.assign import DUPLICATE, NO_STEP, Reading
from oversharp.diagnostics.ingest.config import ImportConfig
from oversharp.diagnostics.ingest.formats.rows import NOT_AN_OBJECT
from oversharp.diagnostics.ingest.ingest import ImportResult, import_samples, preview
from oversharp.diagnostics.ingest.plan import plan_import
from oversharp.diagnostics.ingest.read import SeriesReader
from oversharp.diagnostics.ingest.selection import select_problems
from oversharp.diagnostics.records.errors import ConfigError, ImportFileError, StoreError
from oversharp.diagnostics.store import Store
from oversharp.diagnostics.store.load import stored_key
from oversharp.diagnostics.verdict.counts import GuessRate, Looks, SeriesCounts

pytestmark = pytest.mark.usefixtures("few_measures")  # but of what a fixture of the module imports

PROBLEMS, REPEATS = 12, 8
COUNTED = ["step", "checkpoint", "problem_id", "greedy", "n"]


def line(problem: int, repeat: int, *, right: bool, step: int | None = None, **more: object) -> str:
    answer = problem * 7 if right else -1 - repeat
    fields = {"input": f"What is 7 times {problem}?", "output": f"So \\boxed{{{answer}}}", "gts": str(problem * 7)}
    told = {} if step is None else {"step": step}
    return json.dumps(fields | {"score": float(right)} | told | more)


def dump(folder: Path, *, steps: tuple[int, ...] = (0, 10, 20)) -> Path:
    """Half of the problems are forgotten over the steps, the others learned."""
    folder.mkdir(parents=True, exist_ok=True)
    for position, step in enumerate(steps):
        rows = [
            line(problem, repeat, right=repeat < (4 + 2 * position if problem % 2 else 4 - 2 * position), step=step)
            for problem in range(PROBLEMS)
            for repeat in range(REPEATS)
        ]
        (folder / f"{step}.jsonl").write_text("\n".join(rows) + "\n", encoding="utf-8")
    return folder


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A dump of three steps."""
    return dump(tmp_path / "val")


def config(tmp_path: Path, **more: Any) -> ImportConfig:
    return ImportConfig(store=tmp_path / "out" / "audit.duckdb", **more)


def imported(tmp_path: Path, *paths: Path, **more: Any) -> ImportResult:
    return import_samples(paths, config(tmp_path, **more))


def table(tmp_path: Path, sql: str) -> list[tuple[Any, ...]]:
    with Store.open(tmp_path / "out" / "audit.duckdb", read_only=True) as store:
        return list(store.frame(sql).itertuples(index=False, name=None))


def n_samples(tmp_path: Path) -> int:
    return int(table(tmp_path, "SELECT count(*) FROM samples")[0][0])


def written(tmp_path: Path) -> list[tuple[Any, ...]]:
    return table(tmp_path, "SELECT step, problem_id, sample_index, text FROM graded_samples ORDER BY ALL")


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> list[tuple[Any, ...]]:
    """Rows of an uninterrupted import of the dump."""
    root = tmp_path_factory.mktemp("whole")
    imported(root, dump(root / "val"))
    return written(root)


def n_of_files(result: ImportResult) -> list[int]:
    return [file.n_samples for file in result.files]


@pytest.fixture(scope="module")
def reported(tmp_path_factory: pytest.TempPathFactory) -> tuple[Path, ImportResult]:
    """Result of the command on the dump, and its folder."""
    root = tmp_path_factory.mktemp("reported")
    return root, oversharp.import_samples(dump(root / "val"), config(root), command="oversharp import val")


@pytest.mark.slow
def test_a_dump_becomes_counts_findings_verdict_and_report(reported: tuple[Path, ImportResult]) -> None:
    tmp_path, result = reported
    (series,) = result.series
    assert (series.name, series.steps, series.n_problems, series.n) == ("val", (0, 10, 20), PROBLEMS, REPEATS)
    assert not result.incomplete
    assert series.verdict is not None
    counts = table(tmp_path, "SELECT step, sum(n_correct) FROM problem_counts GROUP BY step ORDER BY step")
    assert counts == [(0, 48), (10, 48), (20, 48)]
    sql = "SELECT k, step, value FROM findings WHERE measure = 'pass_at_k' AND k IN (1, 8) ORDER BY ALL"
    assert table(tmp_path, sql) == [(1, 0, 0.5), (1, 10, 0.5), (1, 20, 0.5), (8, 0, 1.0), (8, 10, 1.0), (8, 20, 0.5)]
    sql = "SELECT value IS NOT NULL FROM findings WHERE measure = 'answer_entropy' AND step = 20 AND scope = 'all'"
    assert set(table(tmp_path, sql)) == {(True,)}
    assert result.report_path is not None
    assert "by verl" in result.report_path.read_text(encoding="utf-8")


@pytest.mark.slow
def test_the_same_files_again_add_nothing_and_a_later_step_joins(tmp_path: Path, folder: Path) -> None:
    imported(tmp_path, folder)
    before = n_samples(tmp_path)
    assert all(file.known for file in imported(tmp_path, folder).files)
    assert n_samples(tmp_path) == before
    dump(folder, steps=(0, 10, 20, 30))
    assert imported(tmp_path, folder).series[0].steps == (0, 10, 20, 30)
    assert n_samples(tmp_path) == before + PROBLEMS * REPEATS


@pytest.mark.slow
def test_a_file_that_grew_goes_on_and_one_that_was_rewritten_is_left_out(tmp_path: Path, folder: Path) -> None:
    last = folder / "20.jsonl"
    text = last.read_text(encoding="utf-8")
    last.write_text("".join(text.splitlines(keepends=True)[:40]), encoding="utf-8")
    imported(tmp_path, folder)
    last.write_text(text, encoding="utf-8")
    assert imported(tmp_path, folder).files[-1].n_samples == PROBLEMS * REPEATS
    sql = "SELECT n_samples, lines_done FROM imports WHERE path LIKE '%20.jsonl'"
    assert table(tmp_path, sql) == [(PROBLEMS * REPEATS, PROBLEMS * REPEATS)]
    last.write_text(text.replace("So", "Thus"), encoding="utf-8")
    why = imported(tmp_path, folder).files[-1].why
    assert why is not None
    assert why.startswith("was imported before with other content")
    assert n_samples(tmp_path) == 3 * PROBLEMS * REPEATS


@pytest.mark.slow
def test_bad_records_are_counted_with_their_line_and_the_good_ones_kept(tmp_path: Path, folder: Path) -> None:
    good = line(1, 0, right=True, step=20)
    bad = [
        b'{"input": "cut sho',
        good.replace("1.0", "NaN").encode(),
        good.replace("1.0", '"high"').encode(),
        b'{"input": "\xff", "output": "x", "score": 1}',
        b"[1, 2]",
        json.dumps({"input": "What?", "score": None}).encode(),
        json.dumps({"input": "What?", "output": "x", "gts": "1"}).encode(),
    ]
    with (folder / "20.jsonl").open("ab") as file:
        file.write(b"\n".join([*bad, good.encode()]) + b"\n")
    result = imported(tmp_path, folder)
    last = result.files[-1]
    assert last.n_samples == PROBLEMS * REPEATS + 1
    first = PROBLEMS * REPEATS + 1
    assert {why: (count.n, count.first_line) for why, count in last.faults.items()} == {
        "not valid JSON (truncated?)": (1, first),
        "score is NaN or infinite": (1, first + 1),
        "score is text, not a number": (1, first + 2),
        "not UTF-8 text": (1, first + 3),
        NOT_AN_OBJECT: (1, first + 4),
        "no output": (1, first + 5),
        "no reward, but other records of this run have one": (1, first + 6),
    }
    assert result.incomplete
    assert table(tmp_path, "SELECT sum(n) FROM import_faults") == [(7,)]


@pytest.mark.slow
def test_numbered_repeats_come_once(tmp_path: Path) -> None:
    rows = [
        {"q": f"What is 7 times {p}?", "a": "7", "ok": 1, "i": r, "at": step}
        for step in (0, 10)
        for p in range(3)
        for r in (0, 1, 1)
    ]
    (tmp_path / "mine.jsonl").write_text("\n".join(map(json.dumps, rows)))
    fields = {"prompt": "q", "response": "a", "score": "ok", "index": "i", "step": "at"}
    result = imported(tmp_path, tmp_path / "mine.jsonl", map=fields, name="mine")
    assert {why: (count.n, count.first_line) for why, count in result.files[0].faults.items()} == {DUPLICATE: (6, 3)}
    assert (result.series[0].name, result.series[0].n) == ("mine", 2)


@pytest.mark.slow
@pytest.mark.parametrize("cut", [b"{", "é".encode()[:1]], ids=["within a record", "within a letter"])
def test_a_line_that_was_still_being_written_counts_once_it_is_whole(tmp_path: Path, folder: Path, cut: bytes) -> None:
    lines = (folder / "20.jsonl").read_bytes().splitlines(keepends=True)
    begun = lines[50][:30] + cut
    (folder / "20.jsonl").write_bytes(b"".join([*lines[:50], begun]))
    assert [count.n for count in imported(tmp_path, folder).files[2].faults.values()] == [1]
    (folder / "20.jsonl").write_bytes(b"".join([*lines[:50], begun, b"\n", *lines[50:]]))
    broken = imported(tmp_path, folder).files[2]
    assert [(count.n, count.first_line) for count in broken.faults.values()] == [(1, 51)]
    assert broken.n_samples == PROBLEMS * REPEATS


@pytest.mark.slow
def test_a_dump_that_grows_while_it_is_written_becomes_what_it_is_in_the_end(
    tmp_path: Path, folder: Path, whole: list[tuple[Any, ...]]
) -> None:
    last = (folder / "20.jsonl").read_bytes()
    for end in (len(last) // 2, len(last) - 40, len(last)):
        (folder / "20.jsonl").write_bytes(last[:end])
        result = imported(tmp_path, folder)
    assert (result.files[2].faults, result.files[2].n_samples) == ({}, PROBLEMS * REPEATS)
    assert written(tmp_path) == whole


@pytest.mark.slow
def test_parts_are_full_although_records_among_them_are_bad(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "40.jsonl"
    lines = [json.dumps({"input": "1+1?", "output": str(n), "gts": "2", "score": 1.0}) for n in range(30)]
    lines[3] = lines[17] = "{"
    path.write_text("\n".join(lines))
    for constant, n in (("SAMPLES_PER_COMMIT", 10), ("SAMPLES_PER_BLOCK", 4)):
        monkeypatch.setattr(f"oversharp.diagnostics.ingest.batch.{constant}", n)
    write, sizes = SeriesReader._write, []

    def noted(self: SeriesReader, reading: Reading, *args: Any, **more: Any) -> None:
        sizes.append(reading.part.n_samples)
        write(self, reading, *args, **more)

    monkeypatch.setattr(SeriesReader, "_write", noted)
    imported(tmp_path, path)
    assert sizes == [10, 10, 8]


@pytest.mark.slow
def test_an_import_that_was_killed_goes_on_where_it_ended(
    tmp_path: Path, folder: Path, whole: list[tuple[Any, ...]], monkeypatch: pytest.MonkeyPatch
) -> None:
    for constant in ("SAMPLES_PER_COMMIT", "SAMPLES_PER_BLOCK"):
        monkeypatch.setattr(f"oversharp.diagnostics.ingest.batch.{constant}", 10)
    write, parts = SeriesReader._write, []

    def killed(self: SeriesReader, *args: Any, **more: Any) -> None:
        if len(parts) == 12:
            raise KeyboardInterrupt
        parts.append(1)
        write(self, *args, **more)

    monkeypatch.setattr(SeriesReader, "_write", killed)
    with pytest.raises(KeyboardInterrupt):
        imported(tmp_path, folder)
    assert 0 < n_samples(tmp_path) < 3 * PROBLEMS * REPEATS
    monkeypatch.setattr(SeriesReader, "_write", write)
    result = imported(tmp_path, folder)
    assert n_of_files(result) == [PROBLEMS * REPEATS] * 3
    assert written(tmp_path) == whole


@pytest.mark.slow
def test_what_the_files_do_not_tell_is_asked_for(tmp_path: Path) -> None:
    some, base = tmp_path / "some.jsonl", tmp_path / "base.jsonl"
    some.write_text(line(1, 0, right=True))
    base.write_text(line(1, 0, right=False))
    result = imported(tmp_path, some)
    assert result.files[0].faults[NO_STEP].n == 1
    assert result.series[0].why == f"no sample is usable: {NO_STEP}"
    why = imported(tmp_path, some, step=5).series[0].why
    assert why is not None
    assert "there is only step 5; also import samples of the base model (--base PATH)" in why
    both = imported(tmp_path, some, step=5, base=base)
    assert both.series[0].steps == (0, 5)
    assert both.series[0].verdict is not None


@pytest.mark.slow
def test_samples_without_scores_are_graded(tmp_path: Path) -> None:
    files = [tmp_path / f"{step}.jsonl" for step in (0, 10)]
    for file in files:
        file.write_text("\n".join(line(p, r, right=r == 0, score=None) for p in range(3) for r in range(2)))
    imported(tmp_path, *files, verifier="exact")
    assert set(table(tmp_path, "SELECT n, n_correct FROM problem_counts")) == {(2, 1)}


@pytest.mark.slow
def test_a_threshold_decides_what_is_correct_and_the_score_stays(tmp_path: Path) -> None:
    files = [tmp_path / f"{step}.jsonl" for step in (0, 10)]
    for file in files:
        file.write_text("\n".join(line(1, r, right=True, score=r / 10, output=f"try {r}: 7") for r in range(8)))
    imported(tmp_path, *files, correct_at=0.5)
    assert table(tmp_path, "SELECT n_correct FROM problem_counts") == [(3,), (3,)]
    assert len(table(tmp_path, "SELECT DISTINCT reward FROM graded_samples")) == 8


@pytest.mark.slow
def test_tools_and_sampled_series_do_not_mix(tmp_path: Path, folder: Path) -> None:
    imported(tmp_path, folder)
    with Store.open(tmp_path / "out" / "audit.duckdb") as store:
        store._database.rows("UPDATE imports SET format = 'trl'")
    with pytest.raises(StoreError, match=r"has samples of trl, but .*0\.jsonl is from verl; .*--name"):
        imported(tmp_path, folder)


def test_choosing_leaves_out_a_step_whose_dump_is_cut_short() -> None:
    counts = pd.DataFrame(
        [(step, f"step {step}", f"p{p}", False, 4) for step in (0, 1, 2) for p in range(10) if step < 2 or p < 3],
        columns=COUNTED,
    )
    chosen = select_problems(counts, ImportConfig())
    assert list(chosen.left_out) == ["step 2"]
    assert (len(chosen.problem_ids), chosen.n, chosen.n_base) == (10, 4, 4)
    with pytest.raises(ConfigError, match="--n 5: no problem has more than 4 samples at every step"):
        select_problems(counts, ImportConfig(n=5))
    apart = pd.DataFrame(
        [(step, f"step {step}", f"p{step}-{p}", False, 4) for step in (0, 1) for p in range(3)], columns=COUNTED
    )
    with pytest.raises(ConfigError, match=r"no problem has samples at every step.*--window"):
        select_problems(apart, ImportConfig())


def test_problems_with_fewer_samples_are_counted_with_the_n_that_keeps_them() -> None:
    """Ten problems with 4 samples, five with 2, and one that the second step lacks."""
    rows = [
        (t, f"step {t}", f"p{p}", False, 4 if p < 10 else 2) for t in (0, 1) for p in range(16) if (t, p) != (1, 15)
    ]
    chosen = select_problems(pd.DataFrame(rows, columns=COUNTED), ImportConfig())
    assert chosen.notes == ("6 of 16 problems left out: fewer than 4 samples at some step; --n 2 compares 15",)


def test_unknown_files_and_wrong_flags_are_one_line(tmp_path: Path) -> None:
    odd = tmp_path / "odd.jsonl"
    odd.write_text('{"question": "?", "reply": "!"}\n')
    with pytest.raises(ImportFileError, match=r"odd\.jsonl: unrecognized format \(question, reply\); .*--map"):
        plan_import([odd], ImportConfig())
    with pytest.raises(ImportFileError, match="nowhere: no such file or folder"):
        plan_import([tmp_path / "nowhere"], ImportConfig())
    with pytest.raises(ConfigError, match="--format verll: no such format; use one of: verl"):
        plan_import([odd], ImportConfig(format="verll"))
    with pytest.raises(ConfigError, match="--map promt=…: unknown name"):
        ImportConfig(map={"promt": "question"})
    with pytest.raises(ConfigError, match="--map needs reward=… or gold=…"):
        ImportConfig(map={"prompt": "question", "response": "reply"})


@pytest.mark.slow
@pytest.mark.usefixtures("no_report")
def test_the_command_shows_and_then_writes(tmp_path: Path, folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    store = tmp_path / "out" / "audit.duckdb"
    with pytest.raises(SystemExit) as shown:
        main(["import", str(folder), "--store", str(store), "--dry-run"])
    assert shown.value.code == 0
    assert "step 10: 96 samples of 12 problems" in capsys.readouterr().out
    assert not store.exists()
    (folder / "20.jsonl").write_bytes((folder / "20.jsonl").read_bytes()[:-40])
    with pytest.raises(SystemExit) as done:
        main(["import", str(folder), "--store", str(store), "--quiet"])
    printed = capsys.readouterr()
    assert done.value.code == 3
    assert "series        val: " in printed.out
    assert "1 record left out, the first in line 96: not valid JSON (truncated?)" in printed.err


@pytest.mark.slow
@pytest.mark.usefixtures("no_report")
def test_names_that_a_terminal_would_obey_are_written_out(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder, store = dump(tmp_path / "va\x1b[31ml"), str(tmp_path / "out" / "audit.duckdb")
    (folder / "\x1b[2J.csv").write_text("a,b\n1,2\n")
    (folder / "30\x07.jsonl").write_text("no JSON\n")
    for more in (["--dry-run"], []):
        with pytest.raises(SystemExit):
            main(["import", str(folder), "--store", store, *more])
    with pytest.raises(SystemExit):
        main(["import", str(folder / "30\x07.jsonl"), "--store", store])
    said = "".join(capsys.readouterr())
    assert not {"\x1b", "\x07"} & set(said)
    assert all(name in said for name in (r"va\x1b[31ml", r"\x1b[2J.csv", r"30\x07.jsonl"))


@pytest.mark.slow
@pytest.mark.usefixtures("no_report")
def test_the_command_tells_the_verdict_of_clusters_guesses_and_looks(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store, folder = tmp_path / "out" / "audit.duckdb", tmp_path / "val"
    named = "prompt=input,response=output,gold=gts,reward=score,cluster=page"

    def run(*flags: str) -> tuple[int | str | None, str]:
        with pytest.raises(SystemExit) as ended:
            main(["import", str(folder), "--store", str(store), "--map", named, "--quiet", *flags])
        return ended.value.code, capsys.readouterr().err

    def add(step: int) -> None:
        folder.mkdir(exist_ok=True)
        rows = [line(i, j, right=j < 3 + (i + step) % 3, page=i // 3) for i in range(PROBLEMS) for j in range(REPEATS)]
        (folder / f"{step}.jsonl").write_text("\n".join(rows) + "\n", encoding="utf-8")

    def read() -> SeriesCounts:
        with Store.open(store, read_only=True) as opened:
            return read_counts(opened, stored_key(opened, "val"), {}, {})

    add(0)
    add(10)
    assert run("--guess-rate", "2") == (2, "error: --guess-rate 2.0: must be between 0 and 1, for example 0.25 for "
                                           "choices of four options\n")  # fmt: skip
    assert run("--guess-rate", "0.1", "--looks", "3", "--runs", "2")[0] == 0
    first = read()
    assert first.cluster_P is not None
    assert sorted(Counter(first.cluster_P.tolist()).values()) == [3, 3, 3, 3]
    assert (first.guess_rate, first.n_near_duplicates) == (GuessRate(share=0.1, source="given"), 0)
    assert first.base.unread_P is None  # imported grades without finish reasons
    add(20)
    code, said = run("--looks", "5")
    assert code == 2
    assert said.startswith("error: --looks 5: series 'val' had a verdict before (step 10), with --looks 3")
    assert run()[0] == 0
    assert read().looks == Looks(number=2, declared=3, runs=2)
    assert read().guess_rate.source == "assumed"
    add(30)  # the same samples as step 0
    assert run()[0] == 3


@pytest.mark.slow
@pytest.mark.parametrize("wrong", [{"reward": "nosuch"}, {"steps": (30,)}], ids=["reward", "steps"])
def test_an_import_with_a_wrong_option_does_not_stand_in_the_way_of_the_right_one(
    tmp_path: Path, folder: Path, whole: list[tuple[Any, ...]], wrong: dict[str, Any]
) -> None:
    imported(tmp_path, folder, **wrong)
    result = imported(tmp_path, folder)
    assert [(file.known, file.why, file.faults) for file in result.files] == [(False, None, {})] * 3
    assert n_of_files(result) == [PROBLEMS * REPEATS] * 3
    assert written(tmp_path) == whole
    assert result.series[0].steps == (0, 10, 20)


@pytest.mark.slow
def test_steps_that_were_left_out_join_and_the_files_of_the_others_are_left_out(tmp_path: Path, folder: Path) -> None:
    imported(tmp_path, folder, steps=(0, 10))
    result = imported(tmp_path, folder)
    assert [file.why is None for file in result.files] == [False, False, True]
    assert "another --map, --match, --reward, --correct-at, --step, --steps, --window" in (result.files[0].why or "")
    assert result.series[0].steps == (0, 10, 20)


@pytest.mark.slow
def test_an_option_that_would_change_what_is_there_is_refused(tmp_path: Path, folder: Path) -> None:
    imported(tmp_path, folder)
    result = imported(tmp_path, folder, correct_at=0.0)
    assert all("was imported before with another" in (file.why or "") for file in result.files)
    with pytest.raises(StoreError, match=r"with another --temperature, --top-p or --max-tokens; pass another"):
        imported(tmp_path, folder, temperature=0.6)
    other = imported(tmp_path, folder, correct_at=0.0, name="all right")
    assert other.series[0].verdict is not None
    above = imported(tmp_path, folder, k=(1, 99), name="k")
    assert above.series[0].why == "--k 99 exceeds the 8 samples of each problem and step; leave that k out"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("texts", "n_conflicting"), [(("", "", "", ""), 2), (("a", "a", "b", "c"), 0), (("a", "b", "a", "b"), 2)]
)
def test_one_text_with_several_rewards_is_told_for_it_has_one_grade(
    tmp_path: Path, texts: tuple[str, ...], n_conflicting: int
) -> None:
    """Two right responses, then two wrong ones, as in a dump without responses."""
    for step in (0, 10):
        rows = [line(1, 0, right=repeat < 2, step=step, output=text) for repeat, text in enumerate(texts)]
        (tmp_path / f"{step}.jsonl").write_text("\n".join(rows) + "\n", encoding="utf-8")
    done = imported(tmp_path, tmp_path / "0.jsonl", tmp_path / "10.jsonl")
    assert done.incomplete == bool(n_conflicting)
    for file in done.files:
        assert [note.partition(".")[0] for note in file.notes] == (
            [f"{n_conflicting} samples of 4 repeat an earlier response with another reward"] if n_conflicting else []
        )


@pytest.mark.slow
def test_a_dry_run_tells_what_the_import_then_does(tmp_path: Path, folder: Path) -> None:
    doubtful = [
        line(1, 0, right=True, step=20),
        line(1, 1, right=True, step=10),
        line(2, 0, right=True, step=10, score=None),
        "{",
    ]
    (folder / "20.jsonl").write_text("\n".join(doubtful) + "\n", encoding="utf-8")
    settings = config(tmp_path, steps=(10, 20))
    shown = preview(plan_import([folder], settings), settings)
    done = import_samples([folder], settings)
    assert done.incomplete
    (results,) = (one.files for one in shown)
    kept = ("path", "faults", "notes", "n_samples")
    for was_shown, was_done in zip(results, done.files, strict=True):
        assert [getattr(was_shown, name) for name in kept] == [getattr(was_done, name) for name in kept]
    assert {step for file in results for step, _ in file.counted} == {10, 20}
    assert results[2].notes == ("line 2: the step decreases from 20 to 10; a restarted run?",)
    assert [count.first_line for count in results[2].faults.values()] == [4, 3]


@pytest.mark.slow
def test_a_step_in_a_field_that_is_not_the_one_of_the_name_is_told(tmp_path: Path, folder: Path) -> None:
    (folder / "20.jsonl").rename(folder / "30.jsonl")
    result = imported(tmp_path, folder)
    told = "line 1: the file name has step 30, the field 20; the field is used; pass --step to override it"
    assert result.files[2].notes == (told,)
    assert result.incomplete


@pytest.mark.slow
@pytest.mark.usefixtures("no_report")
def test_files_that_cannot_be_read_are_named_and_the_others_are_imported(
    tmp_path: Path, folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store = tmp_path / "out" / "audit.duckdb"
    (folder / "30.jsonl").write_bytes(b"")
    (folder / "40.parquet").write_bytes(b"PAR1 and no more")
    for more in (("--dry-run",), ("--quiet",)):
        with pytest.raises(SystemExit) as done:
            main(["import", str(folder), "--store", str(store), *more])
        assert done.value.code == 3
        printed = capsys.readouterr().err
        assert f"warning: {folder / '30.jsonl'}: left out: is empty" in printed
        assert f"warning: {folder / '40.parquet'}: left out: not a readable Parquet file" in printed
    assert table(tmp_path, "SELECT count(DISTINCT step) FROM graded_samples") == [(3,)]


@pytest.mark.slow
def test_a_step_that_is_named_overrides_what_the_file_says(tmp_path: Path, folder: Path) -> None:
    with pytest.raises(
        ConfigError, match=r"--step 7: the file names have several steps \(0, 10, 20\); import one step"
    ):
        imported(tmp_path, folder, step=7)
    for file, step in (("0.jsonl", 5), ("20.jsonl", 7)):
        result = imported(tmp_path, folder / file, step=step, name="val")
    assert not result.incomplete
    assert result.series[0].steps == (5, 7)


@pytest.mark.parametrize(
    ("setting", "value", "why"),
    [
        ("temperature", float("nan"), "--temperature nan: must be a number, 0 or more"),
        ("temperature", -1.0, "--temperature -1.0: must be a number, 0 or more"),
        ("temperature", float("inf"), "--temperature inf: must be a number, 0 or more"),
        ("top_p", 0.0, r"--top-p 0.0: must be above 0 and at most 1"),
        ("top_p", float("nan"), r"--top-p nan: must be above 0 and at most 1"),
        ("top_p", 2.0, r"--top-p 2.0: must be above 0 and at most 1"),
    ],
)
def test_no_sampler_draws_at_such_settings(setting: str, value: float, why: str) -> None:
    with pytest.raises(ConfigError, match=why):
        ImportConfig(**{setting: value})
    assert ImportConfig(temperature=0.0, top_p=1.0).temperature == 0.0


@pytest.mark.slow
def test_a_change_of_answer_style_is_no_verdict_of_a_loss(tmp_path: Path) -> None:
    """From the dump to what to ship: the base boxes its answers, later steps state them in prose that no rule reads."""
    rng = random.Random(0)
    rates = [rng.betavariate(0.5, 0.8) for _ in range(40)]
    rows = []
    for step in (0, 20, 40):
        for problem, rate in enumerate(rates):
            for _ in range(16):
                answer = 100 + problem if rng.random() < rate else 7
                said = f"So \\boxed{{{answer}}}." if step == 0 else f"We add, so there are {answer} of them in all."
                rows.append({"step": step, "q": f"{problem} + 100?", "text": said, "gold": str(100 + problem)})
    path = tmp_path / "dump.jsonl"
    path.write_text("".join(json.dumps(one) + "\n" for one in rows))
    fields = {"prompt": "q", "response": "text", "gold": "gold", "step": "step"}
    (found,) = import_samples([path], ImportConfig(store=tmp_path / "audit.duckdb", map=fields)).series
    assert found.verdict is not None
    assert found.verdict.label == "format"
    assert found.verdict.shipping is not None
    assert found.verdict.shipping.recommended is None
