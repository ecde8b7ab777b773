"""Compare the memory plan of a training run with the peak of its first steps.

``python -m benchmarks.speed.memory_plan`` writes ``benchmarks/results/memory_plan.json`` (five minutes). The model has
the layers of a 14-million-parameter Qwen3 with random weights. Each case runs in a separate process. The plan covers
the memory besides the weights: gradients, optimizer, activations, logits.
"""

from __future__ import annotations

import json
import subprocess
import sys

import torch
from transformers import Qwen3Config, Qwen3ForCausalLM

from benchmarks.speed.loss_memory import peak_bytes, resident_bytes
from benchmarks.speed.results import circumstances, digits, write
from oversharp.trainers.batch import RolloutBatch
from oversharp.trainers.config import TrainConfig
from oversharp.trainers.model.device_memory import MemoryNeeds, measure_footprint, plan_device_memory
from oversharp.trainers.model.forward import ForwardSettings, token_logps
from oversharp.trainers.model.network import find_network

SEED = 0
#: Steps until a process's heap stops growing: later steps cannot reuse all freed memory.
STEPS = 4
PROMPTS, GROUP, PROMPT_TOKENS, RESPONSE_TOKENS = 4, 4, 64, 192
#: (vocabulary, whether activations are recomputed, precision)
CASES = ((8_192, False, "float32"), (60_000, False, "float32"), (8_192, True, "float32"), (8_192, False, "bfloat16"))


def planned_and_reached(vocabulary: int, recompute: bool, precision: str) -> tuple[float, float]:
    """Return the planned bytes and those that ``STEPS`` steps reach, in this process."""
    torch.manual_seed(SEED)
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    config = Qwen3Config(
        vocab_size=vocabulary,
        hidden_size=384,
        intermediate_size=1152,
        num_hidden_layers=8,
        num_attention_heads=6,
        num_key_value_heads=2,
        head_dim=64,
        max_position_embeddings=1024,
        tie_word_embeddings=True,
    )
    model = Qwen3ForCausalLM(config).eval().to(device)  # type: ignore[arg-type]
    n_rows = PROMPTS * GROUP
    rollouts = RolloutBatch(
        group_size=GROUP,
        prompt_ids_PL=torch.randint(vocabulary, (PROMPTS, PROMPT_TOKENS), device=device),
        prompt_mask_PL=torch.ones(PROMPTS, PROMPT_TOKENS, dtype=torch.bool, device=device),
        response_ids_BT=torch.randint(vocabulary, (n_rows, RESPONSE_TOKENS), device=device),
        response_mask_BT=torch.ones(n_rows, RESPONSE_TOKENS, dtype=torch.bool, device=device),
        behaviour_logp_BT=torch.zeros(n_rows, RESPONSE_TOKENS, device=device),
        logp_sum_B=torch.zeros(n_rows, device=device),
        entropy_sum_B=torch.zeros(n_rows, device=device),
        truncated_B=torch.zeros(n_rows, dtype=torch.bool, device=device),
    )
    network = find_network(model, recompute=recompute)
    settings = ForwardSettings(temperature=1.0, autocast=torch.bfloat16 if precision == "bfloat16" else None)
    needs = MemoryNeeds(
        footprint=measure_footprint(network, settings),
        config=TrainConfig(
            model="random", task="made-up", batch_prompts=PROMPTS, group_size=GROUP, max_tokens=RESPONSE_TOKENS
        ),
        prompt_tokens=PROMPT_TOKENS,
        device=device,
        free=float("inf"),
    )
    plan = plan_device_memory(needs)
    optimizer = torch.optim.AdamW(model.parameters(), fused=True)
    before = resident_bytes(device)
    for _ in range(STEPS):
        optimizer.zero_grad(set_to_none=True)
        logp_BT, _ = token_logps(network, rollouts, torch.arange(n_rows, device=device), settings)
        logp_BT.sum().backward()
        optimizer.step()
    return plan.peak_bytes, peak_bytes(device) - before


def main() -> None:
    """Measure every case and write the result."""
    cases = []
    for vocabulary, recompute, precision in CASES:
        command = [sys.executable, "-m", __spec__.name, str(vocabulary), str(int(recompute)), precision]
        done = subprocess.run(command, check=True, capture_output=True, text=True)
        planned, reached = json.loads(done.stdout)
        cases.append(
            {
                "vocabulary": vocabulary,
                "gradient_checkpointing": recompute,
                "precision": precision,
                "planned_mib": digits(planned / 2**20),
                "reached_mib": digits(reached / 2**20),
                "error": digits(planned / reached - 1, 2),
            }
        )
    write(
        "memory_plan",
        {
            "what": f"{STEPS} steps of {PROMPTS * GROUP} responses of {RESPONSE_TOKENS} tokens behind {PROMPT_TOKENS}, "
            f"{'cuda' if torch.cuda.is_available() else 'cpu'}; error: planned over reached, less 1",
            "cases": cases,
            "seed": SEED,
            **circumstances(("oversharp", "torch", "transformers")),
        },
    )


if __name__ == "__main__":
    if len(sys.argv) == 4:
        print(json.dumps(planned_and_reached(int(sys.argv[1]), sys.argv[2] == "1", sys.argv[3])))
    else:
        main()
