"""Measure the sampler "endpoint": speed against an engine in this process, and what kills and faults cost.

    python -m benchmarks.speed.endpoint models/smollm2 runs/demo/grpo

Speed: a vLLM server on this machine and vLLM in this process sample the same problems in turns, up to 64 responses at a
time. Starts and warm-up are not measured. The samples are compared. Kills: an audit of 5,220 requests to a server of
ours without a model, which fails at stated rates. The server and the audit are killed ten times each. Every sample is
compared with the one that the server computes from weights, prompt and seed. Audits: the series of ``make demo`` with
vLLM in this process, a vLLM server, and a server with SGLang's routes that has the model, fails at the same rates and
gives no seeds of ours. Writes ``benchmarks/results/endpoint.json``.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Lock
from typing import Any

import torch
from transformers import AutoModelForCausalLM

from benchmarks.speed.real_model_speed import PRECISION, SETTINGS, problems_of
from benchmarks.speed.results import circumstances, digits, write
from oversharp.diagnostics.http.pace import ROWS_PER_REQUEST, RequestLimits
from oversharp.diagnostics.http.transport import Transport
from oversharp.diagnostics.models.encoders import load_encoder
from oversharp.diagnostics.models.holder import ModelHolder
from oversharp.diagnostics.models.tokens import encode_prompt
from oversharp.diagnostics.records.errors import EndpointError
from oversharp.diagnostics.records.types import Checkpoint, Problem, SamplingSettings
from oversharp.diagnostics.samplers import SamplerContext, SampleRequest
from oversharp.diagnostics.samplers.contract import Sampler, row_key
from oversharp.diagnostics.samplers.endpoint.commands import CommandServer
from oversharp.diagnostics.samplers.endpoint.places import EndpointSettings, make_place
from oversharp.diagnostics.samplers.endpoint.sampler import EndpointSampler
from oversharp.diagnostics.samplers.vllm import VllmSampler
from oversharp.diagnostics.series import find_series
from oversharp.diagnostics.store import Store
from tests.conftest import write_checkpoint
from tests.samplers.endpoint.serving import StubProcess, stub_server
from tests.samplers.endpoint.stub import Stub, tokens_of

ROWS, N, N_PROBLEMS, TURNS = 64, 32, 8, 3
#: The settings that ``--sampler vllm`` gives its engine on a CPU.
SERVE = (
    "env HF_HUB_OFFLINE=1 VLLM_NO_USAGE_STATS=1 OMP_NUM_THREADS=1 VLLM_CPU_KVCACHE_SPACE=1 VLLM_USE_V2_MODEL_RUNNER=0 "
    f"VLLM_SERVER_DEV_MODE=1 {sys.executable} -m vllm.entrypoints.openai.api_server --model {{path}} --port {{port}} "
    f"--host 127.0.0.1 --dtype {PRECISION} --generation-config vllm --enforce-eager --max-model-len 512 "
    f"--max-num-seqs {ROWS} --max-num-batched-tokens 16384 --no-enable-chunked-prefill --block-size 32"
)

KILLS, STEPS, N_KILLED, PROBLEMS_KILLED, MAX_TOKENS = 10, (0, 20, 40), 64, 580, 8
#: Seconds of a reply, and between two kills. An audit needs some 5 s before its first request.
REPLY_S, LEAST_S, MOST_S = 0.5, 7.0, 12.0
FAULTS = {"429": 0.01, "500": 0.02, "cut": 0.02, "drop": 0.02, "abort": 0.02, "few": 0.02}
AUDIT_FLAGS = "--limit 40 --n 32 --until-solved 0 --no-controls --panel 0 --entropy-samples 0 --kernel-problems 0"
RELOAD = ["/pause", "/resume", "/collective_rpc", "/reset_prefix_cache"]


def measure_speed(path: Path) -> dict[str, Any]:
    """Return responses per second of a server and of an engine in this process, and whether their samples are equal."""
    checkpoint = Checkpoint(step=0, label="model", path=path, kind="full", weights_hash="model")
    flags = dict.fromkeys(("url", "model", "serve"), "--serve")
    place = make_place(flags, url=None, model=None, how="auto", serve=SERVE)
    with tempfile.TemporaryDirectory() as logs:
        endpoint = EndpointSettings(default=place, log_folder=Path(logs))
        models = [ModelHolder(device="cpu", dtype=PRECISION) for _ in range(2)]
        note = lambda line: print(line, flush=True)  # noqa: E731
        samplers: dict[str, Sampler] = {
            "endpoint": EndpointSampler(SamplerContext(models=models[0], endpoint=endpoint, note=note)),
            "in_process": VllmSampler(SamplerContext(models=models[1], batch_size=ROWS)),
        }
        try:
            for sampler in samplers.values():
                _draw(sampler, checkpoint, 0)
            took, equal = Counter[str](), Counter[str]()
            n_samples = 0
            for turn in range(1, TURNS + 1):
                drawn = {}
                for name, sampler in samplers.items():
                    start = time.perf_counter()
                    drawn[name] = _draw(sampler, checkpoint, turn)
                    took[name] += time.perf_counter() - start
                n_samples += len(drawn["endpoint"])
                equal["tokens"] += sum(drawn["in_process"].get(key) == ids for key, ids in drawn["endpoint"].items())
        finally:
            for sampler in samplers.values():
                sampler.close()
    return {
        "model": path.name,
        "precision": PRECISION,
        "problems": N_PROBLEMS,
        "samples_per_problem": N,
        "responses_at_a_time": ROWS,
        "turns": TURNS,
        "samples": n_samples,
        "equal_samples": equal["tokens"],
        "endpoint_samples_per_s": digits(n_samples / took["endpoint"]),
        "in_process_samples_per_s": digits(n_samples / took["in_process"]),
        "ratio": digits(took["in_process"] / took["endpoint"]),
        "goal_ratio": 0.9,
    }


def _draw(sampler: Sampler, checkpoint: Checkpoint, seed: int) -> dict[tuple[str, int], tuple[int, ...] | None]:
    requests = [SampleRequest(problem=one, sample_indices=tuple(range(N))) for one in problems_of(N_PROBLEMS)]
    settings = SamplingSettings(**{**vars(SETTINGS), "sampler": sampler.name, "seed": seed})
    samples = [one for batch in sampler.sample(checkpoint, requests, settings) for one in batch]
    return {(one.problem_id, one.sample_index): one.token_ids for one in samples}


def measure_kills(folder: Path) -> dict[str, Any]:
    """Kill server and audit ``KILLS`` times each, and count lost, repeated and wrong samples."""
    run, out = folder / "run", folder / "out"
    for step in STEPS:
        write_checkpoint(run / f"checkpoint-{step}", seed=step)
    rng = random.Random(0)
    prompts = {f"{' '.join(str(rng.randint(1, 20)) for _ in range(3))} = {rng.randint(1, 20)} :" for _ in range(9_999)}
    rows = [{"prompt": prompt, "answer": "7"} for prompt in sorted(prompts)[:PROBLEMS_KILLED]]
    problems = folder / "problems.jsonl"
    problems.write_text("".join(f"{json.dumps(row)}\n" for row in rows), encoding="utf-8")
    flags = f"--n {N_KILLED} --n-base {N_KILLED} --until-solved 0 --max-tokens {MAX_TOKENS} --no-controls --shard 1/1"
    server = StubProcess(routes=RELOAD, wait_s=REPLY_S, **FAULTS)
    command = [sys.executable, "-m", "oversharp", "audit", str(run), "--problems", str(problems), *flags.split()]
    command += ["--endpoint", server.url, "--out", str(out), "--quiet"]
    done, n_continued, start = Counter[str](), 0, time.perf_counter()
    process, next_s = subprocess.Popen(command), start + rng.uniform(LEAST_S, MOST_S)
    try:
        while process.poll() != 0:
            if process.poll() is not None:
                if process.returncode != EndpointError.exit_code:  # a restarted server has its first weights
                    raise RuntimeError(f"the audit ended with exit code {process.returncode}")
                n_continued += 1
                process = subprocess.Popen(command)
            if time.perf_counter() > next_s and done.total() < 2 * KILLS:
                if done["server"] < done["audit"]:
                    done["server"] += 1
                    server.kill()
                    server.start()
                else:
                    done["audit"] += 1
                    process.kill()
                    process.wait()
                    process = subprocess.Popen(command)
                next_s = time.perf_counter() + rng.uniform(LEAST_S, MOST_S)
            time.sleep(0.05)
    finally:
        process.kill()
        server.kill()
    return {
        "requests_without_faults": len(STEPS) * PROBLEMS_KILLED * (1 + -(-N_KILLED // ROWS_PER_REQUEST)),
        "fault_rates": FAULTS,
        "kills_of_the_server": done["server"],
        "kills_of_the_audit": done["audit"],
        "audits_stopped_by_a_restarted_server": n_continued,
        "wall_s": digits(time.perf_counter() - start),
        **check_samples(run, out / "audit.duckdb"),
    }


def check_samples(run: Path, path: Path) -> dict[str, int]:
    """Count the samples of a killed audit that are lost, twice in its store, or not those of their weights and seed."""
    n_all, n_wrong = len(STEPS) * PROBLEMS_KILLED * (N_KILLED + 1), 0
    with Store.open(path, read_only=True) as store:
        samples = store.frame("SELECT s.*, p.prompt FROM samples AS s JOIN problems AS p USING (problem_id)")
        usage = store.frame("SELECT note FROM events WHERE stage = 'endpoint usage'")["note"].map(json.loads)
    distinct = samples.drop_duplicates(["checkpoint_id", "problem_id", "greedy", "sample_index"])
    for checkpoint in find_series([run]).checkpoints:
        encoder, weights = load_encoder(checkpoint), str(checkpoint.path.resolve())
        own = distinct[distinct["checkpoint_id"] == checkpoint.checkpoint_id]
        for (problem_id, prompt), rows in own.groupby(["problem_id", "prompt"]):
            problem = Problem(task="", prompt=prompt, gold="", verifier="math")
            prompt_ids = list(encode_prompt(encoder.tokenizer, problem, SamplingSettings(sampler="endpoint")))
            first = row_key(0, checkpoint.checkpoint_id, problem_id) % (1 << 62)
            for row in rows.itertuples():
                seed = None if row.greedy else first + row.sample_index
                n_wrong += tokens_of(weights, prompt_ids, seed, MAX_TOKENS) != list(row.token_ids)
    return {
        "repeated_requests": sum(sum(note["repeated"].values()) for note in usage),
        "samples": n_all,
        "lost": n_all - len(distinct),
        "twice": len(samples) - len(distinct),
        "wrong": n_wrong,
    }


class ModelStub(Stub):
    """A server with SGLang's routes whose responses are samples of the model at the path that it was asked to load."""

    def __init__(self, settings: dict[str, Any]) -> None:
        super().__init__(settings)
        self._lock, self._path, self._model = Lock(), "", None

    @torch.inference_mode()
    def make_choices(self, body: dict[str, Any], n: int) -> list[dict[str, Any]]:
        """Sample with transformers' ``generate`` from the model under the asked name."""
        with self._lock:
            if self._path != self.weights[body["model"]]:
                self._path = self.weights[body["model"]]
                self._model = AutoModelForCausalLM.from_pretrained(self._path).eval()
            torch.manual_seed(body.get("seed") or 0)
            prompt_BL = torch.tensor([body["prompt"]])
            out = self._model.generate(
                input_ids=prompt_BL,
                attention_mask=torch.ones_like(prompt_BL),
                do_sample=body["temperature"] > 0,
                temperature=body["temperature"] or None,
                top_k=0,
                top_p=1.0,
                num_return_sequences=n,
                max_new_tokens=body["max_tokens"],
                eos_token_id=body["stop_token_ids"],
                pad_token_id=0,
            )
        rows = out[:, prompt_BL.shape[1] :].tolist()
        return [_make_choice(place, row, body["stop_token_ids"]) for place, row in enumerate(rows)]


def _make_choice(place: int, ids: list[int], end_ids: list[int]) -> dict[str, Any]:
    ends = [position for position, token in enumerate(ids) if token in end_ids]
    kept = ids[: ends[0] + 1] if ends else ids
    return {"index": place, "text": "", "finish_reason": "stop" if ends else "length", "token_ids": kept}


def measure_audits(run: Path) -> dict[str, Any]:
    """Audit a series in this process, by a vLLM server, and by one with SGLang's routes. Return their results."""
    results: dict[str, Any] = {}
    counts: dict[str, list[tuple[Any, ...]]] = {}
    with tempfile.TemporaryDirectory() as folder, _serve_vllm(run, Path(folder)) as vllm_url:
        sglang = {"owner": "sglang", "routes": ["/update_weights_from_disk"], **FAULTS}
        with stub_server(ModelStub, **sglang) as (stub_url, _):
            ways = {
                "in_process": ["--sampler", "vllm"],
                "vllm_server": ["--endpoint", vllm_url],
                "sglang_routes": ["--endpoint", stub_url],
            }
            for name, flags in ways.items():
                out = Path(folder) / name
                command = [
                    sys.executable,
                    "-m",
                    "oversharp",
                    "audit",
                    str(run),
                    "--task",
                    "countdown",
                    *AUDIT_FLAGS.split(),
                ]
                subprocess.run([*command, *flags, "--out", str(out)], check=False)
                with Store.open(out / "audit.duckdb", read_only=True) as store:
                    counted = store.frame("SELECT step, problem_id, n, n_correct FROM sampled_counts ORDER BY ALL")
                    (series,) = store.frame("SELECT series FROM current_audits")["series"]
                    verdict = store.verdict(series)
                assert verdict is not None
                counts[name] = [tuple(row) for row in counted.itertuples(index=False)]
                results[name] = {
                    "verdict": verdict.title,
                    "correct_samples": int(counted["n_correct"].sum()),
                    "samples": int(counted["n"].sum()),
                    "equal_counts": counts[name] == counts["in_process"],
                }
    return results


@contextmanager
def _serve_vllm(run: Path, logs: Path) -> Iterator[str]:
    """Yield the URL of a vLLM server that can replace its weights, first those of the run's base."""
    base = find_series([run]).base
    reload = "--worker-extension-cls oversharp.diagnostics.samplers.vllm_worker.WorkerExtension --max-logprobs 20"
    command = f"{SERVE.replace(PRECISION, 'float32').replace('512', '64')} {reload}"
    flags = dict.fromkeys(("url", "model", "serve"), "--serve")
    server = CommandServer(make_place(flags, url=None, model=None, how="auto", serve=command), base, logs)
    transport = Transport(server.url, limits=RequestLimits())
    try:
        server.wait(transport, lambda line: print(line, flush=True))
        yield server.url
    finally:
        transport.close()
        server.close()


def main() -> None:
    """Measure, write the result file and print it."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", type=Path, help="directory of a chat model, such as SmolLM2-135M-Instruct")
    parser.add_argument("run", type=Path, help="the GRPO run of `make demo`")
    given = parser.parse_args()
    os.environ["OMP_NUM_THREADS"] = "1"  # of both engines
    with tempfile.TemporaryDirectory() as folder:
        kills = measure_kills(Path(folder))
    print(json.dumps(kills), flush=True)
    speed, audits = measure_speed(given.model.resolve()), measure_audits(given.run.resolve())
    packages = ("oversharp", "vllm-cpu", "torch", "aiohttp")
    write(
        "endpoint",
        {"benchmark": "endpoint", "speed": speed, "kills": kills, "audits": audits, **circumstances(packages)},
    )


if __name__ == "__main__":
    main()
