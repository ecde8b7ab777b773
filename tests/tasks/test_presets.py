"""Presets: prompts and sampling settings of papers, and their effect on an audit."""

import json
from pathlib import Path
from typing import Any

import pytest

from oversharp.diagnostics.app.compare_config import read_comparison
from oversharp.diagnostics.audit.audit import audit
from oversharp.diagnostics.audit.config import AuditConfig
from oversharp.diagnostics.audit.settings import sampling_settings
from oversharp.diagnostics.records.errors import ConfigError
from oversharp.diagnostics.records.progress import SilentProgress
from oversharp.diagnostics.records.types import SamplingSettings
from oversharp.diagnostics.series import find_series
from oversharp.diagnostics.store import Store
from oversharp.diagnostics.tasks.presets import PRESET_SETTINGS, PRESETS

#: [B] C.2 and [C] A.3, A.4, written out once more: prompt, temperature, top-p, most tokens.
STEPS = "Please reason step by step, and put your final answer within \\boxed{}."
THINK = "Let's think step by step and output the final answer within \\boxed{}."
PAPERS = {
    "two_stage": (
        "<|im_start|>system\nYou are a helpful assistant.<|im_end|>\n"
        f"<|im_start|>user\n1+1?\n{STEPS}<|im_end|>\n<|im_start|>assistant\n",
        (0.6, 0.95, 3072),
    ),
    "boundary_paradox_qwen": (
        f"<|im_start|>system\n{STEPS}<|im_end|>\n<|im_start|>user\n1+1?\n{THINK}<|im_end|>\n<|im_start|>assistant\n",
        (0.6, 0.95, 3072),
    ),
    "boundary_paradox_llama": (
        "<|start_header_id|>system<|end_header_id|>\n\nCutting Knowledge Date: December 2023\n\n<|eot_id|>"
        f"<|start_header_id|>user<|end_header_id|>\n\n1+1?\n{THINK}<|eot_id|>"
        "<|start_header_id|>assistant<|end_header_id|>\n\n",
        (0.6, 0.95, 16384),
    ),
}


def settings_of(series: Path, **given: Any) -> SamplingSettings:
    base = find_series([series], base=None, name=None).base
    config = AuditConfig(task="benchmark:math500", **given)
    return sampling_settings(
        config, base, sampler="transformers", chat=bool(config.chat), chat_args=None, dtype="float32"
    )


@pytest.mark.parametrize("name", PRESETS)
def test_a_preset_asks_and_samples_as_its_paper_did(name: str, countdown_series: Path) -> None:
    made = settings_of(countdown_series, preset=name)
    prompt = made.prompt_template.replace("{prompt}", "1+1?")
    assert (prompt, (made.temperature, made.top_p, made.max_tokens)) == PAPERS[name]
    assert (made.top_k, made.system_prompt, made.chat) == (0, "", False)


@pytest.mark.slow
def test_what_the_user_names_wins_even_if_it_is_the_default(countdown_series: Path) -> None:
    given: dict[str, Any] = {"temperature": 1.0, "top_p": 1.0, "max_tokens": 7, "prompt_template": "{prompt}"}
    assert set(given) == set(PRESET_SETTINGS)
    for name, value in given.items():
        made = settings_of(countdown_series, preset="two_stage", **{name: value})
        others = settings_of(countdown_series, preset="two_stage")
        assert getattr(made, name) == value != getattr(others, name)
        assert {other for other in PRESET_SETTINGS if getattr(made, other) != getattr(others, other)} == {name}
        config = AuditConfig(task="t", preset="two_stage", **{name: value})
        assert set(config.set_by_preset) == set(PRESET_SETTINGS) - {name}


def test_without_a_preset_nothing_is_set(countdown_series: Path) -> None:
    made = settings_of(countdown_series)
    assert (made.prompt_template, made.temperature, made.top_p) == ("{prompt}", 1.0, 1.0)
    assert AuditConfig(task="t").set_by_preset == {}


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"preset": "two_stages"}, "--preset 'two_stages' is unknown; did you mean: two_stage"),
        (
            {"preset": "two_stage", "chat": True},
            "--chat: the template of --preset two_stage already contains chat turns",
        ),
        ({"preset": "two_stage", "temperature": 0.0}, "--temperature 0.0"),
        ({"preset": "two_stage", "prompt_template": "Q:"}, "must contain {prompt}"),
    ],
)
def test_what_cannot_work_is_refused(given: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError) as raised:
        AuditConfig(task="t", **given)
    assert message in str(raised.value)


def test_a_template_of_ones_own_may_go_into_the_chat_template(countdown_series: Path) -> None:
    made = settings_of(countdown_series, preset="two_stage", chat=True, prompt_template="{prompt} Think.")
    assert (made.chat, made.prompt_template, made.temperature) == (True, "{prompt} Think.", 0.6)


class Notes(SilentProgress):
    def __init__(self) -> None:
        self.told: list[str] = []

    def note(self, text: str) -> None:
        self.told.append(text)


@pytest.mark.slow
@pytest.mark.usefixtures("few_measures")
def test_what_the_preset_set_is_shown_and_recorded(countdown_series: Path, tmp_path: Path) -> None:
    notes = Notes()
    small = {"max_tokens": 6, "limit": 2, "n": 2, "panel": 0, "kernel_problems": 0}
    config = AuditConfig(task="countdown", preset="two_stage", prompt_template="{prompt}", out=tmp_path, **small)
    audit([countdown_series], config, progress=notes)
    assert 'preset two_stage sets {"temperature": 0.6, "top_p": 0.95}' in notes.told
    with Store.open(tmp_path / "audit.duckdb", read_only=True) as store:
        origin = store.frame("SELECT CAST(provenance AS VARCHAR) AS p FROM current_audits")["p"].iloc[0]
        used = store.frame("SELECT temperature, top_p, prompt_template, max_tokens FROM settings").iloc[0].tolist()
    assert json.loads(origin)["preset"] == {"name": "two_stage", "temperature": 0.6, "top_p": 0.95}
    assert used == [0.6, 0.95, "{prompt}", 6]


def test_a_preset_of_a_comparison_asks_in_its_own_way(tmp_path: Path) -> None:
    file = tmp_path / "study.toml"
    text = 'seeds = [0]\n[train]\nprompt_template = "Q: {prompt}"\n[[run]]\nname = "grpo"\n[audit]\n'
    file.write_text(text, encoding="utf-8")
    assert read_comparison(file).audit.used_prompt_template == "Q: {prompt}"
    file.write_text(f'{text}preset = "two_stage"\n', encoding="utf-8")
    assert read_comparison(file).audit.used_prompt_template == PRESETS["two_stage"].prompt_template
