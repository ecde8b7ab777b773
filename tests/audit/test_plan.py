"""Planning an audit: its inputs, its errors, and its result."""

from __future__ import annotations

import io
import json
from collections.abc import Sequence
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
from rich.console import Console
from scipy.special import expit

from oversharp.diagnostics.app.cli import main
from oversharp.diagnostics.app.console.plan import print_plan
from oversharp.diagnostics.audit.cost.never_solved import NeverSolved, Thinning
from oversharp.diagnostics.audit.plan import Plan, RelatedProblems, plan, read_pilot
from oversharp.diagnostics.records.errors import ConfigError, StoreError
from oversharp.diagnostics.records.types import (
    AuditKey,
    Checkpoint,
    Grade,
    Problem,
    Sample,
    SamplingSettings,
    Series,
    response_id,
)
from oversharp.diagnostics.store import Store
from oversharp.diagnostics.verdict import audit_sizes
from oversharp.diagnostics.verdict.audit_sizes import SampleLengths, settle

pytestmark = pytest.mark.xdist_group("plan")  # they share what takes seconds to make

SETTINGS = SamplingSettings(sampler="transformers", max_tokens=8)
N_BASE = 64


def _plant(
    folder: Path,
    correct_TP: Sequence[Sequence[int]],
    *,
    name: str = "run",
    n_base: int = N_BASE,
    related: int = 1,
    enough: int | None = None,
    first: int = 8,
) -> Path:
    """A store whose base (the first row) and trained checkpoints gave so many correct responses to each problem.

    The base is given ``n_base`` samples of 3 tokens each, the others half of them. ``related`` problems, one after the
    other, are of one cluster. With ``enough``, the first round has ``first`` samples. The correct samples of a problem
    come first. Those of problems with 1 or 2 correct ones have 9 tokens.
    """
    folder.mkdir(exist_ok=True)
    path = folder / "audit.duckdb"
    problems = [
        Problem(task="toy", prompt=f"{position}", gold="1", verifier="exact") for position in range(len(correct_TP[0]))
    ]
    checkpoints = tuple(
        Checkpoint(step=20 * t, label=f"checkpoint-{20 * t}", path=Path("/x"), kind="full", weights_hash=f"{name}{t}")
        for t in range(len(correct_TP))
    )
    key = AuditKey(
        audit_id=name,
        series=name,
        settings_id=SETTINGS.settings_id,
        n=n_base // 2,
        n_base=n_base,
        first_round=None if enough is None else first,
        enough=enough,
        entropy_samples=0,
        panel=0,
        panel_settings_id=SETTINGS.settings_id,
        kernel_problems=0,
        kernel_responses=0,
        ks=(1,),
        strategy_regex="x",
    )
    with Store.open(path) as store:
        store.add_series(Series(name=name, path=folder / name, layout="hf", checkpoints=checkpoints))
        store.add_problems(problems)
        ids = [problem.problem_id for problem in problems]
        clusters = {one: str(place // related) for place, one in enumerate(ids)} if related > 1 else {}
        store.begin_audit(key, settings=SETTINGS, panel_settings=SETTINGS, problem_ids=ids, clusters=clusters)
        # the last sample of each problem is wrong in a way of its own: no number divides all counts, as in copies
        grades = {text: Grade(answer=text, mode=text, reward=float(text)) for text in ("0", "00", "1")}
        store.add_grades((one, response_id(text), "exact", grade) for one in ids for text, grade in grades.items())
        for checkpoint, correct_P in zip(checkpoints, correct_TP, strict=True):
            cap = n_base if checkpoint.step == 0 else n_base // 2
            n_P = [cap if enough is None or correct < enough else first for correct in correct_P]
            store.add_samples(
                SETTINGS.settings_id,
                checkpoint.checkpoint_id,
                [
                    Sample(
                        problem_id=problem_id,
                        sample_index=index,
                        greedy=False,
                        text="1" if index < correct else "00" if index == n - 1 else "0",
                        token_ids=(1, 2, 3) * (3 if enough is not None and correct in (1, 2) else 1),
                        finish_reason="stop",
                        logp_sum_raw=-1.0,
                    )
                    for problem_id, correct, n in zip(ids, correct_P, n_P, strict=True)
                    for index in range(n)
                ],
            )
        store.plan_rounds(key)
    return path


def _base_counts(n_problems: int = 40, n: int = N_BASE) -> list[int]:
    rng = np.random.default_rng(0)
    return rng.binomial(n, expit(rng.normal(-2.0, 2.0, n_problems))).tolist()


@pytest.fixture(scope="module")
def base_alone(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A pilot: the base and nothing else."""
    return _plant(tmp_path_factory.mktemp("base"), [_base_counts()])


@pytest.fixture(scope="module")
def planned(base_alone: Path) -> Plan:
    """The plan that the pilot gives, without the largest sizes, which show no more and take long."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(audit_sizes, "SAMPLES", (64, 256))
        patched.setattr(audit_sizes, "PROBLEM_MULTIPLES", (1, 2, 4))
        return plan(base_alone, drop_points=5.0, until_solved=0)


@pytest.fixture(scope="module")
def stopped(base_alone: Path) -> Plan:
    """As ``planned``, with the default stopping rule."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(audit_sizes, "SAMPLES", (64, 256))
        patched.setattr(audit_sizes, "PROBLEM_MULTIPLES", (2, 8))
        return plan(base_alone, drop_points=5.0)


@pytest.fixture
def few_sizes(monkeypatch: pytest.MonkeyPatch) -> None:
    """Two numbers of problems and two of samples: what is shown does not need more."""
    monkeypatch.setattr(audit_sizes, "SAMPLES", (64,))
    monkeypatch.setattr(audit_sizes, "PROBLEM_MULTIPLES", (1, 2))


@pytest.fixture
def few_runs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Few simulated audits, for tests that do not read the power."""
    monkeypatch.setattr(audit_sizes, "RUNS", 20)


@pytest.mark.slow
def test_the_cheapest_audit_with_the_power_is_named_and_no_cheaper_one_has_it(planned: Plan) -> None:
    assert planned.cheapest is not None
    assert planned.cheapest.power >= 0.8
    assert all(one.power < 0.8 for one in planned.audits if one.tokens < planned.cheapest.tokens)


@pytest.mark.slow
def test_a_plan_says_how_many_times_the_problems_related_ones_may_take(planned: Plan, tmp_path: Path) -> None:
    with Store.open(_plant(tmp_path, [[1] * 7], related=3)) as store:
        cluster_P = read_pilot(store, "run").cluster_P
    assert cluster_P is not None
    related = RelatedProblems.from_clusters(cluster_P)
    assert (related.n_clusters, related.most_times) == (3, pytest.approx((9 + 9 + 1) / 7))
    out = io.StringIO()
    for one in (planned, replace(planned, related=related)):
        print_plan(one, Console(file=out, width=200))
    assert planned.related is None
    assert " ".join(out.getvalue().split()).count("up to 2.7 times as many problems, in more clusters, are needed") == 1


@pytest.mark.slow
def test_of_a_base_that_solved_nothing_nothing_can_be_lost(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="solved none of 7 problems in 64 samples each, so no problem can be lost"):
        plan(_plant(tmp_path, [[0] * 7]))


@pytest.mark.slow
def test_the_cost_is_tokens_per_sample_times_problems_times_samples(planned: Plan) -> None:
    one = next(audit for audit in planned.audits if (audit.n_problems, audit.n) == (80, 64))
    # 8 checkpoints of 64 samples, the base of 128, 3 tokens each
    assert one.tokens == 3.0 * 80 * (8 * 64 + 128)
    assert one.n_base == 128


@pytest.mark.slow
def test_the_grid_has_the_own_size_and_multiples_and_the_pilots_own_n(planned: Plan) -> None:
    assert {audit.n_problems for audit in planned.audits} == {40, 80, 160}
    assert {audit.n for audit in planned.audits} == {32, 64, 256}
    assert audit_sizes.problem_numbers(40) == [40, 80, 160, 320]
    assert audit_sizes.SAMPLES == (64, 256, 1024)
    assert planned.k == 16  # half of the audit's n


@pytest.mark.slow
def test_a_pilot_of_the_base_alone_has_no_power_of_its_own(planned: Plan) -> None:
    assert planned.present is None


@pytest.mark.slow
@pytest.mark.usefixtures("few_sizes")
def test_the_power_of_the_audit_in_hand_is_that_of_its_own_size(tmp_path: Path) -> None:
    base = _base_counts()
    made = plan(_plant(tmp_path, [base, [c // 2 for c in base], [c // 2 for c in base]]), drop_points=5.0)
    assert made.present is not None
    assert (made.present.n_problems, made.present.n, made.present.n_base) == (40, 32, N_BASE)
    assert made.n_checkpoints == 2
    again = next(one for one in made.audits if (one.n_problems, one.n) == (40, 32))
    assert made.present.power == again.power  # the same size, so the same simulation


@pytest.mark.slow
@pytest.mark.usefixtures("few_sizes")
def test_the_same_store_gives_the_same_plan_whatever_other_sizes_are_asked_for(base_alone: Path, planned: Plan) -> None:
    few = plan(base_alone, drop_points=5.0, until_solved=0)
    assert few == plan(base_alone, drop_points=5.0, until_solved=0)
    assert [one for one in planned.audits if one in few.audits] == list(few.audits)


@pytest.mark.slow
@pytest.mark.usefixtures("few_sizes")
def test_a_larger_fall_is_found_more_often(base_alone: Path, planned: Plan) -> None:
    larger = plan(base_alone, drop_points=12.0, until_solved=0).audits
    smaller = [next(one for one in planned.audits if (one.n_problems, one.n) == (at.n_problems, at.n)) for at in larger]
    assert sum(one.power for one in larger) > sum(one.power for one in smaller) + 0.3


@pytest.mark.slow
def test_an_audit_is_worth_what_it_finds_of_the_loss_that_is_harder_to_see(planned: Plan) -> None:
    assert all(one.power == min(of.power for of in one.by_law) for one in planned.audits)
    assert {tuple(of.law for of in one.by_law) for one in planned.audits} == {("diffuse", "concentrated")}
    # the same fall of pass@16, of which 80 problems with 64 samples nearly always show the one and rarely the other
    one = next(audit for audit in planned.audits if (audit.n_problems, audit.n) == (80, 64))
    assert one.by_law[0].power > 0.9
    assert one.by_law[1].power < 0.5


@pytest.mark.slow
def test_every_power_is_known_well_enough_to_compare_sizes(planned: Plan) -> None:
    simulated = [of for one in planned.audits for of in one.by_law if of.runs]
    assert max(max(of.power - of.low, of.high - of.power) for of in simulated) <= 0.1
    assert {of.runs < 400 for of in simulated} == {True, False}


@pytest.mark.slow
def test_more_samples_never_cost_power_of_the_same_problems(planned: Plan) -> None:
    for n_problems in (40, 80, 160):
        powers = [one.power for one in planned.audits if one.n_problems == n_problems and one.n >= 64]
        assert all(more > fewer - 0.1 for fewer, more in pairwise(powers))


@pytest.mark.slow
def test_a_size_that_a_smaller_one_makes_certain_is_not_simulated(planned: Plan) -> None:
    audits = [audit.by_law[0] for audit in planned.audits if audit.n == 256]
    skipped = [of for of in audits if of.runs == 0]
    assert skipped
    assert all(of.power == 1.0 for of in skipped)
    assert audits[0].runs > 0


@pytest.mark.slow
def test_with_a_rule_a_larger_n_is_not_simulated_either(planned: Plan, stopped: Plan) -> None:
    def runs(made: Plan, n: int) -> list[int]:
        return [audit.by_law[0].runs for audit in made.audits if (audit.n, audit.n_problems) == (n, 320)]

    assert all(audit.by_law[0].power == 1.0 for audit in stopped.audits if audit.n_problems == 320 and audit.n >= 64)
    assert runs(stopped, 256) == [0]
    assert [audit.by_law[0].runs > 0 for audit in planned.audits if audit.n_problems == 40] == [True] * 3


@pytest.mark.slow
def test_what_cannot_be_planned_is_said_in_one_line(base_alone: Path, tmp_path: Path) -> None:
    for change, message in (
        ({"drop_points": 0.0}, "--drop 0: must be above 0"),
        ({"drop_points": -3.0}, "--drop -3: must be above 0"),
        ({"drop_points": 101.0}, "--drop 101: must be above 0"),
        ({"drop_points": float("nan")}, "--drop nan"),
        ({"k": 33}, "--k 33: must be between 1 and 32, half of the 64 samples"),
        ({"k": 0}, "--k 0"),
        ({"wanted": 1.0}, "--power 1: must be between 0 and 1"),
        ({"n_checkpoints": 0}, "--checkpoints 0"),
        ({"drop_points": 90.0}, "no loss lowers it by that much"),
        ({"until_solved": -1}, "--until-solved -1"),
        ({"first": 0}, "--first 0"),
        ({"until_solved": 0, "first": 8}, "--first 8: there are no rounds with --until-solved 0"),
    ):
        with pytest.raises(ConfigError, match=message) as error:
            plan(base_alone, **change)
        assert "\n" not in str(error.value)
    with pytest.raises(StoreError, match="has no audit of this series; audited series: run"):
        plan(base_alone, series="walk")
    with pytest.raises(StoreError, match="no such store"):
        plan(tmp_path / "audit.duckdb")


@pytest.mark.slow
def test_an_audit_without_samples_of_its_base_is_refused(tmp_path: Path) -> None:
    path = _plant(tmp_path, [_base_counts()])
    with Store.open(path) as store:
        store._database.rows("DELETE FROM grades")
    with pytest.raises(StoreError, match="has no graded samples of its base"):
        plan(path)


@pytest.mark.slow
@pytest.mark.usefixtures("few_sizes")
def test_with_several_series_one_has_to_be_named(tmp_path: Path) -> None:
    path = _plant(tmp_path, [_base_counts(8)], name="one")
    _plant(tmp_path, [_base_counts(8)], name="two")
    with pytest.raises(ConfigError, match="pass --series with one of: one, two"):
        plan(path)
    assert plan(path, series="two", drop_points=10.0).series == "two"


@pytest.mark.slow
def test_settling_names_the_cheapest_audit_that_is_no_smaller_than_the_one_in_hand() -> None:
    counts_P = np.array(_base_counts(100, 128))
    remedy = settle(
        counts_P,
        128,
        n=64,
        drop=0.05,
        lengths=SampleLengths(mean=10.0),
        n_checkpoints=6,
        rng=np.random.default_rng(0),
        k=32,
    )
    assert remedy is not None
    assert remedy.n_problems >= 100
    assert remedy.n >= 64
    assert remedy.tokens == 10.0 * remedy.n_problems * (6 * remedy.n + remedy.n_base)
    assert remedy.drop == 0.05


@pytest.mark.slow
def test_the_audit_in_hand_keeps_its_own_n_and_base_when_it_is_the_answer() -> None:
    # n as large as the base's, and n far below half of it: both as they are, not n_base / 2
    for n, n_base in ((64, 64), (16, 256)):
        counts_P = np.array(_base_counts(60, n_base))
        remedy = settle(
            counts_P,
            n_base,
            n=n,
            drop=0.5,
            lengths=SampleLengths(mean=1.0),
            n_checkpoints=3,
            rng=np.random.default_rng(0),
            k=8,
        )
        assert remedy is not None
        assert (remedy.n_problems, remedy.n, remedy.n_base) == (60, n, n_base)


@pytest.mark.slow
def test_the_planted_losses_are_told_at_every_k_and_are_what_was_named_at_the_k_asked_for(planned: Plan) -> None:
    diffuse, concentrated = planned.planted
    for loss in planned.planted:
        at = {one.k: one.change for one in loss.changes}
        assert sorted(at) == sorted({1, 8, 16, loss.k_largest})
        assert at[16] == pytest.approx(-0.05, abs=1e-3)
        assert at[loss.k_largest] == min(at.values())
        assert loss.k_largest <= N_BASE // 2
    assert diffuse.changes[0].change > 0.1  # the frequent become more frequent
    assert diffuse.share_lost is None
    assert concentrated.share_lost is not None
    assert concentrated.share_lost > 0.05  # what the others gain has to be lost too


@pytest.mark.slow
@pytest.mark.usefixtures("few_sizes")
def test_what_guesses_would_explain_is_said_unless_the_grader_accepts_none(tmp_path: Path) -> None:
    path = _plant(tmp_path, [_base_counts(60, 256)], n_base=256)
    told = plan(path, drop_points=5.0, k=128)
    assert (told.guess_rate, told.guess_source) == (0.005, "assumed")
    assert told.planted[0].guessed is not None
    assert told.planted[0].guessed > 0.3
    with Store.open(path) as store:
        store._database.rows("UPDATE audits SET guess_rate = 0")
    known = plan(path, drop_points=5.0, k=128)
    assert {one.guessed for one in known.planted} <= {0.0, None}
    assert known.audits == told.audits
    shown, silent = (" ".join(_printed(one).split()) for one in (told, known))
    assert "false accepts (0.5 % of wrong answers, assumed) would explain" in shown
    assert "false accepts" not in silent
    # k = 128 is more than half of 64 samples
    assert "n = 64 tests k up to 32: a fall of pass@128 is detected only if pass@32 falls too" in shown


def test_settling_is_silent_where_nothing_helps() -> None:
    rng = np.random.default_rng(0)
    of_nothing = settle(
        np.array([], dtype=int), 64, n=32, drop=0.05, lengths=SampleLengths(mean=1.0), n_checkpoints=3, rng=rng
    )
    unsolved = settle(
        np.zeros(20, dtype=int), 64, n=32, drop=0.05, lengths=SampleLengths(mean=1.0), n_checkpoints=3, rng=rng
    )
    untrained = settle(np.full(20, 9), 64, n=32, drop=0.05, lengths=SampleLengths(mean=1.0), n_checkpoints=0, rng=rng)
    assert of_nothing is unsolved is untrained is None


@pytest.mark.slow
def test_the_table_marks_the_cheapest_and_names_what_it_assumes(planned: Plan) -> None:
    lines = _printed(planned).splitlines()
    assert "power to detect a fall of pass@16 by 5 points" in lines[0]
    assert "the last 3 pooled" in lines[1]
    assert planned.cheapest is not None
    assert {"diffuse", "concentrated"} <= {line.split()[0] for line in lines if line}
    assert " ".join(_printed(planned).split()).count("\u22125.0 at k = 16") == 2
    assert any("a diffuse / a concentrated loss" in line for line in lines)
    assert any("upper bound" in line for line in lines)
    assert not any("tests k up to" in line for line in lines)  # every size tests k = 16
    marked = [line for line in lines if "◀" in line]
    assert len(marked) == 3
    assert marked[0].startswith(f"{planned.cheapest.n_problems}")
    assert f"n = {planned.cheapest.n} " in marked[1]
    assert marked[2].startswith("never ◀")
    assert max(map(len, lines)) <= 80


@pytest.mark.slow
def test_by_default_problems_stop_after_four_correct_samples_from_n_64(planned: Plan, stopped: Plan) -> None:
    assert {(audit.n, audit.first, audit.enough) for audit in stopped.audits} == {
        (32, None, None),
        (64, 16, 4),
        (256, 32, 4),
    }
    uniform = {(audit.n_problems, audit.n): audit for audit in planned.audits}
    same = next(audit for audit in stopped.audits if (audit.n_problems, audit.n) == (80, 32))
    assert same == uniform[80, 32]
    at = next(audit for audit in stopped.audits if (audit.n_problems, audit.n) == (80, 256))
    assert at.samples < 0.5 * uniform[80, 256].samples
    assert at.tokens == pytest.approx(3.0 * at.samples, abs=2)
    assert at.power == pytest.approx(uniform[80, 256].power, abs=0.2)


@pytest.mark.slow
def test_the_same_audit_is_compared_without_a_rule_and_with_others(stopped: Plan) -> None:
    best = stopped.cheapest
    assert best is not None
    assert best.enough == 4
    assert [audit.enough for audit in stopped.stopping] == [None, 4, 2]
    assert {(audit.n_problems, audit.n) for audit in stopped.stopping} == {(best.n_problems, best.n)}
    never, four, two = stopped.stopping
    assert never.samples == best.n_problems * (8 * best.n + best.n_base)
    assert (four.samples, four.tokens) == (best.samples, best.tokens)
    assert never.samples > four.samples > two.samples
    # of the loss that is harder to detect
    assert {tuple(row.law for row in audit.by_law) for audit in stopped.stopping} == {("concentrated",)}
    assert all(max(row.high - row.power, row.power - row.low) <= 0.07 for row in (audit.by_law[0] for audit in (four,)))


@pytest.mark.slow
def test_the_table_of_stopping_rules_has_their_costs(stopped: Plan) -> None:
    lines = _printed(stopped).splitlines()
    assert max(map(len, lines)) <= 80
    text = " ".join(" ".join(lines).split())
    assert "in rounds that double up to n; a problem stops after the round that leaves it with 4 correct" in text
    assert "first round: 16 samples at n = 64, 32 samples at n = 256; always n samples at n = 32" in text
    assert "the last 3 averaged; at most n samples" in text
    assert "below it the expected tokens of the audit" in text
    never, four, two = (next(line for line in lines if line.startswith(f"{start} ")) for start in ("never", "4", "2"))
    times = stopped.stopping[0].cost / stopped.stopping[1].cost
    assert never.split()[-1] == f"{times:.2g}"
    assert 1.5 < times < 10
    assert "◀" in four
    assert two.split()[-1].startswith("0.")


@pytest.mark.slow
def test_the_cost_of_unsolved_problems_is_a_row(planned: Plan) -> None:
    unsolved = NeverSolved(problems=0.123, cost=0.456, thinning=None)
    thinning = Thinning(after=128, kept=0.25, saved=0.19, k=512, error_factor=1.5)
    few, many = (
        " ".join(_printed(replace(planned, never_solved=each)).split())
        for each in (unsolved, replace(unsolved, thinning=thinning))
    )
    row = "never solved 12 % of the problems stay unsolved at a checkpoint and take 46 % of the tokens"
    assert f"{row} note" in few
    assert f"{row}. To give up 75 % of those that no checkpoint solves in 128 samples would save 19 %, but" in many
    assert "pass@512 on these problems by 1.50 (19 % fewer problems: by 1.11); there is no flag for it note" in many
    assert "stay unsolved" not in _printed(planned)
    assert "stay unsolved" not in _printed(replace(planned, never_solved=replace(unsolved, cost=0.004)))


@pytest.mark.slow
@pytest.mark.usefixtures("few_sizes", "few_runs")
def test_the_flags_set_the_rule(base_alone: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        main(["plan", str(base_alone), "--drop", "12", "--until-solved", "2", "--first", "8"])
    assert not stop.value.code
    text = " ".join(capsys.readouterr().out.split())
    assert "leaves it with 2 correct samples; first round: 8 samples at n = 32 and 64" in text
    assert "always n samples" not in text
    assert "of the problems stay unsolved" in text
    assert "solve the problems as often as the base; those that lose problems need more" in text
    made = plan(base_alone, drop_points=12.0, until_solved=0)
    assert made.never_solved is None
    assert {audit.enough for audit in made.audits} == {None}
    assert "in rounds" not in _printed(made)


@pytest.mark.slow
@pytest.mark.usefixtures("few_sizes", "few_runs")
def test_a_plan_from_a_stopped_audit_has_its_rule_and_the_lengths_of_hard_problems(tmp_path: Path) -> None:
    hard, easy = [1, 2, 1, 1] * 8, [30, 32, 31, 30] * 8
    base = hard + easy
    made = plan(_plant(tmp_path, [base, base], enough=3), drop_points=12.0)
    assert {(audit.first, audit.enough) for audit in made.audits} == {(8, 3)}
    assert made.present is not None
    assert (made.present.n, made.present.n_base, made.present.enough) == (32, 64, 3)
    assert made.tokens_per_sample == 6.0  # half of the problems have 9 tokens, the others 3
    # 96 samples of each hard problem and 16 of each easy one: 8.4 tokens on average
    assert made.present.tokens is not None
    assert made.present.tokens / made.present.samples == pytest.approx((9 * 96 + 3 * 16) / 112, abs=0.2)
    text = " ".join(_printed(made).split())
    assert "64 problems, n = 32, 64 of the base, until 3 correct" in text
    assert "that solve the problems as often as 1 checkpoint of this store on average" in text


@pytest.mark.slow
@pytest.mark.usefixtures("few_sizes", "few_runs")
def test_checkpoints_of_the_store_that_lost_problems_raise_the_expected_cost(tmp_path: Path) -> None:
    base, lost = [30] * 40, [30, 0] * 20
    kept, fell = (
        plan(_plant(tmp_path / name, [base, late, late], enough=3), drop_points=12.0)
        for name, late in (("kept", base), ("fell", lost))
    )
    assert (kept.n_trained, fell.n_trained) == (2, 2)
    assert kept.present is not None
    assert fell.present is not None
    assert kept.present.samples == 40 * (8 + 2 * 8)
    assert fell.present.samples == pytest.approx(40 * 8 + 2 * 20 * (8 + 32), abs=5)  # 32 samples of lost ones


@pytest.mark.slow
@pytest.mark.usefixtures("few_sizes", "few_runs")
def test_a_store_with_the_default_rule_of_its_n_does_not_set_the_rule_of_others(tmp_path: Path) -> None:
    base = [1, 40, 90, 100] * 8
    default = _plant(tmp_path, [base], n_base=128, enough=4, first=16)
    assert {(audit.n, audit.first) for audit in plan(default).audits} == {(64, 16)}
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(audit_sizes, "SAMPLES", (128,))
        assert {(audit.n, audit.first) for audit in plan(default).audits} == {(64, 16), (128, 32)}
        given = _plant(tmp_path / "given", [base], n_base=128, enough=4, first=8)
        assert {(audit.n, audit.first) for audit in plan(given).audits} == {(64, 8), (128, 8)}


def _printed(made: Plan) -> str:
    console = Console(file=io.StringIO(), width=80, highlight=False)
    print_plan(made, console)
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


@pytest.mark.slow
@pytest.mark.usefixtures("few_sizes")
def test_the_command_prints_the_plan_as_json(base_alone: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        main(["plan", str(base_alone), "--drop", "12", "--json"])
    assert not stop.value.code
    made = json.loads(capsys.readouterr().out)
    assert made["k"] == 16
    assert made["cheapest"] in made["audits"]
    for loss in made["planted"]:
        assert {one["k"]: round(one["change"], 3) for one in loss["changes"]}[16] == -0.12
        assert loss["k_largest"] in {one["k"] for one in loss["changes"]}
