import numpy as np
import pytest

from oversharp.diagnostics.measures.kernel.gradients.examples import gradients, tiny_kernels
from oversharp.diagnostics.measures.kernel.prediction import kernel_prediction


def predicted(kernel, rows, logps):
    """Scope → finding of the second of two checkpoints with this kernel."""
    findings = kernel_prediction(tiny_kernels({"base": kernel, "late": kernel}, rows, logps=logps))
    return {finding.scope: finding for finding in findings}


def softmax_world(step_size, roles=("own own", "own", "own", "")):
    """Two problems share a linear softmax over four responses; one step on problem a, the panel is all of both."""
    rng = np.random.default_rng(0)
    features = rng.normal(size=(2, 4, 5))
    theta = rng.normal(size=5)

    def logps(weights):
        logits = features @ weights
        return logits - np.log(np.exp(logits).sum(axis=1, keepdims=True))

    gradient = features - np.einsum("pi,pid->pd", np.exp(logps(theta)), features)[:, None]
    rows = [(problem, f"panel {roles[i] if problem == 'a' else ''}", i < 2) for problem in "ab" for i in range(4)]
    # own draws: two of the first (correct), one each of the second (correct) and third (wrong): A by hand
    p = 3 / 4
    good, bad = (1 - p) / np.sqrt(p * (1 - p)), -p / np.sqrt(p * (1 - p))
    pull = np.array([2 * good, good, bad, 0.0])
    after = theta + step_size * np.einsum("i,id->d", pull, gradient[0])
    kernel = gradients(*gradient.reshape(8, 5))
    return kernel, rows, {"base": logps(theta).ravel(), "late": logps(after).ravel()}


def test_a_small_step_of_plain_gradient_is_foretold():
    kernel, rows, logps = softmax_world(1e-4)
    finding = predicted(kernel, rows, logps)["own samples"]
    assert finding.value > 0.9999
    assert finding.n == 8


def test_a_large_step_is_foretold_less_well():
    small, large = (
        predicted(kernel, rows, logps)["own samples"].value
        for kernel, rows, logps in (softmax_world(1e-4), softmax_world(3.0))
    )
    assert 1 - large > 1000 * (1 - small)


def test_a_step_backwards_is_told_apart():
    kernel, rows, logps = softmax_world(-1e-4)
    assert predicted(kernel, rows, logps)["own samples"].value < -0.9999


def test_the_training_batch_has_its_own_scope():
    kernel, rows, logps = softmax_world(1e-4)
    rows = [(problem, roles.replace("own", "batch"), correct) for problem, roles, correct in rows]
    findings = predicted(kernel, rows, logps)
    assert findings["training batch"].value > 0.9999
    assert "temperature 1" in findings["own samples"].why


def test_responses_are_matched_by_what_they_are_not_by_their_row(found):
    kernel, rows, logps = softmax_world(1e-4)
    evidence = tiny_kernels({"base": kernel, "late": kernel}, rows, logps=logps)
    members = evidence.frames["kernel_members"]
    late = members["checkpoint_id"] == "late"
    members.loc[late, "position"] = 7 - members.loc[late, "position"]
    assert found(kernel_prediction(evidence))["late", "own samples"].value > 0.9999


def test_a_response_that_the_later_kernel_lacks_is_left_out(found):
    kernel, rows, logps = softmax_world(1e-4)
    evidence = tiny_kernels({"base": kernel, "late": kernel}, rows, logps=logps)
    members = evidence.frames["kernel_members"]
    gone = (members["checkpoint_id"] == "late") & (members["position"] == 0) & (members["role"] == "panel")
    evidence.frames["kernel_members"] = members[~gone]
    finding = found(kernel_prediction(evidence))["late", "own samples"]
    assert finding.value > 0.9999
    assert finding.n == 7


def plain(share, measured):
    return np.corrcoef(share, measured)[0, 1]


def ranked(share, measured):
    return plain(*(np.argsort(np.argsort(values)) for values in (share, measured)))


def jackknifed(correlation, share_PB, measured):
    """Half of the interval of z over four problems; batch i, a column, is of problem i and left out with it."""
    z = []
    for i in range(4):
        rest = np.arange(len(measured)) // (len(measured) // 4) != i
        kept = [batch for batch in (0, 1) if batch != i]
        z.append(np.arctanh(correlation(share_PB[rest][:, kept].sum(axis=1), measured[rest])))
    return 3.182446 * np.sqrt(3 / 4 * np.sum((z - np.mean(z)) ** 2))


def test_the_interval_leaves_out_problems_and_their_batches():
    rng = np.random.default_rng(2)
    fixed = [(f"q{i // 3}", "panel own" if i in (0, 3) else "panel", True) for i in range(12)]
    rows = [("q0", "own", False), *fixed, ("q1", "own", False)]
    kernel = gradients(*rng.normal(size=(14, 6)))
    share = np.stack([kernel[1:13, 1] - kernel[1:13, 0], kernel[1:13, 4] - kernel[1:13, 13]], axis=1)
    measured = share.sum(axis=1) + 2 * rng.normal(size=12)
    logps = {"base": np.full(14, -50.0), "late": np.array([-50.0, *(-50 + measured), -50.0])}
    finding = predicted(kernel, rows, logps)["own samples"]
    assert finding.value == pytest.approx(plain(share.sum(axis=1), measured))
    half = jackknifed(plain, share, measured)
    assert finding.low == pytest.approx(np.tanh(np.arctanh(finding.value) - half))
    assert finding.high == pytest.approx(np.tanh(np.arctanh(finding.value) + half))


def test_a_single_training_problem_says_nothing_of_others():
    rng = np.random.default_rng(3)
    rows = [*[(f"q{i // 3}", "panel", True) for i in range(12)], ("t", "batch", True), ("t", "batch", False)]
    kernel = gradients(*rng.normal(size=(14, 6)))
    logps = {"base": np.full(14, -50.0), "late": -50 + rng.normal(size=14)}
    finding = predicted(kernel, rows, logps)["training batch"]
    assert finding.value is not None
    assert finding.low is None


def test_reasons_for_no_prediction(found):
    rows = [("q", "panel own", True), ("q", "panel own", False), ("q", "panel", True)]
    kernel = np.eye(3)
    still = predicted(kernel, rows, None)
    assert still["own samples"].why.startswith("fewer than three fixed responses, or all of them changed equally")
    assert still["training batch"].why == "the run directory contains no responses of the trainer between the two"
    broken = found(kernel_prediction(tiny_kernels({"base": kernel}, rows, why={"late": "NaN in the weights"})))
    assert broken["late", "own samples"].why == "NaN in the weights"
    assert ("base", "own samples") not in broken


def test_one_huge_gradient_carries_r_but_not_the_ranks():
    rng = np.random.default_rng(5)
    rows = [("t", "own", True), ("t", "own", False), *[(f"q{i // 3}", "panel", True) for i in range(12)]]
    gradient = rng.normal(size=(14, 6))
    gradient[2] += 1e4 * (gradient[0] - gradient[1])
    kernel = gradients(*gradient)
    share = kernel[2:, 0] - kernel[2:, 1]
    measured = np.array([5.0, *rng.normal(size=11)])
    logps = {"base": np.full(14, -50.0), "late": np.array([-50.0, -50.0, *(-50 + measured)])}
    findings = predicted(kernel, rows, logps)
    ranks = findings["own samples, ranks"]
    assert findings["own samples"].value > 0.8
    assert ranks.value == pytest.approx(ranked(share, measured))
    assert ranks.value < 0.5
    assert ranks.n == 12


def test_the_interval_of_ranks_ranks_anew_without_each_problem():
    rng = np.random.default_rng(6)
    rows = [(f"q{i // 4}", "panel own" if i < 2 else "panel", i != 1) for i in range(16)]
    kernel = gradients(*rng.normal(size=(16, 6)))
    # a second batch, so that a prediction is left without the first
    rows[4], rows[5] = ("q1", "panel own", True), ("q1", "panel own", False)
    measured = kernel[:, 0] - kernel[:, 1] + 3 * rng.normal(size=16)
    logps = {"base": np.full(16, -50.0), "late": -50 + measured}
    share_PB = np.stack([kernel[:, 0] - kernel[:, 1], kernel[:, 4] - kernel[:, 5]], axis=1)
    finding = predicted(kernel, rows, logps)["own samples, ranks"]
    assert finding.value == pytest.approx(ranked(share_PB.sum(axis=1), measured))
    half = jackknifed(ranked, share_PB, measured)
    assert finding.low == pytest.approx(np.tanh(np.arctanh(finding.value) - half))
