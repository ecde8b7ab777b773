from itertools import combinations

import numpy as np
import pytest

from oversharp.diagnostics.measures import get_measure
from oversharp.diagnostics.measures.coverage import majority_at_k
from oversharp.diagnostics.measures.coverage.majority_at_k import Votes, majority_shares
from oversharp.diagnostics.measures.examples import tiny_evidence

COLUMNS = "checkpoint_id problem_id answer mode correct n n_planned"


def findings(rows, n, ks):
    return {
        (f.checkpoint_id, f.k): f
        for f in get_measure("majority_at_k")(tiny_evidence("answer_counts", COLUMNS, rows, n=n, ks=ks))
    }


def voted(samples: str, k: int) -> float:
    """Over all subsets: ``a`` and ``A`` are correct, ``-`` has no answer; of the leading answers one is random."""
    won = []
    for subset in combinations(samples, k):
        votes = {answer: subset.count(answer) for answer in set(subset) - {"-"}}
        leading = [answer for answer, n in votes.items() if n == max(votes.values())]
        won.append(sum(answer in "aA" for answer in leading) / max(1, len(leading)))
    return float(np.mean(won))


def votes_of(*cells: str) -> Votes:
    answers = [sorted(set(samples) - {"-"}) for samples in cells]
    pairs = [(samples, answer) for samples, own in zip(cells, answers, strict=True) for answer in own]
    return Votes(
        count_A=np.array([samples.count(answer) for samples, answer in pairs], dtype=np.int64),
        correct_A=np.array([answer in "aA" for _, answer in pairs], dtype=bool),
        cell_A=np.repeat(np.arange(len(cells)), [len(own) for own in answers]),
        n_C=np.array([len(samples) for samples in cells]),
        place_C=np.linspace(0.0, 0.9, len(cells)),
    )


CELLS = ("aAbbc-", "aabbcc", "aa----", "AAAbbc", "aabcde", "bcdef-", "------", "aaaaaa", "aAAbbbccd-", "bbbbaacd--")


def test_up_to_four_samples_and_all_samples_are_exact():
    shares = majority_shares(votes_of(*CELLS), [1, 2, 3, 4, 6], draws=1)
    for samples, row in zip(CELLS, shares, strict=True):
        assert row[:4] == pytest.approx([voted(samples, k) for k in (1, 2, 3, 4)], abs=1e-14)
        assert len(samples) != 6 or row[4] == voted(samples, 6)
    # by hand: of 3 of aabbcc, 12 of 20 have a pair, of which a has 4, and 8 have one of each: (4 + 8/3) / 20
    assert shares[1, 2] == pytest.approx(1 / 3)


def test_a_vote_of_two_is_the_accuracy_if_all_samples_have_an_answer():
    rng = np.random.default_rng(1)
    cells = ["".join(rng.choice(list("aAbcdefg"), size=40)) for _ in range(20)]
    accuracy = [(samples.count("a") + samples.count("A")) / 40 for samples in cells]
    assert majority_shares(votes_of(*cells), [2])[:, 0] == pytest.approx(accuracy, abs=1e-14)


def test_more_samples_are_the_mean_over_subsets_by_random_orders():
    shares = majority_shares(votes_of(*CELLS), [5, 6, 8], draws=20_000)
    for samples, row in zip(CELLS, shares, strict=True):
        exact = [voted(samples, k) for k in (5, 6, 8) if k <= len(samples)]
        assert row[: len(exact)] == pytest.approx(exact, abs=0.015)


def test_orders_differ_between_problems_and_parts_do_not_change_them(monkeypatch: pytest.MonkeyPatch):
    votes = votes_of(*["a" * 30 + "b" * 30 + "-" * 4] * 200)
    shares = majority_shares(votes, [16], draws=50)
    # one problem has an error of .07; the mean of independent ones .005
    assert abs(shares.mean() - 0.5) < 0.02 < shares.std()
    monkeypatch.setattr(majority_at_k, "_VOTES_AT_ONCE", 1_000)
    assert (majority_shares(votes, [16], draws=50) == shares).all()


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
