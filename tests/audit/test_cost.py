"""Estimated cost of an audit: counts equal those of an audit, arithmetic by hand, assumptions are stated."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from typing import Any

import pandas as pd
import pytest

from oversharp.diagnostics.app.cli import main
from oversharp.diagnostics.app.console.plan import show_plan_cost
from oversharp.diagnostics.audit.cost.cost import AuditSize, cost_on_cpu, cost_on_gpu, dtype_on_cpu, plan_cost
from oversharp.diagnostics.audit.cost.estimate import _gpu_seconds, estimate_sampling, estimate_text
from oversharp.diagnostics.audit.cost.machines import MEASURED, SLOWER, Gpu, MeasuredCpu
from oversharp.diagnostics.audit.cost.rounds import SampleForecast
from oversharp.diagnostics.audit.cost.shapes import ModelShape, read_shape
from oversharp.diagnostics.models.core_speed import CoreSpeed, measure_core
from oversharp.diagnostics.records.errors import CheckpointError, ConfigError
from oversharp.diagnostics.records.types import SamplingSettings
from oversharp.diagnostics.store import Store
from tests.audit.small_audits import audit_key
from tests.samplers.tiny_models import build_model, build_tokenizer

#: 1,000 weights, all in products; attention adds 4 · 1 · 10 operations for each token that is seen.
SHAPE = ModelShape(
    name="m",
    parameters=1000,
    product_parameters=1000,
    layers=1,
    hidden_size=10,
    attention_width=10,
    kv_bytes=40,
    context=None,
    experts=False,
    shares_prompts=True,
)
SIZE = AuditSize(problems=10, checkpoints=3, n=4, tokens=20, prompt_tokens=40)
#: 273 rows of 60 tokens are a batch, 8 of a problem under each of 4 checkpoints and 12 more under the base.
PROMPTS_READ = 10 * (4 * (8 + 272) / 273 + (12 + 272) / 273)
CPU = MeasuredCpu(
    hardware="one core",
    model="m",
    sampling_flop=1e3,
    scoring_flop=2e3,
    kernel_flop=500.0,
    end_s=36.0,
    sample_s=0.5,
    speed=CoreSpeed(dtype="bfloat16", decoding=10.0, reading=20.0, gradients=5.0),
)
GPU = Gpu(name="G", bfloat16_flop=1e6, float32_flop=1e5, bytes_per_s=1e4, memory_bytes=1e4)


@pytest.mark.slow
@pytest.mark.xdist_group("audited_store")
def test_the_counts_are_those_of_an_audit(audited_store: Path) -> None:
    size = AuditSize(
        problems=4, checkpoints=2, n=8, tokens=6, prompt_tokens=13, panel=2, kernel_problems=1, kernel_responses=3
    )
    with Store.open(audited_store, read_only=True) as store:
        drawn = store.frame("SELECT count(*) AS n FROM samples")["n"][0]
        rows = store.frame("SELECT kernel_id, count(*) AS n FROM kernel_rows GROUP BY kernel_id")["n"]
        checkpoints = store.frame("SELECT count(*) AS n FROM checkpoints")["n"][0]
    assert (drawn, checkpoints) == (size.sampled, size.checkpoints + 1)
    assert rows.sum() <= size.kernel_rows  # responses that are equal are one row
    assert rows.max() > size.kernel_rows / (2 * (size.checkpoints + 1))


def test_the_hours_of_a_cpu_follow_from_operations_and_measured_rates() -> None:
    plan = cost_on_cpu(SHAPE, SIZE, CPU.speed, CPU)
    # sampling: 280 responses of 20 tokens and 10 · 4 prompts of 40, each token 2,000 + 40 · 50 operations
    # scoring: 10 · 4 · (2 · 4 + 3) responses in batches of 16,384 tokens; kernel rows 8 · 2 · 6 · 4 of 60 tokens, each
    # 2,000 + 40 · 30 operations, three passes
    assert [(one.name, round(one.hours * 3600, 6)) for one in plan.stages] == [
        ("sample", (280 * 20 + 40 * 40) * 4000 / 1e3),
        ("teacher-force", round((440 * 20 + PROMPTS_READ * 40) * 4000 / 2e3, 6)),
        ("kernel", 3 * 384 * 60 * 3200 / 500),
        ("grade to report", 36.0 + 0.5 * 280),
    ]
    assert plan.hours == sum(one.hours for one in plan.stages)
    assert {one.basis for one in plan.stages} == {"measured rate"}


def test_a_stopping_rule_has_hours_at_most_and_at_least() -> None:
    stopping = replace(SIZE, n=64, first=16, enough=4)
    for cost in (
        lambda size: cost_on_cpu(SHAPE, size, CPU.speed, CPU),
        lambda size: cost_on_gpu(SHAPE, size, GPU),
    ):
        uniform, made = cost(replace(SIZE, n=64)), cost(stopping)
        assert uniform.least_hours is None
        assert made.stages == uniform.stages
        # as the hours of the smallest audit, apart from sampling and grading
        n_least = 10 * (3 * (16 + 1) + 16 + 1 + 4 + stopping._controls_up_to(16))
        assert stopping.least_sampled == n_least
        changing = [stage.hours for stage in made.stages if stage.name == "sample"]
        assert made.least_hours is not None
        assert made.hours - changing[0] < made.least_hours < made.hours
    on_gpu = cost_on_gpu(SHAPE, stopping, GPU)
    others = on_gpu.hours - on_gpu.stages[0].hours
    assert on_gpu.least_hours == pytest.approx(
        others + on_gpu.stages[0].hours * stopping.least_sampled / stopping.sampled
    )


def test_controls_stop_too() -> None:
    size = AuditSize(problems=1, checkpoints=3, n=256, tokens=20, prompt_tokens=40, first=16, enough=4)
    assert size._controls_up_to(512) > size._controls_up_to(16) > 0
    assert size.sampled == 3 * 257 + 513 + 4 + size._controls_up_to(512)


def test_the_command_prints_both_hours_and_takes_the_rule_of_an_audit(
    model_folder: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("oversharp.diagnostics.audit.cost.cost.measure_core", lambda dtype: MEASURED.speed)

    def printed(*flags: str) -> str:
        with pytest.raises(SystemExit) as stop:
            main(["plan", "--cost", model_folder, "--problems", "9", "--tokens", "9", "--prompt-tokens", "9", *flags])
        assert not stop.value.code
        lines = capsys.readouterr().out
        assert max(map(len, lines.splitlines())) <= 80
        return " ".join(lines.split())

    assert "n = 256 (512 of the base), until 4 correct" in printed()
    assert "the table is for problems that never stop; if all stop after their first round of 32 samples" in printed()
    assert "first round of 8 samples" in printed("--until-solved", "2", "--first", "8")
    assert "stopping" not in printed("--until-solved", "0")
    assert "stopping" not in printed("--n", "32")


def test_rates_are_carried_over_to_a_cpu_of_another_pace() -> None:
    there = cost_on_cpu(SHAPE, SIZE, CPU.speed, CPU)
    here = cost_on_cpu(SHAPE, SIZE, CoreSpeed(dtype="float32", decoding=5.0, reading=5.0, gradients=10.0), CPU)
    times = [one.hours / other.hours for one, other in zip(here.stages, there.stages, strict=True)]
    assert times == pytest.approx([2, 4, 0.5, 1])
    assert here.machine.startswith("one core of this CPU in float32; compared with the reference core (")
    assert here.machine.endswith("decoding is 0.5 times as fast, prompt processing 0.25 times and gradients 2 times")
    assert CPU.hardware in here.machine


@pytest.mark.slow
def test_the_pace_of_this_cpu_is_one_that_a_cpu_can_have() -> None:
    speed = measure_core("float32")
    assert speed.dtype == "float32"
    assert all(1e8 < rate < 1e13 for rate in (speed.decoding, speed.reading, speed.gradients))


@pytest.mark.parametrize(
    ("parameters", "has_products", "dtype"),
    [(10**9, True, "bfloat16"), (10**9, False, "float32"), (10**7, True, "float32")],
)
def test_the_plan_is_for_the_precision_that_the_audit_will_take(
    parameters: int, has_products: bool, dtype: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("oversharp.diagnostics.models.devices.has_products_of", lambda _: has_products)
    assert dtype_on_cpu(replace(SHAPE, parameters=parameters)) == dtype


def test_prompts_are_counted_as_often_as_they_are_read() -> None:
    def scored_s(size: AuditSize, **changes: Any) -> float:
        return cost_on_cpu(replace(SHAPE, **changes), size, CPU.speed, CPU).stages[1].hours * 3600

    anew = (440 * 20 + 440 * 40) * 4000 / 2e3
    assert scored_s(SIZE, shares_prompts=False) == pytest.approx(anew)
    # as wide as that a CPU takes one row a batch
    assert scored_s(SIZE, hidden_size=1 << 15) == pytest.approx(anew)


def test_a_gpu_is_bound_by_bytes_or_by_operations_and_told_to_be_unmeasured() -> None:
    # .6 of 10,000 bytes, less 2,000 of weights, have room for one row of 60 tokens of 40 bytes
    plan = cost_on_gpu(SHAPE, SIZE, GPU)
    step_s = (2000 + 1 * 40 * 50) / 1e4  # reading takes longer than 4,000 operations at 1e6 a second
    assert plan.stages[0].amount.endswith("1 at a time")
    assert plan.stages[0].hours * 3600 == pytest.approx(280 * 20 * step_s)
    assert plan.stages[1].hours * 3600 == pytest.approx((440 * 20 + PROMPTS_READ * 40) * 4000 / 1e6)
    assert {one.basis for one in plan.stages} == {"roofline"}
    fast_memory = Gpu(name="G", bfloat16_flop=1e4, float32_flop=1e5, bytes_per_s=1e9, memory_bytes=1e12)
    bound_by_products = cost_on_gpu(SHAPE, SIZE, fast_memory)
    assert bound_by_products.stages[0].hours * 3600 == pytest.approx(280 * 20 * 4000 / 1e4)


def test_what_does_not_fit_a_gpu_is_told() -> None:
    assert [one.fits for one in cost_on_gpu(SHAPE, SIZE, GPU).memory] == [True, False]  # kernels take 1 GiB


@pytest.fixture(scope="module")
def model_folder(tmp_path_factory: pytest.TempPathFactory) -> str:
    folder = tmp_path_factory.mktemp("model")
    build_tokenizer().save_pretrained(folder)
    build_model(0, max_position_embeddings=128).save_pretrained(folder)
    return str(folder)


def test_the_shape_of_a_model_leaves_out_of_products_what_is_only_looked_up(model_folder: str) -> None:
    model, shape = build_model(0), read_shape(model_folder)
    assert shape.parameters == sum(one.numel() for one in model.parameters())
    assert shape.product_parameters == shape.parameters - model.get_input_embeddings().weight.numel()
    assert (shape.layers, shape.context) == (model.config.num_hidden_layers, 128)


@pytest.mark.parametrize(
    ("size", "gpu", "told"),
    [
        ({"problems": 0}, None, "--problems 0: must be at least 1"),
        ({"tokens": 900}, None, "--tokens 900: .* the model's context of 128; lower it"),
        ({}, "h10", "--gpu h10: not among the data sheets; did you mean: h100"),
    ],
)
def test_what_cannot_be_planned_is_told_in_one_line(
    model_folder: str, size: dict[str, int], gpu: str | None, told: str
) -> None:
    with pytest.raises(ConfigError, match=told):
        plan_cost(
            model_folder,
            AuditSize(**{"problems": 1, "checkpoints": 1, "n": 1, "tokens": 9, "prompt_tokens": 9, **size}),
            gpu=gpu,
        )


def test_a_configuration_alone_is_enough(model_folder: str, tmp_path: Path) -> None:
    (tmp_path / "config.json").write_text((Path(model_folder) / "config.json").read_text())
    assert replace(read_shape(str(tmp_path)), name=model_folder) == read_shape(model_folder)


def test_large_amounts_are_printed_without_exponents(capsys: pytest.CaptureFixture[str]) -> None:
    shape = replace(SHAPE, parameters=7_700_000_000)
    size = replace(SIZE, problems=100_000, n=256, tokens=2000)
    for plan in (cost_on_cpu(shape, size, CPU.speed, CPU), cost_on_gpu(shape, size, GPU)):
        show_plan_cost(plan, False)
        printed = " ".join(capsys.readouterr().out.split())
        assert "61.6 GB for the checkpoints as whole models in bfloat16" in printed
        assert f"{size.sampled:,} responses, {size.sampled * 2000 / 1e9:.0f} G tokens" in printed
        assert not re.search(r"\de[+-]\d", printed)


def test_an_adapter_is_refused(tmp_path: Path) -> None:
    (tmp_path / "adapter_config.json").write_text("{}")
    with pytest.raises(CheckpointError, match="is an adapter; pass its base model"):
        read_shape(str(tmp_path))


def test_a_plan_for_this_cpu_and_one_for_a_gpu_say_what_they_rest_on(
    model_folder: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(
        "oversharp.diagnostics.audit.cost.cost.measure_core", lambda dtype: replace(MEASURED.speed, dtype=dtype)
    )
    size = AuditSize(problems=1, checkpoints=1, n=1, tokens=9, prompt_tokens=9)
    said = []
    for gpu in (None, "h100"):
        show_plan_cost(plan_cost(model_folder, size, gpu=gpu), False)
        said.append(" ".join(capsys.readouterr().out.split()))
    assert "machine one core of this CPU in float32; compared with the reference core (" in said[0]
    assert "decoding is 1 times as fast, prompt processing 1 times and gradients 1 times" in said[0]
    assert "a lower bound, not measured" in said[1]
    assert "this CPU" not in said[1]


def test_before_anything_is_drawn_a_guess_follows_from_rates_measured_elsewhere(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("oversharp.diagnostics.models.devices.has_products_of", lambda _: True)
    tokenizer = build_tokenizer()
    model = build_model(0)
    model.save_pretrained(tmp_path)
    tokenizer.save_pretrained(tmp_path)
    shape = read_shape(str(tmp_path))
    flop = [tokens * shape.token_flop(40 + tokens / 2) for tokens in (5.0, 20.0)]
    n_samples = round(
        MEASURED.sampling_flop * 600 / flop[0]
    )  # a quarter takes ten minutes of the one core of a small model
    said = estimate_sampling(str(tmp_path), n_samples=n_samples, max_tokens=20, prompt_tokens=40, device="cpu")
    most = estimate_text(600, 600 * flop[1] / flop[0], max_tokens=20, gpu=None)
    assert said == most
    monkeypatch.setattr("oversharp.diagnostics.models.devices.has_products_of", lambda _: False)
    slower = estimate_sampling(str(tmp_path), n_samples=n_samples, max_tokens=20, prompt_tokens=40, device="cpu")
    assert SLOWER in slower
    assert SLOWER not in said
    assert "about 10 min if responses take a quarter of their 20 tokens" in said
    assert MEASURED.hardware in said
    assert estimate_sampling(str(tmp_path / "no"), n_samples=1, max_tokens=1, prompt_tokens=1, device="cpu") == ""


def test_a_guess_for_a_gpu_is_the_least_that_its_data_sheet_allows() -> None:
    # 6,000 bytes of cache less 2,000 of weights hold 1 row of 60 tokens of 40 bytes; a step reads 2,000 + 50 * 40 bytes
    assert _gpu_seconds(SHAPE, GPU, 10, 20.0, 40.0) == pytest.approx(10 * 20 / 1 * 0.4)


def _rounds(*rows: tuple[str, str, int, int, int]) -> pd.DataFrame:
    return pd.DataFrame(rows, columns=["checkpoint_id", "problem_id", "n", "n_drawn", "n_correct"])


def _forecast() -> SampleForecast:
    key = audit_key("run", SamplingSettings(sampler="vllm"), n=4, n_base=8)
    return SampleForecast(replace(key, first_round=2, enough=1), "base")


def test_before_the_first_samples_an_audit_with_rounds_may_need_all() -> None:
    forecast = _forecast()
    changes = forecast.update(
        _rounds(*((checkpoint, problem, 2, 0, 0) for checkpoint in ("base", "late") for problem in "ab"))
    )
    assert forecast.is_bound
    assert changes == {"base": 16, "late": 8}
    assert (forecast.n_planned("base"), forecast.n_most("base"), forecast.n_most("late")) == (4, 16, 8)


def test_the_samples_of_the_base_tell_how_many_the_others_may_need() -> None:
    forecast = _forecast()
    forecast.update(_rounds(*((checkpoint, problem, 2, 0, 0) for checkpoint in ("base", "late") for problem in "ab")))
    # a is solved; b has the rate (0 + 1/2) / (2 + 1): 4 samples, and with (5/6)^2 four more
    changes = forecast.update(_rounds(("base", "a", 2, 2, 1), ("base", "b", 4, 2, 0)))
    assert not forecast.is_bound
    assert changes["base"] == round(2 + 4 + (5 / 6) ** 2 * 4) - 16
    # of the late checkpoint, a has the rate 1/2 and b 1/6: two samples, and two more if both are wrong
    assert changes["late"] == round(2 + (1 / 2) ** 2 * 2 + 2 + (5 / 6) ** 2 * 2) - 8
    assert (forecast.n_most("base"), forecast.n_most("late")) == (2 + 8, 8)
    # its own samples count, not the base's; a half-drawn round does not
    changes = forecast.update(_rounds(("late", "a", 4, 3, 0), ("late", "b", 2, 2, 1)))
    assert (changes, forecast.expected["late"]) == ({"late": 0}, 6)
    assert (forecast.n_planned("late"), forecast.n_most("late")) == (6, 6)


def test_a_finished_audit_expects_no_more_samples() -> None:
    forecast = _forecast()
    forecast.update(
        _rounds(("base", "a", 2, 2, 2), ("base", "b", 8, 8, 0), ("late", "a", 4, 4, 0), ("late", "b", 2, 2, 1))
    )
    for checkpoint_id, n in (("base", 10), ("late", 6)):
        assert (forecast.n_planned(checkpoint_id), forecast.n_most(checkpoint_id)) == (n, n)
        assert forecast.expected[checkpoint_id] == n


def test_a_forecast_needs_a_stopping_rule() -> None:
    with pytest.raises(ValueError, match="has no stopping rule"):
        SampleForecast(audit_key("run", SamplingSettings(sampler="vllm"), n=4, n_base=8), "base")
