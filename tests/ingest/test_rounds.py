"""Imports whose problems were sampled further until they were solved, and the file that lists these problems."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import oversharp
from oversharp import ImportConfig, OversharpError, TopUp
from oversharp.diagnostics.app.cli import main
from oversharp.diagnostics.audit.counts.series import read_counts
from oversharp.diagnostics.ingest.ingest import import_samples, preview
from oversharp.diagnostics.ingest.plan import plan_import
from oversharp.diagnostics.records.progress import SilentProgress
from oversharp.diagnostics.statistics.stopping import StoppingRule
from oversharp.diagnostics.store import Store
from oversharp.diagnostics.store.load import stored_key
from oversharp.diagnostics.store.merge import merge
from oversharp.diagnostics.verdict.counts import SeriesCounts
from oversharp.diagnostics.verdict.record import Verdict

pytestmark = pytest.mark.usefixtures("few_measures")

FIRST, CAP = 4, 16
RULE = StoppingRule(rounds=(4, 8, 16), enough=2)
#: Of each problem, the numbers of the samples that are correct.
CORRECT: dict[int, list[list[int]]] = {
    0: [[0, 1, 2], [0, 1], [3, 4], [2, 9], [15], [], [1, 5, 6], [0]],
    10: [[0, 1, 2, 3], [2, 3], [], [0, 12], [], [7], [0, 1], [0, 4]],
    20: [[0, 1, 2, 3], [1, 3, 9], [], [], [], [9, 11], [0, 2], [1, 2]],
}
N_PROBLEMS = 8


def row(problem: int, step: int, number: int, *, reward: bool) -> str:
    right = number in CORRECT[step][problem]
    response = f"Sample {number} at {step}: \\boxed{{{problem if right else 99}}}"
    fields: dict[str, Any] = {"id": f"p{problem}", "q": f"What is {problem}?", "out": response, "a": str(problem)}
    return json.dumps({**fields, "step": step, **({"ok": float(right)} if reward else {})})


def write(path: Path, wanted: list[tuple[int, int, range]], *, reward: bool) -> Path:
    lines = [row(problem, step, number, reward=reward) for step, problem, numbers in wanted for number in numbers]
    path.write_text("\n".join(lines) + "\n", encoding="utf-8")
    return path


def first_rounds(path: Path, *, reward: bool = True, n: int = FIRST) -> Path:
    return write(path, [(step, p, range(n)) for step in CORRECT for p in range(N_PROBLEMS)], reward=reward)


def settings(folder: Path, *, reward: bool = True, **more: Any) -> ImportConfig:
    fields = {"prompt": "q", "response": "out", "gold": "a", "step": "step", "problem": "id"}
    used = fields | ({"reward": "ok"} if reward else {})
    return ImportConfig(store=folder / "audit.duckdb", name="run", map=used, **more)


def answers(listed: Path, out: Path, *, reward: bool = True) -> Path:
    """Sample the problems of a file as a user would."""
    lines = [json.loads(line) for line in listed.read_text(encoding="utf-8").splitlines()]
    numbers = [range(line["n_before"], line["n_before"] + line["n"]) for line in lines]
    wanted = [(line["step"], int(line["problem"][1:]), own) for line, own in zip(lines, numbers, strict=True)]
    return write(out, wanted, reward=reward)


def top_up(folder: Path, name: str = "more.jsonl", **more: Any) -> TopUp:
    return oversharp.plan_top_up(folder, folder / name, **{"until_solved": 2, **more})


def counted(folder: Path) -> SeriesCounts:
    with Store.open(folder / "audit.duckdb", read_only=True) as store:
        return read_counts(store, stored_key(store, "run"), {}, {})


def verdict_of(folder: Path) -> Verdict:
    verdict = oversharp.open_store(folder).verdict("run")
    assert verdict is not None
    return verdict


def end_points(step: int) -> list[list[int]]:
    """By the rule, from the list of correct samples: samples and correct ones of each problem."""
    ends = []
    for numbers in CORRECT[step]:
        done = [[n, sum(number < n for number in numbers)] for n in RULE.rounds]
        ends.append(next((end for end in done if end[1] >= RULE.enough), done[-1]))
    return ends


def ends_of(folder: Path) -> dict[int, list[list[int]]]:
    """Samples and correct ones of each problem that the verdict uses, by step."""
    with Store.open(folder / "audit.duckdb", read_only=True) as store:
        names = store.frame("SELECT source_id FROM problems ORDER BY problem_id")["source_id"].tolist()
    counts = counted(folder)
    return {
        one.step: [end for _, *end in sorted(zip(names, *map(np.ndarray.tolist, one.hits), strict=True))]
        for one in (counts.base, *counts.trained)
    }


@pytest.mark.parametrize("reward", [True, False], ids=["rewards of the tool", "own grades"])
def test_further_samples_continue_the_problems_until_they_are_solved(tmp_path: Path, reward: bool) -> None:
    used = settings(tmp_path, reward=reward)
    import_samples([first_rounds(tmp_path / "first.jsonl", reward=reward)], used)
    further = top_up(tmp_path)
    listed = (tmp_path / "more.jsonl").read_text(encoding="utf-8").splitlines()
    lines = sorted((line["step"], line["problem"], line["n"], line["n_correct"]) for line in map(json.loads, listed))
    assert lines == [
        (0, "p2", 4, 1), (0, "p3", 4, 1), (0, "p4", 4, 0), (0, "p5", 4, 0), (0, "p6", 4, 1), (0, "p7", 4, 1),
        (10, "p2", 4, 0), (10, "p3", 4, 1), (10, "p4", 4, 0), (10, "p5", 4, 0), (10, "p7", 4, 1),
        (20, "p2", 4, 0), (20, "p3", 4, 0), (20, "p4", 4, 0), (20, "p5", 4, 0),
    ]  # fmt: skip
    assert [(one.step, one.problems, one.samples, one.most) for one in further.checkpoints] == [
        (0, 6, 24, 72), (10, 5, 20, 60), (20, 4, 16, 48),
    ]  # fmt: skip
    assert further.uniform == 3 * N_PROBLEMS * (CAP - FIRST)
    again = settings(tmp_path, reward=reward, until_solved=2)
    import_samples([answers(tmp_path / "more.jsonl", tmp_path / "answers.jsonl", reward=reward)], again)
    assert counted(tmp_path).base.n == 8
    further = top_up(tmp_path, "more2.jsonl")
    assert [one.samples for one in further.checkpoints] == [4 * 8, 4 * 8, 4 * 8]
    # without the flag, the series' rule is kept
    import_samples([answers(tmp_path / "more2.jsonl", tmp_path / "answers2.jsonl", reward=reward)], used)
    assert ends_of(tmp_path) == {step: end_points(step) for step in CORRECT}
    assert (tmp_path / "more.jsonl").exists()
    assert top_up(tmp_path).path is None
    assert not (tmp_path / "more.jsonl").exists()  # it would be sampled a second time
    until = verdict_of(tmp_path).until_solved
    assert until is not None
    assert (until.enough, until.first_round) == (2, FIRST)
    assert until.mean_base == np.mean([n for n, _ in end_points(0)])


def test_samples_after_the_stop_are_not_used(tmp_path: Path) -> None:
    whole = first_rounds(tmp_path / "whole.jsonl", n=CAP)
    import_samples([whole], settings(tmp_path, until_solved=2, first=FIRST))
    assert ends_of(tmp_path) == {step: end_points(step) for step in CORRECT}
    import_samples([whole], settings(tmp_path, until_solved=0))
    assert {n for ends in ends_of(tmp_path).values() for n, _ in ends} == {CAP}


def test_missing_samples_are_named_and_only_complete_steps_are_compared(tmp_path: Path) -> None:
    import_samples([first_rounds(tmp_path / "first.jsonl")], settings(tmp_path))
    top_up(tmp_path)
    listed = (tmp_path / "more.jsonl").read_text(encoding="utf-8").splitlines()
    (tmp_path / "more.jsonl").write_text("\n".join(line for line in listed if json.loads(line)["step"] != 10))
    more = answers(tmp_path / "more.jsonl", tmp_path / "answers.jsonl")
    result = import_samples([more], settings(tmp_path, until_solved=2))
    assert [(one.n, one.why) for one in (counted(tmp_path).base, *counted(tmp_path).trained)] == [
        (8, None), (4, None), (4, None),
    ]  # fmt: skip
    assert result.series[0].notes[-1] == (
        "16 samples of 4 problems beyond n = 4 (8 of the base) are unused, because some unsolved problem has no more; "
        "a larger --n uses them, and leaves out the steps that lack samples"
    )
    result = import_samples([more], settings(tmp_path, until_solved=2, n=FIRST))
    assert result.series[0].notes[-1] == "40 samples of 6 problems beyond n = 4 are unused (--n)"
    result = import_samples([more], settings(tmp_path, until_solved=2, n=8))
    assert result.series[0].notes[-1] == (
        "20 samples of 5 problems are missing at 1 step, which cannot be compared up to n = 8; `oversharp plan STORE "
        "--top-up FILE` lists them, and a smaller --n needs fewer"
    )
    assert [one.why for one in counted(tmp_path).trained] == ["5 of 8 problems lack samples", None]


def test_an_incomplete_round_counts_up_to_the_samples_of_every_unsolved_problem(tmp_path: Path) -> None:
    import_samples([first_rounds(tmp_path / "first.jsonl")], settings(tmp_path))
    top_up(tmp_path)
    rows = list(map(json.loads, (tmp_path / "more.jsonl").read_text(encoding="utf-8").splitlines()))
    # one sample less of each, and 9 more of a problem that is solved by then
    fewer = [
        (row["step"], int(row["problem"][1:]), range(4, 16 if row["problem"] == "p3" and not row["step"] else 7))
        for row in rows
    ]
    import_samples([write(tmp_path / "answers.jsonl", fewer, reward=True)], settings(tmp_path, until_solved=2))
    assert [one.n for one in (counted(tmp_path).base, *counted(tmp_path).trained)] == [7, 7, 7]
    assert [one.why for one in counted(tmp_path).trained] == [None, None]


def test_if_samples_of_the_base_are_missing_the_first_round_is_compared(tmp_path: Path) -> None:
    import_samples([first_rounds(tmp_path / "first.jsonl")], settings(tmp_path))
    top_up(tmp_path)
    listed = (tmp_path / "more.jsonl").read_text(encoding="utf-8").splitlines()
    (tmp_path / "more.jsonl").write_text("\n".join(line for line in listed if json.loads(line)["step"] != 0))
    import_samples(
        [answers(tmp_path / "more.jsonl", tmp_path / "answers.jsonl")], settings(tmp_path, until_solved=2, n=8)
    )
    assert counted(tmp_path).base.n == FIRST
    assert any(
        "`oversharp plan STORE --top-up FILE` lists the missing samples." in one for one in verdict_of(tmp_path).caveats
    )


def test_the_power_is_that_of_the_import_and_of_its_further_samples(tmp_path: Path) -> None:
    import_samples([first_rounds(tmp_path / "first.jsonl")], settings(tmp_path))
    further = top_up(tmp_path, drop_points=20.0)
    assert further.before is not None
    assert further.after is not None
    assert (further.before.n, further.before.enough) == (FIRST, None)
    assert (further.after.n, further.after.n_base, further.after.first, further.after.enough) == (CAP, CAP, FIRST, 2)
    assert further.k == FIRST // 2


def test_a_dry_run_counts_further_samples(tmp_path: Path) -> None:
    import_samples([first_rounds(tmp_path / "first.jsonl")], settings(tmp_path))
    top_up(tmp_path)
    more = answers(tmp_path / "more.jsonl", tmp_path / "answers.jsonl")
    config = settings(tmp_path, until_solved=2)
    (series,) = preview(plan_import([more], config), config)
    assert series.notes == (
        "each problem is sampled in rounds of 4 and 8, until 2 are correct; later samples are unused",
    )


def test_the_command_prints_what_is_left_and_how_to_continue(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    import_samples([first_rounds(tmp_path / "first.jsonl")], settings(tmp_path))
    command = ["plan", str(tmp_path), "--top-up", str(tmp_path / "more.jsonl"), "--until-solved", "2", "--drop", "20"]
    with pytest.raises(SystemExit):
        main(command)
    shown = " ".join(capsys.readouterr().out.split())
    assert "in rounds of 4, 8 and 16, until 2 are correct" in shown
    assert "step 0 6 24" in shown
    assert f"--store {tmp_path} --name run --until-solved 2; repeat until no problem is left" in shown
    with pytest.raises(SystemExit):
        main([*command, "--n", "4"])
    assert capsys.readouterr().err == "error: --n 4: every problem has 4 samples; pass a larger number, such as 8\n"
    with pytest.raises(SystemExit):
        main([*command[:2], "--n", "4"])
    assert capsys.readouterr().err.endswith("error: --n 4: only applies with --cost or --top-up; remove it\n")


def test_rules_that_contradict_the_samples_are_refused(tmp_path: Path) -> None:
    path = first_rounds(tmp_path / "first.jsonl")

    def why(**more: Any) -> str | None:
        return import_samples([path], settings(tmp_path, first=4, **more)).series[0].why

    assert why(until_solved=5) == "--until-solved 5: no problem has more than 4 samples"
    assert why(until_solved=2, n=2) == "--n 2: must be at least the first round of 4 samples (--first)"
    used = settings(tmp_path, until_solved=2, first=6)
    assert import_samples([path], used).series[0].why == "--first 6: no problem has more than 4 samples at every step"
    with pytest.raises(OversharpError, match="series 'run' has no earlier import to continue; pass its --name, or --f"):
        import_samples([path], settings(tmp_path, until_solved=2))
    with pytest.raises(OversharpError, match="--first 4: there are no rounds without --until-solved; add it or remove"):
        import_samples([path], settings(tmp_path, first=4))
    with pytest.raises(OversharpError, match="counts do not show which samples came first"):
        ImportConfig(map={"problem": "id", "n": "n", "correct": "c"}, until_solved=2)


def test_a_list_replaces_no_other_file(tmp_path: Path) -> None:
    first = first_rounds(tmp_path / "first.jsonl")
    import_samples([first], settings(tmp_path))
    top_up(tmp_path)
    top_up(tmp_path)  # the same list again
    for name in ("first.jsonl", "audit.duckdb"):
        before = (tmp_path / name).read_bytes()
        with pytest.raises(OversharpError, match="this file exists and is not an earlier list of problems; pass a new"):
            top_up(tmp_path, name)
        assert (tmp_path / name).read_bytes() == before


def test_a_second_grading_is_not_topped_up(tmp_path: Path) -> None:
    import_samples([first_rounds(tmp_path / "first.jsonl")], settings(tmp_path))
    oversharp.regrade(tmp_path, verifier="exact")
    with pytest.raises(OversharpError, match=r"series 'run \(exact\)' is a second grading; pass series= with the"):
        top_up(tmp_path, series="run (exact)")


def test_samples_that_are_stored_but_not_graded_are_not_forgotten(tmp_path: Path) -> None:
    used = settings(tmp_path, reward=False)
    import_samples([first_rounds(tmp_path / "first.jsonl", reward=False)], used)
    top_up(tmp_path)
    more = answers(tmp_path / "more.jsonl", tmp_path / "answers.jsonl", reward=False)
    result = import_samples([more], used)  # without the flag: only the first four of each problem are graded
    assert result.series[0].notes[-1] == (
        "n stays 4, because only some problems have further samples; if these problems were rarely solved, pass "
        "--until-solved"
    )
    assert ends_of(tmp_path) == {
        step: [[FIRST, sum(number < FIRST for number in numbers)] for numbers in CORRECT[step]] for step in CORRECT
    }
    with pytest.raises(OversharpError, match="has further samples that are not graded; import a file of it again with"):
        top_up(tmp_path)
    import_samples([more], settings(tmp_path, reward=False, until_solved=2))
    assert top_up(tmp_path).path is not None


def test_only_imported_samples_can_be_topped_up(tmp_path: Path) -> None:
    counts = tmp_path / "counts.jsonl"
    rows = [{"id": f"p{p}", "n": 8, "c": p, "step": step} for step in (0, 10) for p in range(6)]
    counts.write_text("\n".join(map(json.dumps, rows)), encoding="utf-8")
    fields = {"problem": "id", "n": "n", "correct": "c", "step": "step"}
    import_samples([counts], ImportConfig(store=tmp_path / "audit.duckdb", name="run", map=fields))
    with pytest.raises(OversharpError, match="has only counts, which do not show the samples of the first round"):
        top_up(tmp_path)


class Notes(SilentProgress):
    """Progress that keeps its notes."""

    def __init__(self) -> None:
        self.notes: list[str] = []

    def note(self, text: str) -> None:
        self.notes.append(text)


def test_a_merge_names_imported_samples_whose_numbers_are_taken(tmp_path: Path) -> None:
    first = first_rounds(tmp_path / "first.jsonl")
    for name, numbers in (("a", range(4, 8)), ("b", range(6, 10))):
        folder = tmp_path / name
        folder.mkdir()
        import_samples([first], settings(folder))
        more = write(folder / "more.jsonl", [(0, 2, numbers)], reward=True)
        import_samples([more], settings(folder, n=FIRST))
    notes = Notes()
    merge([tmp_path / "a" / "audit.duckdb", tmp_path / "b" / "audit.duckdb"], tmp_path / "both", progress=notes)
    both = tmp_path / "both" / "audit.duckdb"
    assert [note for note in notes.notes if "not added" in note] == [
        f"{tmp_path}/b/audit.duckdb: 4 imported samples not added: {both} has other responses under "
        "their numbers; import the files of both stores into one instead (0 samples added)"
    ]
