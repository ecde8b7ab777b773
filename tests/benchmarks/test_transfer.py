"""Batches are what their names say, and the four tasks list what is right, and nothing that is trained on."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest

from benchmarks.objectives import batches, transfer
from benchmarks.objectives.batches import (
    BATCH_PROMPTS,
    N_TRIPLES,
    PER_TRIPLE,
    arranged,
    chosen_triples,
    matched_difference,
)
from benchmarks.objectives.runs import COLUMNS, Outcome, numbers_of
from benchmarks.objectives.transfer_tasks import TASKS, all_problems, audited, build_tokenizer, example
from oversharp.diagnostics.verifiers.modes import ModesVerifier


def test_batches_hold_whole_triples_or_no_two_of_one() -> None:
    triples = chosen_triples(seed=1)
    assert (len(triples), {len(triple) for triple in triples}) == (N_TRIPLES, {PER_TRIPLE})
    together, spread = arranged(triples, "together"), arranged(triples, "spread")
    assert {one.problem_id for one in together} == {one.problem_id for one in spread}
    for first in range(0, len(together), BATCH_PROMPTS):
        batch = slice(first, first + BATCH_PROMPTS)
        assert len({numbers_of(one) for one in together[batch]}) == BATCH_PROMPTS // PER_TRIPLE
        assert len({numbers_of(one) for one in spread[batch]}) == BATCH_PROMPTS


def test_the_problem_file_of_an_arrangement_has_its_order(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batches, "OUT", tmp_path)
    lines = batches.problems_path(0, "spread").read_text(encoding="utf-8").splitlines()
    assert [json.loads(line)["prompt"] for line in lines] == [
        one.prompt for one in arranged(chosen_triples(0), "spread")
    ]


def test_pairs_are_compared_where_both_reach_the_level() -> None:
    def course(pass_at_1: float, pass_at_128: float) -> batches.Course:
        base, last = (
            Outcome(**(dict.fromkeys(COLUMNS, 0.0) | {"pass_at_1": share, "pass_at_128": large}))
            for share, large in ((0.25, 1.0), (pass_at_1, pass_at_128))
        )
        own = {0: base, 160: last}
        return batches.Course(all=own, same_numbers=own, other_numbers=own)

    # halfway to .45 at .35: pass@128 .9 against .8; the second pair never gets there
    found = matched_difference([course(0.45, 0.8), course(0.3, 0.9)], [course(0.45, 0.6), course(0.45, 0.9)])
    assert found is not None
    assert (found["mean"], found["n"]) == (pytest.approx(0.1), 1)
    assert matched_difference([course(0.3, 0.9)], [course(0.3, 0.9)]) is None


@pytest.mark.parametrize("task", TASKS)
def test_every_listed_way_is_right_and_survives_the_tokenizer(task: str) -> None:
    tokenizer, verifier, rng = build_tokenizer(), ModesVerifier(), random.Random(0)
    for problem in audited(task):
        assert len(set(problem.modes)) == len(problem.modes)
        assert all(grade.correct for grade in verifier.grade([(problem, mode) for mode in problem.modes]))
        for text in (problem.prompt, *problem.modes, example(problem, rng)):
            assert tokenizer.decode(tokenizer(text)["input_ids"]) == text
    drawn = [(problem, example(problem, rng)) for problem in audited(task) for _ in range(50)]
    share = sum(grade.correct for grade in verifier.grade(drawn)) / len(drawn)
    assert 0.4 <= share < 0.5  # four in ten, and a slip that is none


def test_no_audited_addition_is_trained_on(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transfer, "OUT", tmp_path)
    trained = {json.loads(line)["prompt"] for line in transfer.problems_path().read_text(encoding="utf-8").splitlines()}
    assert len(trained) == len(all_problems("addition")) - len(audited("addition"))
    assert not trained & {one.prompt for one in audited("addition")}
