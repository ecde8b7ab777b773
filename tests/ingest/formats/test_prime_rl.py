"""data/prime_rl was written by verifiers 0.4.1.dev86; token exports follow prime-rl 0.8.0's ``TokenExporter``."""

from __future__ import annotations

import json
import math
import shutil
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from msgspec.structs import replace

from oversharp.diagnostics.ingest.formats import prime_rl
from oversharp.diagnostics.ingest.formats.contract import Fault, FilePlace, Recorded
from oversharp.diagnostics.ingest.formats.rows import first_record
from tests.ingest.formats.reading import reader, write_lines

REAL = Path(__file__).parent / "data" / "prime_rl" / "rollouts" / "step_4" / "train" / "all" / "traces.jsonl"
Edit = Callable[[dict[str, Any]], None]


read = reader(prime_rl)


@pytest.fixture
def run(tmp_path: Path) -> Path:
    """A run directory with the real traces and an export of the tokens of the first two."""
    run = tmp_path / "run"
    shutil.copytree(REAL.parents[4] / "rollouts", run / "rollouts")
    exported = run / "token_exports" / "step_4" / "rank_0.jsonl"
    exported.parent.mkdir(parents=True)
    tokens = {"token_ids": [1, 2, 3, 4, 5, 6, 7, 8, 9], "loss_mask": [False] * 6 + [True] * 3}
    other = tokens | {"token_ids": [1, 2, 3, 9, 9, 9, 9, 9, 9], "entropy": [9.0] * 9}
    records = [other, tokens | {"entropy": [7.0] * 6 + [0.5, 0.25, 0.125]}]
    exported.write_text("".join(json.dumps({"schema_version": 1, "step": 4, **one}) + "\n" for one in records))
    return run


def traces(run: Path) -> Path:
    return run / "rollouts" / "step_4" / "train" / "all" / "traces.jsonl"


def edited(tmp_path: Path, edit: Edit) -> Recorded | Fault:
    """Read the first real episode with changes, from a file outside a run directory."""
    episode = json.loads(REAL.read_text().splitlines()[0])
    edit(episode)
    (item,) = read(write_lines(tmp_path / "traces.jsonl", episode))
    return item


def test_episodes_are_recognised_and_read() -> None:
    assert prime_rl.recognises(REAL, first_record(REAL))
    assert prime_rl.place(REAL) == FilePlace(run="prime_rl train all", step=4)
    assert prime_rl.settings(REAL) == {"temperature": 1.0, "top_p": 1.0}
    right = Recorded(
        1, "system: Add.\n\nuser: What is 0+1?", "1", gold="1", reward=1.5, step=4, problem="0", n_tokens=3,
        finish_reason="stop", logp_sum=-0.875, task="gsm8k",
    )  # fmt: skip
    wrong = replace(right, line=2, response="two three", reward=0.5, finish_reason="length")
    assert read(REAL) == [right, wrong, Fault(3, "its rollout failed: RuntimeError")]


def test_one_of_the_rewards_or_metrics_can_be_the_score() -> None:
    assert [one.reward for one in read(REAL, reward="correct")[:2]] == [1.0, 0.0]
    assert [one.reward for one in read(REAL, reward="length")[:2]] == [3.0, 3.0]
    assert read(REAL, reward="accuracy")[0] == Fault(1, "no accuracy")


def test_training_and_evaluation_are_series_of_their_own(tmp_path: Path) -> None:
    folders = [tmp_path / "run" / "rollouts" / "step_0" / kind for kind in ("train/all", "train/effective", "eval/all")]
    runs = {prime_rl.place(folder / "traces.jsonl").run for folder in folders}
    assert runs == {"run train all", "run train effective", "run eval all"}


def test_entropies_are_found_by_their_tokens_once_the_step_is_stable(run: Path) -> None:
    assert [one.entropy_sum for one in read(traces(run))[:2]] == [None, None]
    (run / "token_exports" / "step_4" / "STABLE").touch()
    assert [one.entropy_sum for one in read(traces(run))[:2]] == [0.875, 0.875]


def test_entropies_in_the_trace_itself_count_first(tmp_path: Path) -> None:
    def annotate(episode: dict[str, Any]) -> None:
        episode["traces"][0]["nodes"][2]["entropies"] = [1.0, 1.0, 0.5]

    assert edited(tmp_path, annotate).entropy_sum == 2.5


@pytest.mark.parametrize(
    "sampling",
    [{"temperature": 0.7}, {"top_p": 1.0}, {"temperature": 1.0, "extra_body": {"top_k": 20}}, {}],
)
def test_without_plain_sampling_at_temperature_1_no_log_probability_counts(
    tmp_path: Path, sampling: dict[str, Any]
) -> None:
    def sampled(episode: dict[str, Any]) -> None:
        episode["traces"][0]["calls"][0]["sampling"] = sampling

    assert edited(tmp_path, sampled).logp_sum is None


def test_exported_tokens_are_no_samples(run: Path) -> None:
    exported = run / "token_exports" / "step_4" / "rank_0.jsonl"
    assert not prime_rl.recognises(exported, first_record(exported))
    assert read(exported) == []


def test_an_export_with_broken_records_gives_the_others(run: Path) -> None:
    exported = run / "token_exports" / "step_4" / "rank_0.jsonl"
    (exported.parent / "STABLE").touch()
    broken = ['{"token_ids": [1], "loss_mask": [true], "entropy": [null]}', '{"token_ids": ["a"]}', "[1]", "{", "\xff"]
    exported.write_bytes(exported.read_bytes() + "\n".join(broken).encode("latin-1"))
    assert read(traces(run))[0].entropy_sum == 0.875


def test_a_conversation_is_read_along_its_last_branch(tmp_path: Path) -> None:
    def branch(episode: dict[str, Any]) -> None:
        nodes = episode["traces"][0]["nodes"]
        nodes.append({"parent": 2, "message": {"role": "tool", "content": [{"type": "text", "text": "ok"}]}})
        reply = {"role": "assistant", "reasoning_content": "hm", "content": "2"}
        nodes.append({"parent": 3, "sampled": True, "message": reply})

    sample = edited(tmp_path, branch)
    assert sample.prompt == "system: Add.\n\nuser: What is 0+1?"
    assert sample.response == "1\n\n<think>\nhm\n</think>\n2"
    assert [(turn.role, turn.n_tokens, turn.logp_sum, turn.is_trained) for turn in sample.turns] == [
        ("assistant", 3, -0.875, True), ("tool", None, None, None), ("assistant", None, None, None)]  # fmt: skip
    assert sample.logp_sum is None  # the last message has none


def test_a_judge_is_passed_over(tmp_path: Path) -> None:
    def judge(episode: dict[str, Any]) -> None:
        other = json.loads(json.dumps(episode["traces"][0]))
        other["agent"]["trainable"] = False
        episode["traces"].append(other)

    assert edited(tmp_path, judge).response == "1"


def test_an_episode_that_failed_or_was_dropped_is_a_fault(tmp_path: Path) -> None:
    def without_traces(episode: dict[str, Any]) -> None:
        episode.update(ok=False, traces=[], errors=[{"type": "TimeoutError", "message": "after 30 s"}])

    def dropped(episode: dict[str, Any]) -> None:
        episode["traces"][0]["dropped"] = "no reward signal"

    assert edited(tmp_path, without_traces) == Fault(1, "its rollout failed: TimeoutError")
    assert edited(tmp_path, dropped) == Fault(1, "its rollout was dropped by the environment")


def test_a_trace_that_was_not_scored_has_no_score(tmp_path: Path) -> None:
    assert edited(tmp_path, lambda episode: episode["traces"][0].update(rewards={})).reward is None
    assert edited(tmp_path, lambda episode: episode["traces"][0]["rewards"]["correct"].update(score=math.nan)) == Fault(
        1, "score is NaN or infinite"
    )


def test_a_loop_in_the_graph_ends(tmp_path: Path) -> None:
    def loop(episode: dict[str, Any]) -> None:
        episode["traces"][0]["nodes"][2]["parent"] = 2

    assert edited(tmp_path, loop).prompt == "What is 0+1?"  # the task's
