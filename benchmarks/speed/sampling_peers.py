"""Peers of the sampling stage: a fresh vLLM process per checkpoint, and lm-evaluation-harness.

Neither keeps log-probabilities, entropies or token ids. Both get the settings of our engine that affect the speed of a
tiny model: eager, in-process, one thread, no compilation of helpers, and the smallest KV cache that vLLM's variable
allows. Without these a fresh process takes several times as long.
"""

from __future__ import annotations

import json
import math
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

from benchmarks.speed.results import Took, timed
from oversharp.diagnostics.records.types import Problem

ENVIRONMENT = {
    "HF_HUB_OFFLINE": "1",
    "OMP_NUM_THREADS": "1",
    "TORCHDYNAMO_DISABLE": "1",
    "VLLM_CPU_KVCACHE_SPACE": "1",
    "VLLM_ENABLE_V1_MULTIPROCESSING": "0",
    "VLLM_LOGGING_LEVEL": "ERROR",
    "VLLM_NO_USAGE_STATS": "1",
}
#: Smallest ``max_num_batched_tokens`` with which the CPU build samples with seeds; see ``vllm_engine``.
BATCHED_TOKENS = 16384
CONTEXT, ROWS = 512, 256

# Arguments: model, prompts, n, max_tokens. It exits without shutting vLLM down, which takes seconds that would not be
# fair to count.
FRESH = f"""
import json, os, sys
from vllm import LLM, SamplingParams
if __name__ == "__main__":
    model, prompts, n, max_tokens = sys.argv[1], json.loads(sys.argv[2]), int(sys.argv[3]), int(sys.argv[4])
    llm = LLM(model, dtype="float32", enforce_eager=True, max_model_len={CONTEXT}, max_num_seqs={ROWS},
              max_num_batched_tokens={BATCHED_TOKENS}, enable_chunked_prefill=False, disable_log_stats=True)
    parameters = [SamplingParams(n=n, seed=seed, temperature=1.0, max_tokens=max_tokens)
                  for seed in range(len(prompts))]
    outputs = llm.generate(prompts, parameters, use_tqdm=False)
    assert sum(len(output.outputs) for output in outputs) == n * len(prompts)
    sys.stdout.flush()
    os._exit(0)
"""

TASK = """\
task: countdown
dataset_path: json
dataset_kwargs:
  data_files:
    test: {data}
output_type: generate_until
test_split: test
doc_to_text: "{{{{prompt}}}}"
doc_to_target: "{{{{gold}}}}"
target_delimiter: ""
process_results: !function countdown_metric.process_results
metric_list:
  - metric: correct
    aggregation: mean
    higher_is_better: true
generation_kwargs:
  do_sample: true
  temperature: 1.0
  max_gen_toks: {max_tokens}
  until: ["<eos>"]
repeats: {n}
num_fewshot: 0
filter_list:
  - name: all
    filter:
      - function: take_first_k
        k: {n}
metadata:
  version: 1.0
"""

METRIC = """\
def process_results(doc, results):
    [responses] = results if isinstance(results[0], list) else [results]
    return {"correct": sum(response.strip() in doc["modes"] for response in responses) / len(responses)}
"""


@dataclass(frozen=True, kw_only=True)
class HarnessRun:
    """One run of lm-evaluation-harness: cost of the process, and pass@1 by prompt."""

    version: str
    took: Took
    pass_at_1: dict[str, float]


def fresh_vllm(model: Path, problems: Sequence[Problem], *, n: int, max_tokens: int) -> Took:
    """Sample ``n`` responses per problem from one checkpoint in a fresh process."""
    prompts = json.dumps([problem.prompt for problem in problems])
    return timed([sys.executable, "-c", FRESH, str(model), prompts, str(n), str(max_tokens)], ENVIRONMENT)


def harness(
    python: str, model: Path, problems: Sequence[Problem], *, n: int, max_tokens: int, folder: Path
) -> HarnessRun | str:
    """Run lm-evaluation-harness with vLLM on one checkpoint. Return the reason in one line if it does not run."""
    data = folder / "problems.jsonl"
    rows = [{"prompt": problem.prompt, "gold": problem.gold, "modes": problem.modes} for problem in problems]
    data.write_text("".join(json.dumps(row) + "\n" for row in rows))
    (folder / "countdown.yaml").write_text(TASK.format(data=data, max_tokens=max_tokens, n=n))
    (folder / "countdown_metric.py").write_text(METRIC)
    model_args = {
        "pretrained": model,
        "dtype": "float32",
        "enforce_eager": True,
        "max_model_len": CONTEXT,
        "max_num_seqs": ROWS,
        "max_num_batched_tokens": BATCHED_TOKENS,
        "enable_chunked_prefill": False,
        "disable_log_stats": True,
    }
    command = [python, "-m", "lm_eval", "run", "--model", "vllm", "--tasks", "countdown"]
    command += ["--model_args", ",".join(f"{name}={value}" for name, value in model_args.items())]
    command += ["--batch_size", "auto", "--include_path", str(folder)]
    command += ["--output_path", str(folder / "results"), "--log_samples"]
    try:
        ask_version = [python, "-c", "from importlib.metadata import version; print(version('lm-eval'))"]
        release = subprocess.run(ask_version, check=True, capture_output=True, text=True).stdout.strip()
        took = timed(command, {**ENVIRONMENT, **_with_vllm_named(folder)})
    except FileNotFoundError:
        return f"{python}: no such file"
    except subprocess.CalledProcessError as error:
        return (error.stderr.strip().splitlines() or [f"exit code {error.returncode}"])[-1]
    [samples] = (folder / "results").rglob("samples_*.jsonl")
    found = [json.loads(line) for line in samples.read_text().splitlines()]
    pass_at_1 = {row["doc"]["prompt"]: row["correct"] for row in found}
    return HarnessRun(version=release, took=took, pass_at_1=pass_at_1)


def pass_at_1_difference(ours: Mapping[str, float], theirs: Mapping[str, float], *, n: int) -> tuple[float, float]:
    """Return the mean difference over problems, and its standard error for ``n`` samples of the same model.

    >>> pass_at_1_difference({"a": 0.5}, {"a": 0.5}, n=8)
    (0.0, 0.25)
    """
    if ours.keys() != theirs.keys():
        raise ValueError("the problems are not the same")
    difference = sum(ours[prompt] - theirs[prompt] for prompt in ours) / len(ours)
    pooled = [(ours[prompt] + theirs[prompt]) / 2 for prompt in ours]
    variance = sum(2 * p * (1 - p) / n for p in pooled)
    return difference, math.sqrt(variance) / len(ours)


def _with_vllm_named(folder: Path) -> dict[str, str]:
    """Provide a distribution named ``vllm``.

    The harness asks for its version, and the CPU build has another name.
    """
    try:
        release = f"{version('vllm-cpu')}+cpu"
    except PackageNotFoundError:
        return {}
    record = folder / "names" / f"vllm-{release}.dist-info" / "METADATA"
    record.parent.mkdir(parents=True)
    record.write_text(f"Metadata-Version: 2.1\nName: vllm\nVersion: {release}\n")
    return {"PYTHONPATH": str(folder / "names")}
