from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest
import torch

from benchmarks.calibration import demo_truth
from oversharp.diagnostics.tasks import countdown
from oversharp.trainers.worlds.base import build_model, build_tokenizer


def test_exact_values_of_two_queries_by_hand() -> None:
    # query 0 has modes of .4 and .1, query 1 one mode of .001 that was .3 under base
    base_logp = np.log([0.2, 0.2, 0.3])
    truth = demo_truth.exact_truth(np.log([0.4, 0.1, 0.001]), base_logp, [2, 1])
    assert truth.pass_at_1 == pytest.approx((0.5 + 0.001) / 2)
    assert truth.pass_at_8 == pytest.approx((1 - 0.5**8 + 1 - 0.999**8) / 2)
    assert truth.mode_entropy_nats == pytest.approx(-(0.8 * math.log(0.8) + 0.2 * math.log(0.2)) / 2)
    assert truth.modes_fallen_10x == pytest.approx(1 / 3)
    assert truth.problems_lost == 0.5


def test_base_against_itself_has_lost_nothing() -> None:
    logp = np.log([0.5, 0.5, 0.3])
    truth = demo_truth.exact_truth(logp, logp, [2, 1])
    assert (truth.modes_fallen_10x, truth.problems_lost) == (0.0, 0.0)
    assert truth.pass_at_128 == pytest.approx((1 + 1 - 0.7**128) / 2)


def test_every_mode_is_scored_with_its_end_token(tmp_path: Path) -> None:
    model = build_model(seed=0).eval()
    tokenizer = build_tokenizer()
    model.save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    problem = countdown.problems(limit=1)[0]
    logp = demo_truth.mode_logp(tmp_path, [problem])
    for mode, measured in zip(problem.modes, logp, strict=True):
        prompt, response = tokenizer(problem.prompt)["input_ids"], tokenizer(f"{mode} <eos>")["input_ids"]
        with torch.no_grad():
            logits = model(torch.tensor([prompt + response])).logits[0, len(prompt) - 1 : -1]
        naive = logits.log_softmax(-1)[range(len(response)), response].sum().item()
        assert measured == pytest.approx(naive, abs=1e-4)


def test_a_value_outside_the_seeds_is_said_to_differ() -> None:
    reference = {measure: [0.50, 0.52, 0.48, 0.51] for measure in demo_truth.MEASURES}
    values = dict.fromkeys(demo_truth.MEASURES, 0.5)
    inside = demo_truth.ExactTruth(**values)
    outside = demo_truth.ExactTruth(**{**values, "pass_at_8": 0.8})
    assert all(line.agrees for line in demo_truth.compare("grpo", [inside], reference))
    differing = [line.measure for line in demo_truth.compare("grpo", [outside], reference) if not line.agrees]
    assert differing == ["pass_at_8"]
