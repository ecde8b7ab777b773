"""What the benchmark of sampling says of pass@1 is right: the harness's metric, and when two runs differ."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import yaml

from benchmarks.speed.sampling_peers import METRIC, TASK, pass_at_1_difference


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
