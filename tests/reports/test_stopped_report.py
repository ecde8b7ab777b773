"""The report on an audit that sampled each problem until it was solved."""

from __future__ import annotations

import re
import shutil
from dataclasses import replace
from pathlib import Path

import duckdb
import numpy as np
import pandas as pd
import pytest

from oversharp.diagnostics.measures import all_measures
from oversharp.diagnostics.store import Store
from oversharp.reports.comparison.pairs import compare_pairs
from oversharp.reports.context import Context
from oversharp.reports.evidence.problem_changes import problem_changes, success_interval
from oversharp.reports.page import build_page, load_page, read_context
from oversharp.reports.problems.section import problems, success
from oversharp.reports.records import Cases, Figure, Table
from oversharp.reports.render import render_page
from oversharp.reports.sections.headline import headline
from oversharp.reports.sections.method import method
from tests.audit.stopped_stores import CAP, CAP_OF_BASE, FIRST, LOST, PROBLEMS, success_rates, write_stopped
from tests.reports.parts import blocks, texts, with_source

pytestmark = [pytest.mark.slow, pytest.mark.xdist_group("stopped report")]


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Stores of the same samples: stopped (of two series), and drawn up to the caps."""
    folder = tmp_path_factory.mktemp("stopped")
    write_stopped(folder / "stopped.duckdb")
    write_stopped(shutil.copy(folder / "stopped.duckdb", folder / "two.duckdb"), name="second", seed=1)
    write_stopped(folder / "capped.duckdb", stopped=False)
    return folder


@pytest.fixture(scope="module")
def contexts(folder: Path) -> dict[str, Context]:
    made = {}
    for name in ("stopped", "two", "capped"):
        with Store.open(folder / f"{name}.duckdb", read_only=True) as store:
            made[name] = read_context(store, list(all_measures().values()), store_name=f"{name}.duckdb")
    return made


def test_the_page_prints_how_many_samples_the_rule_left(folder: Path, contexts: dict[str, Context]) -> None:
    context = contexts["stopped"]
    (card,) = headline(context).cards
    assert card.subtitle.startswith("40 problems, 8 to 64 samples each, until 3 are correct (mean 41), 3 checkpoints")
    lead = " ".join(method(context).lead)
    assert "was sampled 8 to 64 times per problem, the base 8 to 128 times, at" in lead
    assert "A problem was sampled until 3 samples were correct: 41 samples on average, 55 of the base." in lead
    (settings,) = (one for one in blocks(method(context), Table) if one.title == "Sampling settings")
    values = {row[0].text: row[1].text for row in settings.rows}
    assert values["samples per problem"] == "8 to 64, until 3 correct (mean 41.4)"
    assert values["samples per problem of the base"] == "8 to 128, until 3 correct (mean 55.0)"
    (card,) = headline(contexts["capped"]).cards
    assert card.subtitle.startswith("40 problems, 64 samples each, 3 checkpoints")
    with Store.open(folder / "stopped.duckdb", read_only=True) as store:
        html = render_page(load_page(store, list(all_measures().values()), store_name="stopped.duckdb"))
    assert not re.search(r"\bnan\b", html.split("<script")[0])


def test_captions_of_measures_of_the_first_round_mention_it(contexts: dict[str, Context]) -> None:
    mention = f"From the first round of sampling: {FIRST} samples per problem."
    by_name = {f"measure-{name.replace('_', '-')}": one for name, one in all_measures().items()}
    seen = set()
    for section in build_page(contexts["stopped"]).sections:
        for figure in blocks(section, Figure):
            if (measure := by_name.get(figure.figure_id)) is not None:
                assert (mention in figure.caption) == measure.first_round, measure.name
                seen.add(measure.first_round)
    assert seen == {True, False}
    for section in build_page(contexts["capped"]).sections:
        assert not any("first round" in figure.caption for figure in blocks(section, Figure))


def test_problems_are_those_of_all_samples_up_to_the_cap(contexts: dict[str, Context]) -> None:
    stopped, capped = (
        problem_changes(contexts[name].source, contexts[name].series[0]).set_index("problem_id")
        for name in ("stopped", "capped")
    )
    for state in ("lost", "gained"):
        assert set(stopped.index[stopped["state"] == state]) == set(capped.index[capped["state"] == state])
    assert stopped.loc[LOST, ["c_base", "n_base", "c_late", "n_late", "state"]].tolist() == [4, 8, 0, 64, "lost"]
    assert stopped.loc[LOST, "p_adjusted"] < 0.01
    section = problems(contexts["stopped"])
    assert "by an exact likelihood-ratio test with Holm's correction" in section.lead[0]
    assert "expected by chance alone: about 1.5 of each" in section.lead[0]
    assert "Fisher" in problems(contexts["capped"]).lead[0]


def test_gains_are_means_of_estimates_without_bias(contexts: dict[str, Context]) -> None:
    context = contexts["stopped"]
    series = context.series[0]
    rng = np.random.default_rng(5)
    rate_P = rng.beta(0.5, 2.0, 4000)
    ids = [f"{i:05}" for i in range(len(rate_P))]
    frames = []
    for step, is_base in ((0, True), (40, False)):
        rule = series.rule(is_base=is_base)
        assert rule is not None
        n_P, correct_P = rule.hits(rule.draw(rate_P, rng=rng, draws=1)[0])
        counts = {
            "series": "run",
            "step": step,
            "is_base": is_base,
            "problem_id": ids,
            "n": n_P,
            "n_correct": correct_P,
        }
        frames.append(pd.DataFrame(counts).assign(solved=correct_P > 0))
    made = with_source(context, problem_counts=pd.concat(frames))
    changes = problem_changes(made.source, replace(series, problem_ids=frozenset(ids)))
    assert len(changes) == len(ids)
    error = changes["mean_base"].std() / np.sqrt(len(ids))
    assert abs(changes["mean_base"].mean() - rate_P.mean()) < 3 * error
    assert changes["base"].mean() - rate_P.mean() > 3 * error  # the share of correct samples has a bias
    halves = contexts["stopped"].details.halves
    assert set(halves["n_first"]) == set(halves["n_second"]) == {FIRST // 2}
    figure = next(one for one in blocks(success(context), Figure) if one.figure_id == "problem-gain")
    true = success_rates()
    gains = [gain / 100 for gain in figure.panels[0].lines[0].y]
    assert min(gains) - 0.1 < (true[40] - true[0]).mean() < max(gains) + 0.1


def test_a_problem_has_the_counts_at_which_it_stopped_with_an_exact_interval(contexts: dict[str, Context]) -> None:
    (first, *_) = blocks(problems(contexts["stopped"]), Cases)
    counts, modes = first.cases[0].tables
    assert "Number of samples in the first round with" in modes.note
    assert texts(counts) == [
        ["0", "4 / 8", "0.50 [0.16, 0.84]"],
        ["20", "4 / 16", "0.25 [0.07, 0.51]"],
        ["40", "0 / 64", "0.00 [0.00, 0.06]"],
    ]
    rule = contexts["stopped"].series[0].rule(is_base=False)
    low, high = success_interval(np.array([4, 1, 2]), np.array([16, 64, 8]), rule)
    assert low[0] < 0.25 < high[0]
    assert (low[2], high[2]) == (0.0, 1.0)  # the rule does not stop at 2 of 8
    assert success_interval(np.array([4]), np.array([16]))[0][0] == pytest.approx(0.0727, abs=1e-4)


def test_two_series_are_compared_by_their_estimates_without_bias(
    contexts: dict[str, Context], folder: Path, tmp_path: Path
) -> None:
    (pair,) = compare_pairs(contexts["two"])
    at_cap = {row.k: row for row in pair.rows}
    assert max(at_cap) == CAP // 2
    source = contexts["two"].source
    for name, place in (("run", "first"), ("second", "second")):
        found = source.value_at("pass_at_k", name, 40, k=8)
        assert found is not None
        series = pair.first if place == "first" else pair.second
        assert series.name == name
        assert getattr(at_cap[8], place) == pytest.approx(float(found["value"]))
    path = Path(shutil.copy(folder / "two.duckdb", tmp_path))
    with duckdb.connect(str(path)) as database:
        database.execute("DELETE FROM samples WHERE checkpoint_id = 'run-40' AND sample_index = 3")
    with Store.open(path, read_only=True) as store:
        context = read_context(store, list(all_measures().values()), store_name="two.duckdb")
    (pair,) = compare_pairs(context)
    assert pair.why == "some problems of run lack samples of the stopping rule"
    build_page(context)


def test_a_page_of_an_audit_under_way_leaves_out_problems_without_all_samples(folder: Path, tmp_path: Path) -> None:
    path = Path(shutil.copy(folder / "stopped.duckdb", tmp_path))
    with duckdb.connect(str(path)) as database:
        chosen = [PROBLEMS[0].problem_id, PROBLEMS[7].problem_id]
        delete = (
            "DELETE FROM samples WHERE checkpoint_id = 'run-40' AND list_contains(?, problem_id) AND sample_index > 9"
        )
        database.execute(delete, [chosen])
    with Store.open(path, read_only=True) as store:
        context = read_context(store, list(all_measures().values()), store_name="stopped.duckdb")
    changes = problem_changes(context.source, context.series[0])
    assert len(changes) == len(PROBLEMS) - 2
    assert not set(chosen) & set(changes["problem_id"])
    build_page(context)
    assert context.series[0].n_base == CAP_OF_BASE
