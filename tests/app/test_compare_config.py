"""The TOML file of a comparison: its settings, and one-line errors for invalid ones."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from oversharp.diagnostics.app.compare_config import Comparison, read_comparison
from oversharp.diagnostics.records.errors import ConfigError

GOOD = """
seeds = [1, 0]

[train]
max_steps = 4
batch_prompts = 4
group_size = 4

[[run]]
name = "grpo"

[[run]]
name = "iac-slow"
algorithm = "iac:alpha=0.5"
learning_rate = 1

[audit]
n = 16
k = [1, 8]
"""


def read(folder: Path, text: str, out: Path | None = None) -> Comparison:
    path = folder / "study.toml"
    path.write_text(text, encoding="utf-8")
    return read_comparison(path, out)


def test_every_objective_runs_under_every_seed_from_one_base(tmp_path: Path) -> None:
    made = read(tmp_path, GOOD)
    assert made.out == Path("runs/study")
    assert [run.name for run in made.runs] == ["grpo-seed-0", "grpo-seed-1", "iac-slow-seed-0", "iac-slow-seed-1"]
    assert made.base is not None
    assert made.base.output_dir == Path("runs/study/base")
    assert {run.config.model for run in made.runs} == {"runs/study/base/checkpoint-1200"}
    assert {run.config.max_steps for run in made.runs} == {4}
    assert [run.config.seed for run in made.runs] == [0, 1, 0, 1]
    assert made.runs[2].config.output_dir == Path("runs/study/iac-slow-seed-0")
    assert made.runs[2].config.resume
    assert (made.runs[2].config.algorithm, made.runs[2].config.learning_rate) == ("iac:alpha=0.5", 1.0)
    assert isinstance(made.runs[2].config.learning_rate, float)


def test_the_audit_asks_as_the_runs_were_trained(tmp_path: Path) -> None:
    made = read(tmp_path, GOOD.replace("max_steps = 4", 'max_steps = 4\nprompt_template = "Q: {prompt}"'), Path("o"))
    assert made.audit.prompt_template == "Q: {prompt}"
    assert (made.audit.task, made.audit.n, made.audit.k, made.audit.out) == ("countdown", 16, (1, 8), Path("o"))
    assert made.audit.sampler == "transformers"


def test_a_model_that_is_there_needs_no_base(tmp_path: Path) -> None:
    made = read(tmp_path, GOOD.replace("[train]", '[train]\nmodel = "some/model"'))
    assert made.base is None
    assert {run.config.model for run in made.runs} == {"some/model"}
    assert made.audit.sampler == "auto"


def test_the_base_has_settings_of_its_own(tmp_path: Path) -> None:
    made = read(tmp_path, f"{GOOD}\n[base]\nmax_steps = 300\nseed = 5\n")
    assert made.base is not None
    assert (made.base.max_steps, made.base.seed) == (300, 5)
    assert made.runs[0].config.model == "runs/study/base/checkpoint-300"


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("seeds = [1, 0]", "seeds = 3", "seeds = 3 is not a list of different whole numbers of 0 or more; write seeds"),
        ("seeds = [1, 0]", "seeds = [0, 0]", "seeds = [0, 0] is not a list of different"),
        ("seeds = [1, 0]", "seeds = []", "seeds = [] is not a list"),
        ("seeds = [1, 0]", "seeds = [true]", "seeds = [True] is not a list"),
        ("seeds = [1, 0]", "", "seeds is missing; write seeds = [0, 1, 2]"),
        ("seeds = [1, 0]", "sedes = [0]", "sedes is no key or table of a comparison; did you mean seeds?"),
        ("max_steps = 4", "max_step = 4", "[train]: max_step is no setting; did you mean max_steps?"),
        ("max_steps = 4", 'max_steps = "4"', "[train]: max_steps='4': takes a whole number, not str"),
        ("max_steps = 4", "max_steps = true", "[train]: max_steps=True: takes a whole number, not bool"),
        ("max_steps = 4", "max_steps = 0", "[[run]] grpo: --max-steps 0: must be at least 1"),
        ("max_steps = 4", "seed = 4", "[train]: seed cannot be set here; give seeds = [0, 1, 2] at the top"),
        ("max_steps = 4", 'output_dir = "x"', "[train]: output_dir cannot be set here; pass --out DIR"),
        (
            "learning_rate = 1",
            'learning_rate = "fast"',
            "[[run]] iac-slow: learning_rate='fast': takes a number, not str",
        ),
        (
            "learning_rate = 1",
            "learning_rate = -1",
            "[[run]] iac-slow: --learning-rate -1.0: must be a finite number above 0",
        ),
        ("learning_rate = 1", 'model = "m"', "[[run]] iac-slow: model cannot be set here; put model under [train]"),
        ("learning_rate = 1", "chat = true", "[[run]] iac-slow: chat cannot be set here; put chat under [train]"),
        ("learning_rate = 1", 'precision = "fp8"', "precision='fp8': takes float32 or bfloat16"),
        ('"iac:alpha=0.5"', '"iacc"', "algorithm 'iacc': unknown objective 'iacc'; did you mean"),
        ('name = "iac-slow"', 'name = "grpo"', "[[run]] grpo: the name is used twice"),
        ('name = "iac-slow"', 'name = "iac-seed-1"', "[[run]] 2: name = 'iac-seed-1' is no valid name"),
        ('name = "iac-slow"', 'name = "../x"', "[[run]] 2: name = '../x' is no valid name"),
        ('name = "iac-slow"', "", "[[run]] 2: name is missing"),
        ("[audit]", "[audit]\ntop_up = 4", "[audit]: top_up cannot be set here; raise n"),
        ("k = [1, 8]", "k = [1, 32]", "[audit]: --k 32 is larger than --n 16"),
        ("k = [1, 8]", 'k = ["a"]', "[audit]: k=['a']: takes a list of whole numbers"),
        ("[audit]", "[[audit]]", "audit: must be a table; write [audit]"),
        ("[audit]", "[base]\nresume = true\n[audit]", "[base]: resume cannot be set here"),
        ('algorithm = "iac:alpha=0.5"\nlearning_rate = 1\n', "", "[[run]] iac-slow: has the same settings as grpo"),
        ("[train]", '[base]\nseed = 1\n[train]\nmodel = "m"', "[base]: [train] has a model, so no base is trained"),
        ("[train]", '[train]\nmodel = "m"\nproblems = "train.jsonl"', "[audit]: set problems = FILE.jsonl"),
        ("[audit]", "[audit", "not TOML ("),
        (GOOD, 'seeds = [0]\n[run]\nname = "grpo"', "[run]: must be a list of tables; write [[run]] with two brackets"),
        (GOOD, "seeds = [0]\n", 'no run; add [[run]] with name = "grpo"'),
    ],
)
def test_what_cannot_work_is_told_with_file_and_key_and_mend(tmp_path: Path, old: str, new: str, message: str) -> None:
    assert old in GOOD
    with pytest.raises(ConfigError, match=re.escape(message)) as caught:
        read(tmp_path, GOOD.replace(old, new))
    assert str(caught.value).startswith(str(tmp_path / "study.toml"))
    assert "\n" not in str(caught.value)


def test_a_file_that_is_not_there_is_told(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"cannot be read \(No such file or directory\)"):
        read_comparison(tmp_path / "nothing.toml")


def test_problems_of_ones_own_are_audited_on_others(tmp_path: Path) -> None:
    own = GOOD.replace("[train]", '[train]\nmodel = "some/model"\nproblems = "train.jsonl"')
    assert read(tmp_path, f'{own}problems = "test.jsonl"\n').audit.problems == Path("test.jsonl")
