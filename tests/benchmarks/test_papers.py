"""A tiny run of all families, as table, record and page; and what the families read off runs."""

from __future__ import annotations

import base64
import hashlib
import itertools
import json
import math
import re
from pathlib import Path

import numpy as np
import pytest

from benchmarks.papers import __main__ as papers
from benchmarks.papers.claim import Effort, Family
from benchmarks.papers.families import FAMILIES, b_expected_update, b_two_stage, c_confidence
from benchmarks.papers.instances import batches, kernels
from benchmarks.papers.page import build_page, page_html
from benchmarks.papers.table import kind_counts, markdown, numbers_text, records, scope_text
from benchmarks.papers.theory.softmax_dynamics import expected_group_update
from benchmarks.papers.toy import is_collapsed, steps_to_collapse
from benchmarks.toy import ToyConfig, ToyRun, cat_world, tabular_world

TINY = Effort(seeds=64, steps=4, instances=40)


@pytest.fixture(scope="module")
def families() -> tuple[Family, ...]:
    return papers.run_families(TINY, workers=1)


def run_of(largest_ST: list[list[float]]) -> ToyRun:
    """A run of the cats whose first label has these probabilities at steps 0, 10, 20."""
    prob_STK = np.array([[[p, 1 - p, 0.0, 0.0] for p in row] for row in largest_ST])
    return ToyRun(
        world=cat_world(),
        config=ToyConfig(steps=20, seeds=len(prob_STK), record_every=10),
        step_T=np.array([0, 10, 20]),
        prob_STK=prob_STK,
        held_out_prob_ST=None,
        logit_STK=None,
    )


@pytest.mark.slow
def test_every_claim_stands_in_table_record_and_page(families: tuple[Family, ...], tmp_path: Path) -> None:
    papers.write_all(families, TINY, out=tmp_path, page=tmp_path / "page.html", wall_s=1.0)
    table = (tmp_path / "papers.md").read_text()
    page = (tmp_path / "page.html").read_text()
    record = json.loads((tmp_path / "papers.json").read_text())
    claims = [claim for family in families for claim in family.claims]
    assert [one["claim_id"] for one in record["claims"]] == [claim.claim_id for claim in claims]
    assert record["effort"] == {"seeds": 64, "steps": 4, "instances": 40, "seed": 0}
    assert {"machine", "versions"} <= set(record)
    for claim in claims:
        assert "| {} |".format(claim.statement.replace("|", "\\|")) in table
    assert page.count("<svg") > len(claims)
    assert len(page.encode()) < 1_000_000
    assert "NaN" not in (tmp_path / "papers.json").read_text()


@pytest.mark.slow
def test_ids_of_claims_and_figures_are_unique(families: tuple[Family, ...]) -> None:
    ids = [claim.claim_id for family in families for claim in family.claims]
    assert len(set(ids)) == len(ids)
    figures = [figure.figure_id for family in families for figure in family.figures]
    assert sorted(figures) == sorted(
        ["a-fig1", "a-fig2", "a-fig3", "a-fig4", "a-fig5", "b-fig1", "b-fig5", "b-fig6", "b-fig7", "c-fig9"]
    )


@pytest.mark.slow
def test_tiles_and_scope_add_up_to_all_claims(families: tuple[Family, ...]) -> None:
    claims = [claim for family in families for claim in family.claims]
    assert sum(kind_counts(claims).values()) == len(claims)
    for card in build_page(families, TINY).headline.cards:
        assert len({tile.change for tile in card.tiles}) == 1
        assert sum(int(tile.value) for tile in card.tiles) == int(card.tiles[0].change.removeprefix("of "))
    assert sum(map(int, re.findall(r"(\d+) (?:over|on|exactly)", scope_text(claims)))) == len(claims)


@pytest.mark.slow
def test_what_was_enumerated_has_no_interval(families: tuple[Family, ...]) -> None:
    checks = {claim.claim_id: claim.checks for family in families for claim in family.claims}
    for claim_id in ("c-eq-9", "c-5-all-wrong", "a-3.1-factor", "a-app-g-numbers"):
        assert {check.estimate.low for check in checks[claim_id]} == {None}


@pytest.mark.slow
def test_many_settings_of_one_outcome_are_one_range(families: tuple[Family, ...]) -> None:
    claims = {claim.claim_id: claim for family in families for claim in family.claims}
    mixed = claims["a-fig1-all-collapse"]
    assert numbers_text(mixed, between="; ").count("G = ") == 12 or len({c.outcome for c in mixed.checks}) == 1
    uniform = claims["a-fig2-squeezed"]
    assert {check.outcome for check in uniform.checks} == {"holds"}
    assert numbers_text(uniform, between="; ").endswith("over 12 settings, 12 of 12 ✓")


@pytest.mark.slow
def test_the_policy_of_the_page_admits_its_own_stylesheet(families: tuple[Family, ...]) -> None:
    html = page_html(build_page(families, TINY))
    styles = re.findall(r"<style>(.*?)</style>", html, flags=re.DOTALL)
    digest = base64.b64encode(hashlib.sha256(styles[0].encode()).digest()).decode()
    assert len(styles) == 1
    assert f"sha256-{digest}" in html
    assert "max-width: 600px" in styles[0]


@pytest.mark.slow
def test_the_same_seed_gives_the_same_table(families: tuple[Family, ...]) -> None:
    one = FAMILIES.index(c_confidence.claims)
    other = c_confidence.claims(TINY)
    assert markdown([other]) == markdown([families[one]])
    assert records([other]) == records([families[one]])
    reseeded = c_confidence.claims(Effort(seeds=64, steps=4, instances=40, seed=1))
    assert records([reseeded]) != records([other])


def test_a_seed_that_never_collapses_counts_as_late() -> None:
    played = run_of([[0.25, 0.96, 0.97], [0.25, 0.5, 0.96], [0.25, 0.5, 0.6], [0.25, 0.97, 0.5]])
    assert steps_to_collapse(played).tolist() == [10, 20, 20, 10]
    assert is_collapsed(played).tolist() == [True, True, False, False]
    assert is_collapsed(played, by_step=10).tolist() == [True, False, False, True]


def test_both_stages_need_a_rise_of_the_explored_action_before_the_better_one_wins() -> None:
    paths = [
        [[0.5, 0.05, 0.45], [0.8, 0.1, 0.1], [0.1, 0.8, 0.1]],  # both
        [[0.5, 0.05, 0.45], [0.52, 0.1, 0.38], [0.1, 0.8, 0.1]],  # a1 hardly rose
        [[0.5, 0.05, 0.45], [0.8, 0.1, 0.1], [0.9, 0.05, 0.05]],  # a2 never won
    ]
    played = ToyRun(
        world=tabular_world(),
        config=ToyConfig(steps=2, seeds=3),
        step_T=np.arange(3),
        prob_STK=np.array(paths),
        held_out_prob_ST=None,
        logit_STK=None,
    )
    assert b_two_stage.shows_both_stages(played).tolist() == [True, False, False]


def test_enumerating_all_groups_gives_the_expected_update_by_hand() -> None:
    # two actions, G = 2: only mixed groups (probability 2·p·q) have advantages, ±½ each: Δz = 2pq·½·(½ + ½)·½
    update_V = b_expected_update.enumerated_update(np.array([0.75, 0.25]), np.array([1.0, 0.0]), 2)
    assert update_V.tolist() == pytest.approx([0.75 * 0.25 / 2, -0.75 * 0.25 / 2])
    policy_V, reward_V = np.array([0.5, 0.3, 0.2]), np.array([1.0, 2.0, 0.0])
    for group_size in (2, 3):
        stated_V = expected_group_update(policy_V, reward_V, group_size=group_size, learning_rate=1.0)
        assert b_expected_update.enumerated_update(policy_V, reward_V, group_size) == pytest.approx(stated_V)


def test_random_instances_are_what_their_description_says() -> None:
    for batch in batches(50, seed=1):
        assert 0 < batch.accuracy < 1
        assert math.isclose(float(batch.count_K @ batch.advantages), 0.0, abs_tol=1e-9)
        assert batch.group_size in (4, 8, 16, 32)
    for repeats, kernel in itertools.chain(
        ((False, kernel) for kernel in kernels(20, 1, repeats=False)),
        ((True, kernel) for kernel in kernels(20, 1, repeats=True)),
    ):
        extremes = kernel.extremes
        assert (len(np.unique(kernel.mode_G)) < len(kernel.mode_G)) == repeats
        assert extremes.rho_min > 0  # A2.1
        assert extremes.lambda_min >= extremes.rho_max  # A2.3
