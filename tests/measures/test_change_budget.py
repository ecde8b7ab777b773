"""The decomposition of a change: sums to the change, finds planted causes, and finds none without a change."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from oversharp.diagnostics.measures.contract import Evidence
from oversharp.diagnostics.measures.coverage.budget.change_budget import PARTS, SCOPES, change_budget
from oversharp.diagnostics.measures.coverage.budget.distributions import Graded, Gradings, count_samples, own_effect
from oversharp.diagnostics.measures.coverage.budget.groups import (
    GROUPS,
    false_accept_limit,
    group_problems,
    pass_at_k_by_split,
    pass_at_k_of_all,
)
from oversharp.diagnostics.records.types import Finding
from oversharp.diagnostics.statistics.pass_at_k import pass_at_k_each

N = 64
COLUMNS = ["checkpoint_id", "problem_id", "n", "n_correct", "n_cut", "n_unread"]


def evidence_of(base: np.ndarray, late: np.ndarray, *, cut: object = 0, unread: object = 0, n: int = N) -> Evidence:
    """Two checkpoints with these correct samples by problem; ``cut`` and ``unread`` apply to the late one."""
    made = []
    for name, correct, own_cut, own_unread in (("base", base, 0, 0), ("late", late, cut, unread)):
        problems = [f"q{i:03d}" for i in range(len(base))]
        made.append(
            pd.DataFrame(
                {
                    "checkpoint_id": name,
                    "problem_id": problems,
                    "task": "task",
                    "n": n,
                    "n_correct": correct,
                    "n_cut": own_cut,
                    "n_unread": own_unread,
                    "n_planned": n,
                }
            )
        )
    frame = pd.concat(made, ignore_index=True)
    ids = ["base", "late"]
    checkpoints = pd.DataFrame({"checkpoint_id": ids, "checkpoint": ids, "step": [0, 1], "is_base": [True, False]})
    frames = {"read_counts": frame, "sampled_counts": frame, "problem_counts": frame}
    return Evidence(checkpoints=checkpoints, frames=frames, n=n, ks=(1,), guess_rate=0.005)


def with_second(evidence: Evidence, **correct: np.ndarray) -> Evidence:
    """Add a second verifier that accepts these numbers of samples."""
    frame = evidence.frames["read_counts"].assign(temperature=np.nan)
    for name, hits in correct.items():
        frame.loc[frame["checkpoint_id"] == name, "n_correct"] = hits
    return replace(evidence, frames={**evidence.frames, "second_counts": frame})


def with_colder(evidence: Evidence, **correct: np.ndarray) -> Evidence:
    """The base at T = 0.6 and 0.3."""
    base = evidence.frames["read_counts"].query("checkpoint_id == 'base'")
    rows = [
        base.assign(temperature=temperature, own_temperature=1.0, n_correct=correct[name])
        for temperature, name in ((0.6, "cool"), (0.3, "cold"))
    ]
    return replace(evidence, frames={**evidence.frames, "control_counts": pd.concat(rows, ignore_index=True)})


def parts_at(evidence: Evidence, k: int) -> dict[str, Finding]:
    found = {one.scope: one for one in change_budget(evidence) if one.k == k}
    assert tuple(found) == SCOPES
    return found


def values_at(evidence: Evidence, k: int) -> dict[str, float]:
    return {scope: one.value for scope, one in parts_at(evidence, k).items() if one.value is not None}


def random_rates(seed: int = 0, problems: int = 200) -> np.ndarray:
    return np.random.default_rng(seed).beta(0.4, 0.6, problems)


def drawn(rate: np.ndarray, seed: int, n: int = N) -> np.ndarray:
    return np.random.default_rng(seed).binomial(n, rate)


@pytest.mark.slow
def test_the_parts_add_up_to_the_change_at_every_k() -> None:
    rate = random_rates()
    late = drawn(rate * 0.6, 2)
    evidence = evidence_of(drawn(rate, 1), late, cut=(N - late) // 3, unread=(N - late) // 4)
    evidence = with_colder(evidence, cool=drawn(rate**0.8, 3), cold=drawn(rate**0.6, 4))
    for k in (1, 32):
        values = values_at(evidence, k)
        assert sum(values[part] for part in values.keys() & set(PARTS)) == pytest.approx(values["all"], abs=1e-12)


def test_the_whole_is_the_mean_change_of_pass_at_k() -> None:
    base, late = drawn(random_rates(), 1), drawn(random_rates(), 2)
    n_P, k_P = np.full(len(base), N), np.full(len(base), 32)
    expected = (pass_at_k_each(n_P, late, k_P) - pass_at_k_each(n_P, base, k_P)).mean()
    assert values_at(evidence_of(base, late), 32)["all"] == pytest.approx(expected, abs=1e-12)


def test_samples_that_were_cut_off_at_random_carry_the_whole_fall() -> None:
    rate = np.full(200, 0.5)
    late = drawn(rate * 0.5, 2)
    values = values_at(evidence_of(drawn(rate, 1), late, cut=drawn(np.full(200, 0.5), 3).clip(max=N - late)), 1)
    assert values["cut_off"] == pytest.approx(-0.25, abs=0.02)
    assert abs(values["all"] - values["cut_off"]) < 0.02
    assert values["unread"] == 0.0


def test_two_causes_that_take_the_same_samples_share_what_either_would_give_back() -> None:
    """A quarter is cut off, a third of the others left unread, half of the rest right: .5, .375 or .333, and .25."""
    values = values_at(evidence_of(np.full(50, 32), np.full(50, 16), cut=16, unread=16), 1)
    assert values["cut_off"] == pytest.approx(((3 / 8 - 1 / 2) + (1 / 4 - 1 / 3)) / 2)
    assert values["unread"] == pytest.approx(((1 / 3 - 1 / 2) + (1 / 4 - 3 / 8)) / 2)


def test_what_is_cut_off_of_lost_problems_is_shared_by_both_causes() -> None:
    """Half is cut off everywhere, and half of the problems are lost: each alone takes a quarter, both three eighths."""
    late = np.repeat([16, 0], 100)
    values = values_at(evidence_of(np.full(200, 32), late, cut=32), 1)
    assert values["cut_off"] == pytest.approx(-(1 / 4 + 1 / 8) / 2, abs=1e-9)
    assert values["lost"] == pytest.approx(-(1 / 4 + 1 / 8) / 2, abs=1e-3)  # splits are drawn


def test_a_second_grader_takes_what_the_first_rejected_wrongly() -> None:
    truth = drawn(random_rates(), 1)
    evidence = with_second(evidence_of(truth, truth // 2), base=truth, late=truth)
    values = values_at(evidence, 1)
    assert values["grader"] == pytest.approx(values["all"], abs=1e-3)
    assert "ways" not in values


@pytest.mark.slow
def test_a_grader_that_rejects_all_of_some_problems_makes_the_whole_change() -> None:
    """A share of accepted samples, smoothed over problems and put to the power of k, leaves 4 points to the rest."""
    rate = np.full(1000, 0.4)
    base, late = drawn(rate, 1, 16), drawn(rate, 2, 16)
    own = np.random.default_rng(3).binomial(late, np.repeat([0.0, 0.6], 500))
    values = values_at(with_second(evidence_of(base, own, n=16), base=base, late=late), 8)
    assert values["grader"] == pytest.approx(values["all"], abs=0.02)


@pytest.mark.slow
def test_a_base_that_was_drawn_colder_is_told_as_sharpening() -> None:
    rate = np.random.default_rng(0).beta(1.0, 0.8, 400)
    cool, cold = (rate**a / (rate**a + (0.6 * (1 - rate)) ** a) for a in (1 / 0.6, 1 / 0.3))
    evidence = evidence_of(drawn(rate, 1), drawn(cool, 2))
    values = values_at(with_colder(evidence, cool=drawn(cool, 3), cold=drawn(cold, 4)), 1)
    assert values["all"] > 0.05
    assert values["sharpening"] == pytest.approx(values["all"], abs=0.02)


def test_problems_that_were_lost_do_not_hide_how_sharp_a_run_is() -> None:
    rate = np.random.default_rng(0).beta(1.0, 0.8, 400)
    cool, cold = (rate**a / (rate**a + (0.6 * (1 - rate)) ** a) for a in (1 / 0.6, 1 / 0.3))
    late = np.where(np.arange(400) % 5, cool, 0.0)
    evidence = evidence_of(drawn(rate, 1), drawn(late, 2))
    values = values_at(with_colder(evidence, cool=drawn(cool, 3), cold=drawn(cold, 4)), 1)
    assert values["sharpening"] == pytest.approx((cool - rate).mean(), abs=0.02)
    assert values["lost"] == pytest.approx((late - cool).mean(), abs=0.03)


@pytest.mark.slow
def test_a_run_whose_pass_at_1_fell_is_no_colder_base() -> None:
    rate = random_rates(problems=400)
    cool, cold = (rate**a / (rate**a + (1 - rate) ** a) for a in (1 / 0.6, 1 / 0.3))
    evidence = with_colder(evidence_of(drawn(rate, 1), drawn(rate * 0.5, 2)), cool=drawn(cool, 3), cold=drawn(cold, 4))
    assert values_at(evidence, 1)["sharpening"] == pytest.approx(0.0, abs=0.01)
    assert values_at(evidence, 32)["sharpening"] == pytest.approx(0.0, abs=0.01)


def test_problems_that_are_never_solved_again_are_lost_and_new_ones_gained() -> None:
    rate = np.repeat([0.5, 0.0, 0.5], 60)
    late = np.repeat([0.0, 0.5, 0.5], 60)
    values = values_at(evidence_of(drawn(rate, 1), drawn(late, 2)), 32)
    assert values["lost"] == pytest.approx(-1 / 3, abs=0.01)
    assert values["gained"] == pytest.approx(1 / 3, abs=0.01)
    assert abs(values["unexplained"]) < 0.01


def test_what_guesses_alone_would_solve_is_called_no_loss() -> None:
    rate = np.repeat([0.005, 0.5], 100)
    values = values_at(evidence_of(drawn(rate, 1, 256), drawn(np.repeat([0.0, 0.5], 100), 2, 256), n=256), 128)
    assert values["guesses"] == pytest.approx(-0.24, abs=0.06)
    assert abs(values["lost"]) < 0.03


def ways_of(counts: dict[str, dict[str, int]], problems: int) -> pd.DataFrame:
    rows = [
        (checkpoint, f"q{i:03d}", way, half, n, "way")
        for checkpoint, ways in counts.items()
        for i in range(problems)
        for way, n in ways.items()
        for half in (True, False)
    ]
    return pd.DataFrame(rows, columns=["checkpoint_id", "problem_id", "way", "first_half", "n", "level"])


def test_a_fall_where_a_way_is_gone_and_another_left_is_told_as_ways() -> None:
    evidence = evidence_of(np.full(100, 32), np.full(100, 16))
    frame = ways_of({"base": {"sum": 8, "product": 8}, "late": {"product": 8}}, 100)
    evidence = replace(evidence, frames={**evidence.frames, "way_counts": frame})
    values = values_at(evidence, 1)
    assert values["ways"] == pytest.approx(-0.25, abs=0.01)
    kept = ways_of({"base": {"sum": 8, "product": 8}, "late": {"sum": 4, "product": 4}}, 100)
    assert values_at(replace(evidence, frames={**evidence.frames, "way_counts": kept}), 1)["ways"] == 0.0


def test_beyond_pass_at_1_ways_are_not_told_from_what_else_rarely_solved_problems_lose() -> None:
    evidence = evidence_of(np.full(100, 24), np.full(100, 8))
    frame = ways_of({"base": {"sum": 8, "product": 4}, "late": {"product": 4}}, 100)
    told = replace(evidence, frames={**evidence.frames, "way_counts": frame})
    at = {(one.scope, one.k): one for one in change_budget(told)}
    largest = max(k for _, k in at)
    assert at["ways", 1].value < -0.05
    assert at["ways", largest].value is None
    assert at["ways", largest].why.startswith("lost ways are measured at k = 1 only")
    assert at["unexplained", largest].value == pytest.approx(at["all", largest].value, abs=1e-9)


def test_ways_are_those_of_what_the_second_grader_accepts_where_it_is_asked() -> None:
    base, late = np.full(100, 32), np.full(100, 16)
    evidence = with_second(evidence_of(base, late // 4), base=base, late=late)
    gone = ways_of({"base": {"sum": 8, "product": 8}, "late": {"product": 8}}, 100)
    kept = ways_of({"base": {"sum": 8, "product": 8}, "late": {"sum": 4, "product": 4}}, 100)
    frames = {**evidence.frames, "way_counts": kept, "second_way_counts": gone}
    values = values_at(replace(evidence, frames=frames), 1)
    # alone .5 less, or .375 by the grader; together .4375: what each adds, first and second
    assert values["ways"] == pytest.approx(-(0.25 + 0.0625) / 2, abs=0.01)
    assert values["grader"] == pytest.approx(-(0.375 + 0.1875) / 2, abs=0.01)


def test_late_samples_of_unknown_way_may_be_of_any_way() -> None:
    evidence = evidence_of(np.full(100, 32), np.full(100, 16))
    frame = ways_of({"base": {"sum": 2, "product": 14}, "late": {"product": 4}}, 100)
    unknown = ways_of({"late": {"?": 4}}, 100).assign(way=None)
    told = replace(evidence, frames={**evidence.frames, "way_counts": pd.concat([frame, unknown])})
    assert values_at(told, 1)["ways"] == 0.0
    known = pd.concat([frame, ways_of({"late": {"product": 4}}, 100)])
    assert values_at(replace(evidence, frames={**evidence.frames, "way_counts": known}), 1)["ways"] < -0.05


def test_a_rarely_solved_problem_that_keeps_a_way_is_not_lost() -> None:
    """Two of 64 may be false accepts, but they use a way of the base: only the other way is lost."""
    evidence = evidence_of(np.full(100, 32), np.full(100, 2))
    frame = ways_of({"base": {"sum": 12, "product": 4}, "late": {"product": 1}}, 100)
    values = values_at(replace(evidence, frames={**evidence.frames, "way_counts": frame}), 1)
    assert values["ways"] == pytest.approx(-0.47, abs=0.02)
    assert values_at(evidence, 1)["lost"] == pytest.approx(-0.47, abs=0.02)


@pytest.mark.slow
def test_two_draws_of_one_law_have_parts_of_mean_zero() -> None:
    """With few samples: a group chosen by the samples that measure it would lose its lucky successes."""
    rate = random_rates(problems=150)
    sums = {part: [] for part in ("guesses", "lost", "gained", "unexplained")}
    for seed in range(40):
        values = values_at(evidence_of(drawn(rate, 2 * seed, 16), drawn(rate, 2 * seed + 1, 16), n=16), 8)
        for part, own in sums.items():
            own.append(values[part])
    for part, own in sums.items():
        assert abs(np.mean(own)) < 4 * np.std(own) / np.sqrt(len(own)), part


@pytest.mark.slow
def test_a_clean_twin_claims_nothing() -> None:
    rate, claimed = random_rates(problems=200), 0
    for seed in range(20):
        cut = drawn(np.full(200, 0.3), 100 + seed)
        late = drawn(rate, 2 * seed + 1)
        evidence = evidence_of(drawn(rate, 2 * seed), late, unread=np.minimum(cut, N - late) * 0)
        found = parts_at(evidence, 32)
        claimed += any(one.low * one.high > 0 for one in found.values() if one.low is not None)
    assert claimed <= 2


@pytest.mark.parametrize("k", [1, 32])
@pytest.mark.parametrize("late_n_cut", [N, 50])
def test_what_took_every_sample_of_a_problem_makes_its_whole_change(k: int, late_n_cut: int) -> None:
    """No sample shows that the checkpoint solves it less often, so it uses the base's parsed samples."""
    evidence = evidence_of(np.full(50, 4), np.zeros(50, dtype=np.int64), cut=late_n_cut, unread=N - late_n_cut)
    values = values_at(evidence, k)
    assert values["all"] == pytest.approx(-pass_at_k_each(np.array([N]), np.array([4]), np.array([k]))[0], abs=1e-12)
    assert values["cut_off"] + values["unread"] == pytest.approx(values["all"], abs=1e-3)  # splits are drawn
    assert (values["unread"] < -0.02) == (late_n_cut < N)


def test_an_answer_that_is_read_at_last_makes_the_whole_gain_where_none_was_read_before() -> None:
    frame = evidence_of(np.zeros(50, dtype=np.int64), np.full(50, 32)).frames["read_counts"]
    frame.loc[frame["checkpoint_id"] == "base", "n_unread"] = N
    values = values_at(
        replace(
            evidence_of(np.zeros(50), np.full(50, 32)),
            frames={"read_counts": frame, "sampled_counts": frame, "problem_counts": frame},
        ),
        1,
    )
    assert values["unread"] == pytest.approx(0.5, abs=1e-3)


@pytest.mark.parametrize("unread_by_second", [N, 48])
def test_what_the_first_grader_accepts_counts_though_the_second_reads_nothing(unread_by_second: int) -> None:
    """All is the change that the first measured: it accepts 32 of 64 samples of which the second cannot read most."""
    evidence = with_second(evidence_of(np.full(50, 16), np.full(50, 32)), late=np.zeros(50, dtype=np.int64))
    second = evidence.frames["second_counts"]
    second.loc[second["checkpoint_id"] == "late", "n_unread"] = unread_by_second
    values = values_at(evidence, 1)
    assert values["all"] == pytest.approx(0.25)
    assert sum(values.get(part, 0.0) for part in PARTS) == pytest.approx(0.25)


def test_where_neither_side_was_read_nothing_is_undone() -> None:
    frame = evidence_of(np.full(50, 32), np.full(50, 16)).frames["read_counts"]
    frame.loc[frame["problem_id"] < "q025", ["n_correct", "n_unread"]] = [0, N]
    evidence = replace(
        evidence_of(np.zeros(50), np.zeros(50)),
        frames=dict.fromkeys(("read_counts", "sampled_counts", "problem_counts"), frame),
    )
    values = values_at(evidence, 1)
    assert values["unread"] == 0.0
    assert values["all"] == pytest.approx(-0.125)


def test_a_part_that_cannot_be_known_says_what_would_make_it_known() -> None:
    evidence = evidence_of(np.full(50, 32), np.full(50, 16), cut=None, unread=None)
    found = parts_at(evidence, 1)
    assert {scope: one.why for scope, one in found.items() if one.value is None} == {
        "cut_off": "some graded samples have no finish reason",
        "unread": "another tool graded the samples and did not report parse failures",
        "grader": "graded by one verifier; `oversharp regrade` grades the same samples by another, as a separate "
        "series",
        "sharpening": "the base was not sampled at a lower temperature; run the audit with --controls",
        "ways": "no correct sample was parsed for its way: there is no correct sample, or there are more than "
        "3,000,000 samples",
    }


def test_intervals_are_over_clusters_where_problems_are_related() -> None:
    rate = random_rates(problems=60)
    evidence = evidence_of(drawn(rate, 1), drawn(rate * 0.5, 2))
    problems = sorted(set(evidence.frames["read_counts"]["problem_id"]))
    few = replace(evidence, cluster_of={problem: i // 20 for i, problem in enumerate(problems)})
    some = replace(evidence, cluster_of={problem: i // 3 for i, problem in enumerate(problems)})
    assert {one.interval_over for one in parts_at(some, 1).values() if one.value is not None} == {"clusters"}
    assert all(one.low is None and one.why_no_interval for one in parts_at(few, 1).values() if one.value is not None)


@pytest.mark.slow
def test_samples_that_tell_and_samples_that_count_are_apart() -> None:
    """Mean over draws of share times pass@k, against the true share times the true pass@k."""
    hits = np.random.default_rng(0).binomial(16, 0.1, 20_000)
    none = np.zeros(20_000, dtype=np.int64)
    one = count_samples(Gradings(own=Graded(n_P=none + 16, correct_P=hits, truncated_P=none, unparsed_P=none)), [])
    found = group_problems(one, one, 8, guess_rate=0.005, ways=None, rng=np.random.default_rng(1))
    [value_RP] = pass_at_k_by_split(
        found.late.n_P, found.late.correct_RP, [own_effect(one, frozenset(), none + 8, 8)], 8
    )
    at_most_one_of_eight = 0.9**8 + 8 * 0.1 * 0.9**7
    was_lost = found.share[GROUPS.index("lost")] + found.share[GROUPS.index("guesses")]
    assert false_accept_limit(np.array([8]), 0.005).tolist() == [1]
    assert was_lost.mean() == pytest.approx(at_most_one_of_eight, abs=0.01)
    counted = found.group_means(value_RP)[[GROUPS.index("lost"), GROUPS.index("guesses")]].sum(axis=0)
    assert counted.mean() == pytest.approx(at_most_one_of_eight * (1 - 0.9**8), abs=0.01)


def test_what_is_taken_of_all_samples_is_what_was_observed() -> None:
    """With all causes present, k of all samples: pass@k of the counts, to the last digit."""
    full = np.full(4, 20)
    graded = Graded(
        n_P=full, correct_P=np.array([0, 1, 5, 9]), truncated_P=np.array([4, 4, 8, 8]), unparsed_P=full // 10
    )
    one = count_samples(Gradings(own=graded), ["cut_off", "unread"])
    effect = own_effect(one, frozenset({"cut_off", "unread"}), np.full(4, 10), 10)
    expected = pass_at_k_each(full, graded.correct_P, np.full(4, 10))
    assert pass_at_k_of_all(one, effect, 10, accepted=False) == pytest.approx(expected, abs=1e-12)
