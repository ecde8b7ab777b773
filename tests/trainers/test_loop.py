from __future__ import annotations

import json
import random
import shutil
import signal
import time
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

from oversharp.diagnostics.models.tokens import encode_prompt
from oversharp.diagnostics.records.errors import TrainingError
from oversharp.diagnostics.records.types import Grade
from oversharp.trainers.checking import training_problems
from oversharp.trainers.config import SftConfig, TrainConfig
from oversharp.trainers.loop import train
from oversharp.trainers.rollouts.engine import OwnEngine
from oversharp.trainers.sft import train_base
from oversharp.trainers.step import as_groups
from oversharp.trainers.warning_signs import ALL_CORRECT, NOTHING_CORRECT
from tests.preloaded import RunningServer
from tests.trainers.runs import FinishedRun, Notes, loaded_from, metrics, no_file_above, problems_at, rollouts, weights

pytestmark = pytest.mark.slow


def test_a_run_leaves_a_checkpoint_series(finished: FinishedRun) -> None:
    steps = [int(path.name.split("-")[1]) for path in finished.path.glob("checkpoint-*")]
    assert sorted(steps) == [0, 2, 4, 5]
    assert len({weights(finished.path, step) for step in steps}) == 4
    assert AutoModelForCausalLM.from_pretrained(finished.path / "checkpoint-5").generation_config.max_new_tokens == 6
    assert AutoTokenizer.from_pretrained(finished.path / "checkpoint-5")("1 2")["input_ids"]


def test_checkpoint_0_is_the_initial_model(finished: FinishedRun, model_path: Path) -> None:
    start, saved = (AutoModelForCausalLM.from_pretrained(path) for path in (model_path, finished.path / "checkpoint-0"))
    assert all(torch.equal(a, b) for a, b in zip(start.parameters(), saved.parameters(), strict=True))


def test_every_step_writes_a_line_and_its_rollouts(finished: FinishedRun) -> None:
    lines, rows, group_size = metrics(finished.path), rollouts(finished.path), finished.config.group_size
    assert [line["step"] for line in lines] == [1, 2, 3, 4, 5]
    files = sorted(path.name for path in (finished.path / "rollouts").iterdir())
    assert files == [f"step_00000{step}.parquet" for step in (2, 4, 5)]
    assert len(rows) == 5 * finished.config.batch_prompts * group_size
    for line in lines:
        own = [row for row in rows if row["step"] == line["step"]]
        assert line["reward_mean"] == pytest.approx(sum(row["reward"] for row in own) / len(own))
        assert line["samples_skipped"] == sum(row["advantage"] == 0 for row in own)
        assert line["response_tokens_mean"] == sum(row["n_tokens"] for row in own) / len(own) == 1.0
        assert 0 < line["token_entropy_nats"] < 4.68  # ln 107
    assert {row["sample_index"] for row in rows} == set(range(group_size))
    assert all(row["correct"] == (row["response"].isdigit() and int(row["response"]) % 2 == 0) for row in rows)
    assert all(row["truncated"] for row in rows)


def test_the_memory_plan_is_noted_before_the_run_starts(finished: FinishedRun) -> None:
    assert any(note.startswith("device memory: parameters") and "free on cpu" in note for note in finished.notes)


def test_training_increases_the_reward(config: TrainConfig) -> None:
    run = train(replace(config, max_steps=40, save_every=40, learning_rate=2e-3, group_size=12))
    reward = [line["reward_mean"] for line in metrics(run)]
    assert sum(reward[:5]) / 5 < 0.65
    assert sum(reward[-5:]) / 5 > 0.85


def test_the_same_seed_gives_the_same_run_and_another_seed_another(config: TrainConfig, tmp_path: Path) -> None:
    runs = [
        train(replace(config, max_steps=2, limit=1, seed=seed, output_dir=tmp_path / name))
        for name, seed in (("a", 0), ("b", 0), ("c", 1))
    ]
    assert weights(runs[0], 2) == weights(runs[1], 2)
    responses = [[row["response"] for row in rollouts(run)] for run in runs]  # all of the same problem
    assert responses[0] == responses[1]
    assert responses[0] != responses[2]


def test_grpo_and_iac_differ_and_iac_with_alpha_zero_is_grpo(
    config: TrainConfig, finished: FinishedRun, tmp_path: Path
) -> None:
    iac, zero = (
        weights(train(replace(config, max_steps=2, algorithm=algorithm, output_dir=tmp_path / algorithm)), 2)
        for algorithm in ("iac", "iac:alpha=0")
    )
    assert weights(finished.path, 2) == zero != iac


def test_a_longer_run_continues_a_shorter_one_bit_for_bit(config: TrainConfig, finished: FinishedRun) -> None:
    for steps in (3, 5):
        parts = train(replace(config, max_steps=steps, resume=True))
    assert weights(finished.path, 5) == weights(parts, 5)
    assert metrics(finished.path, timed=False) == metrics(parts, timed=False)
    assert rollouts(finished.path) == rollouts(parts)


def test_a_finished_run_returns_without_writing_a_checkpoint(finished: FinishedRun) -> None:
    before = {path: path.stat().st_mtime_ns for path in finished.path.glob("checkpoint-*/*")}
    notes = Notes()
    assert train(replace(finished.config, resume=True), notes) == finished.path
    assert notes.notes == [f"{finished.path}: finished at step 5, nothing to do"]
    assert {path: path.stat().st_mtime_ns for path in finished.path.glob("checkpoint-*/*")} == before


def test_a_run_killed_at_random_moments_ends_like_an_uninterrupted_one(
    config: TrainConfig, model_path: Path, easy_problems: Path, tmp_path: Path, commands: RunningServer
) -> None:
    whole = train(replace(config, output_dir=tmp_path / "whole", max_steps=18, save_every=3))
    killed = tmp_path / "killed"
    rng = random.Random()
    steps = [rng.randrange(1, 16)]
    for step in steps:
        arguments = [str(model_path), str(easy_problems), str(killed)]
        child = commands.start(arguments, call="tests.trainers.resumed_run:main")
        log = killed / "metrics.jsonl"
        while child.poll() is None and not (log.is_file() and log.read_bytes().count(b"\n") >= step):
            time.sleep(0.0005)
        time.sleep(rng.random() * 0.02)  # at any point of a step or a save
        child.kill()
        code, _ = child.communicate()
        assert code == -signal.SIGKILL, f"the child ended before it could be killed at {steps}"
    train(replace(config, output_dir=killed, max_steps=18, save_every=3, resume=True))
    for step in range(0, 19, 3):
        assert weights(killed, step) == weights(whole, step), f"killed at {steps}: checkpoint-{step} differs"
    assert metrics(killed, timed=False) == metrics(whole, timed=False), f"killed at {steps}"
    assert rollouts(killed) == rollouts(whole), f"killed at {steps}"
    assert not list(killed.rglob("tmp-*"))


@pytest.mark.parametrize(("megabytes", "place"), [(1, "checkpoint-0"), (2, "step-2.pt")])
def test_a_full_disk_is_a_one_line_error_and_the_run_can_be_resumed(
    config: TrainConfig, megabytes: int, place: str
) -> None:
    # weights have 1.4 MB, the optimizer's state twice as much
    with (
        no_file_above(megabytes * 10**6),
        pytest.raises(TrainingError, match=rf"{place}: cannot be written .* --resume"),
    ):
        train(config)
    run = train(replace(config, resume=True))
    assert [line["step"] for line in metrics(run)] == [1, 2, 3, 4, 5, 6]
    assert not list(run.rglob("tmp-*"))


def test_a_loss_that_is_not_finite_is_reported_with_its_step_and_the_last_checkpoint_remains(
    config: TrainConfig,
) -> None:
    with pytest.raises(TrainingError, match=r"step [2-6]: .*nan"):
        train(replace(config, learning_rate=1e20, save_every=1))
    saved = AutoModelForCausalLM.from_pretrained(config.output_dir / "checkpoint-0")
    assert all(parameter.isfinite().all() for parameter in saved.parameters())


def test_without_rewards_the_weights_do_not_change(config: TrainConfig, tmp_path: Path) -> None:
    impossible = problems_at(tmp_path / "impossible.jsonl", ["never this"], ["1 2"])
    run = train(replace(config, problems=impossible, max_steps=2))
    assert weights(run, 0) == weights(run, 2)
    assert [(line["frac_zero_std"], line["grad_norm"]) for line in metrics(run)] == [(1.0, 0.0), (1.0, 0.0)]


@pytest.mark.parametrize("has_them", [False, True])
def test_a_precision_without_cpu_instructions_is_noted_when_a_run_starts(
    has_them: bool, config: TrainConfig, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(torch.cpu, "_is_avx512_bf16_supported", lambda: has_them)
    notes = Notes()
    train(replace(config, max_steps=1, precision="bfloat16"), notes)
    base = SftConfig(output_dir=tmp_path / "base", max_steps=1, batch_size=2, n_examples=10, precision="bfloat16")
    train_base(base, notes)
    shown = [note for note in notes.notes if "this CPU has no matrix instructions for bfloat16" in note]
    assert len(shown) == (0 if has_them else 2)


def test_the_caution_of_a_part_is_noted_when_the_run_starts(config: TrainConfig) -> None:
    notes = Notes()
    train(replace(config, max_steps=1, algorithm="reinforce_pp_baseline"), notes)
    assert any("groups of equal rewards have a gradient" in note for note in notes.notes)


def test_end_tokens_of_tokenizer_and_generation_config_both_end_a_rollout(
    config: TrainConfig, model_path: Path, tmp_path: Path
) -> None:
    path = tmp_path / "two-ends"
    shutil.copytree(model_path, path)
    file = path / "generation_config.json"
    file.write_text(json.dumps(json.loads(file.read_text()) | {"eos_token_id": 9}))
    settings = replace(config, group_size=200, max_tokens=16)
    policy = loaded_from(path)
    prompts = [encode_prompt(policy.tokenizer, problem, settings) for problem in training_problems(settings)]
    drawn = OwnEngine(policy).sample(prompts, group_size=200, max_tokens=16, temperature=1.0, seed=1)
    last = set()
    for ids, length in zip(drawn.response_ids_BT.tolist(), drawn.n_tokens_B.tolist(), strict=True):
        assert not {1, 9} & set(ids[: length - 1])
        last.add(ids[length - 1])
    assert {1, 9} <= last


def test_the_built_in_task_trains_on_its_training_split() -> None:
    from oversharp.diagnostics.tasks import countdown

    audited = {problem.problem_id for problem in countdown.problems("held_out")}
    trained = {problem.problem_id for problem in training_problems(TrainConfig())}
    assert len(trained) == 1599
    assert not audited & trained


def test_grades_are_grouped_in_prompt_order() -> None:
    grades = [Grade(answer="x", mode=None, reward=reward) for reward in (1.0, 0.0, 0.5, 1.0)]
    reward_PG, correct_PG = as_groups(grades, 2)
    assert reward_PG.tolist() == [[1.0, 0.0], [0.5, 1.0]]
    assert correct_PG.tolist() == [[True, False], [False, True]]


def test_an_ungraded_response_is_not_correct() -> None:
    timeout = Grade(answer="NA", mode=None, reward=1.0, state="timeout", reason="5 s")
    assert as_groups([timeout, timeout], 2)[1].tolist() == [[False, False]]


def test_a_reward_above_correct_above_is_correct_unless_ungraded() -> None:
    grades = [Grade(answer="4", mode=None, reward=reward) for reward in (0.1, 0.5, 0.6, 1.0)]
    assert as_groups(grades, 4)[1].tolist() == [[False, False, False, True]]
    assert as_groups(grades, 4, correct_above=0.5)[1].tolist() == [[False, False, True, True]]
    timeout = Grade(answer="NA", mode=None, reward=1.0, state="timeout", reason="5 s")
    assert as_groups([timeout], 1, correct_above=0.5)[1].tolist() == [[False]]


def test_a_run_without_correct_samples_in_its_first_steps_warns(
    config: TrainConfig, finished: FinishedRun, tmp_path: Path
) -> None:
    hopeless = problems_at(tmp_path / "hopeless.jsonl", ["no such answer"], ["1 2 3 = 6 :", "4 5 :", "7 8 9 = 24 :"])
    notes = Notes()
    train(replace(config, problems=hopeless, max_steps=4), notes)
    assert [note for note in notes.notes if "no sample of the first 3 steps is correct" in note] == [NOTHING_CORRECT]
    assert NOTHING_CORRECT not in finished.notes


def test_a_run_with_only_correct_samples_in_its_first_steps_warns(config: TrainConfig, tmp_path: Path) -> None:
    notes = Notes()
    train(replace(config, output_dir=tmp_path / "run", correct_above=-1.0, max_steps=4), notes)
    assert notes.notes.count(ALL_CORRECT) == 1
    assert NOTHING_CORRECT not in notes.notes
