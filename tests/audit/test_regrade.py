"""Regrading of stored responses: real stores, dumps in the layout of verl, real verifiers."""

from __future__ import annotations

import json
import re
import shutil
from pathlib import Path

import pandas as pd
import pytest

import oversharp
from oversharp.diagnostics.app.cli import main
from oversharp.diagnostics.app.console.results import show_regrade
from oversharp.diagnostics.audit.confirm import confirm
from oversharp.diagnostics.audit.confirm_config import ConfirmConfig
from oversharp.diagnostics.audit.measure import NEEDS_CHECKPOINTS
from oversharp.diagnostics.audit.regrade import RegradeResult, regrade
from oversharp.diagnostics.ingest.config import ImportConfig
from oversharp.diagnostics.ingest.ingest import import_samples
from oversharp.diagnostics.records.errors import ConfigError, ProblemError, StoreError, VerifierError
from oversharp.diagnostics.store import Store
from oversharp.diagnostics.verdict.record import Verdict
from oversharp.diagnostics.verifiers import RULES
from oversharp.reports import build_report
from tests.conftest import figures_of_some_measures

#: They share what takes seconds to make.
pytestmark = [pytest.mark.xdist_group("regrade"), pytest.mark.usefixtures("few_figures"), pytest.mark.slow]

PROBLEMS, REPEATS, STEPS = 40, 16, (0, 10, 20)


def line(problem: int, repeat: int, *, step: int, right: bool, boxed: bool, gold: str | None = None) -> str:
    """The tool's reward reads boxes alone, as many rewards do."""
    answer = problem * 7 if right else -1 - repeat
    said = f"\\boxed{{{answer}}}" if boxed else f"Answer: {answer}"
    return json.dumps(
        {
            "input": f"What is 7 times {problem}?",
            "output": f"Attempt {repeat}. {said}",
            "gts": str(problem * 7) if gold is None else gold,
            "score": float(right and boxed),
            "step": step,
        }
    )


def unboxed_late(folder: Path, *, unreadable: int = 0) -> Path:
    """Half of all attempts are right at every step; at the last one answers are no longer boxed, half of the time."""
    folder.mkdir(parents=True, exist_ok=True)
    for step in STEPS:
        rows = [
            line(
                problem,
                repeat,
                step=step,
                right=repeat % 2 == 0,
                boxed=step < STEPS[-1] or (problem + repeat // 2) % 8 == 0,
                gold="" if problem < unreadable else None,
            )
            for problem in range(PROBLEMS)
            for repeat in range(REPEATS)
        ]
        (folder / f"{step}.jsonl").write_text("\n".join(rows) + "\n", encoding="utf-8")
    return folder


@pytest.fixture(scope="module")
def once(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a store that no test writes to."""
    folder = tmp_path_factory.mktemp("imported")
    import_samples([unboxed_late(folder / "val")], ImportConfig(store=folder / "out" / "audit.duckdb"))
    return folder / "out"


@pytest.fixture(scope="module")
def regraded(once: Path, tmp_path_factory: pytest.TempPathFactory) -> RegradeResult:
    """The same, graded by the math verifier too; no test writes to it."""
    folder = tmp_path_factory.mktemp("regraded") / "out"
    shutil.copytree(once, folder)
    with figures_of_some_measures():
        return oversharp.regrade(folder / "audit.duckdb", "math")


@pytest.fixture
def store(once: Path, tmp_path: Path) -> Path:
    shutil.copytree(once, tmp_path / "out")
    return tmp_path / "out" / "audit.duckdb"


def imported(tmp_path: Path, *, unreadable: int) -> Path:
    store = tmp_path / "out" / "audit.duckdb"
    import_samples([unboxed_late(tmp_path / "val", unreadable=unreadable)], ImportConfig(store=store))
    return store


def table(store: Path, sql: str) -> pd.DataFrame:
    with Store.open(store, read_only=True) as opened:
        return opened.frame(sql)


def test_a_change_of_format_looks_like_a_loss_to_the_reward_and_not_to_the_math_verifier(
    regraded: RegradeResult,
) -> None:
    result, store = regraded, regraded.store_path
    assert (result.series, result.of_series, result.own_verifiers) == ("val (math)", "val", ("recorded:verl",))
    assert result.of_verdict is not None
    assert result.of_verdict.label == "degraded"
    assert not result.verdict.positive
    assert result.verdict.graders == ("math",)
    assert result.n_samples == PROBLEMS * REPEATS * len(STEPS)
    late = table(store, "SELECT count(*) AS n FROM regraded_samples WHERE step = 20 AND correct AND NOT own_correct")
    assert result.n_disagreed == late["n"].iloc[0] > 0
    pass_at_1 = "SELECT step, value FROM findings WHERE measure = 'pass_at_k' AND k = 1 AND series = '{}' ORDER BY step"
    assert table(store, pass_at_1.format("val (math)"))["value"].tolist() == [0.5, 0.5, 0.5]
    assert table(store, pass_at_1.format("val"))["value"].iloc[-1] < 0.2
    rates = table(
        store,
        "SELECT step, value FROM findings WHERE measure = 'verifier_disagreement' AND scope = 'all' "
        "AND series = 'val (math)' ORDER BY step",
    )["value"].tolist()
    assert rates[:2] == [0.0, 0.0]
    assert rates[2] == pytest.approx(result.n_disagreed / (PROBLEMS * REPEATS))


def test_the_report_has_one_answer_and_notes_that_of_the_second_verifier(regraded: RegradeResult) -> None:
    html = regraded.report_path.read_text(encoding="utf-8")
    assert "answers</h" not in html
    assert html.count("<b>Graded by math: ") == 1


def test_the_first_series_is_told_which_part_of_its_change_the_grader_makes(regraded: RegradeResult) -> None:
    with Store.open(regraded.store_path) as store:
        rows = store.frame(
            """
            SELECT scope, value
            FROM findings
            WHERE series = $series AND measure = 'change_budget' AND step = 20 AND k = 1 AND value IS NOT NULL
            """,
            series=regraded.of_series,
        )
    value = dict(zip(rows["scope"], rows["value"], strict=True))
    assert value["all"] < -0.2
    assert value["grader"] == pytest.approx(value["all"], abs=1e-9)
    assert "unread" not in value  # the tool that graded first does not tell


def test_a_regrading_reports_the_decomposition_of_the_first_series_change(
    regraded: RegradeResult, capsys: pytest.CaptureFixture[str]
) -> None:
    with oversharp.open_store(regraded.store_path) as store:
        told = store.made_of(regraded.of_series)
    assert told is not None
    assert "points from the base to step 20" in told
    assert "by grades that differ from those of the second verifier" in told
    assert show_regrade(regraded, as_json=False) == show_regrade(regraded, as_json=True) == 0
    printed, document = capsys.readouterr().out.split("\n{", 1)
    assert "earlier       " in printed
    assert json.loads("{" + document)["made_of"] == told


def test_the_disagreements_are_a_view_and_a_shortlist_in_the_report(regraded: RegradeResult, tmp_path: Path) -> None:
    result, store = regraded, regraded.store_path
    found = table(store, "FROM grade_disagreements ORDER BY problem_id, response_id")
    assert found["n"].sum() == result.n_disagreed
    one = found.iloc[0]
    assert (one["verifier"], one["own_verifier"], one["correct"], one["own_correct"]) == (
        "math",
        "recorded:verl",
        True,
        False,
    )
    assert one["text"].startswith("Attempt ")
    assert one["answer"] in one["text"]
    page = result.report_path.read_text(encoding="utf-8")
    assert "Responses on which two verifiers disagree, val (math)" in page
    assert "the reward that verl recorded" in page
    assert "recorded:verl" not in page
    assert page.count("Coverage lost (degraded)") > 0
    again = build_report(store, tmp_path / "both.html", series=("val", "val (math)"))  # needs no --allow
    assert "audited with different settings" not in again.read_text(encoding="utf-8")


@pytest.mark.usefixtures("no_report")
@pytest.mark.usefixtures("few_measures")
def test_the_same_command_again_changes_nothing_and_keeps_both_grades(store: Path) -> None:
    first = oversharp.regrade(store, "exact")
    written_ns = first.report_path.stat().st_mtime_ns
    again = oversharp.regrade(store, "exact")
    assert (again.n_graded, again.verdict) == (0, first.verdict)
    assert first.n_graded > 0
    assert again.report_path.stat().st_mtime_ns == written_ns
    grades = table(store, "SELECT verifier, count(*) AS n FROM grades GROUP BY verifier ORDER BY verifier")
    assert grades["verifier"].tolist() == ["exact", "recorded:verl"]
    assert grades["n"].nunique() == 1
    assert table(store, "SELECT series, verifier FROM current_audits ORDER BY series")["series"].tolist() == [
        "val",
        "val (exact)",
    ]


@pytest.mark.usefixtures("few_measures")
def test_killed_while_grading_it_goes_on(store: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("oversharp.diagnostics.engine.grading.GRADES_PER_COMMIT", 100)
    monkeypatch.setattr("oversharp.diagnostics.engine.grading_parts.FIRST_RESPONSES", 100)
    add, added = Store.add_grades, []

    def killed(self: Store, rows: object) -> None:
        if len(added) == 3:
            raise KeyboardInterrupt
        added.append(1)
        add(self, rows)  # type: ignore[arg-type]

    monkeypatch.setattr(Store, "add_grades", killed)
    with pytest.raises(KeyboardInterrupt):
        regrade(store, "exact")
    assert table(store, "SELECT count(*) AS n FROM grades WHERE verifier = 'exact'")["n"].iloc[0] == 300
    monkeypatch.setattr(Store, "add_grades", add)
    n_responses = table(store, "SELECT count(DISTINCT (problem_id, response_id)) AS n FROM samples")["n"].iloc[0]
    assert regrade(store, "exact").n_graded == n_responses - 300


@pytest.mark.usefixtures("few_measures")
def test_problems_whose_gold_cannot_be_read_are_named_and_left_out(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    store = imported(tmp_path, unreadable=2)
    with pytest.raises(SystemExit) as done:
        main(["regrade", str(store), "--verifier", "exact", "--quiet"])
    printed = capsys.readouterr()
    assert done.value.code == 3
    assert "warning: 2 problems left out, the first is" in printed.err
    assert "the answer is blank" in printed.err
    told = " ".join(printed.out.split())
    assert "earlier Coverage lost (degraded) (val, graded by the reward that verl recorded)" in told
    assert "series        val (exact)" in printed.out
    n = table(store, "SELECT series, n_problems FROM (SELECT series, count(DISTINCT problem_id) AS n_problems "
              "FROM problem_counts GROUP BY series) ORDER BY series")  # fmt: skip
    assert n["n_problems"].tolist() == [PROBLEMS, PROBLEMS - 2]
    assert "2 problems omitted from val (exact)" in (tmp_path / "out" / "report.html").read_text(encoding="utf-8")


@pytest.mark.usefixtures("few_measures")
def test_a_sampled_series_keeps_its_own_verifier_beside_another(store: Path) -> None:
    with Store.open(store) as opened:  # what sampling here leaves: weights, and problems that name a verifier of ours
        opened._database.rows("UPDATE checkpoints SET kind = 'full'")
        opened._database.rows("UPDATE problems SET verifier = 'exact'")
        opened._database.rows("UPDATE grades SET verifier = 'exact'")
    result = oversharp.regrade(store, "math", series="val")
    assert result.own_verifiers == ("exact",)
    assert table(store, "SELECT DISTINCT verifier FROM grades ORDER BY 1")["verifier"].tolist() == ["exact", "math"]
    report = result.report_path.read_text(encoding="utf-8")
    assert "run oversharp confirm on the original series" in report


@pytest.mark.usefixtures("few_measures")
def test_grades_by_older_rules_are_made_again_in_place_and_once(
    store: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with Store.open(store) as opened:  # what an older version left: its grades, all wrong by today's rules
        opened._database.rows("UPDATE problems SET verifier = 'exact'")
        opened._database.rows("UPDATE grades SET verifier = 'exact', correct = NOT correct, rules = 1")
        n_responses = len(opened.frame("SELECT DISTINCT problem_id, response_id FROM samples"))
        findings_before = opened.frame("SELECT value FROM findings WHERE measure = 'pass_at_k' AND k = 1")
    with pytest.raises(SystemExit) as done:
        main(["regrade", str(store), "--verifier", "exact", "--quiet"])
    assert done.value.code == 0
    printed = capsys.readouterr().out
    assert f"(val, before {n_responses:,} responses were graded again)" in " ".join(printed.split())
    assert "series        val: " in printed
    assert table(store, "SELECT DISTINCT verifier, rules FROM grades").to_numpy().tolist() == [
        ["exact", RULES["exact"]]
    ]
    after = table(store, "SELECT value FROM findings WHERE measure = 'pass_at_k' AND k = 1")
    assert not after.equals(findings_before)
    with pytest.raises(ConfigError, match=r"--verifier exact: already grades series 'val' by the current rules"):
        regrade(store, "exact")
    with pytest.raises(
        ConfigError, match="--guess-rate: series 'val' is graded by exact, so its rate cannot be changed"
    ):
        regrade(store, "exact", guess_rate=0.1)


@pytest.mark.usefixtures("few_measures")
def test_what_cannot_be_done_is_one_line(store: Path, tmp_path: Path) -> None:
    with pytest.raises(VerifierError, match="verifier 'maths' is unknown; use one of: math"):
        regrade(store, "maths")
    with pytest.raises(
        ProblemError, match=r"--verifier modes: can parse the gold answer of no problem of series 'val'"
    ):
        regrade(store, "modes")
    with pytest.raises(StoreError, match="nowhere: no such store"):
        regrade(tmp_path / "nowhere", "exact")
    assert table(store, "SELECT series FROM current_audits")["series"].tolist() == ["val"]
    with pytest.raises(ConfigError, match=r"--series val: has imported samples but no checkpoints"):
        confirm(store, ConfirmConfig())
    regrade(store, "exact")
    with pytest.raises(ConfigError, match=r"--series val \(exact\): `oversharp regrade` created it; pass"):
        regrade(store, "math", series="val (exact)")
    with pytest.raises(ConfigError, match=r"--series val \(exact\): `oversharp regrade` created it with"):
        confirm(store, ConfirmConfig(series="val (exact)"))


def test_what_a_recorded_series_does_not_tell_is_said_to_be_unknown(store: Path) -> None:
    page = oversharp.report(store).read_text(encoding="utf-8")
    text = re.sub(r"<(script|style).*?</\1>|<[^>]+>", " ", page, flags=re.DOTALL)
    assert "16 times per problem by verl (temperature, top-p, max tokens and seed not recorded)." in text
    assert "responses were graded by the reward that verl recorded" in text
    assert "At some checkpoints it is unknown how many samples were truncated before an answer." in text
    for never in ("<NA>", "&lt;NA&gt;", ": None", " nan", "recorded:verl", "--panel", "run oversharp confirm"):
        assert never not in text, never
    with Store.open(store, read_only=True) as opened:
        verdict = opened.verdict("val")
        whys = opened.frame("SELECT DISTINCT measure, why FROM findings WHERE why IS NOT NULL ORDER BY ALL")
    assert verdict is not None
    assert {rates.truncated for rates in verdict.rates} == {None}
    assert verdict == Verdict.from_json(verdict.to_json())
    why = dict(zip(whys["measure"], whys["why"], strict=True))
    assert why["truncation_rate"] == "no graded sample has a finish reason"
    assert why["perplexity_base_samples"] == NEEDS_CHECKPOINTS
    advice = {reason.rpartition("; ")[2] for reason in why.values() if "--panel" in reason or "run the audit" in reason}
    assert advice <= {"run the audit with --controls"}  # the report's hint names `oversharp audit` of the checkpoints


def test_a_plan_from_recorded_samples_counts_samples_where_tokens_are_unknown(
    store: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as done:
        main(["plan", str(store), "--k", "1", "--drop", "10"])
    assert done.value.code == 0
    said = " ".join(capsys.readouterr().out.split())
    assert "the number of tokens per sample is unknown" in said
    assert "samples of the audit" in said
