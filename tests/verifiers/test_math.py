"""The "math" verifier: what counts as an answer, what is equal, and what a hanging answer costs."""

import multiprocessing
import os
import signal
import time

import pytest

from oversharp.diagnostics.records.errors import ProblemError, VerifierError
from oversharp.diagnostics.records.types import NO_ANSWER, Grade, Problem
from oversharp.diagnostics.verifiers.killable import Outcome
from oversharp.diagnostics.verifiers.math import MathVerifier, StrictMathVerifier

#: Hangs in C: neither SIGALRM nor a thread gets it out.
TOWER = r"\boxed{9^{9^{9^{9}}}}"


def problem(gold: str) -> Problem:
    return Problem(task="t", prompt="p", gold=gold, verifier="math")


def grade(verifier: MathVerifier, gold: str, answer: str) -> Grade:
    return verifier.grade([(problem(gold), f"\\boxed{{{answer}}}")])[0]


@pytest.mark.slow
def test_of_different_boxes_the_last_counts_and_by_the_strict_verifier_none(math_verifier: MathVerifier) -> None:
    texts = [r"\boxed{3}. Or so I thought: \boxed{4}", r"\boxed{4} again, so \boxed{ 4}", r"\boxed{4}", "#### 4"]
    items = [(problem("4"), text) for text in texts]
    with StrictMathVerifier(timeout_s=30.0, workers=1) as strict:
        graded = strict.grade(items)
    assert [got.correct for got in math_verifier.grade(items)] == [True] * 4
    assert [got.n_boxed for got in graded] == [2, 1, 1, 0]
    assert [got.state for got in graded] == ["ambiguous", "ok", "ok", "ok"]
    assert [got.correct for got in graded] == [False, True, True, True]


def test_an_ambiguous_grade_says_why_and_quotes_the_answer(math_verifier: MathVerifier) -> None:
    [got] = math_verifier.grade([(problem("42"), "The answer is 42 or 41.")])
    assert (got.state, got.answer, got.mode, got.reward) == ("ambiguous", NO_ANSWER, None, 0.0)
    assert got.reason == "no single answer: one of several ('42 or 41')"


@pytest.mark.slow
@pytest.mark.parametrize(
    ("gold", "answer", "correct"),
    [
        (r"2\sqrt{3}", r"\sqrt{12}", True),
        (r"2\sqrt{3}", "2", False),  # an unboxed gold would be read as 2
        ("x^2+1", "1+x^2", True),  # an unboxed gold would be read as nothing
        (r"$\frac12$", "0.5", True),
        (r"so \boxed{7}.", "7", True),
        ("1/3", "0.333333", True),
        ("1/3", "0.33", False),
        ("18", r"\$18", True),
        (r"\text{Evelyn}", "Evelyn", True),
        ("5", "x = 5", True),
        ("(1,2)", "1<x<2", False),
    ],
)
def test_equality(math_verifier: MathVerifier, gold: str, answer: str, correct: bool) -> None:
    got = grade(math_verifier, gold, answer)
    assert (got.correct, got.state) == (correct, "ok")


@pytest.mark.slow
def test_the_gold_comes_first(math_verifier: MathVerifier) -> None:
    # math-verify is not symmetric: verify("1<x<2", "(1,2)") holds, the reverse does not
    assert grade(math_verifier, "1<x<2", "(1,2)").correct
    assert not grade(math_verifier, "(1,2)", "1<x<2").correct


def test_every_correct_answer_has_the_key_of_the_gold(math_verifier: MathVerifier) -> None:
    keys = {grade(math_verifier, "1/2", answer).answer for answer in ("0.5", r"50\%", r"\frac{2}{4}", "1/2")}
    assert keys == {"1/2"}


@pytest.mark.slow
@pytest.mark.parametrize(
    ("answers", "key"),
    [
        (("2.5", r"\frac{10}{4}", r"250\%", "x = 2.5"), "5/2"),
        ((r"\sqrt{12}", r"2\sqrt{3}"), "3.46410161514"),
        (("(x+1)^2", "x^2+2x+1", "1+x(x+2)"), "x**2 + 2*x + 1"),
        ((r"\{2,1\}", "1,2"), "{1, 2}"),
        ((r"10^{20}", "100000000000000000000"), "100000000000000000000"),
    ],
)
def test_equal_wrong_answers_share_a_key(math_verifier: MathVerifier, answers: tuple[str, ...], key: str) -> None:
    grades = [grade(math_verifier, "7", answer) for answer in answers]
    assert {got.answer for got in grades} == {key}
    assert {got.mode for got in grades} == {key}
    assert not any(got.correct for got in grades)


def test_keys_do_not_chain_through_an_intransitive_equality(math_verifier: MathVerifier) -> None:
    # 1/2 = 50 % and 50 % = 50 for math-verify: classes built by comparing answers would merge 1/2 and 50
    texts = [r"\boxed{1/2}", r"\boxed{50\%}", r"\boxed{50}"]
    answers = [got.answer for got in math_verifier.grade([(problem("7"), text) for text in texts])]
    assert answers == ["1/2", "1/2", "50"]


@pytest.mark.slow
def test_grades_do_not_depend_on_order_or_company() -> None:
    texts = [r"\boxed{1/2}", r"\boxed{50\%}", r"\boxed{50}", r"\boxed{0.5}", "none", r"\boxed{x+1}", r"\boxed{1+x}"]
    items = [(problem(gold), text) for gold in ("1/2", "50", "x+1") for text in texts]
    with MathVerifier(workers=2) as forwards, MathVerifier(workers=1) as backwards:
        together = forwards.grade(items)
        apart = [backwards.grade([item])[0] for item in reversed(items)]
    assert together == apart[::-1]


def test_a_number_too_large_to_label_is_still_graded(math_verifier: MathVerifier) -> None:
    got = grade(math_verifier, "7", r"\sqrt{2}^{\sqrt{3}^{\sqrt{5}^{99}}}")
    assert (got.state, got.reward, got.answer) == ("ok", 0.0, r"\sqrt{2}^{\sqrt{3}^{\sqrt{5}^{99}}}")


@pytest.mark.parametrize("text", ["He has 7 pears", r"\boxed{}", "", r"\boxed{" + "1+" * 600 + "1}"])
def test_no_answer_is_a_state_and_not_a_wrong_answer(math_verifier: MathVerifier, text: str) -> None:
    [got] = math_verifier.grade([(problem("7"), text)])
    assert (got.state, got.answer, got.mode, got.reward) == ("parse_fail", NO_ANSWER, None, 0.0)
    assert got.reason


@pytest.mark.parametrize("gold", ["7", "-3.5", r"2\sqrt{3}", "x^2+1", r"\text{Evelyn}", r"so \boxed{7}", "(1,2]"])
def test_golds_that_can_be_graded(math_verifier: MathVerifier, gold: str) -> None:
    math_verifier.check_gold(problem(gold))


@pytest.mark.parametrize("gold", ["", "$$", "foo!@#", "1" * 2000])
def test_a_gold_that_cannot_be_parsed_is_an_error_of_the_data(math_verifier: MathVerifier, gold: str) -> None:
    with pytest.raises(ProblemError, match="answer"):
        math_verifier.check_gold(problem(gold))


@pytest.mark.parametrize(
    ("late", "gold", "is_gold"), [(2, "9^9", True), (3, "9^9", False), (3, r"\sum_{k=0}^{n} a_k", True)]
)
def test_a_gold_that_no_worker_finishes_is_asked_of_again_and_then_compared_as_it_is_written(
    late: int, gold: str, is_gold: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    asked = []

    def answered(function: object, calls: list[tuple[str]]) -> list[Outcome[str]]:
        asked.extend(calls)
        is_late = len(asked) <= late
        return [Outcome(value=None if is_late else "", state="timeout" if is_late else "ok", reason="late")]

    with MathVerifier() as verifier:
        monkeypatch.setattr(verifier._pool, "map", answered)
        if is_gold:
            verifier.check_gold(problem(gold))
        else:
            with pytest.raises(ProblemError, match="does not finish"):
                verifier.check_gold(problem(gold))
    assert len(asked) == 3


@pytest.mark.slow
def test_a_poisoned_answer_costs_its_timeout_once_and_nothing_else() -> None:
    # one worker: whatever the poison holds up would show
    with MathVerifier(timeout_s=1.0, workers=1) as verifier:
        verifier.grade([(problem("3"), r"\boxed{4}")])  # start the worker outside the measured time
        texts = [rf"\boxed{{{number}}}" for number in range(40)]
        texts[20:20] = [TOWER, TOWER]
        start = time.perf_counter()
        grades = verifier.grade([(problem("3"), text) for text in texts])
        wall_s = time.perf_counter() - start
        again = time.perf_counter()
        verifier.grade([(problem("3"), TOWER)])
        again_s = time.perf_counter() - again
    poisoned = [text == TOWER for text in texts]
    assert [got.state == "timeout" for got in grades] == poisoned
    assert [got.correct for got in grades] == [text == r"\boxed{3}" for text in texts]
    assert grades[20].reason == "no result within 1 s"
    assert grades[20].answer == "9^{9^{9^{9}}}"
    assert wall_s < 3.0
    assert again_s < 0.5


@pytest.mark.slow
def test_workers_killed_from_outside_lose_nothing() -> None:
    with MathVerifier(workers=2) as verifier:
        verifier.grade([(problem("3"), r"\boxed{4}")])
        for worker in multiprocessing.active_children():
            os.kill(worker.pid, signal.SIGKILL)
        grades = verifier.grade([(problem("3"), rf"\boxed{{{number}}}") for number in range(50)])
    assert [got.state for got in grades] == ["ok"] * 50
    assert [got.correct for got in grades].index(True) == 3


@pytest.mark.slow
def test_a_closed_verifier_leaves_no_process_and_starts_again_when_asked() -> None:
    verifier = MathVerifier(workers=1)
    verifier.grade([(problem("3"), r"\boxed{3}")])
    before = set(multiprocessing.active_children())
    verifier.close()
    assert len(set(multiprocessing.active_children())) == len(before) - 1
    assert verifier.grade([(problem("5"), r"\boxed{5}")])[0].correct
    verifier.close()


@pytest.mark.parametrize("timeout_s", [0.0, -1.0, float("nan")])
def test_a_timeout_that_is_no_time_is_refused(timeout_s: float) -> None:
    with pytest.raises(VerifierError, match="positive number of seconds"):
        MathVerifier(timeout_s=timeout_s)
