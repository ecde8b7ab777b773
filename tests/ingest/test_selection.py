"""Selection of an import: greedy responses, unequal numbers of samples, and problems whose texts changed."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from oversharp.diagnostics.app.cli import main
from oversharp.diagnostics.ingest.config import ImportConfig
from oversharp.diagnostics.ingest.ingest import ImportResult, import_samples, preview
from oversharp.diagnostics.ingest.plan import plan_import
from oversharp.diagnostics.store import Store
from oversharp.diagnostics.store.load import made_of

pytestmark = [pytest.mark.usefixtures("few_measures"), pytest.mark.slow]

MAP = {"prompt": "q", "response": "text", "gold": "gold", "reward": "ok", "problem": "id", "greedy": "greedy"}


def row(problem: int, *, right: bool, step: int, **more: Any) -> dict[str, Any]:
    answer = problem * 7 if right else -1
    fields = {"q": f"What is 7 times {problem}?", "gold": str(problem * 7), "text": f"So \\boxed{{{answer}}}"}
    return {**fields, "ok": float(right), "id": f"p{problem}", "greedy": False, "step": step, **more}


def written(path: Path, rows: list[dict[str, Any]]) -> Path:
    path.write_text("".join(f"{json.dumps(one)}\n" for one in rows), encoding="utf-8")
    return path


def config(tmp_path: Path, **more: Any) -> ImportConfig:
    return ImportConfig(store=tmp_path / "audit.duckdb", **{"map": {**MAP, "step": "step"}, **more})


def imported(tmp_path: Path, rows: list[dict[str, Any]], **more: Any) -> ImportResult:
    return import_samples([written(tmp_path / "run.jsonl", rows)], config(tmp_path, **more))


def why_not(tmp_path: Path, rows: list[dict[str, Any]], **more: Any) -> str | None:
    """Return why the import compares nothing, after a check that the dry run prints it too."""
    settings = config(tmp_path, **more)
    (shown,) = preview(plan_import([written(tmp_path / "run.jsonl", rows)], settings), settings)
    (one,) = import_samples([tmp_path / "run.jsonl"], settings).series
    assert shown.why == one.why
    return one.why


def greedy_rows(n_problems: int, steps: tuple[int, ...]) -> list[dict[str, Any]]:
    return [
        row(problem, right=problem % 3 != 0 if step else problem % 2 == 0, step=step, greedy=True)
        for step in steps
        for problem in range(n_problems)
    ]


@pytest.mark.parametrize(("n_problems", "steps"), [(40, (0, 20)), (40, (0, 20, 40)), (1, (0, 20))])
def test_greedy_responses_alone_give_accuracies(tmp_path: Path, n_problems: int, steps: tuple[int, ...]) -> None:
    result = imported(tmp_path, greedy_rows(n_problems, steps))
    (one,) = result.series
    assert one.verdict is not None
    assert one.verdict.label == "no_verdict"
    assert [of.step for of in one.verdict.accuracies] == list(steps)
    assert one.verdict.accuracies[0].n_correct == sum(problem % 2 == 0 for problem in range(n_problems))
    assert one.verdict.shipping is not None
    assert "pass@k for k > 1 needs 8 or more samples" in one.verdict.shipping.sentence
    (shown,) = preview(plan_import([tmp_path / "run.jsonl"], config(tmp_path)), config(tmp_path))
    assert shown.why is None
    with Store.open(tmp_path / "audit.duckdb", read_only=True) as store:
        assert made_of(store, one.name) is None


@pytest.mark.usefixtures("few_figures")
def test_greedy_responses_are_reported_and_shipped_without_a_recommendation(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    written(tmp_path / "run.jsonl", greedy_rows(12, (0, 20)))
    fields = ",".join(f"{ours}={theirs}" for ours, theirs in {**MAP, "step": "step"}.items())
    store = str(tmp_path / "audit.duckdb")
    for command, code in (
        (["import", str(tmp_path / "run.jsonl"), "--map", fields, "--store", store], 3),
        (["ship", store], 3),
        (["report", store], 0),
    ):
        with pytest.raises(SystemExit) as ended:
            main(command)
        assert ended.value.code == code
    output = capsys.readouterr().out
    said = " ".join(output.split())
    assert "points greedy accuracy, change" in said
    assert "step 20 " in said
    assert "ship no recommendation: there is one greedy response per problem" in said
    assert "Greedy accuracy at 2 checkpoints" in (tmp_path / "report.html").read_text(encoding="utf-8")


def test_one_step_of_greedy_responses_asks_for_the_base(tmp_path: Path) -> None:
    assert "there is only step 20; also import samples of the base model" in str(
        why_not(tmp_path, greedy_rows(4, (20,)))
    )


def test_samples_beside_greedy_responses_are_not_compared_with_them(tmp_path: Path) -> None:
    sampled = [row(problem, right=repeat < 2, step=0) for problem in range(4) for repeat in range(4)]
    why = str(why_not(tmp_path, [*sampled, *greedy_rows(4, (20,))]))
    assert why.startswith("step 0 has samples and step 20 only greedy responses")


def test_a_step_of_greedy_responses_among_sampled_ones_is_left_out(tmp_path: Path) -> None:
    sampled = [row(p, right=r < 2, step=step) for step in (0, 20) for p in range(4) for r in range(4)]
    (one,) = imported(tmp_path, [*sampled, *greedy_rows(4, (40,))]).series
    assert dict(one.left_out) == {"step 40": "only greedy responses, but other steps have samples"}


def test_one_sample_of_each_problem_has_no_parts_of_a_change(tmp_path: Path) -> None:
    rows = [{**one, "greedy": False} for one in greedy_rows(40, (0, 20))]
    (one,) = imported(tmp_path, rows).series
    assert one.verdict is not None
    assert [of.n_correct for of in one.verdict.accuracies] == [20, 26]
    with Store.open(tmp_path / "audit.duckdb", read_only=True) as store:
        assert made_of(store, one.name) is None


# ---------------------------------------------------------------- unequal numbers of samples


def test_all_samples_of_a_step_count_in_pass_at_k(tmp_path: Path) -> None:
    """Problem 0 has 16 samples at step 20, the others 8; the base has 4. Right are the last 3 of 4."""
    rows = [
        row(problem, right=repeat % 4 != 0, step=step, text=f"{repeat} \\boxed{{{problem * 7 if repeat % 4 else -1}}}")
        for step, n in ((0, 4), (20, 8))
        for problem in range(6)
        for repeat in range(16 if (step, problem) == (20, 0) else n)
    ]
    (one,) = imported(tmp_path, rows).series
    assert (one.n, one.n_problems) == (4, 6)
    assert "uses all, comparisons of answers use the first 4" in one.notes[0]
    with Store.open(tmp_path / "audit.duckdb", read_only=True) as store:
        counted = store.frame("SELECT step, n, n_correct, count(*) AS c FROM sampled_counts GROUP BY ALL ORDER BY ALL")
        common = store.frame("SELECT DISTINCT step, n FROM problem_counts ORDER BY ALL")
    assert list(counted.itertuples(index=False, name=None)) == [(0, 4, 3, 6), (20, 8, 6, 5), (20, 16, 12, 1)]
    assert list(common.itertuples(index=False, name=None)) == [(0, 4), (20, 4)]
    assert one.verdict is not None
    assert one.verdict.n_late == 8
    again = import_samples([tmp_path / "run.jsonl"], config(tmp_path))
    assert again.series[0].verdict == one.verdict


def test_samples_that_the_tool_numbers_from_1_or_with_gaps_are_all_compared(tmp_path: Path) -> None:
    rows = [
        row(problem, right=repeat % 2 == 0, step=step, j=3 * repeat + 1, text=f"try {repeat}")
        for step in (0, 20)
        for problem in range(4)
        for repeat in range(6)
        if (step, problem, repeat) != (20, 3, 2)
    ]
    (one,) = imported(tmp_path, rows, map={**MAP, "step": "step", "index": "j"}, n=5).series
    assert (one.n_problems, one.n) == (4, 5)
    with Store.open(tmp_path / "audit.duckdb", read_only=True) as store:
        numbers = store.frame(
            "SELECT DISTINCT list(sample_index ORDER BY text) AS i FROM samples GROUP BY checkpoint_id, problem_id"
        )
    assert sorted(map(list, numbers["i"])) == [[0, 1, 2, 3, 4], [0, 1, 2, 3, 4, 5]]
    assert one.verdict is not None
    assert one.verdict.changes[0].base == pytest.approx(0.5)


def test_n_leaves_samples_beyond_it_unused_and_says_so(tmp_path: Path) -> None:
    rows = [row(p, right=r % 2 == 0, step=s) for s in (0, 20) for p in range(4) for r in range(8 if s else 4)]
    (one,) = imported(tmp_path, rows, n=4).series
    assert one.notes == ("16 samples beyond the first 4 of a problem and step are stored but unused (--n 4)",)
    assert one.verdict is not None
    assert one.verdict.n_late == 4


# ---------------------------------------------------------------- which problem it is


def changed(**of_step: Any) -> list[dict[str, Any]]:
    """Two steps of four problems; ``of_step`` changes a text at the second."""
    rows = []
    for step in (0, 20):
        for problem in range(4):
            for repeat in range(4):
                one = row(problem, right=repeat < 2, step=step)
                rows.append({**one, **{name: change(one[name]) for name, change in of_step.items()}} if step else one)
    return rows


def test_another_prompt_template_is_named_and_joined_by_id(tmp_path: Path) -> None:
    rows = changed(q=lambda text: f"<user>{text}</user>")
    assert why_not(tmp_path, rows) == (
        "problems with the same id have different prompts. First id: p0, with 'What is 7 times 0?' at step 0 and "
        "'<user>What is 7 times 0?</user>' at step 20; pass --match id to compare problems by their ids"
    )
    (one,) = imported(tmp_path, rows, name="by id", match="id").series
    assert (one.n_problems, one.n, one.why) == (4, 4, None)


def test_another_spelling_of_the_gold_is_named_and_joined_by_id(tmp_path: Path) -> None:
    rows = changed(gold=lambda text: f"{text}.0")
    assert (
        "problems with the same id have different gold answers. First id: p0, with '0' at step 0 and '0.0' at step 20"
        in str(why_not(tmp_path, rows))
    )
    (one,) = imported(tmp_path, rows, name="by id", match="id", regrade=True).series
    assert (one.n_problems, one.why) == (4, None)
    assert one.doubts == ()  # the gold of the base grades both


def test_golds_that_differ_by_white_space_alone_are_equal(tmp_path: Path) -> None:
    rows = changed(gold=lambda text: f" {text[:1]} {text[1:]}\n")
    first, rest = [one for one in rows if not one["step"]], [one for one in rows if one["step"]]
    imported(tmp_path, first)
    (one,) = import_samples([written(tmp_path / "rest.jsonl", rest)], config(tmp_path, name=tmp_path.name)).series
    assert (one.n_problems, one.steps) == (4, (0, 20))


def test_problems_that_some_steps_have_under_another_text_are_named_beside_the_verdict(tmp_path: Path) -> None:
    rows = [{**one, "q": f"{one['q']} Think."} if one["step"] and one["id"] == "p3" else one for one in changed()]
    (one,) = imported(tmp_path, rows).series
    assert one.n_problems == 3
    assert "problems with the same id have different prompts. First id: p3" in one.notes[-1]


def test_an_id_that_two_prompts_of_a_step_share_joins_nothing(tmp_path: Path) -> None:
    rows = [{**one, "id": "0"} for one in changed(q=lambda text: f"{text}!")]
    assert "same id" not in str(why_not(tmp_path, rows))
    result = imported(tmp_path, rows, name="by id", match="id")
    (why,) = result.files[0].faults
    assert why.startswith("its id belongs to another prompt at the same step")
    (lacking,) = imported(tmp_path, [{**one, "id": None} for one in rows], name="none", match="id").files[0].faults
    assert lacking == "no problem id, required by --match id"


def test_samples_that_an_earlier_import_brought_are_joined_by_id(tmp_path: Path) -> None:
    rows = changed(q=lambda text: f"<user>{text}</user>")
    first, rest = ([one for one in rows if bool(one["step"]) is late] for late in (False, True))
    import_samples([written(tmp_path / "0.jsonl", first)], config(tmp_path, name="run", match="id"))
    settings = config(tmp_path, name="run", match="id")
    (shown,) = preview(plan_import([written(tmp_path / "20.jsonl", rest)], settings), settings)
    (one,) = import_samples([tmp_path / "20.jsonl"], settings).series
    assert shown.why is one.why is None
    assert (one.steps, one.n_problems) == ((0, 20), 4)


# ---------------------------------------------------------------- the base, and what is not compared


def test_a_line_names_the_base_where_there_is_no_step_0_and_none_was_named(tmp_path: Path) -> None:
    rows = [row(p, right=r < 2, step=step) for step in (20, 40) for p in range(4) for r in range(4)]
    settings = config(tmp_path)
    (shown,) = preview(plan_import([written(tmp_path / "run.jsonl", rows)], settings), settings)
    (one,) = imported(tmp_path, rows).series
    line = "base: step 20, the first step; pass --base PATH to add samples of the model before RLVR"
    assert line in one.notes
    assert line in shown.notes


def test_no_line_names_a_base_that_is_step_0_or_was_named(tmp_path: Path) -> None:
    rows = [row(p, right=r < 2, step=step) for step in (0, 40) for p in range(4) for r in range(4)]
    (one,) = imported(tmp_path, rows).series
    assert not any("base" in note for note in one.notes)
    late = written(tmp_path / "late.jsonl", [one for one in rows if one["step"]])
    base = written(tmp_path / "before.jsonl", [one for one in rows if not one["step"]])
    named = ImportConfig(store=tmp_path / "b.duckdb", map={**MAP, "step": "step"}, base=base)
    (one,) = import_samples([late], named).series
    assert one.steps == (0, 40)
    assert not any("base" in note for note in one.notes)


def test_a_caveat_says_how_many_problems_and_records_are_excluded_and_why(tmp_path: Path) -> None:
    """Problem 0 is not in step 20, problems 1 and 2 have 3 of 4 samples there, and 2 records have no text."""
    rows = [
        row(p, right=r < 2, step=step)
        for step in (0, 20)
        for p in range(10)
        for r in range(4)
        if not (step and (p == 0 or (p in (1, 2) and r == 3)))
    ]
    broken = [{**row(9, right=True, step=0), "text": None, "ok": None}] * 2
    (one,) = imported(tmp_path, [*rows, *broken]).series
    assert one.verdict is not None
    assert [caveat for caveat in one.verdict.caveats if caveat.startswith("Excluded")] == [
        "Excluded: 3 of 10 problems (1 not answered at every step, 2 with fewer than 4 samples at some step); "
        "2 records that could not be used (no text)."
    ]


def test_no_caveat_is_added_where_all_problems_are_compared(tmp_path: Path) -> None:
    rows = [row(p, right=r < 2, step=step) for step in (0, 20) for p in range(4) for r in range(4)]
    (one,) = imported(tmp_path, rows).series
    assert one.verdict is not None
    assert not any(caveat.startswith("Excluded") for caveat in one.verdict.caveats)
