"""Invalid settings are reported by name before the first step, without reading weights."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from oversharp.diagnostics.records.errors import ConfigError, OversharpError, ProblemError, SamplerError
from oversharp.diagnostics.tasks import load_problems
from oversharp.trainers.checking import (
    RunPrompts,
    base_config,
    check_objective,
    check_start,
    first_model,
    model_outlines,
    rounding_note,
    training_problems,
    validation_note,
)
from oversharp.trainers.config import TrainConfig
from oversharp.trainers.loop import train
from oversharp.trainers.objectives.sampling.importance import Importance
from oversharp.trainers.run.checkpointing import checkpoint_path
from tests.trainers.runs import Notes


def checked(config: TrainConfig) -> RunPrompts:
    with model_outlines() as outline:
        return check_start(config, check_objective(config), first_model(config), outline)


@pytest.fixture
def changed_copy(model_path: Path, tmp_path: Path) -> Callable[[str, Callable[[Any], None]], Path]:
    """Return a function that copies the model with one of its JSON files changed."""

    def copy(file: str, change: Callable[[Any], None]) -> Path:
        path = tmp_path / "changed"
        shutil.copytree(model_path, path)
        content = json.loads((path / file).read_text())
        change(content)
        (path / file).write_text(json.dumps(content))
        return path

    return copy


def rename_a_token(tokenizer: Any) -> None:
    vocabulary = tokenizer["model"]["vocab"]
    vocabulary["another"] = vocabulary.pop("99")


def forget_a_token(tokenizer: Any) -> None:
    del tokenizer["model"]["vocab"]["99"]


def shorten_context(config: Any) -> None:
    config["max_position_embeddings"] = 6


def widen(config: Any) -> None:
    config["vocab_size"] = 128


def test_a_run_uses_its_problems_in_order(config: TrainConfig) -> None:
    asked = checked(config)
    assert [len(ids) for ids in asked.prompts] == [len(problem.prompt.split()) for problem in asked.problems]
    assert [problem.prompt for problem in asked.problems][:2] == ["1 2 3 = 6 :", "4 5 :"]


@pytest.mark.parametrize(
    ("algorithm", "updates"),
    [
        ("grpo", 1),
        ("iac+clip", 1),
        ("reinforce", 1),
        ("gspo", 4),
        ("gspo_n", 4),
        ("cispo", 4),
        ("dapo", 4),
        ("clip:high=0.5", 4),
    ],
)
def test_surrogates_of_the_ratio_get_several_updates_and_one_update_is_rejected(
    config: TrainConfig, algorithm: str, updates: int
) -> None:
    asked = replace(config, algorithm=algorithm, batch_prompts=8, updates_per_batch=None)
    assert check_objective(asked)
    assert asked.used_updates_per_batch == updates
    assert replace(asked, batch_prompts=6).used_updates_per_batch == min(updates, 3)
    single = replace(asked, updates_per_batch=1)
    if updates == 1:
        assert check_objective(single)
        return
    with pytest.raises(ConfigError, match=r"has no effect with one update per batch.*--updates-per-batch 2 or more"):
        check_objective(single)
    assert check_objective(replace(single, epochs_per_batch=2))


def test_the_longest_prompt_and_response_must_fit_the_context(config: TrainConfig) -> None:
    """The context is 64 tokens, the longest prompt 6."""
    checked(replace(config, max_tokens=58))
    with pytest.raises(
        SamplerError, match=r"6 prompt tokens and 59 response tokens exceed .* of 64; lower --max-tokens"
    ):
        train(replace(config, max_tokens=59))
    assert not list(config.output_dir.glob("checkpoint-*"))


def test_an_unsuitable_base_is_rejected_before_it_is_trained(tmp_path: Path) -> None:
    config = TrainConfig(output_dir=tmp_path / "run", device="cpu")
    with pytest.raises(SamplerError, match="6 prompt tokens and 59 response tokens"):
        train(replace(config, max_tokens=59))
    assert not (tmp_path / "run" / "base").exists()
    base = tmp_path / "run" / "base"
    with model_outlines(untrained=base_config(config)) as outline:
        asked = check_start(config, check_objective(config), first_model(config), outline)
        assert outline(str(checkpoint_path(base, 400))).loaded.context_tokens == 64
        with pytest.raises(OversharpError, match=r"no such directory"):
            outline(str(tmp_path / "elsewhere" / "checkpoint-400"))
    assert len(asked.prompts) == 1599


def test_a_run_without_a_model_starts_from_the_base_of_its_world(tmp_path: Path) -> None:
    config = TrainConfig(task="programs", output_dir=tmp_path / "run", device="cpu", validate_every=1)
    base = base_config(config)
    assert (base.task, base.world, base.output_dir) == ("programs", "programs", tmp_path / "run" / "base")
    with model_outlines(untrained=base) as outline:
        asked = check_start(config, check_objective(config), first_model(config), outline)
    assert (len(asked.problems), len(asked.validation)) == (708, 76)
    assert {problem.verifier for problem in asked.problems} == {"program"}
    assert len(asked.prompts[0]) == 7
    # as in runs of earlier versions, which continue with --resume
    assert base_config(TrainConfig(task="countdown")).task is None


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"model": "{none}"}, r"--model \S+none: no such directory"),
        ({"model": "owner/none"}, r"--model owner/none cannot be loaded \(.*\); check the name"),
        ({"reference": "{none}", "algorithm": "grpo+kl"}, r"--reference \S+none: no such directory"),
        ({"algorithm": "dlc:memory={none}"}, r"--algorithm memory=\S+none: no such directory"),
        ({"algorithm": "dlc:memory=owner/none"}, r"--algorithm memory=owner/none cannot be loaded \(.*\); check the"),
        ({"engine": "vllm", "temperature": 0.001}, r"--temperature 0\.001: vLLM samples at 0\.01 or above"),
        ({"engine": "vllm"}, r"--model \S+: .*; (use --engine own|pip install .*)"),
        ({"engine": "vllm", "device": "cuda:7"}, "--device cuda:7: "),
        ({"chat": True}, "--chat: the tokenizer has no chat template"),
        ({"problems": Path("none.jsonl")}, r"none\.jsonl"),
    ],
    ids=str,
)
def test_an_invalid_setting_is_reported(
    config: TrainConfig, tmp_path: Path, settings: dict[str, Any], message: str
) -> None:
    given = {k: v.format(none=tmp_path / "none") if isinstance(v, str) else v for k, v in settings.items()}
    with pytest.raises(OversharpError, match=f"^{message}" if message.startswith("--") else message) as caught:
        checked(replace(config, **given))
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize(
    ("setting", "file", "change", "message"),
    [
        ("reference", "tokenizer.json", rename_a_token, "the reference's tokenizer assigns other ids"),
        ("reference", "config.json", shorten_context, r"6 prompt tokens and 1 response tokens exceed .* of 6;"),
        ("memory", "tokenizer.json", rename_a_token, "the memory network's tokenizer differs from the policy's"),
        ("memory", "config.json", shorten_context, r"6 prompt tokens and 1 response tokens exceed .* of 6;"),
        ("memory", "config.json", widen, "the memory network has logits for 128 tokens, the policy for 107"),
    ],
)
def test_an_incompatible_reference_or_memory_is_rejected(
    config: TrainConfig,
    changed_copy: Callable[[str, Callable[[Any], None]], Path],
    setting: str,
    file: str,
    change: Callable[[Any], None],
    message: str,
) -> None:
    path = changed_copy(file, change)
    extra = (
        {"reference": str(path), "algorithm": "grpo+kl"}
        if setting == "reference"
        else {"algorithm": f"dlc:memory={path}"}
    )
    with pytest.raises(OversharpError, match=rf"^--(reference |algorithm memory=){path}: .*{message}"):
        checked(replace(config, **extra))


def test_a_reference_may_have_fewer_tokens(
    config: TrainConfig, changed_copy: Callable[[str, Callable[[Any], None]], Path]
) -> None:
    path = changed_copy("tokenizer.json", forget_a_token)
    checked(replace(config, reference=str(path), algorithm="grpo+kl"))


@pytest.mark.parametrize("setting", ["model", "reference"])
def test_truncated_weights_are_reported_without_reading_them(
    config: TrainConfig, model_path: Path, tmp_path: Path, setting: str
) -> None:
    cut = tmp_path / "cut"
    shutil.copytree(model_path, cut)
    weights = cut / "model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-1])
    broken = replace(config, algorithm="grpo+kl", **{setting: str(cut)})
    with pytest.raises(OversharpError, match=rf"--{setting} .*model\.safetensors is truncated"):
        checked(broken)
    weights.unlink()
    with pytest.raises(OversharpError, match="contains a configuration but no weights"):
        checked(broken)


def test_a_duplicate_problem_is_skipped_with_a_note(tmp_path: Path) -> None:
    path = tmp_path / "own.jsonl"
    rows = [("1+1?", "2", "a"), ("2+2?", "4", "b"), ("1+1?", "2", "c"), ("3+3?", "6", "a"), ("2+2?", "4", "d")]
    path.write_text("".join(json.dumps({"prompt": q, "answer": a, "id": i}) + "\n" for q, a, i in rows))
    notes = Notes()
    problems = training_problems(TrainConfig(model="m", problems=path), notes)
    assert [problem.prompt for problem in problems] == ["1+1?", "2+2?", "3+3?"]
    assert notes.notes == [
        f"{path}: skipped 2 problems that the file contains twice (the first: line 3 is line 1 again)"
    ]
    with pytest.raises(ProblemError, match="line 3: the same problem as line 1"):  # in an audit it would count twice
        load_problems(path, None)


@pytest.mark.parametrize(
    ("setting", "corrected", "note"),
    [
        ({}, True, "rollouts get importance weights (per token, at most 2)"),
        ({"correction": "none"}, False, "treated as samples of the trainer's policy"),
        ({"precision": "float32"}, False, None),
        ({"engine": "own"}, True, "--engine own --precision bfloat16: rollouts get importance weights"),
        ({"engine": "own", "precision": "float32"}, False, None),
        ({"engine": "own", "precision": "float32", "algorithm": "grpo+importance"}, True, "importance has no effect"),
        ({"algorithm": "iac+importance:cap=3"}, True, None),
        ({"algorithm": "dlc"}, False, None),  # samples from another distribution by design
    ],
)
def test_rollouts_of_bfloat16_runs_get_weights_by_default(
    setting: dict[str, Any], corrected: bool, note: str | None
) -> None:
    config = TrainConfig(**{"engine": "vllm", "precision": "bfloat16", "algorithm": "iac", **setting})
    correction = check_objective(config).correction
    assert (correction is not None) == corrected
    if note is None:
        assert rounding_note(config) is None
    else:
        assert note in str(rounding_note(config))
        assert correction == (Importance() if corrected else None)


def test_importance_with_correction_none_is_rejected() -> None:
    config = TrainConfig(engine="vllm", algorithm="grpo+importance", correction="none")
    with pytest.raises(ConfigError, match=r"--correction none: .* contains importance; remove one of them"):
        check_objective(config)


@pytest.mark.parametrize(("every", "steps", "is_noted"), [(None, 5, False), (5, 5, False), (6, 5, True)])
def test_a_run_that_ends_before_its_first_validation_has_a_note(every: int | None, steps: int, is_noted: bool) -> None:
    assert (validation_note(TrainConfig(validate_every=every, max_steps=steps)) is not None) == is_noted


def test_validation_samples_without_validation_are_rejected() -> None:
    assert TrainConfig(validation_samples=4, validate_every=2).validation_samples == 4
    with pytest.raises(ConfigError, match="--validation-samples 4 needs --validate-every"):
        TrainConfig(validation_samples=4)
