from itertools import combinations

import numpy as np
import pytest

from oversharp.diagnostics.measures import get_measure
from oversharp.diagnostics.measures.coverage.majority_at_k import majority_shares
from oversharp.diagnostics.measures.examples import tiny_evidence

COLUMNS = "checkpoint_id problem_id answer mode correct n n_planned"


def findings(rows, n, ks):
    return {
        (f.checkpoint_id, f.k): f
        for f in get_measure("majority_at_k")(tiny_evidence("answer_counts", COLUMNS, rows, n=n, ks=ks))
    }


def voted(samples: str, k: int) -> float:
    """Over all subsets: ``a`` is correct, ``-`` gave no answer; of the leading answers one is taken at random."""
    won = []
    for subset in combinations(samples, k):
        votes = {answer: subset.count(answer) for answer in set(subset) - {"-"}}
        leading = [answer for answer, n in votes.items() if n == max(votes.values())]
        won.append(leading.count("a") / max(1, len(leading)))
    return float(np.mean(won))


@pytest.mark.parametrize(("samples", "k"), [("aaabbc", 3), ("aabbcc", 4), ("aa----", 2), ("abbbcd--", 5)])
def test_a_vote_is_the_mean_over_all_subsets(samples: str, k: int):
    answers = sorted(set(samples) - {"-"})
    count_A = np.array([samples.count(answer) for answer in answers])
    correct_A = np.array([answer == "a" for answer in answers])
    rng = np.random.default_rng(0)
    shares = majority_shares(count_A, correct_A, samples.count("-"), [1, 2, k], rng=rng, draws=40_000)
    assert shares == pytest.approx([samples.count("a") / len(samples), voted(samples, 2), voted(samples, k)], abs=0.01)


def test_at_one_response_it_is_the_accuracy_exactly():
    found = findings([("base", "q1", "7", None, True, 1, 3), ("base", "q1", None, None, False, 2, 3)], 3, (1,))
    assert found["base", 1].value == 1 / 3


def test_correct_answers_of_one_mode_are_one_vote_and_wrong_ones_of_other_texts_are_not():
    rows = [("base", "q1", "0.5", "half", True, 2, 5), ("base", "q1", "1/2", "half", True, 1, 5)]
    assert findings([*rows, ("base", "q1", "3", None, False, 2, 5)], 5, (5,))["base", 5].value == 1.0
    wrong = [("base", "q1", "0.4", None, False, 2, 5), ("base", "q1", "2/5", None, False, 2, 5)]
    assert findings([*wrong, ("base", "q1", "7", "7", True, 1, 5)], 5, (5,))["base", 5].value == 0.0


def test_a_response_without_an_answer_does_not_vote():
    rows = [("base", "q1", None, None, False, 3, 4), ("base", "q1", "7", "7", True, 1, 4)]
    assert findings(rows, 4, (4,))["base", 4].value == 1.0
    assert findings([("base", "q1", None, None, False, 4, 4)], 4, (2, 4))["base", 2].value == 0.0


def test_equal_counts_give_equal_shares_at_every_checkpoint_and_a_planted_shift_shows():
    def rows(checkpoint, right):
        return [
            (checkpoint, f"q{i:02}", answer, None, answer == "a", n, 20)
            for i in range(30)
            for answer, n in (("a", right), ("b", 20 - right))
        ]

    found = findings([*rows("base", 8), *rows("twin", 8), *rows("late", 14)], 20, (7,))
    assert found["base", 7].value == found["twin", 7].value
    assert found["base", 7].high < found["late", 7].low


def test_too_few_samples_and_a_checkpoint_that_lacks_some_have_reasons():
    rows = [("base", "q1", "7", "7", True, 4, 4), ("late", "q1", "7", "7", True, 3, 4)]
    found = findings(rows, 4, (2, 8))
    assert found["base", 8].why == "pass@8 needs at least 8 samples per problem; there are 4"
    assert "0 of 1 problems have exactly 4 graded samples here" in found["late", 2].why
