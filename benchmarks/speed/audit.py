"""Measure the speed of an audit: 9 checkpoints × 100 problems × n = 256 with the transformers sampler.

``python -m benchmarks.speed.audit`` audits ``runs/demo/grpo`` (from ``make demo``) into a fresh directory and writes
``benchmarks/results/audit_speed.json``.

The peer is a hand-written script. It runs in a fresh process per checkpoint, loads the model and calls ``generate`` for
the same number of samples, with the same batch size, without log-probabilities and seeds. It runs on three of the
checkpoints. Times are per checkpoint.
"""

from __future__ import annotations

import shutil
import sys
import tempfile
from pathlib import Path

from benchmarks.speed.results import Took, circumstances, timed, write
from oversharp import open_store

ROOT = Path(__file__).parents[2]
SERIES = ROOT / "runs" / "demo" / "grpo"
N_PROBLEMS, N_SAMPLES, BATCH = 100, 256, 1024
PEER_STEPS = (0, 80, 160)
ONE_THREAD = {"OMP_NUM_THREADS": "1"}

PEER = f"""
import sys, torch
from transformers import AutoModelForCausalLM, AutoTokenizer
from oversharp.diagnostics.tasks import countdown
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


def main() -> int:
    """Measure, write the result file and print it. Needs the demo's series. Always returns 0."""
    if not SERIES.is_dir():
        sys.exit(f"{SERIES}: not there; run `make demo` first")
    n_checkpoints = len(list(SERIES.glob("checkpoint-*")))
    out = Path(tempfile.mkdtemp(prefix="oversharp-speed-"))
    flags = ["--task", "countdown", "--n", str(N_SAMPLES), "--out", str(out), "--quiet"]
    oversharp = [
        sys.executable,
        "-c",
        "from oversharp.diagnostics.app.cli import main; main()",
        "audit",
        str(SERIES),
        *flags,
    ]

    def peer(step: int) -> Took:
        return timed([sys.executable, "-c", PEER, str(SERIES / f"checkpoint-{step}")], ONE_THREAD)

    peers = [peer(PEER_STEPS[0])]
    audit = timed(oversharp, ONE_THREAD)
    again = timed(oversharp, ONE_THREAD)
    peers += [peer(step) for step in PEER_STEPS[1:]]
    peer_wall_s = sum(took.wall_s for took in peers) / len(peers)
    peer_cpu_s = sum(took.cpu_s for took in peers) / len(peers)

    with open_store(out / "audit.duckdb") as store:
        stages = store.frame("SELECT stage, sum(wall_s) AS wall_s FROM events GROUP BY stage ORDER BY stage")
    result = {
        "what": f"{n_checkpoints} checkpoints x {N_PROBLEMS} problems x n={N_SAMPLES}, twice from the base, one thread",
        "audit_wall_s": round(audit.wall_s, 1),
        "audit_cpu_s": round(audit.cpu_s, 1),
        "goal_wall_s": 180,
        "stages_wall_s": {row.stage: round(row.wall_s, 2) for row in stages.itertuples()},
        "nothing_to_do_wall_s": round(again.wall_s, 1),
        "peer_script_wall_s_per_checkpoint": round(peer_wall_s, 2),
        "peer_script_cpu_s_per_checkpoint": round(peer_cpu_s, 2),
        "peer_over_audit_cpu": round(peer_cpu_s * n_checkpoints / audit.cpu_s, 2),
        **circumstances(("oversharp", "torch", "transformers", "duckdb")),
    }
    shutil.rmtree(out)
    write("audit_speed", result)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
