"""Compare the speed of an audit with a script that calls ``generate``: 9 checkpoints × 100 problems × n = 256.

``python -m benchmarks.speed.audit`` audits ``runs/demo/grpo`` (from ``make demo``) into fresh directories and writes
``benchmarks/results/audit_speed.json``.

The peer is a hand-written script. It runs in a fresh process per checkpoint, loads the model and calls ``generate`` for
the same number of samples, with the same batch size, without log-probabilities and seeds. It runs on three of the
checkpoints, between the audits. Its time for nine is extrapolated.

``CASES`` has the flags of each audit. The first does the peer's work: equally many samples of all problems and
checkpoints, no controls, no teacher forcing, no kernel. It also grades, and writes store, verdict and report. The
others do more, or stop sampling solved problems, which supports the same conclusion with fewer samples.
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
_BARE = ("--no-controls", "--panel", "0", "--kernel-problems", "0")
_UNIFORM = ("--until-solved", "0", "--n-base", str(N_SAMPLES))
#: Name of a case → flags of its audit.
CASES = {
    "the peer's work": (*_UNIFORM, *_BARE),
    "the same in rounds, until 4 samples are correct": ("--n-base", str(N_SAMPLES), *_BARE),
    "all defaults": (),
}

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
    cli = [sys.executable, "-c", "from oversharp.diagnostics.app.cli import main; main()"]

    def peer(step: int) -> Took:
        return timed([sys.executable, "-c", PEER, str(SERIES / f"checkpoint-{step}")], ONE_THREAD)

    peers, cases = [], []
    for step, (case, flags) in zip(PEER_STEPS, CASES.items(), strict=True):
        peers.append(peer(step))
        out = Path(tempfile.mkdtemp(prefix="oversharp-speed-"))
        wanted = [
            "--task",
            "countdown",
            "--n",
            str(N_SAMPLES),
            "--sampler",
            "transformers",
            "--out",
            str(out),
            "--quiet",
        ]
        command = [*cli, "audit", str(SERIES), *wanted, *flags]
        took, again = timed(command, ONE_THREAD), timed(command, ONE_THREAD)
        with open_store(out / "audit.duckdb") as store:
            stages = store.frame("SELECT stage, sum(wall_s) AS wall_s FROM events GROUP BY stage ORDER BY stage")
            (n_samples,) = store.frame("SELECT count(*) AS n FROM audit_samples").n
            (label,) = store.frame("SELECT label FROM verdicts").label
        cases.append(
            {
                "case": case,
                "flags": " ".join(flags),
                "cpu_s": round(took.cpu_s, 1),
                "wall_s": round(took.wall_s, 1),
                "samples": int(n_samples),
                "label": label,
                "stages_wall_s": {row.stage: round(row.wall_s, 2) for row in stages.itertuples()},
                "nothing_to_do_wall_s": round(again.wall_s, 1),
            }
        )
        shutil.rmtree(out)
    peer_cpu_s = n_checkpoints * sum(took.cpu_s for took in peers) / len(peers)
    result = {
        "what": f"{n_checkpoints} checkpoints x {N_PROBLEMS} problems x n={N_SAMPLES}, transformers, one thread",
        "peer_cpu_s": round(peer_cpu_s, 1),
        "peers_cpu_s": [round(took.cpu_s, 2) for took in peers],
        "peer_samples": n_checkpoints * N_PROBLEMS * N_SAMPLES,
        "cases": cases,
        "peer_over_audit_cpu": [round(peer_cpu_s / case["cpu_s"], 2) for case in cases],
        **circumstances(("oversharp", "torch", "transformers", "duckdb")),
    }
    write("audit_speed", result)
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
