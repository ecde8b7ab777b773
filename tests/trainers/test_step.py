from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from tests.trainers.runs import metrics, weights
from trainers import objectives
from trainers.batch import RolloutBatch, joined
from trainers.config import TrainConfig
from trainers.loop import train
from trainers.rollouts.engine import OwnEngine

#: The tests' responses are one token long: a punishment of length needs a limit above that.
SETTINGS = {"overlong": "overlong:length=4,buffer=2"}


@pytest.mark.parametrize("name", objectives.names())
def test_every_part_trains(config: TrainConfig, name: str) -> None:
    run = train(replace(config, algorithm=SETTINGS.get(name, name), max_steps=2))
    # every response of these runs is cut off, so that filter leaves nothing to learn from
    assert (weights(run, 0) != weights(run, 2)) == (name != "overlong_filter")
    assert all(line.get("sampler_logp_gap_max", 0.0) < 1e-4 for line in metrics(run)) or "dlc" in name


def test_the_update_is_the_same_however_it_is_split(config: TrainConfig, tmp_path: Path) -> None:
    runs = [
        train(replace(config, max_steps=2, micro_batch=size, algorithm="dapo", output_dir=tmp_path / str(size)))
        for size in (None, 5)
    ]
    norms = [[line["grad_norm"] for line in metrics(run)] for run in runs]
    assert norms[0] == pytest.approx(norms[1], rel=1e-5)


def test_several_updates_per_batch_move_the_ratio_and_the_clip_sees_it(config: TrainConfig, tmp_path: Path) -> None:
    fast = replace(config, learning_rate=3e-2, max_steps=2)
    once = train(replace(fast, output_dir=tmp_path / "once"))
    thrice = train(replace(fast, output_dir=tmp_path / "thrice", updates_per_batch=3))
    assert [line["clip_fraction"] for line in metrics(once)] == [0.0, 0.0]
    assert max(line["clip_fraction"] for line in metrics(thrice)) > 0


def test_dynamic_sampling_draws_on_until_groups_are_mixed(config: TrainConfig, tmp_path: Path) -> None:
    lines = [
        {"prompt": f"{n} = {n} :", "answer": "x", "modes": ["never this"], "verifier": "modes"} for n in range(1, 7)
    ]
    evens = [str(number) for number in range(0, 100, 2)]
    lines += [{"prompt": f"{n} 3 :", "answer": "even", "modes": evens, "verifier": "modes"} for n in range(1, 7)]
    mixed = tmp_path / "mixed.jsonl"
    mixed.write_text("".join(json.dumps(line) + "\n" for line in lines))
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


def test_what_is_rehearsed_is_drawn_by_one_engine_for_the_whole_run(
    config: TrainConfig, monkeypatch: pytest.MonkeyPatch
) -> None:
    made: list[OwnEngine] = []
    make = OwnEngine.__init__

    def noted(engine: OwnEngine, *args: Any, **settings: Any) -> None:
        made.append(engine)
        make(engine, *args, **settings)

    monkeypatch.setattr(OwnEngine, "__init__", noted)
    run = train(replace(config, algorithm="self:beta=0.1", max_steps=3, updates_per_batch=3, learning_rate=1e-2))
    assert len(made) == 2  # the other one draws the rollouts
    assert all(line["rehearsal_loss"] > 0 for line in metrics(run))


def test_a_run_with_a_memory_network_goes_on_bit_for_bit(config: TrainConfig, tmp_path: Path) -> None:
    settings = replace(config, algorithm="iac+dlc:mu=0.5", max_steps=4)
    whole = train(replace(settings, output_dir=tmp_path / "whole"))
    parts = train(replace(settings, output_dir=tmp_path / "parts", max_steps=2))
    train(replace(settings, output_dir=parts, resume=True))
    assert weights(whole, 4) == weights(parts, 4)


def test_a_penalty_to_the_reference_holds_the_policy_back(config: TrainConfig, tmp_path: Path) -> None:
    far = replace(config, max_steps=10, save_every=10, learning_rate=2e-3)
    kl_nats = {}
    for beta in (1e-6, 5.0):
        run = train(replace(far, output_dir=tmp_path / str(beta), algorithm=f"grpo+kl:beta={beta}"))
        kl_nats[beta] = metrics(run)[-1]["penalty"] / beta
    assert 0 < kl_nats[5.0] < 0.5 * kl_nats[1e-6]


def batch(prompt_width: int, mark: int) -> RolloutBatch:
    return RolloutBatch(
        group_size=2,
        prompt_ids_PL=torch.full((1, prompt_width), mark),
        prompt_mask_PL=torch.ones(1, prompt_width, dtype=torch.bool),
        response_ids_BT=torch.full((2, 3), mark),
        response_mask_BT=torch.ones(2, 3, dtype=torch.bool),
        behaviour_logp_BT=torch.zeros(2, 3),
        logp_sum_B=torch.zeros(2),
        entropy_sum_B=torch.zeros(2),
        truncated_B=torch.zeros(2, dtype=torch.bool),
    )


def test_joined_batches_pad_the_shorter_prompts_on_the_left() -> None:
    whole = joined([batch(1, 7), batch(3, 8)])
    assert whole.prompt_ids_PL.tolist() == [[0, 0, 7], [8, 8, 8]]
    assert whole.prompt_mask_PL.tolist() == [[False, False, True], [True, True, True]]
    assert whole.response_ids_BT[:, 0].tolist() == [7, 7, 8, 8]
    assert whole.of_prompts(1, 2).response_ids_BT.tolist() == [[8, 8, 8], [8, 8, 8]]
