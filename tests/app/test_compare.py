"""A small real comparison: two objectives, two seeds, one base, one store, one report."""

from __future__ import annotations

import json
import shutil
from dataclasses import dataclass, replace
from pathlib import Path

import pytest

from oversharp.diagnostics.app.compare import CompareResult, compare, plan_comparison
from oversharp.diagnostics.app.compare_config import read_comparison
from oversharp.diagnostics.records.errors import ConfigError, TrainingError
from oversharp.diagnostics.store import Store
from oversharp.reports.evidence.source import read_source
from oversharp.trainers.config import TrainConfig
from tests.conftest import audits_of_some_measures, figures_of_some_measures, write_checkpoint

pytestmark = pytest.mark.xdist_group("compare")  # they share what takes seconds to make

FILE = """
seeds = [0, 1]

[train]
model = "{model}"
problems = "{model}/even.jsonl"
max_steps = {max_steps}
max_tokens = 1
save_every = 1
batch_prompts = 3
group_size = 6
device = "cpu"

[[run]]
name = "grpo"

[[run]]
name = "iac"
algorithm = "iac"

[audit]
problems = "{model}/even.jsonl"
limit = 2
n = 4
max_tokens = 1
panel = 1
kernel_problems = 0
sampler = "transformers"
"""


@dataclass(frozen=True)
class Compared:
    file: Path
    out: Path
    written_ns: dict[str, int]  # when the checkpoints of step 1 were written
    result: CompareResult


def write(folder: Path, model: Path, *, max_steps: int = 2) -> Path:
    path = folder / "study.toml"
    path.write_text(FILE.format(model=model, max_steps=max_steps), encoding="utf-8")
    return path


def train_with_other_settings(config: TrainConfig) -> None:
    """Leaves a finished run in the directory that ``config`` names, of another seed."""
    from oversharp.trainers.loop import train

    train(replace(config, seed=7, max_steps=1))


#: The loss of a run that learns this fast is not finite at its second step.
DIVERGES = "\nlearning_rate = 1e20"


def written_ns(out: Path) -> dict[str, int]:
    return {path.parent.name: path.stat().st_mtime_ns for path in sorted(out.glob("*/checkpoint-1"))}


@pytest.fixture(scope="module")
def model(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Random weights, and beside them problems that these solve now and then: any single even number is right."""
    path = write_checkpoint(tmp_path_factory.mktemp("model") / "tiny", seed=0)
    evens = [str(number) for number in range(0, 100, 2)]
    lines = [
        json.dumps({"prompt": prompt, "answer": "even", "modes": evens, "verifier": "modes"})
        for prompt in ("1 2 3 = 6 :", "4 5 :", "7 8 9 = 24 :", "1 = 1 :", "2 3 4 = 9 :")
    ]
    (path / "even.jsonl").write_text("\n".join(lines) + "\n")
    return path


@pytest.fixture(scope="module")
def compared(model: Path, tmp_path_factory: pytest.TempPathFactory) -> Compared:
    """Stopped after one step of the first run, then done."""
    from oversharp.trainers.loop import train

    folder = tmp_path_factory.mktemp("compared")
    out = folder / "out"
    train(read_comparison(write(folder, model, max_steps=1), out).runs[0].config)
    before = written_ns(out)
    with audits_of_some_measures(), figures_of_some_measures():
        result = compare(read_comparison(write(folder, model), out), command="oversharp compare study.toml")
    return Compared(file=folder / "study.toml", out=out, written_ns=before, result=result)


@pytest.mark.slow
def test_all_runs_lie_in_one_store_under_objective_and_seed(compared: Compared) -> None:
    assert [one.series for one in compared.result.audits] == ["grpo-seed-0", "grpo-seed-1", "iac-seed-0", "iac-seed-1"]
    assert compared.result.left_out == {}
    with Store.open(compared.result.store_path, read_only=True) as store:
        source = read_source(store, "audit.duckdb")
    assert {one.name for one in source.series} == {one.series for one in compared.result.audits}
    bases = {str(one.checkpoints.loc[one.checkpoints["is_base"], "checkpoint_id"].iloc[0]) for one in source.series}
    assert len(bases) == 1
    assert [int(step) for step in source.series[0].checkpoints["step"]] == [0, 1, 2]


@pytest.mark.slow
def test_the_report_compares_objectives_over_seeds(compared: Compared) -> None:
    html = compared.result.report_path.read_text(encoding="utf-8")
    assert "Objectives over seeds" in html
    assert "grpo with 2 seeds (0, 1) and iac with 2 seeds (0, 1), all from one base." in html
    assert "Differences between objectives, paired by seed" in html


@pytest.mark.slow
def test_an_interrupted_run_is_continued_and_not_begun_again(compared: Compared) -> None:
    assert compared.written_ns == {"grpo-seed-0": written_ns(compared.out)["grpo-seed-0"]}
    lines = (compared.out / "grpo-seed-0" / "metrics.jsonl").read_text(encoding="utf-8").splitlines()
    assert [json.loads(line)["step"] for line in lines] == [1, 2]


@pytest.mark.slow
def test_seeds_differ_and_objectives_share_their_prompts(compared: Compared) -> None:
    from pyarrow import parquet

    def prompts(name: str) -> list[str]:
        return parquet.read_table(compared.out / name / "rollouts" / "step_000002.parquet")["prompt"].to_pylist()

    assert prompts("grpo-seed-1") == prompts("iac-seed-1")
    assert prompts("iac-seed-0") != prompts("iac-seed-1")


@pytest.mark.slow
@pytest.mark.usefixtures("few_measures", "no_report")
def test_the_same_command_again_repeats_nothing(compared: Compared) -> None:
    before, report = written_ns(compared.out), compared.result.report_path.read_bytes()
    again = compare(read_comparison(compared.file, compared.out), command="oversharp compare study.toml")
    assert written_ns(compared.out) == before
    assert [one.samples_drawn for one in again.audits] == [0] * 4
    compared.result.report_path.write_bytes(report)  # in the place of what stands for one


@pytest.mark.slow
def test_the_plan_counts_what_is_missing(compared: Compared, tmp_path: Path, model: Path) -> None:
    fresh = plan_comparison(read_comparison(write(tmp_path, model), tmp_path / "out"))
    assert [(run.steps, run.done_steps, run.rollouts) for run in fresh.runs] == [(2, 0, 36)] * 4
    # 4 runs of 2 trained checkpoints, 2 problems: 4 samples each, 8 of the base
    assert (fresh.n_checkpoints, fresh.n_problems, fresh.audit_samples) == (9, 2, 2 * (8 * 4 + 8))
    assert list(tmp_path.iterdir()) == [tmp_path / "study.toml"]
    assert [" at most 80 samples " in replace(fresh, is_stopping=stops).lines[-2] for stops in (False, True)] == [
        False,
        True,
    ]
    done = plan_comparison(read_comparison(compared.file, compared.out))
    assert {(run.done_steps, run.rollouts) for run in done.runs} == {(2, 0)}
    assert "grpo-seed-0  grpo: 2 steps, all done, 0 rollouts to sample" in done.lines


def test_prompts_that_are_drawn_again_make_the_plan_a_range(tmp_path: Path, model: Path) -> None:
    path = write(tmp_path, model)
    path.write_text(path.read_text().replace('algorithm = "iac"', 'algorithm = "dynamic_sampling:max_rounds=3"'))
    plan = plan_comparison(read_comparison(path, tmp_path / "out"))
    assert (plan.runs[2].rollouts, plan.runs[2].most_rollouts) == (36, 108)
    assert plan.lines[3].endswith("36 to 108 rollouts to sample")


def test_a_setting_of_an_objective_that_is_wrong_is_told_before_anything_is_trained(
    tmp_path: Path, model: Path
) -> None:
    path = write(tmp_path, model)
    path.write_text(path.read_text().replace('algorithm = "iac"', 'algorithm = "iac:alfa=1"'))
    with pytest.raises(
        ConfigError, match=r"study\.toml \[\[run\]\] iac, seeds 0, 1: algorithm iac: unknown setting 'alfa'"
    ):
        compare(read_comparison(path, tmp_path / "out"))
    assert not (tmp_path / "out").exists()


@pytest.mark.slow
@pytest.mark.parametrize("dry_run", [True, False])
def test_all_that_cannot_work_is_told_for_all_runs_before_the_first_one(
    tmp_path: Path, model: Path, dry_run: bool
) -> None:
    path, out = write(tmp_path, model), tmp_path / "out"
    other = tmp_path / "other"
    shutil.copytree(model, other)
    tokenizer = json.loads((other / "tokenizer.json").read_text())
    vocabulary = tokenizer["model"]["vocab"]
    vocabulary["another"] = vocabulary.pop("99")
    (other / "tokenizer.json").write_text(json.dumps(tokenizer))
    runs = {
        "reference": (
            'algorithm = "grpo+kl"\nreference = "nowhere/at/all"',
            "--reference nowhere/at/all: no such directory",
        ),
        "memory": ('algorithm = "dlc:memory=no/model"', "--algorithm memory=no/model cannot be loaded"),
        "tokens": (f'algorithm = "dlc:memory={other}"', f"--algorithm memory={other}: the memory network's tokenizer"),
        "heads": ('engine = "vllm"', f"--model {model}: "),
        "long": ("max_tokens = 59", "6 prompt tokens and 59 response tokens exceed the model's context of 64; lower"),
        "group": ("group_size = 1", "with --group-size 1: a single rollout is not a group"),
        "file": ('problems = "none.jsonl"', "none.jsonl"),
    }
    text = path.read_text().replace("max_tokens = 1\npanel", "max_tokens = 62\npanel")
    text += "".join(f'\n[[run]]\nname = "{name}"\n{settings}\n' for name, (settings, _) in runs.items())
    path.write_text(text)
    train_with_other_settings(read_comparison(path, out).runs[0].config)
    before = sorted(out.rglob("*"))
    with pytest.raises(ConfigError) as caught:
        (plan_comparison if dry_run else compare)(read_comparison(path, out))
    held, *lines, audit = str(caught.value).splitlines()
    assert held == (
        f"{path} [[run]] grpo, seed 0: {out}/grpo-seed-0: contains a run with other settings (seed); choose another "
        "--out or use the settings in its config.toml"
    )
    for line, (name, (_, message)) in zip(lines, runs.items(), strict=True):
        assert line.startswith(f"{path} [[run]] {name}, seeds 0, 1: ")
        assert message in line
    assert audit.startswith(f"{path} [audit]: prompt ")
    assert "of 64; lower --max-tokens" in audit
    assert sorted(out.rglob("*")) == before


@pytest.mark.slow
def test_a_base_that_is_still_to_be_trained_is_checked_as_it_will_be(tmp_path: Path) -> None:
    path = tmp_path / "study.toml"
    runs = (
        '[[run]]\nname = "grpo"\n[[run]]\nname = "self"\nalgorithm = "self"\nreference = "{out}/base/checkpoint-400"\n'
    )
    path.write_text("seeds = [0]\n" + runs.format(out=tmp_path / "out") + "[audit]\nlimit = 2\nn = 2\n")
    assert [run.done_steps for run in plan_comparison(read_comparison(path, tmp_path / "out")).runs] == [0, 0]
    path.write_text(path.read_text().replace("seeds = [0]", "seeds = [0]\ntrain.max_tokens = 59"))
    with pytest.raises(ConfigError) as caught:
        plan_comparison(read_comparison(path, tmp_path / "out"))
    grpo, _ = str(caught.value).splitlines()
    assert grpo.startswith(f"{path} [[run]] grpo, seed 0: prompt ")
    (tmp_path / "out").write_text("a file in the way")
    with pytest.raises(ConfigError, match=r"\[base\]: .*base: cannot be written \(.*\); choose another --out\n"):
        plan_comparison(read_comparison(path, tmp_path / "out"))


@pytest.mark.slow
def test_a_run_beyond_its_steps_is_refused(compared: Compared, model: Path, tmp_path: Path) -> None:
    shorter = write(tmp_path, model, max_steps=1)
    with pytest.raises(ConfigError, match=r"is at step 2, beyond max_steps = 1; raise it to 2 or pass"):
        compare(read_comparison(shorter, compared.out))


@pytest.mark.slow
@pytest.mark.usefixtures("few_measures", "no_report")
def test_a_run_that_fails_is_left_out_and_the_others_go_on(tmp_path: Path, model: Path) -> None:
    path = write(tmp_path, model)
    text = path.read_text().replace("seeds = [0, 1]", "seeds = [0]")
    path.write_text(text.replace('name = "grpo"', f'name = "grpo"{DIVERGES}'))
    result = compare(read_comparison(path, tmp_path / "out"))
    assert [one.series for one in result.audits] == ["iac-seed-0"]
    assert "start a new run with a lower --learning-rate" in result.left_out["grpo-seed-0"]
    assert result.incomplete
    assert any(line.startswith("left out grpo-seed-0: ") for line in result.lines)


@pytest.mark.slow
@pytest.mark.usefixtures("few_measures", "no_report")
def test_a_run_that_learned_nothing_is_audited_and_one_that_cannot_be_is_left_out(tmp_path: Path, model: Path) -> None:
    """Nothing is learned from one prompt whose reward never varies: its checkpoints hold the same weights."""
    path = write(tmp_path, model, max_steps=1)
    never = json.dumps({"prompt": "4 5 :", "answer": "no", "modes": ["no such response"], "verifier": "modes"})
    (tmp_path / "never.jsonl").write_text(f"{never}\n")
    run = f'name = "grpo"\nproblems = "{tmp_path / "never.jsonl"}"\nbatch_prompts = 1'
    path.write_text(path.read_text().replace("seeds = [0, 1]", "seeds = [0]").replace('name = "grpo"', run))
    result = compare(read_comparison(path, tmp_path / "out"))
    assert [one.series for one in result.audits] == ["grpo-seed-0", "iac-seed-0"]
    assert not result.audits[0].verdict.positive
    with Store.open(result.store_path, read_only=True) as store:
        ids = store.frame("SELECT checkpoint_id FROM series_checkpoints WHERE series = 'grpo-seed-0' ORDER BY step")
        counts = store.frame("FROM problem_counts WHERE series = 'grpo-seed-0'").groupby("step")["n"].sum()
    base, late = ids["checkpoint_id"]
    assert late == f"{base}-1"
    assert counts[0] == counts[1] > 0
    weights = tmp_path / "out/iac-seed-0/checkpoint-1/model.safetensors"
    weights.write_bytes(weights.read_bytes()[:-8])
    again = compare(read_comparison(path, tmp_path / "out"))
    assert [one.series for one in again.audits] == ["grpo-seed-0"]
    assert "damaged or replaced" in again.left_out["iac-seed-0"]


@pytest.mark.slow
def test_a_comparison_without_a_finished_run_is_an_error(tmp_path: Path, model: Path) -> None:
    path = write(tmp_path, model)
    text = path.read_text().replace("seeds = [0, 1]", "seeds = [0]")
    path.write_text(text.replace("save_every = 1", f"save_every = 1{DIVERGES}"))
    with pytest.raises(TrainingError, match=r"no run can be compared; fix the first fault: .*lower --learning-rate"):
        compare(read_comparison(path, tmp_path / "out"))
