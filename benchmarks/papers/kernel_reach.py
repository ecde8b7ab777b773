"""Compare the kernel's prediction with the effect of training, from one small step to many Adam steps.

``python -m benchmarks.papers.kernel_reach`` (after ``make demo``; about a minute) draws batches of on-policy responses
of the demo's base to training queries. It trains copies of the model on them with the plain policy gradient Σ_j A_j·log
π_j, A normalised within a query. For the responses of a held-out panel and of the batch, it compares the change of log
π with Σ_j K_ij·A_j from the kernel before training. It writes Pearson's r, one value per seed, and its mean to
``benchmarks/results/kernel_reach.json``.
"""

from __future__ import annotations

import copy
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import torch
from jaxtyping import Float

from benchmarks.speed.results import circumstances, digits, write
from oversharp.diagnostics.engine.teacher_forcing import ForcedRequest, teacher_force
from oversharp.diagnostics.kernel import KernelRow, cross_kernel
from oversharp.diagnostics.models.devices import cpu_threads
from oversharp.diagnostics.models.holder import ModelHolder
from oversharp.diagnostics.models.load import LoadedModel
from oversharp.diagnostics.models.tokens import encode_prompt, response_ids
from oversharp.diagnostics.records.types import Checkpoint, Problem, SamplingSettings
from oversharp.diagnostics.samplers import SamplerContext, SampleRequest, make_sampler
from oversharp.diagnostics.tasks import countdown
from oversharp.trainers.objectives.estimators.grpo import standardise_rewards

BASE = Path(__file__).parents[2] / "runs" / "demo" / "base" / "checkpoint-1200"
SETTINGS = SamplingSettings(sampler="transformers", max_tokens=countdown.RESPONSE_TOKENS)
QUERIES, GROUP = 32, 8
PANEL_PROBLEMS, PANEL_MODES = 32, 3
SEEDS = (0, 1, 2)
MEMORY_BYTES = 1 << 30
#: 2e-4 is the demo's learning rate.
WAYS: tuple[tuple[str, Callable[[Sequence[torch.nn.Parameter]], torch.optim.Optimizer], int], ...] = (
    ("one SGD step at 1e-6", lambda weights: torch.optim.SGD(weights, lr=1e-6), 1),
    ("one SGD step at 1e-4", lambda weights: torch.optim.SGD(weights, lr=1e-4), 1),
    ("one Adam step at 1e-5", lambda weights: torch.optim.Adam(weights, lr=1e-5), 1),
    ("one Adam step at 2e-4", lambda weights: torch.optim.Adam(weights, lr=2e-4), 1),
    ("5 Adam steps at 2e-4", lambda weights: torch.optim.Adam(weights, lr=2e-4), 5),
    ("20 Adam steps at 2e-4", lambda weights: torch.optim.Adam(weights, lr=2e-4), 20),
)


@dataclass(frozen=True, kw_only=True)
class Batch:
    """Responses with their advantages."""

    problems: list[Problem]
    token_ids: list[tuple[int, ...]]
    advantage_N: Float[np.ndarray, " response"]


def draw_batch(models: ModelHolder, seed: int) -> Batch:
    """Draw on-policy groups.

    A group of equal rewards stays in with advantage 0.
    """
    queries = countdown.problems("train", limit=(seed + 1) * QUERIES)[-QUERIES:]
    checkpoint = Checkpoint(step=0, label="base", path=BASE, kind="full", weights_hash=str(BASE))
    sampler = make_sampler("transformers", SamplerContext(models=models))
    requests = [SampleRequest(problem=query, sample_indices=tuple(range(GROUP))) for query in queries]
    samples = [one for part in sampler.sample(checkpoint, requests, replace(SETTINGS, seed=seed)) for one in part]
    by_id = {query.problem_id: query for query in queries}
    samples.sort(key=lambda one: (one.problem_id, one.sample_index))
    reward_PG = torch.tensor([[float(one.text in by_id[one.problem_id].modes)] for one in samples]).view(-1, GROUP)
    return Batch(
        problems=[by_id[one.problem_id] for one in samples],
        token_ids=[one.token_ids for one in samples],
        advantage_N=standardise_rewards(reward_PG, ddof=0, eps=0.0).flatten().double().numpy(),
    )


def panel(loaded: LoadedModel) -> tuple[list[Problem], list[tuple[int, ...]]]:
    """Return held-out problems with some of their correct responses."""
    pairs = [(one, mode) for one in countdown.problems(limit=PANEL_PROBLEMS) for mode in one.modes[:PANEL_MODES]]
    return [problem for problem, _ in pairs], [response_ids(loaded.tokenizer, mode) for _, mode in pairs]


def logps(
    loaded: LoadedModel, problems: Sequence[Problem], token_ids: Sequence[tuple[int, ...]]
) -> Float[np.ndarray, " response"]:
    """Return log π of every response, in nats."""
    requests = [
        ForcedRequest(problem=problem, response_id=str(index), token_ids=ids)
        for index, (problem, ids) in enumerate(zip(problems, token_ids, strict=True))
    ]
    found = {one.response_id: one.logp_sum for part in teacher_force(loaded, requests, SETTINGS) for one in part}
    return np.array([found[str(index)] for index in range(len(requests))])


def kernel_rows(
    loaded: LoadedModel, problems: Sequence[Problem], token_ids: Sequence[tuple[int, ...]]
) -> list[KernelRow]:
    """Return the responses as rows of a kernel."""
    return [
        KernelRow(prompt_ids=tuple(encode_prompt(loaded.tokenizer, problem, SETTINGS)), token_ids=ids)
        for problem, ids in zip(problems, token_ids, strict=True)
    ]


def train(loaded: LoadedModel, batch: Batch, optimizer: torch.optim.Optimizer, steps: int) -> None:
    """Ascend Σ_j A_j·log π_j over the whole batch, ``steps`` times."""
    rows = kernel_rows(loaded, batch.problems, batch.token_ids)
    width = max(len(row.prompt_ids) + len(row.token_ids) for row in rows)
    ids_BL = torch.full((len(rows), width), loaded.pad_id)
    mask_BL, weight_BL = torch.zeros_like(ids_BL), torch.zeros(ids_BL.shape)
    for index, (row, advantage) in enumerate(zip(rows, batch.advantage_N, strict=True)):
        start, end = len(row.prompt_ids), len(row.prompt_ids) + len(row.token_ids)
        ids_BL[index, :end] = torch.tensor([*row.prompt_ids, *row.token_ids])
        mask_BL[index, :end] = 1
        weight_BL[index, start:end] = advantage
    for _ in range(steps):
        optimizer.zero_grad(set_to_none=True)
        logits_BLV = loaded.model(input_ids=ids_BL, attention_mask=mask_BL).logits[:, :-1]
        logp_BL = logits_BLV.log_softmax(dim=-1).gather(2, ids_BL[:, 1:, None])[:, :, 0]
        (-(logp_BL * weight_BL[:, 1:]).sum()).backward()
        optimizer.step()


def measure(seed: int) -> dict[str, dict[str, float]]:
    """Return, for each training setup, r on the panel and on the batch, and the change of log π of the panel."""
    models = ModelHolder(device="cpu")
    batch = draw_batch(models, seed)
    checkpoint = Checkpoint(step=0, label="base", path=BASE, kind="full", weights_hash=str(BASE))
    loaded = models.load(checkpoint)
    places = {"panel": panel(loaded), "batch": (batch.problems, batch.token_ids)}
    columns = kernel_rows(loaded, batch.problems, batch.token_ids)
    foretold, before = {}, {}
    for place, (problems, token_ids) in places.items():
        rows = kernel_rows(loaded, problems, token_ids)
        foretold[place] = cross_kernel(loaded, rows, columns, memory_bytes=MEMORY_BYTES) @ batch.advantage_N
        before[place] = logps(loaded, problems, token_ids)
    found: dict[str, dict[str, float]] = {}
    for name, make_optimizer, steps in WAYS:
        trained = replace(loaded, model=copy.deepcopy(loaded.model))
        train(trained, batch, make_optimizer(list(trained.model.parameters())), steps)
        change = {place: logps(trained, *places[place]) - before[place] for place in places}
        found[name] = {f"r_{place}": float(np.corrcoef(foretold[place], change[place])[0, 1]) for place in places} | {
            "median_change_panel_nats": float(np.median(np.abs(change["panel"])))
        }
    return found


def main() -> None:
    """Measure, write the result file and print it."""
    if not BASE.is_dir():
        sys.exit(f"{BASE}: not there; run `make demo` first")
    with cpu_threads(1):
        runs = [measure(seed) for seed in SEEDS]
    result = {
        "what": f"Pearson's r of predicted and measured change of log pi; batch of {QUERIES} x {GROUP} on-policy "
        f"responses of the demo's base, panel of {PANEL_PROBLEMS} held-out problems with up to {PANEL_MODES} correct "
        "responses",
        "seeds": len(SEEDS),
        **{
            way: {
                key: {"mean": digits(float(np.mean([run[way][key] for run in runs])), 4)}
                | {"by_seed": [digits(run[way][key], 4) for run in runs]}
                for key in runs[0][way]
            }
            for way in runs[0]
        },
        **circumstances(("oversharp", "torch", "transformers")),
    }
    write("kernel_reach", result)


if __name__ == "__main__":
    main()
