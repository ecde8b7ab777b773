"""What the benchmark of sampling says of pass@1 is right: the harness's metric, and when two runs differ."""

from __future__ import annotations

import json
from typing import Any

import numpy as np
import pytest
import yaml

from benchmarks.speed.results import RESULTS, digits
from benchmarks.speed.sampling_peers import METRIC, TASK, pass_at_1_difference
from benchmarks.speed.sampling_rounds import GOAL, summary


def metric(doc: dict[str, Any], results: list[Any]) -> dict[str, float]:
    defined: dict[str, Any] = {}
    exec(METRIC, defined)
    return defined["process_results"](doc, results)


def test_the_harness_counts_every_repeat_as_our_verifier_does() -> None:
    doc = {"modes": ["1 + 2 * 3", "1 + 3 * 2"]}
    responses = ["1 + 2 * 3 ", "1 + 2 + 3", "1 + 3 * 2", "1 + 2 * 3 4"]
    assert metric(doc, responses) == {"correct": 0.5}
    assert metric(doc, [responses]) == {"correct": 0.5}


def test_the_harness_draws_and_keeps_n_samples_without_truncating_the_law() -> None:
    class Loader(yaml.SafeLoader):
        """Takes the harness's tag for a function as its name."""

    Loader.add_constructor("!function", lambda loader, node: node.value)
    task = yaml.load(TASK.format(data="problems.jsonl", n=16, max_tokens=6), Loader)
    assert (task["repeats"], task["filter_list"][0]["filter"]) == (16, [{"function": "take_first_k", "k": 16}])
    assert task["generation_kwargs"] == {"do_sample": True, "temperature": 1.0, "max_gen_toks": 6, "until": ["<eos>"]}
    assert task["doc_to_text"] == "{{prompt}}"


def test_the_difference_of_two_runs_has_the_spread_that_is_told() -> None:
    rng = np.random.default_rng(0)
    p_P = rng.uniform(size=20)
    z = []
    for _ in range(300):
        ours, theirs = (dict(enumerate(rng.binomial(64, p_P) / 64)) for _ in range(2))
        difference, error = pass_at_1_difference(ours, theirs, n=64)
        z.append(difference / error)
    assert np.std(z) == pytest.approx(1, abs=0.15)


def test_runs_of_other_problems_are_not_compared() -> None:
    with pytest.raises(ValueError, match="not the same"):
        pass_at_1_difference({"a": 0.5}, {"b": 0.5}, n=8)


def turn(design: str, tokens: int, sampling_s: float, audit_cpu_s: float) -> dict[str, Any]:
    return {
        "design": design,
        "samples": tokens // 20,
        "tokens": tokens,
        "sampling_s": sampling_s,
        "sampling_cpu_s": 2 * sampling_s,
        "steps_cpu_s": {"draw": 2 * sampling_s + 5.0},
        "audit_wall_s": 50.0,
        "audit_cpu_s": audit_cpu_s,
    }


def test_rounds_are_compared_with_uniform_sampling_by_the_median_of_the_turns() -> None:
    rows = [turn("rounds", 100, s, 40.0) for s in (1.0, 1.25, 9.0)] + [turn("uniform", 400, 4.0, 80.0)]
    found = summary(rows)
    assert found["tokens_per_s"] == {"rounds": 80.0, "uniform": 100.0}
    assert found["tokens_per_cpu_s"] == {"rounds": 40.0, "uniform": 50.0}
    assert found["speed_over_uniform"] == found["speed_over_uniform_cpu"] == 0.8
    assert (found["share_of_tokens"], found["share_of_samples"]) == (0.25, 0.25)
    assert found["audit_over_saving"] == digits(40.0 / (0.25 * (2 * 4.0 + 5.0)))


def test_published_rounds_reach_their_speed_and_draw_samples_of_the_uniform_audit() -> None:
    entries = json.loads((RESULTS / "sampling_rounds.json").read_text(encoding="utf-8"))["series"]
    assert "smollm2" in entries
    assert all(entry["same_samples"]["without_counterpart"] == 0 for entry in entries.values())
    for entry in (entry for entry in entries.values() if entry["settings"]["sampler"] == "vllm"):
        assert entry["speed_over_uniform_cpu"] >= GOAL
        for steps in (audit["steps"] for audit in entry["audits"]):
            assert (steps["start"], steps["swap"]) == (1, steps["probe"] - 1)  # one probe per checkpoint
