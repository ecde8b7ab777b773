"""Run the tools on untrained Countdown models: each writes the dumps of a run of two checkpoints.

``python -m tests.ingest.formats.real.tools TOOL`` writes tests/ingest/formats/data again; ``--python`` is an
interpreter with the tool. lighteval cannot be installed together with oversharp (it pins a latex2sympy2_extended that
math-verify rejects, and needs xxhash below 4), so only its dumps are tested.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import count
from pathlib import Path
from threading import Thread
from typing import Any

from oversharp.trainers.worlds.base import build_model, build_tokenizer

DATA = Path(__file__).parents[1] / "data"
RUN = "models/lucky"
STEPS = (0, 40)
REPEATS = 4
TOKENS = 8
#: Prompt, an expression that is right, and a number that some responses begin with.
PROBLEMS = (("6 7 12 = 54 :", "6 * 7 + 12", "6"), ("1 2 3 = 6 :", "1 + 2 + 3", "5"), ("2 3 5 = 1 :", "2 * 3 - 5", "7"))


def write_run(folder: Path) -> None:
    """Both checkpoints, and the problems as ``data/test.jsonl``."""
    for step in STEPS:
        checkpoint = folder / RUN / f"checkpoint-{step}"
        build_model(step).save_pretrained(checkpoint)
        build_tokenizer().save_pretrained(checkpoint)
    rows = [{"prompt": prompt, "answer": answer, "digit": digit} for prompt, answer, digit in PROBLEMS]
    (folder / "data").mkdir()
    (folder / "data" / "test.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))


def call(folder: Path, *command: str, **environment: str) -> None:
    """Run a tool in ``folder``, offline."""
    clean = {"HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1", "HF_DATASETS_CACHE": str(folder / "cache"), **environment}
    done = subprocess.run(command, cwd=folder, env={**os.environ, **clean}, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout[-2000:] + done.stderr[-4000:]


# ---------------------------------------------------------------- lm-evaluation-harness

_LM_EVAL_TASK = """\
task: {name}
dataset_path: json
dataset_kwargs: {{data_files: {{test: data/test.jsonl}}}}
test_split: test
output_type: generate_until
doc_to_text: "{{{{prompt}}}}"
doc_to_target: "{{{{{gold}}}}}"
repeats: {repeats}
generation_kwargs: {{do_sample: true, temperature: 1.0, top_p: 1.0, max_gen_toks: {tokens}, until: []}}
metric_list: [{{metric: exact_match, aggregation: mean, higher_is_better: true}}]
filter_list:
  - name: strict-match
    filter: [{{function: regex, regex_pattern: "^([0-9])"}}, {{function: take_first}}]
  - name: flexible-extract
    filter: [{{function: regex, regex_pattern: "(.*)"}}, {{function: take_first}}]
"""


def run_lm_eval(folder: Path, python: str = sys.executable) -> list[Path]:
    """``sums`` of both checkpoints has repeats; ``digits``, of the last, one response from behind a chat API."""
    (folder / "tasks").mkdir()
    for name, gold, repeats in (("sums", "answer", REPEATS), ("digits", "digit", 1)):
        task = _LM_EVAL_TASK.format(name=name, gold=gold, repeats=repeats, tokens=TOKENS)
        (folder / "tasks" / f"{name}.yaml").write_text(task)
    common = ["--include_path", "tasks", "--output_path", "out", "--log_samples"]
    run = [python, "-m", "lm_eval", "run"]
    for step in STEPS:
        model = f"{RUN}/checkpoint-{step}"
        call(folder, *run, "--model", "hf", "--model_args", f"pretrained={model}", "--device", "cpu", "--tasks", "sums",
             *common)  # fmt: skip
    with served(folder / model) as url:
        api = f"model={model},base_url={url}/v1/chat/completions"
        call(folder, *run, "--model", "local-chat-completions", "--model_args", api, "--apply_chat_template",
             "--tasks", "digits", *common, OPENAI_API_KEY="none")  # fmt: skip
    return sorted((folder / "out").rglob("samples_*.jsonl"))


@contextmanager
def served(checkpoint: Path) -> Iterator[str]:
    """The checkpoint behind a chat completions API; a message is its prompt. Yields the URL."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    model, tokenizer = AutoModelForCausalLM.from_pretrained(checkpoint), AutoTokenizer.from_pretrained(checkpoint)

    seeds = count()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            asked = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            prompt = tokenizer(asked["messages"][-1]["content"], return_tensors="pt")
            length = prompt["input_ids"].shape[1]
            torch.manual_seed(next(seeds))
            tokens = model.generate(prompt["input_ids"], max_new_tokens=asked["max_tokens"])[0, length:]
            message = {"role": "assistant", "content": tokenizer.decode(tokens, skip_special_tokens=True)}
            body = json.dumps({"choices": [{"index": 0, "message": message, "finish_reason": "length"}]}).encode()
            self.send_response(200)
            self.send_header("Content-Type", "application/json")
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: Any) -> None:
            """Say nothing."""

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = Thread(target=server.serve_forever)
    thread.start()
    try:
        yield f"http://127.0.0.1:{server.server_port}"
    finally:
        server.shutdown()
        thread.join()
        server.server_close()


# ---------------------------------------------------------------- inspect

_INSPECT_TASK = """\
import json
from pathlib import Path

from inspect_ai import Task, task
from inspect_ai.dataset import MemoryDataset, Sample
from inspect_ai.scorer import exact, includes
from inspect_ai.solver import generate


@task
def sums():
    rows = [json.loads(line) for line in Path("data/test.jsonl").read_text().splitlines()]
    samples = [Sample(id=f"sum-{n}", input=row["prompt"], target=row["digit"]) for n, row in enumerate(rows)]
    return Task(dataset=MemoryDataset(samples), solver=[generate()], scorer=[includes(), exact()])
"""


def run_inspect(folder: Path, python: str = sys.executable) -> list[Path]:
    """One log per checkpoint; ``includes`` scores first."""
    (folder / "sums.py").write_text(_INSPECT_TASK)
    for step in STEPS:
        arguments = {
            "model_path": f"{RUN}/checkpoint-{step}",
            "device": "cpu",
            "chat_template": "{% for message in messages %}{{ message.content }}{% endfor %}",
        }
        (folder / "model.json").write_text(json.dumps(arguments))
        call(folder, python, "-m", "inspect_ai", "eval", "sums.py", "--model", "hf/local", "--model-config",
             "model.json", "--epochs", str(REPEATS), "--temperature", "1", "--top-p", "1", "--max-tokens", str(TOKENS),
             "--seed", "7", "--logprobs", "--log-dir", "out", "--display", "none", "--no-log-realtime")  # fmt: skip
    return sorted((folder / "out").rglob("*.eval"))


# ---------------------------------------------------------------- lighteval

_LIGHTEVAL_TASK = """\
from lighteval.metrics.metrics import Metrics
from lighteval.tasks.lighteval_task import LightevalTaskConfig
from lighteval.tasks.requests import Doc


def sums(row, task_name=None):
    return Doc(task_name=task_name, query=row["prompt"], choices=["0", row["answer"]], gold_index=1)


def once(row, task_name=None):
    return Doc(task_name=task_name, query=row["prompt"], choices=["4"], gold_index=[0])


def table(prompt, metric):
    return LightevalTaskConfig(name=prompt.__name__, prompt_function=prompt, hf_repo="data", hf_subset="default",
                               hf_avail_splits=["test"], evaluation_splits=["test"], generation_size=8,
                               stop_sequence=[], metrics=[metric])


TASKS_TABLE = [
    table(sums, Metrics.pass_at_k(sample_params={"k": 1, "n": 4})),
    table(once, Metrics.exact_match(sample_params={"type_exact_match": "prefix"})),
]
"""
#: Its own tasks download files when they are imported.
_LIGHTEVAL_MAIN = """\
from lighteval.__main__ import app
from lighteval.tasks.registry import Registry

Registry._load_from_files = Registry._load_from_subdirs = staticmethod(lambda *_: {})
app()
"""


def run_lighteval(folder: Path, python: str) -> list[Path]:
    """``sums`` has several responses per problem, ``once`` one, which is right if it begins with a 4."""
    (folder / "tasks.py").write_text(_LIGHTEVAL_TASK)
    (folder / "main.py").write_text(_LIGHTEVAL_MAIN)
    for step in STEPS:
        drawn = "generation_parameters={temperature:1.0,top_p:1.0,seed:7}"
        model = f"model_name={RUN}/checkpoint-{step},device=cpu,override_chat_template=False,{drawn}"
        call(folder, python, "main.py", "accelerate", model, "sums|0,once|0", "--custom-tasks", "tasks.py",
             "--output-dir", "out", "--save-details")  # fmt: skip
    return sorted(path for path in (folder / "out").rglob("*") if path.is_file())


# ---------------------------------------------------------------- the dumps of the tests

TOOLS: dict[str, tuple[Callable[[Path, str], list[Path]], str]] = {
    "lm_eval": (run_lm_eval, "lm-eval"),
    "inspect": (run_inspect, "inspect-ai"),
    "lighteval": (run_lighteval, "lighteval"),
}


def main() -> None:
    """Write the dumps of one tool again."""
    parser = argparse.ArgumentParser(description=main.__doc__)
    parser.add_argument("tool", choices=TOOLS)
    parser.add_argument("--python", default=sys.executable)
    arguments = parser.parse_args()
    run, package = TOOLS[arguments.tool]
    ask = f"from importlib.metadata import version; print(version('{package}'))"
    said = subprocess.run([arguments.python, "-c", ask], capture_output=True, text=True, check=True)
    target = DATA / f"{arguments.tool}-{said.stdout.strip()}"
    shutil.rmtree(target, ignore_errors=True)
    with tempfile.TemporaryDirectory() as scratch:
        folder = Path(scratch)
        write_run(folder)
        for path in run(folder, arguments.python):
            copy = target / path.relative_to(folder / "out")
            copy.parent.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, copy)
            print(copy)


if __name__ == "__main__":
    main()
