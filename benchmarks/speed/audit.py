"""Speed of the audit: 9 checkpoints × 100 problems × n = 256 with the transformers sampler.

``python benchmarks/speed/audit.py`` audits ``runs/demo/grpo`` (made by ``make demo``) into a fresh directory and
writes ``benchmarks/results/audit_speed.json``. The peer is what people write by hand: a script per checkpoint in a
fresh process that loads the model and calls ``generate`` for the same number of samples, with the same batch size,
keeping neither log-probabilities nor seeds. It runs on three of the checkpoints; times are per checkpoint.
"""

from __future__ import annotations

import json
import os
import platform
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from importlib.metadata import version
from pathlib import Path

ROOT = Path(__file__).parents[2]
RESULT = ROOT / "benchmarks" / "results" / "audit_speed.json"
SERIES = ROOT / "runs" / "demo" / "grpo"
N_PROBLEMS, N_SAMPLES, BATCH = 100, 256, 1024
PEER_STEPS = (0, 80, 160)

PEER = f"""
import sys, torch
from transformers import AutoModelForCausalLM, AutoTokenizer
from diagnostics.tasks import countdown
torch.set_num_threads(1)
model = AutoModelForCausalLM.from_pretrained(sys.argv[1]).eval()
tokenizer = AutoTokenizer.from_pretrained(sys.argv[1])
rows = [problem.prompt for problem in countdown.problems() for _ in range({N_SAMPLES})]
texts = []
for first in range(0, len(rows), {BATCH}):
    inputs = tokenizer(rows[first : first + {BATCH}], return_tensors="pt", return_token_type_ids=False)
    ids = model.generate(**inputs, do_sample=True, top_k=0, max_new_tokens=6)
    texts += tokenizer.batch_decode(ids[:, inputs["input_ids"].shape[1] :], skip_special_tokens=True)
assert len(texts) == len(rows)
"""


def timed(command: list[str]) -> tuple[float, float]:
    """Wall and CPU seconds of one process and its children."""
    before = resource.getrusage(resource.RUSAGE_CHILDREN)
    start = time.perf_counter()
    subprocess.run(command, check=True, cwd=ROOT, capture_output=True, env={**os.environ, "OMP_NUM_THREADS": "1"})
    wall_s = time.perf_counter() - start
    after = resource.getrusage(resource.RUSAGE_CHILDREN)
    return wall_s, after.ru_utime + after.ru_stime - before.ru_utime - before.ru_stime


def main() -> int:
    """Measure, write the result file and print it; needs the demo's series on disk. Always 0."""
    if not SERIES.is_dir():
        sys.exit(f"{SERIES}: not there; run `make demo` first")
    n_checkpoints = len(list(SERIES.glob("checkpoint-*")))
    out = Path(tempfile.mkdtemp(prefix="oversharp-speed-"))
    flags = ["--task", "countdown", "--n", str(N_SAMPLES), "--out", str(out), "--quiet"]
    oversharp = [sys.executable, "-c", "from diagnostics.cli import main; main()", "audit", str(SERIES), *flags]
    peer_s: list[tuple[float, float]] = []
    peer_s.append(timed([sys.executable, "-c", PEER, str(SERIES / f"checkpoint-{PEER_STEPS[0]}")]))
    audit_wall_s, audit_cpu_s = timed(oversharp)
    again_wall_s, _ = timed(oversharp)
    peer_s += [timed([sys.executable, "-c", PEER, str(SERIES / f"checkpoint-{step}")]) for step in PEER_STEPS[1:]]
    peer_wall_s = sum(wall for wall, _ in peer_s) / len(peer_s)
    peer_cpu_s = sum(cpu for _, cpu in peer_s) / len(peer_s)
    from diagnostics import open_store

    with open_store(out / "audit.duckdb") as store:
        stages = store.frame("SELECT stage, sum(wall_s) AS wall_s FROM events GROUP BY stage ORDER BY stage")
    result = {
        "what": f"{n_checkpoints} checkpoints x {N_PROBLEMS} problems x n={N_SAMPLES}, one thread",
        "audit_wall_s": round(audit_wall_s, 1),
        "audit_cpu_s": round(audit_cpu_s, 1),
        "goal_wall_s": 180,
        "stages_wall_s": {row.stage: round(row.wall_s, 2) for row in stages.itertuples()},
        "nothing_to_do_wall_s": round(again_wall_s, 1),
        "peer_script_wall_s_per_checkpoint": round(peer_wall_s, 2),
        "peer_script_cpu_s_per_checkpoint": round(peer_cpu_s, 2),
        "peer_over_audit_cpu": round(peer_cpu_s * n_checkpoints / audit_cpu_s, 2),
        "machine": f"{platform.machine()}, {os.cpu_count()} cores",
        "versions": {name: version(name) for name in ("oversharp", "torch", "transformers", "duckdb")},
    }
    shutil.rmtree(out)
    RESULT.write_text(json.dumps(result, indent=2) + "\n")
    print(json.dumps(result, indent=2))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
