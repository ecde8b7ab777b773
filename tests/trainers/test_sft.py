from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from torch.nn import functional

from oversharp.diagnostics.records.progress import SilentProgress
from oversharp.diagnostics.tasks import countdown
from oversharp.trainers.config import SftConfig
from oversharp.trainers.countdown_base import build_model, examples
from oversharp.trainers.sft import batch_table, response_loss, train_base


@pytest.fixture
def config(tmp_path: Path) -> SftConfig:
    return SftConfig(
        output_dir=tmp_path / "base", max_steps=6, batch_size=16, n_examples=100, save_every=2, device="cpu"
    )


def test_the_loss_covers_the_response_alone() -> None:
    model = build_model(seed=0)
    train, _ = countdown.split_queries()
    example_BT = torch.tensor(examples(train, 3, wrong_share=0.3, seed=0))
    logits = model(example_BT).logits[:, 5:-1]
    expected = functional.cross_entropy(logits.flatten(0, 1), example_BT[:, 6:].flatten())
    assert response_loss(model, example_BT).item() == pytest.approx(expected.item(), abs=1e-6)


def test_training_lowers_the_loss(config: SftConfig) -> None:
    train_base(replace(config, max_steps=30, save_every=30))
    loss = [json.loads(line)["loss"] for line in (config.output_dir / "metrics.jsonl").read_text().splitlines()]
    assert loss[0] == pytest.approx(4.7, abs=0.3)  # about ln 107
    assert loss[-1] < 3.5


def test_an_interrupted_base_is_the_uninterrupted_one_bit_for_bit(config: SftConfig, tmp_path: Path) -> None:
    whole = train_base(replace(config, output_dir=tmp_path / "whole"))
    cut = replace(config, output_dir=tmp_path / "cut")

    class StopAfterThree(SilentProgress):
        @contextmanager
        def stage(self, title: str, total: int) -> Iterator[Callable[[int], None]]:
            steps = iter(range(2))

            def advance(_: int) -> None:
                if next(steps, None) is None:
                    raise KeyboardInterrupt

            yield advance

    with pytest.raises(KeyboardInterrupt):
        train_base(cut, StopAfterThree())
    resumed = train_base(replace(cut, resume=True))
    assert (whole / "model.safetensors").read_bytes() == (resumed / "model.safetensors").read_bytes()
    assert resumed.name == "checkpoint-6"


def test_seeds_reach_weights_examples_and_order(config: SftConfig) -> None:
    assert not torch.equal(batch_table(config), batch_table(replace(config, seed=1)))
    assert batch_table(config).shape == (6, 16)
