from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import pytest
import torch

from oversharp.trainers import objectives
from oversharp.trainers.batch import RolloutBatch, concatenate
from oversharp.trainers.config import TrainConfig
from oversharp.trainers.loop import train
from oversharp.trainers.rollouts.engine import OwnEngine
from tests.trainers.batches import rollouts_of
from tests.trainers.runs import EVENS, metrics, problems_at, weights, whole_and_interrupted

pytestmark = pytest.mark.slow

#: Three prompts per batch, so that a quarter is less than one; all responses have one token, so that a punishment of
#: length only has an effect without a baseline.
SETTINGS = {"overlong": "raw_reward+overlong:length=1,buffer=1", "easy_filter": "easy_filter:share=0.4"}


@pytest.mark.parametrize("name", objectives.names())
def test_every_part_trains(config: TrainConfig, name: str) -> None:
    run = train(replace(config, algorithm=SETTINGS.get(name, name), max_steps=2))
    # every response of these runs is truncated, so this filter removes all samples
    assert (weights(run, 0) != weights(run, 2)) == (name != "overlong_filter")
    assert all(line.get("sampler_logp_gap_max", 0.0) < 1e-4 for line in metrics(run)) or "dlc" in name


def test_several_updates_per_batch_change_the_ratio_and_clip(config: TrainConfig, tmp_path: Path) -> None:
    fast = replace(config, learning_rate=3e-2, max_steps=2)
    once = train(replace(fast, output_dir=tmp_path / "once"))
    assert [line["clip_fraction"] for line in metrics(once)] == [0.0, 0.0]
    for name in ("updates_per_batch", "epochs_per_batch"):
        thrice = metrics(train(replace(fast, output_dir=tmp_path / name, **{name: 3})))
        assert max(line["clip_fraction"] for line in thrice) > 0
        # the first batch has the same rows
        assert thrice[0]["samples_skipped"] == metrics(once)[0]["samples_skipped"]


def test_dynamic_sampling_samples_until_enough_groups_are_mixed(config: TrainConfig, tmp_path: Path) -> None:
    mixed = problems_at(tmp_path / "mixed.jsonl", ["never this"], [f"{n} = {n} :" for n in range(1, 7)])
    problems_at(mixed, EVENS, [f"{n} 3 :" for n in range(1, 7)])
    plain = train(replace(config, problems=mixed, max_steps=3, output_dir=tmp_path / "plain"))
    dynamic = train(
        replace(config, problems=mixed, max_steps=3, output_dir=tmp_path / "dynamic", algorithm="dynamic_sampling")
    )
    assert sum(line["frac_zero_std"] for line in metrics(plain)) > 0
    for line in metrics(dynamic):
        assert line["frac_zero_std"] == 0 or line["samples_drawn"] == 4 * config.batch_prompts * config.group_size
        assert line["samples_kept"] == config.batch_prompts * config.group_size
        assert line["samples_per_s"] == pytest.approx(line["samples_drawn"] / line["wall_s"])
    assert max(line["samples_drawn"] for line in metrics(dynamic)) > config.batch_prompts * config.group_size


def test_one_engine_samples_all_rehearsals_of_a_run(config: TrainConfig, monkeypatch: pytest.MonkeyPatch) -> None:
    made: list[OwnEngine] = []
    make = OwnEngine.__init__

    def noted(engine: OwnEngine, *args: Any, **settings: Any) -> None:
        made.append(engine)
        make(engine, *args, **settings)

    monkeypatch.setattr(OwnEngine, "__init__", noted)
    run = train(replace(config, algorithm="self:beta=0.1", max_steps=3, updates_per_batch=3, learning_rate=1e-2))
    assert len(made) == 2  # the other engine samples the rollouts
    assert all(line["rehearsal_loss"] > 0 for line in metrics(run))


def test_a_run_with_a_memory_network_resumes_bit_for_bit(config: TrainConfig) -> None:
    settings = replace(config, algorithm="iac+dlc:mu=0.5", max_steps=4)
    whole, parts = whole_and_interrupted(settings, interrupted_at=2)
    assert weights(whole, 4) == weights(parts, 4)


def test_a_penalty_to_the_reference_keeps_the_policy_closer(config: TrainConfig, tmp_path: Path) -> None:
    far = replace(config, max_steps=10, save_every=10, learning_rate=2e-3)
    kl_nats = {}
    for beta in (1e-6, 5.0):
        run = train(replace(far, output_dir=tmp_path / str(beta), algorithm=f"grpo+kl:beta={beta}"))
        kl_nats[beta] = metrics(run)[-1]["penalty"] / beta
    assert 0 < kl_nats[5.0] < 0.5 * kl_nats[1e-6]


def batch(prompt_width: int, mark: int) -> RolloutBatch:
    return rollouts_of(
        torch.full((1, prompt_width), mark), torch.full((2, 3), mark), torch.ones(2, 3, dtype=torch.bool)
    )


def test_joined_batches_pad_the_shorter_prompts_on_the_left() -> None:
    whole = concatenate([batch(1, 7), batch(3, 8)])
    assert whole.prompt_ids_PL.tolist() == [[0, 0, 7], [8, 8, 8]]
    assert whole.prompt_mask_PL.tolist() == [[False, False, True], [True, True, True]]
    assert whole.response_ids_BT[:, 0].tolist() == [7, 7, 8, 8]
    assert whole.select_prompts(1, 2).response_ids_BT.tolist() == [[8, 8, 8], [8, 8, 8]]


def test_problems_in_given_order_keep_it_in_every_epoch(config: TrainConfig, easy_problems: Path) -> None:
    run = train(replace(config, order="given", max_steps=4, batch_prompts=3))
    drawn = pd.concat(pd.read_parquet(path) for path in sorted((run / "rollouts").glob("*.parquet")))
    given = [json.loads(line)["prompt"] for line in easy_problems.read_text(encoding="utf-8").splitlines()]
    assert drawn.prompt[:: config.group_size].tolist() == (given * 3)[:12]
