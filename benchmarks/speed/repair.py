"""Measure the cost of `oversharp repair`: five points of a model of 135 million numbers, and one with 7B tensors.

``python -m benchmarks.speed.repair`` (some minutes, 13 GB of disk in ``--directory``) writes ``results/repair.json``.
The weights are random, in the shapes of SmolLM2-135M, and in those of Qwen2.5-7B with fewer layers. Memory depends on
what is read at a time, so layers do not add to it. Goals: five points in 60 s on two cores, 4 GiB resident. The peer is
a simple script: load both models with transformers, mix, save. Every call is a separate process, with the files in the
page cache.

``python -m benchmarks.speed.repair --full`` mixes one point of a whole 7B instead, with all 28 layers (31 GB of disk:
its base is zeros, which need none), and adds it to ``results/repair.json``.
"""

from __future__ import annotations

import argparse
import json
import shutil
import sys
import tempfile
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from math import prod
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.speed.results import RESULTS, circumstances, digits, timed, write
from oversharp.diagnostics.repair.tensor_files import PlannedTensor, _header, _write_index, write_files
from oversharp.diagnostics.series.numbers import rounded, stored_bytes

GOAL_WALL_S, GOAL_GIB = 60.0, 4.0
TURNS = 3
LAMBDAS = ("0.1", "0.25", "0.5", "0.75", "0.9")
AT_A_TIME = 1 << 20
PEAK = """
import re
from pathlib import Path
def tell():
    print(re.search(r"VmHWM:\\s+(\\d+)", Path("/proc/self/status").read_text())[1])
"""
OURS = f"""{PEAK}
from oversharp.diagnostics.app.cli import main
try:
    main()
finally:
    tell()
"""
SCRIPT = f"""{PEAK}
import sys
import torch
from transformers import AutoModelForCausalLM
base, trained, out, *lambdas = sys.argv[1:]
start, end = (AutoModelForCausalLM.from_pretrained(one, dtype=torch.bfloat16) for one in (base, trained))
first, last = start.state_dict(), {{name: one.clone() for name, one in end.state_dict().items()}}
for one in map(float, lambdas):
    mixed = {{name: (a.float() + one * (last[name].float() - a.float())).bfloat16() for name, a in first.items()}}
    end.load_state_dict(mixed)
    end.save_pretrained(f"{{out}}/checkpoint-{{round(100 * one)}}")
tell()
"""


@dataclass(frozen=True, kw_only=True)
class Shapes:
    """Sizes of a Llama or Qwen2, in ``shards`` files of about equal size."""

    vocabulary: int
    hidden: int
    intermediate: int
    heads: int
    key_values: int
    layers: int
    tied: bool
    shards: int

    def tensors(self) -> dict[str, tuple[int, ...]]:
        """Return name and shape of every tensor."""
        h, i, kv = self.hidden, self.intermediate, self.key_values
        of_layer = {
            "self_attn.q_proj": (h, h), "self_attn.k_proj": (kv, h), "self_attn.v_proj": (kv, h),
            "self_attn.o_proj": (h, h), "mlp.gate_proj": (i, h), "mlp.up_proj": (i, h), "mlp.down_proj": (h, i),
            "input_layernorm": (h,), "post_attention_layernorm": (h,),
        }  # fmt: skip
        made: dict[str, tuple[int, ...]] = {"model.embed_tokens.weight": (self.vocabulary, h)}
        for layer in range(self.layers):
            made |= {f"model.layers.{layer}.{name}.weight": shape for name, shape in of_layer.items()}
        made["model.norm.weight"] = (h,)
        return made if self.tied else made | {"lm_head.weight": (self.vocabulary, h)}

    def config(self) -> dict[str, Any]:
        """Return its config.json."""
        return {
            "model_type": "llama", "architectures": ["LlamaForCausalLM"], "dtype": "bfloat16",
            "vocab_size": self.vocabulary, "hidden_size": self.hidden, "intermediate_size": self.intermediate,
            "num_hidden_layers": self.layers, "num_attention_heads": self.heads,
            "num_key_value_heads": self.key_values * self.heads // self.hidden, "tie_word_embeddings": self.tied,
        }  # fmt: skip


SMALL = Shapes(
    vocabulary=49_152, hidden=576, intermediate=1536, heads=9, key_values=192, layers=30, tied=True, shards=1
)
LARGE = Shapes(
    vocabulary=152_064, hidden=3584, intermediate=18_944, heads=28, key_values=512, layers=3, tied=False, shards=4
)
FULL = replace(LARGE, layers=28)


def write_model(folder: Path, shapes: Shapes, *, moved: float, zeros: bool = False) -> int:
    """Write a checkpoint of random bfloat16 numbers and return its bytes.

    ``moved`` is the mean distance from the base. ``zeros``: all numbers are 0, in sparse files.
    """
    folder.mkdir(parents=True)
    random = np.random.default_rng(0)
    start_N = random.standard_normal(AT_A_TIME, dtype=np.float32) * np.float32(0.02)
    end_N = start_N + np.float32(moved) * random.standard_normal(AT_A_TIME, dtype=np.float32)
    block = stored_bytes(rounded(end_N, "BF16"), "BF16")
    tensors = [planned(name, shape, block) for name, shape in shapes.tensors().items()]
    total = sum(one.n_bytes for one in tensors)
    files: dict[str, list[PlannedTensor]] = {}
    written = 0
    for one in tensors:
        number = min(shapes.shards, 1 + written * shapes.shards // total)
        name = "model.safetensors" if shapes.shards == 1 else f"model-{number:05d}-of-{shapes.shards:05d}.safetensors"
        files.setdefault(name, []).append(one)
        written += one.n_bytes
    if zeros:
        for name, own in files.items():
            with (folder / name).open("wb") as stream:
                stream.write(_header(sorted(own, key=lambda one: one.name)))
                stream.truncate(stream.tell() + sum(one.n_bytes for one in own))
        _write_index(folder, files)
    else:
        write_files(folder, files, lambda count: None)
    (folder / "config.json").write_text(json.dumps(shapes.config()))
    vocabulary = {"model": {"type": "WordLevel", "vocab": {"a": 0}, "unk_token": "a"}, "added_tokens": []}
    (folder / "tokenizer.json").write_text(json.dumps(vocabulary))
    return total


def planned(name: str, shape: tuple[int, ...], block: bytes) -> PlannedTensor:
    """Return a tensor that repeats ``block``."""
    n_bytes = 2 * prod(shape)

    def chunks() -> Iterator[bytes]:
        for start in range(0, n_bytes, len(block)):
            yield block[: n_bytes - start]

    return PlannedTensor(name=name, dtype="BF16", shape=shape, n_bytes=n_bytes, chunks=chunks)


def turn(code: str, arguments: Sequence[str], out: Path) -> dict[str, float]:
    """Run one call in a separate process, and delete its output."""
    took = timed([sys.executable, "-c", code, *arguments])
    shutil.rmtree(out)
    return {"wall_s": took.wall_s, "cpu_s": took.cpu_s, "peak_gib": int(took.output.split()[-1]) / 2**20}


def summary(turns: Sequence[dict[str, float]]) -> dict[str, float]:
    """Return the fastest turn and the largest peak."""
    return {
        "wall_s": digits(min(one["wall_s"] for one in turns)),
        "cpu_s": digits(min(one["cpu_s"] for one in turns)),
        "peak_gib": digits(max(one["peak_gib"] for one in turns)),
    }


def measure(
    shapes: Shapes, lambdas: Sequence[str], folder: Path, *, peer: bool, n_turns: int = TURNS, zeros: bool = False
) -> dict[str, Any]:
    """Measure both methods alternately, on one base and one checkpoint."""
    run, out = folder / "run", folder / "out"
    n_bytes = write_model(run / "checkpoint-0", shapes, moved=0.0, zeros=zeros)
    write_model(run / "checkpoint-100", shapes, moved=1e-3)
    ours = ["repair", str(run), "--out", str(out), "--lambdas", *lambdas]
    script = [str(run / "checkpoint-0"), str(run / "checkpoint-100"), str(out), *lambdas]
    turns: dict[str, list[dict[str, float]]] = {"ours": []} | ({"script": []} if peer else {})
    for _ in range(n_turns):
        for way, taken in turns.items():
            taken.append(turn(OURS, ours, out) if way == "ours" else turn(SCRIPT, script, out))
    shutil.rmtree(run)
    largest = max(shapes.tensors().values(), key=prod)
    return {
        "gb_of_a_checkpoint": digits(n_bytes / 1e9),
        "largest_tensor": list(largest),
        "points": len(lambdas),
        **{way: summary(taken) for way, taken in turns.items()},
    }


def main() -> None:
    """Measure both models and write the result."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--directory", type=Path, default=None, help="where the models lie; default: a temporary one")
    parser.add_argument("--full", action="store_true", help="one point of a whole 7B, beside what was measured before")
    given = parser.parse_args()
    if given.full:
        with tempfile.TemporaryDirectory(dir=given.directory) as folder:
            whole = measure(FULL, LAMBDAS[2:3], Path(folder), peer=False, n_turns=1, zeros=True)
        held = json.loads((RESULTS / "repair.json").read_text())
        whole |= circumstances(("oversharp", "numpy", "safetensors"))
        met = held["met"] and whole["ours"]["peak_gib"] <= GOAL_GIB
        write("repair", {**held, "7b": whole, "met": met})
        return
    with tempfile.TemporaryDirectory(dir=given.directory) as folder:
        small = measure(SMALL, LAMBDAS, Path(folder) / "small", peer=True)
        large = measure(LARGE, LAMBDAS[2:3], Path(folder) / "large", peer=False)
    write(
        "repair",
        {
            "what": "oversharp repair of made-up bfloat16 weights, files in the page cache; the script loads both "
            "models by transformers, mixes them and saves each point",
            "turns": TURNS,
            "135m": small,
            "7b_with_3_layers": large,
            "goal_wall_s": GOAL_WALL_S,
            "goal_peak_gib": GOAL_GIB,
            "met": small["ours"]["wall_s"] <= GOAL_WALL_S and large["ours"]["peak_gib"] <= GOAL_GIB,
            **circumstances(("oversharp", "numpy", "safetensors", "torch", "transformers")),
        },
    )


if __name__ == "__main__":
    main()
