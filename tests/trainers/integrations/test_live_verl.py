"""verl's own configuration, callback loading, saving and logging around the live audit; its Ray workers do not run.

``PPOTrainer._save_checkpoint`` is taken out of verl's source, for its module cannot be imported without Ray.
"""

from __future__ import annotations

import ast
import json
import logging
import os
import sys
import warnings
from collections.abc import Callable, Iterator
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
import torch

from oversharp.diagnostics.records.errors import ConfigError
from oversharp.diagnostics.store import Store
from tests.oracles.verl_checkpoints import adapters, fsdp_manager, one_cpu
from tests.trainers.runs import warned

pytestmark = [
    pytest.mark.filterwarnings("ignore"),  # of libraries about versions and what is not here
    pytest.mark.skipif(
        find_spec("verl") is None and not os.environ.get("REQUIRE_ORACLES"),
        reason="verl 0.9 is not installed: make oracles",
    ),
]

CLASS = "oversharp.trainers.integrations.verl_live.OversharpCheckpointCallback"
SMALL = {"task": "countdown", "n": 4, "limit": 2, "panel": 0, "entropy_samples": 0, "max_tokens": 3, "wait": True}


@pytest.fixture(scope="module")
def verl() -> Any:
    """verl, with a stub of Ray if Ray is missing."""
    if find_spec("ray") is None:
        sys.path.insert(0, str(Path(__file__).parents[2] / "oracles" / "standins"))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        import verl as module
    return module


@pytest.fixture
def mesh(tmp_path: Path) -> Iterator[Any]:
    with one_cpu(tmp_path / "store") as mesh:
        yield mesh


def configuration(verl: Any, base: Path, run: Path, **oversharp: Any) -> Any:
    """Compose verl's defaults and the documented overrides with Hydra."""
    from omegaconf import OmegaConf

    config = OmegaConf.load(Path(verl.__file__).parent / "trainer/config/_generated_ppo_trainer.yaml")
    OmegaConf.set_struct(config, True)
    config.actor_rollout_ref.model.path = str(base)
    config.trainer.default_local_dir = str(run)
    config.trainer.checkpoint_callback_class = CLASS
    OmegaConf.update(config, "trainer.oversharp", oversharp, force_add=True)
    return config


class Workers:
    """Replacement of verl's group of Ray workers: one rank, whose checkpoints verl's FSDP manager writes."""

    def __init__(self, base: Path, mesh: Any, *, contents: list[str], lora: bool = False) -> None:
        from peft import get_peft_model
        from transformers import AutoModelForCausalLM

        self.model: Any = AutoModelForCausalLM.from_pretrained(base)
        if lora:
            self.model = get_peft_model(self.model, adapters())
        self._manager = fsdp_manager(self.model, base, mesh, contents=contents)

    def train(self) -> None:
        with torch.no_grad():
            for parameter in self.model.parameters():
                parameter.mul_(1.01)

    def save_checkpoint(self, local: str, _remote: str | None, step: int, *, max_ckpt_to_keep: int | None) -> None:
        self._manager.save_checkpoint(local_path=local, global_step=step, max_ckpt_to_keep=max_ckpt_to_keep)


def make_trainer(verl: Any, config: Any, workers: Workers) -> Any:
    from verl.trainer.ppo.checkpoint_callback import build_checkpoint_callback
    from verl.utils.tracking import Tracking

    return SimpleNamespace(
        config=config,
        global_steps=0,
        total_training_steps=40,
        trainer_mode="sync",
        use_critic=False,
        actor_rollout_wg=workers,
        train_dataloader=SimpleNamespace(state_dict=dict),
        checkpoint_callback=build_checkpoint_callback(config),
        logger=Tracking("tests", "live", ["file", "tensorboard", "console"]),
        save_checkpoint=_of_verl(verl, "_save_checkpoint"),
    )


def _of_verl(verl: Any, method: str) -> Callable[[Any], None]:
    source = Path(verl.__file__).parent / "trainer/ppo/v1/trainer_base.py"
    [trainer] = [
        node
        for node in ast.parse(source.read_text()).body
        if isinstance(node, ast.ClassDef) and node.name == "PPOTrainer"
    ]
    [function] = [node for node in trainer.body if isinstance(node, ast.FunctionDef) and node.name == method]
    names: dict[str, Any] = {"os": os, "torch": torch, "logger": logging.getLogger("verl")}
    exec(compile(ast.Module(body=[function], type_ignores=[]), str(source), "exec"), names)
    return names[method]


def test_a_run_of_verl_logs_the_findings_of_its_checkpoints(
    verl: Any,
    model_path: Path,
    mesh: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    monkeypatch.setenv("VERL_FILE_LOGGER_PATH", str(tmp_path / "log.jsonl"))
    monkeypatch.setenv("TENSORBOARD_DIR", str(tmp_path / "board"))
    config = configuration(verl, model_path, tmp_path / "run", **SMALL, budget_s=300)
    trainer = make_trainer(verl, config, Workers(model_path, mesh, contents=["model", "hf_model"]))
    for step in range(10, 50, 10):
        trainer.global_steps = step
        trainer.actor_rollout_wg.train()
        if step % 20 == 0:
            trainer.save_checkpoint(trainer)
        trainer.logger.log(data={"actor/loss": float(step)}, step=step)
    trainer.logger.finish()

    assert warned(caplog) == []
    assert trainer.checkpoint_callback.live.process_id is None
    with Store.open(tmp_path / "run/oversharp/audit.duckdb", read_only=True) as store:
        frame = store.frame("SELECT step, value FROM findings WHERE measure = 'mass_lost' AND scope = 'all'")
        assert store.frame("SELECT layout FROM series")["layout"].tolist() == ["verl"]
    stored = dict(zip(frame["step"].tolist(), frame["value"].tolist(), strict=True))
    assert set(stored) == {20, 40}
    lines = {
        entry["step"]: entry["data"] for entry in map(json.loads, (tmp_path / "log.jsonl").read_text().splitlines())
    }
    assert [lines[step]["actor/loss"] for step in (10, 20, 30, 40)] == [10, 20, 30, 40]
    assert {step: line.get("oversharp/mass_lost") for step, line in lines.items()} == {10: None, 30: None, **stored}
    assert lines[40]["oversharp/step"] == 40
    assert lines[40]["oversharp/loss_found"] in (0, 1)
    board = EventAccumulator(str(tmp_path / "board")).Reload()
    assert {entry.step for entry in board.Scalars("oversharp/mass_lost")} == {20, 40}


@pytest.mark.parametrize("lora", [False, True], ids=["full", "lora"])
def test_weights_in_verls_format_cause_one_warning_with_the_fix(
    lora: bool,
    verl: Any,
    model_path: Path,
    mesh: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
) -> None:
    monkeypatch.setenv("VERL_FILE_LOGGER_PATH", str(tmp_path / "log.jsonl"))
    monkeypatch.setenv("TENSORBOARD_DIR", str(tmp_path / "board"))
    contents = ["model", "hf_model"] if lora else ["model"]
    trainer = make_trainer(
        verl,
        configuration(verl, model_path, tmp_path / "run", **SMALL),
        Workers(model_path, mesh, contents=contents, lora=lora),
    )
    for step in (20, 40):
        trainer.global_steps = step
        trainer.save_checkpoint(trainer)
        trainer.logger.log(data={"actor/loss": 1.0}, step=step)
    trainer.logger.finish()

    [warning] = warned(caplog)
    actor = tmp_path / "run/global_step_20/actor"
    assert f"merge --backend fsdp --local_dir {actor} --target_dir {actor}/huggingface" in warning
    assert ("save_contents=[model,optimizer,extra,hf_model]" in warning) is not lora
    assert not (tmp_path / "run/oversharp").exists()
    assert len((tmp_path / "log.jsonl").read_text().splitlines()) == 2


def test_invalid_settings_end_verl_before_the_training(verl: Any, tmp_path: Path) -> None:
    from verl.trainer.ppo.checkpoint_callback import build_checkpoint_callback

    for base, settings, message in (
        (tmp_path / "none", {"task": "countdown"}, r"--base .*neither a directory nor"),
        (tmp_path, {"task": "countdown", "samples": 3}, "samples: no such setting of an audit"),
        (tmp_path, {}, r"pass either --problems"),
    ):
        with pytest.raises(ConfigError, match=message):
            build_checkpoint_callback(configuration(verl, base, tmp_path / "run", **settings))
