"""Measure the peak memory of the loss with a vocabulary of 150,000: chunked or with all logits.

``python -m benchmarks.speed.loss_memory`` writes ``benchmarks/results/loss_memory.json`` (five minutes). Every method
runs forward and backward in a separate process. On a CPU the peak is the growth of the process's resident memory, on a
GPU that of torch's allocator. Both include the gradient of the head's weights. The peers: ``log_softmax`` with
``gather`` and entropies, and the leaner ``gather`` minus ``logsumexp`` without entropies, which TRL uses.
"""

from __future__ import annotations

import json
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import torch
from torch import Tensor, nn

from benchmarks.speed.results import circumstances, digits, write
from oversharp.trainers.model.head import LogitTransform, ResponseHead, chunked_logps

VOCABULARY, WIDTH = 150_000, 512
POSITIONS = 1024
SEED = 0
TURNS = 2
GOAL = 0.5


def chunked(hidden_ND: Tensor, output: nn.Linear, target_N: Tensor) -> tuple[Tensor, Tensor | None]:
    """Compute log-probabilities and entropies in chunks: ours."""
    head = ResponseHead(trunk=nn.Identity(), output=output, transform=LogitTransform())
    return chunked_logps(head, hidden_ND, target_N, temperature=1.0)


def materialised(hidden_ND: Tensor, output: nn.Linear, target_N: Tensor) -> tuple[Tensor, Tensor | None]:
    """Compute log-probabilities and entropies of all logits at once."""
    law_NV = output(hidden_ND).float().log_softmax(dim=-1)
    return law_NV.gather(1, target_N[:, None])[:, 0], -(law_NV.exp() * law_NV).sum(dim=-1)


def selective(hidden_ND: Tensor, output: nn.Linear, target_N: Tensor) -> tuple[Tensor, Tensor | None]:
    """Compute only log-probabilities, of all logits at once."""
    logit_NV = output(hidden_ND).float()
    return logit_NV.gather(1, target_N[:, None])[:, 0] - logit_NV.logsumexp(dim=-1), None


WAYS: dict[str, Callable[[Tensor, nn.Linear, Tensor], tuple[Tensor, Tensor | None]]] = {
    "chunked": chunked,
    "materialised": materialised,
    "selective": selective,
}


def measure(way: str, *, positions: int, vocabulary: int) -> dict[str, float]:
    """Return peak bytes and seconds of one forward and backward pass, and its result, in this process."""
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    torch.manual_seed(SEED)
    hidden_ND = torch.randn(positions, WIDTH, device=device, requires_grad=True)
    output = nn.Linear(WIDTH, vocabulary, bias=False, device=device)
    target_N = torch.randint(vocabulary, (positions,), device=device)
    WAYS[way](hidden_ND[:2], output, target_N[:2])[0].sum().backward()  # loads lazily initialised libraries
    output.zero_grad()
    before = resident_bytes(device)
    start = time.perf_counter()
    logp_N, entropy_N = WAYS[way](hidden_ND, output, target_N)
    logp_N.sum().backward()
    wall_s = time.perf_counter() - start
    over_before = peak_bytes(device) - before  # before the sum below, which needs memory too
    gradient_sum = 0.0 if output.weight.grad is None else float(output.weight.grad.abs().sum(dtype=torch.float64))
    return {
        "peak_bytes": over_before,
        "wall_s": wall_s,
        "logp_mean": float(logp_N.mean()),
        "entropy_mean": 0.0 if entropy_N is None else float(entropy_N.mean()),
        "gradient_sum": gradient_sum,
    }


def resident_bytes(device: torch.device) -> float:
    """Return the current memory. The peak is measured from here on."""
    if device.type == "cuda":
        torch.cuda.reset_peak_memory_stats()
        return float(torch.cuda.memory_allocated())
    Path("/proc/self/clear_refs").write_text("5")  # resets the high-water mark
    return _status_bytes("VmRSS")


def peak_bytes(device: torch.device) -> float:
    """Return the peak since ``resident_bytes``."""
    return float(torch.cuda.max_memory_allocated()) if device.type == "cuda" else _status_bytes("VmHWM")


def _status_bytes(name: str) -> float:
    lines = dict(line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines())
    return float(lines[name].split()[0]) * 1024


def in_own_process(way: str, *, positions: int, vocabulary: int) -> dict[str, float]:
    """Call ``measure`` in a fresh process."""
    command = [sys.executable, "-m", __spec__.name, way, str(positions), str(vocabulary)]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    found: dict[str, float] = json.loads(done.stdout)
    return found


def main() -> None:
    """Measure every method alternately and write the result."""
    turns = [
        {way: in_own_process(way, positions=POSITIONS, vocabulary=VOCABULARY) for way in WAYS} for _ in range(TURNS)
    ]
    least = {way: min(turn[way]["peak_bytes"] for turn in turns) for way in WAYS}
    most = {way: max(turn[way]["peak_bytes"] for turn in turns) for way in WAYS}
    first = turns[0]
    write(
        "loss_memory",
        {
            "what": f"forward and backward of log-probabilities of {POSITIONS} positions from hidden states of width "
            f"{WIDTH}, vocabulary {VOCABULARY}, float32, "
            f"{'cuda' if torch.cuda.is_available() else f'{torch.get_num_threads()} thread(s)'}",
            "turns": TURNS,
            "peak_mib": {way: [digits(least[way] / 2**20), digits(most[way] / 2**20)] for way in WAYS},
            "ratio_to_materialised": digits(most["chunked"] / least["materialised"]),
            "ratio_to_selective": digits(most["chunked"] / least["selective"]),
            "goal_ratio_to_materialised": GOAL,
            "wall_s": {way: digits(min(turn[way]["wall_s"] for turn in turns)) for way in WAYS},
            "difference_of_logp_mean_nats": digits(
                abs(first["chunked"]["logp_mean"] - first["materialised"]["logp_mean"])
            ),
            "difference_of_entropy_mean_nats": digits(
                abs(first["chunked"]["entropy_mean"] - first["materialised"]["entropy_mean"])
            ),
            "relative_difference_of_gradient_sum": digits(
                abs(first["chunked"]["gradient_sum"] / first["materialised"]["gradient_sum"] - 1)
            ),
            "seed": SEED,
            **circumstances(("oversharp", "torch")),
        },
    )


if __name__ == "__main__":
    if len(sys.argv) == 4:
        print(json.dumps(measure(sys.argv[1], positions=int(sys.argv[2]), vocabulary=int(sys.argv[3]))))
    else:
        main()
