"""The command line: help, one-line errors, exit codes, machine-readable output."""

from __future__ import annotations

import json
import re
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path

import pytest

import oversharp
from oversharp.diagnostics.app.cli import app, main
from oversharp.diagnostics.audit.config import AuditConfig
from oversharp.diagnostics.audit.confirm_config import ConfirmConfig
from oversharp.diagnostics.records.errors import StoreError
from oversharp.diagnostics.store import Store
from oversharp.trainers import objectives
from tests.preloaded import RunningServer

ROOT = Path(__file__).resolve().parents[2]
COMMANDS = ("audit", "plan", "confirm", "train", "train-base", "compare", "report", "sql", "explain", "doctor", "demo")
COMMANDS += (
    "import",
    "regrade",
    "judge",
    "export",
    "merge",
    "repair",
    "ship",
    "diff",
    "lost",
    "view",
    "convert",
    "fetch-model",
)
COMMANDS += ("problems", "drop")

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    """Run the command in this process: (exit code, stdout, stderr)."""

    def invoke(*arguments: str) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as stop:
            main(arguments)
        captured = capsys.readouterr()
        code = stop.value.code
        return (code if isinstance(code, int) else 0), captured.out, captured.err

    return invoke


@pytest.fixture(scope="module")
def audited(countdown_series: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The store of a small finished audit."""
    from oversharp.diagnostics.audit.audit import audit

    out = tmp_path_factory.mktemp("audited")
    audit([countdown_series], AuditConfig(task="countdown", limit=4, n=8, kernel_problems=0, out=out, name="run"))
    return out / "audit.duckdb"


@pytest.mark.slow
@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_has_help_without_loading_torch(run: Run, command: str) -> None:
    code, out, _ = run(command, "--help")
    assert code == 0
    assert f"oversharp {command}" in out


def test_the_listed_commands_are_all_there_are() -> None:
    listed = {name for name in app.meta if not name.startswith("-")}
    assert listed == {*COMMANDS, "rescore"}  # an older name of regrade


@pytest.mark.parametrize("config", [AuditConfig, ConfirmConfig])
def test_every_setting_is_documented(config: type) -> None:
    text = "\n".join(part.__doc__ or "" for part in config.__mro__)
    for name in config.__dataclass_fields__:
        assert re.search(rf"^    {name}\n        \S", text, flags=re.MULTILINE), f"{config.__name__}.{name}"


#: Files that lie where the command is called.
BAD_FILES = {
    "problems.jsonl": '{"prompt": "1 2 3 = 7 :", "answer": "7"}\n{"prompt": \n',
    "key.toml": '[audit]\ntask = "countdown"\nsamples = 4\n',
    "flat.toml": 'task = "countdown"\nn = 4\n',
    "open.toml": "[audit\n",
    "file": "",
}
MAP = "prompt=question,response=output,gold=gold,reward=score,step=step"
COUNTDOWN = ("audit", ".", "--task", "countdown")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("arguments", "code", "message"),
    [
        (("audit", "nowhere", "--task", "countdown"), 9, "nowhere: does not exist"),
        (("audit", "."), 2, "pass either --problems FILE.jsonl or --task NAME"),
        (("audit", ".", "--task", "contdown"), 4, "did you mean: countdown"),
        (("audit", ".", "--problems", "missing.jsonl"), 4, "missing.jsonl"),
        (("audit", ".", "--problems", "problems.jsonl"), 4, "problems.jsonl line 2"),
        (("audit", ".", "--config", "key.toml"), 2, "samples"),
        (("audit", ".", "--config", "flat.toml"), 2, "under [audit]"),
        (("audit", ".", "--config", "open.toml"), 2, "open.toml: not TOML"),
        (("audit", ".", "--config", "/dev/zero"), 2, "/dev/zero: cannot be read (is a device, not a regular file)"),
        (("audit", ".", "--problems", "/dev/zero"), 4, "/dev/zero: is a device, not a regular file"),
        ((*COUNTDOWN, "--config", "missing.toml"), 2, "missing.toml"),
        ((*COUNTDOWN, "--max-token", "3"), 2, "unknown option: --max-token; did you mean --max-tokens?"),
        (
            (*COUNTDOWN, "--num-samples", "3"),
            2,
            "unknown option: --num-samples; did you mean --n? see oversharp audit",
        ),
        ((*COUNTDOWN, "--samples=3"), 2, "unknown option: --samples; did you mean --n?"),
        ((*COUNTDOWN, "--output", "x"), 2, "unknown option: --output; did you mean --out?"),
        ((*COUNTDOWN, "--base-model", "x"), 2, "unknown option: --base-model; did you mean --base?"),
        (("train", "--lr", "1"), 2, "unknown option: --lr; did you mean --learning-rate?"),
        (("ship", "STORE", "--qqqqqq"), 2, "unknown option: --qqqqqq; see oversharp ship --help"),
        (("shipp", "STORE"), 2, "unknown command: shipp; did you mean ship? see oversharp --help"),
        (("evaluate", "STORE"), 2, "unknown command: evaluate; did you mean audit?"),
        (("problems", "chek"), 2, 'Did you mean "check"?'),
        (("ship", "STORE", "more"), 2, "too many arguments: more; remove them (see oversharp ship --help)"),
        (("diff", "STORE", "20", "40"), 2, "did you mean --steps 20 40?"),
        (("drop", "STORE"), 2, "error: SERIES is missing; see oversharp drop --help"),
        (("ship",), 2, "error: STORE is missing; see oversharp ship --help"),
        (("regrade", "STORE"), 2, "error: --verifier is missing; see oversharp regrade --help"),
        ((*COUNTDOWN, "--n"), 2, "error: --n needs a value; see oversharp audit --help"),
        (("demo", "--out", "file"), 2, "--out file: is not a directory; pass another path"),
        (("drop", "STORE", "runn"), 7, "has no series 'runn'; did you mean: run"),
        (("drop", "STORE", "run"), 2, "has no other series than run; remove the file itself"),
        (("remove", "STORE", "run"), 2, "unknown command: remove; did you mean drop?"),
        (("ship", "."), 7, "is a directory without an audit.duckdb; name the file, such as "),
        ((*COUNTDOWN, "--n", "8", "--k", "1,16"), 2, "--k 16 is larger than --n 8"),
        ((*COUNTDOWN, "--n", "9" * 5000), 2, '"' + "9" * 119 + "… into int."),
        (("import", "file", "--step", "99999999999"), 2, "--step 99999999999: must be below 2147483648"),
        ((*COUNTDOWN, "--sampler", "vllm"), 5, "use --sampler transformers"),
        ((*COUNTDOWN, "--device", "cuda:7"), 2, "--device cuda:7"),
        ((*COUNTDOWN, "--shard", "3/2"), 2, "--shard 3/2: counts from 1; use 1/2 to 2/2"),
        ((*COUNTDOWN, "--out", "file"), 7, "cannot create this directory"),
        ((*COUNTDOWN, "--strategy-regex", "(?=x)"), 2, "use RE2 syntax, without look-around"),
        (("merge", "missing.duckdb", "--out", "out"), 7, "missing.duckdb: no such store"),
        (("sql", "missing.duckdb", "SELECT 1"), 7, "missing.duckdb: no such store"),
        (
            ("report", "missing.duckdb"),
            7,
            "missing.duckdb: no such store; create it with `oversharp audit … --out DIR` or `import … --store",
        ),
        (("ship", "missing.duckdb"), 7, "missing.duckdb: no such store"),
        (("plan", "missing.duckdb"), 7, "missing.duckdb: no such store"),
        (("plan", "missing.duckdb", "--drop", "0"), 2, "--drop 0: must be above 0"),
        (("plan",), 2, "needs the STORE of an audit or a pilot, or --cost MODEL"),
        (("plan", "STORE", "--gpu", "h100"), 2, "add --cost MODEL, or remove the flag"),
        (("plan", "STORE", "--cost", "MODEL"), 2, "needs no store"),
        (("plan", "--cost", "MODEL", "--tokens", "9"), 2, "--cost needs --problems and --tokens"),
        (("plan", "STORE"), 2, "so no problem can be lost"),
        (("confirm", "missing.duckdb"), 7, "missing.duckdb: no such store"),
        (("confirm", "missing.duckdb", "--fresh", "0"), 2, "--fresh 0: must be at least 1"),
        (("explain", "pass_at_kk"), 2, "pass_at_k"),
        (("explain", "pass_at_k", "pass_at_kk"), 2, "pass_at_k"),
        (("explain", "frontir"), 2, "did you mean frontier"),
        (("explain", "nosuch"), 2, "words: over-sharpening, base,"),
        (("explain", "coverag"), 2, "did you mean coverage, coverage lost, cover_at_tau"),
        (("explain", "gsm8"), 2, "did you mean gsm8k"),
        (("ship", "STORE", "--series"), 2, "--series: is empty"),
        (("ship", __file__), 7, "not a DuckDB file; pass the audit.duckdb"),
        (("repair", "SERIES", "--out", "OUT", "--lambdas", "0.4,half"), 2, "is not a list of numbers such as 0.4,0.6"),
        (("train", "--algorithm", "grop"), 2, "grpo"),
        (("train", "--group-size", "1"), 2, "a single rollout is not a group"),
        (("sql", "STORE", "DELETE FROM samples"), 7, "DELETE is not a query; use SELECT, EXPLAIN or PIVOT"),
        (("sql", "STORE", "COPY samples TO 'out.csv'"), 7, ""),
        (("sql", "STORE", "SELECT * FROM read_csv('/etc/passwd')"), 7, ""),
        (("sql", "STORE", "SELECT nothing FROM findings"), 7, "nothing"),
        (("sql", "STORE", " "), 7, ""),
        (("sql", "STORE", ";"), 7, ""),
    ],
)
def test_bad_input_is_one_line_with_the_mend(
    run: Run,
    countdown_series: Path,
    audited: Path,
    arguments: tuple[str, ...],
    code: int,
    message: str,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.chdir(tmp_path)
    for name, content in BAD_FILES.items():
        Path(name).write_text(content)
    meant = {".": str(countdown_series), "STORE": str(audited)}
    got, out, err = run(*(meant.get(word, word) for word in arguments))
    assert got == code, err
    assert out == ""
    assert message in err
    errors = [line for line in err.splitlines() if not line.startswith("series run:")]
    assert len(errors) == 1
    assert errors[0].startswith("error: ")
    assert not Path("out.csv").exists()


QUERIES = """
import json, sys
from oversharp.diagnostics.app.cli import main
for command in json.loads(sys.argv[1]):
    try:
        main(command)
    except SystemExit as ended:
        assert not ended.code, command
print("slow:", [name for name in ("scipy.stats", "sklearn", "matplotlib", "torch") if name in sys.modules])
"""


@pytest.mark.slow
def test_commands_that_query_a_store_import_no_slow_library(imported_store):
    store = str(imported_store)
    commands = [["lost", store, "--series", "one"], ["diff", store, "--steps", "0", "100", "--series", "one"]]
    run = [sys.executable, "-c", QUERIES, json.dumps([*commands, ["ship", store]])]
    done = subprocess.run(run, capture_output=True, text=True)
    assert done.stdout.splitlines()[-1] == "slow: []", done.stderr


@pytest.mark.slow
@pytest.mark.usefixtures("few_measures", "no_report")
def test_settings_come_from_toml_and_flags_win(run: Run, countdown_series: Path, tmp_path: Path) -> None:
    toml = tmp_path / "audit.toml"
    toml.write_text(
        '[audit]\ntask = "countdown"\nlimit = 2\nn = 4\nk = [1, 4]\nkernel_problems = 0\nname = "from-toml"\n'
    )
    flags = ("--config", str(toml), "--out", str(tmp_path / "out"), "--name", "from-flag", "--json")
    code, out, _ = run("audit", str(countdown_series), *flags)
    assert code == 3  # no verdict on two problems
    result = json.loads(out)
    assert result["series"] == "from-flag"
    assert result["samples_drawn"] == 2 * (8 + 1) + 2 * 2 * (4 + 1) + 2 * 4  # base, the others, panel
    assert {row["k"] for row in result["findings"] if row["measure"] == "pass_at_k"} == {1, 4}


@pytest.mark.slow
@pytest.mark.usefixtures("few_measures")
def test_a_left_out_checkpoint_sets_the_exit_code_after_the_work(
    run: Run, countdown_series: Path, tmp_path: Path
) -> None:
    series = tmp_path / "run"
    shutil.copytree(countdown_series, series)
    (series / "checkpoint-40" / "model.safetensors").unlink()
    flags = ("--task", "countdown", "--limit", "2", "--n", "4", "--kernel-problems", "0", "--quiet")
    code, out, err = run("audit", str(series), *flags, "--out", str(tmp_path / "out"))
    assert code == 3
    assert "report.html" in out
    assert "checkpoint-40" in err
    assert (tmp_path / "out" / "report.html").is_file()


@pytest.mark.slow
@pytest.mark.usefixtures("few_measures", "no_report")
def test_shards_end_in_what_to_do_next_and_merge_in_a_store(run: Run, countdown_series: Path, tmp_path: Path) -> None:
    flags = ("--task", "countdown", "--limit", "2", "--n", "2", "--panel", "1", "--kernel-problems", "0", "--quiet")
    stores = []
    for shard in ("1/2", "2/2"):
        out = tmp_path / shard.replace("/", "-")
        code, printed, err = run("audit", str(countdown_series), *flags, "--out", str(out), "--shard", shard)
        assert code == 0, err
        lines = printed.splitlines()
        assert lines[0] == f"shard         {shard} of run: 1 problem"
        assert "when all 2 are done: oversharp merge STORES --out DIR, then this audit" in " ".join(printed.split())
        assert not (out / "report.html").exists()
        stores.append(str(out / "audit.duckdb"))
    code, printed, _ = run("merge", *stores, "--out", str(tmp_path / "all"), "--quiet")
    assert code == 0
    next_line = f"next          the audit of run without --shard, with --out {tmp_path / 'all'}"
    assert printed.splitlines()[-1] == next_line
    code, printed, _ = run("audit", str(countdown_series), *flags[:-1], "--json", "--out", str(tmp_path / "all"))
    assert code == 3  # no verdict on two problems
    assert json.loads(printed)["samples_drawn"] == 0


@pytest.mark.slow
@pytest.mark.usefixtures("no_report")
def test_nothing_to_confirm_is_said_and_no_model_loaded(run: Run, audited: Path, tmp_path: Path) -> None:
    store = str(shutil.copy(audited, tmp_path))
    code, out, _ = run("confirm", store, "--path", str(tmp_path / "nowhere"), "--quiet")
    assert code == 0
    assert "no problem seems lost or gained" in out
    assert (tmp_path / "report.html").is_file()


@pytest.mark.slow
@pytest.mark.usefixtures("few_measures", "few_figures")
def test_series_that_were_sampled_differently_are_compared_only_when_that_is_allowed(
    run: Run, countdown_series: Path, tmp_path: Path
) -> None:
    from oversharp.diagnostics.audit.audit import audit

    small = {"task": "countdown", "limit": 2, "n": 2, "panel": 0, "kernel_problems": 0, "out": tmp_path}
    for name, temperature in (("cool", 0.5), ("warm", 1.0)):
        audit([countdown_series], AuditConfig(**small, temperature=temperature, name=name))
    arguments = ("report", str(tmp_path / "audit.duckdb"), "--series", "cool", "warm")
    code, _, err = run(*arguments)
    assert code == 7
    assert "temperature" in err
    assert "--allow" in err
    assert len(err.strip().splitlines()) == 1
    assert run(*arguments, "--allow")[0] == 0


@pytest.mark.slow
def test_sql_prints_tables_json_and_csv(run: Run, audited: Path) -> None:
    query = "SELECT count(*) AS n, 'x' AS label FROM samples"
    code, out, _ = run("sql", str(audited), query, "--json")
    assert code == 0
    assert json.loads(out) == [{"n": 4 * (16 + 1) + 2 * 4 * (8 + 1) + 4 * 4, "label": "x"}]  # base, others, panel
    identity = "11111111-1111-1111-1111-111111111111"  # JSON has no type for it
    assert json.loads(run("sql", str(audited), f"SELECT '{identity}'::UUID AS id", "--json")[1]) == [{"id": identity}]
    assert run("sql", str(audited), query, "--csv")[1] == "n,label\n156,x\n"
    assert "156" in run("sql", str(audited), query)[1]
    assert "findings" in run("sql", str(audited))[1]


@pytest.mark.slow
@pytest.mark.xdist_group("imported_store")
def test_every_command_on_a_store_takes_the_directory_that_holds_it(
    run: Run, imported_store: Path, tmp_path: Path
) -> None:
    folder = str(imported_store.parent)
    for arguments in (
        ("ship", folder),
        ("lost", folder, "--series", "one"),
        ("diff", folder, "--steps", "0", "100", "--series", "one"),
        ("sql", folder, "SELECT 1"),
        ("export", folder, "--out", str(tmp_path / "export")),
        ("view", folder, "--bundle", str(tmp_path / "bundle"), "--most", "1", "--quiet"),
        ("merge", folder, str(imported_store), "--out", str(tmp_path / "merged"), "--quiet"),
        ("import", str(imported_store.parent / "one.jsonl"), "--map", MAP, "--dry-run", "--store", folder),
    ):
        code, _, err = run(*arguments)
        assert code == 0, (arguments, err)
    assert oversharp.open_store(folder).path == imported_store
    code, _, err = run("confirm", folder, "--series", "one")
    assert "has imported samples but no checkpoints" in err
    assert code == 2


@pytest.mark.slow
@pytest.mark.xdist_group("imported_store")
@pytest.mark.usefixtures("no_report")
def test_drop_prints_what_goes_what_is_left_and_where_the_copy_is(
    run: Run, imported_store: Path, tmp_path: Path
) -> None:
    store = Path(shutil.copy(imported_store, tmp_path))
    code, out, _ = run("drop", str(store), "two", "--dry-run")
    assert (code, out.splitlines()) == (
        0,
        [
            "would remove  two: 3 checkpoints and 1,920 samples that no remaining series uses",
            "left          one: 1,920 samples",
            "nothing was changed",
        ],
    )
    code, out, _ = run("drop", str(store), "two")
    copy = tmp_path / "audit.before-drop.duckdb"
    assert code == 0
    assert out.splitlines()[1:3] == ["left          one: 1,920 samples", f"store         {store}"]
    assert out.splitlines()[3] == f"copy          {copy}"
    with oversharp.open_store(store) as one, oversharp.open_store(copy) as both:
        assert (one.series, both.series) == (("one",), ("one", "two"))
    assert store.stat().st_size < copy.stat().st_size
    assert json.loads(run("drop", str(copy), "two", "--dry-run", "--json")[1])["series_left"] == ["one"]


def test_a_table_on_the_console_writes_control_characters_out(run: Run, tmp_path: Path) -> None:
    store = tmp_path / "audit.duckdb"
    Store.open(store).close()
    code, out, _ = run("sql", str(store), "SELECT chr(27) || '[31mred' || chr(7) AS text")
    assert code == 0
    assert "\x1b[31mred\x07".encode("unicode_escape").decode() in out
    assert chr(27) not in out.replace("\x1b[1m", "").replace("\x1b[0m", "")


@pytest.mark.slow
def test_a_text_of_several_lines_is_one_line_of_a_table_and_whole_in_json_and_csv(run: Run, tmp_path: Path) -> None:
    store = tmp_path / "audit.duckdb"
    Store.open(store).close()
    text = "Let me think.\n\n" + "So it is 4.\n" * 50 + "\\boxed{4}"
    query = f"SELECT 7 AS step, '{text}' AS response, 'one line' AS other"
    code, out, err = run("sql", str(store), query)
    assert code == 0
    assert [line.split()[0] for line in out.splitlines()] == ["step", "7"]
    assert "Let me think.⏎⏎So it is 4.⏎" in out
    assert "one line" in out
    assert "--json and --csv print all" in err
    assert max(map(len, out.splitlines())) < 120
    assert json.loads(run("sql", str(store), query, "--json")[1])[0]["response"] == text
    assert text in run("sql", str(store), query, "--csv")[1]
    assert run("sql", str(store), "SELECT 'one line' AS text")[2] == ""


def test_a_path_that_the_system_refuses_is_one_line(run: Run, countdown_series: Path, tmp_path: Path) -> None:
    code, _, err = run("audit", str(countdown_series), *COUNTDOWN[2:], "--out", str(tmp_path / ("x" * 300)))
    last = err.splitlines()[-1]
    assert code == StoreError.exit_code
    assert last.startswith("error: ")
    assert last.endswith("cannot be used (File name too long); pass another path, or change its permissions")
    assert len(last) < 300


@pytest.mark.slow
def test_in_a_pipe_nothing_that_sql_prints_is_cut_or_folded(run: Run, audited: Path) -> None:
    path = "/a/" + "long/" * 60 + "checkpoint-160"
    assert f" {path} " in run("sql", str(audited), f"SELECT '{path}' AS path, 1 AS step")[1]


def test_explain_gives_meaning_unit_and_source(run: Run) -> None:
    code, out, _ = run("explain", "pass_at_k")
    assert code == 0
    assert "Unit: probability" in out
    assert "Source" in out
    assert "is computed over clusters" in out
    assert "is computed over clusters" not in run("explain", "interference_correlation_p")[1]
    assert "modes_fallen_10x" in run("explain")[1]
    assert run("explain", "Mode_Collapse")[1].startswith("mode collapse: Correct answers")
    assert run("explain", "gsm8k")[1] == run("explain", "benchmark:gsm8k")[1]
    assert "k_star: " in run("explain", "pass_at_k", "k_star")[1]
    (told,) = json.loads(run("explain", "pass_at_k", "--json")[1])
    assert told == {"name": "pass_at_k", "text": out.rstrip("\n")}
    named = {one["name"]: one["kind"] for one in json.loads(run("explain", "--json")[1])}
    assert (named["frontier"], named["pass_at_k"], named["benchmark:gsm8k"]) == ("word", "measure", "benchmark")


@pytest.mark.slow
def test_doctor_reports_every_need(run: Run) -> None:
    code, out, _ = run("doctor", "--json")
    checks = {check["check"]: check["state"] for check in json.loads(out)}
    assert code == 0, out
    assert checks["torch"] == checks["duckdb"] == checks["python"] == "ok"


def test_train_list_names_every_algorithm(run: Run) -> None:
    code, out, _ = run("train", "--list")
    assert code == 0
    parts = [line for line in out.splitlines() if line.startswith("  ") and not line.startswith("   ")]
    listed = {line.split()[0].partition(":")[0] for line in parts}
    assert listed == set(objectives.names())


def test_a_run_can_be_repeated_from_the_settings_it_wrote(run: Run, tmp_path: Path) -> None:
    out = tmp_path / "base"
    flags = ("--max-steps", "2", "--n-examples", "200", "--output-dir", str(out))
    assert run("train-base", *flags)[0] == 0
    code, printed, err = run("train-base", "--config", str(out / "config.toml"), "--resume")
    assert code == 0, err
    assert printed.strip() == str(out / "checkpoint-2")


@pytest.mark.slow
def test_ctrl_c_says_what_is_kept(countdown_series: Path, tmp_path: Path, commands: RunningServer) -> None:
    flags = ["--task", "countdown", "--n", "4096", "--out", str(tmp_path), "--quiet"]
    process = commands.start(["audit", str(countdown_series), *flags])
    while not (tmp_path / "audit.duckdb").exists() and process.poll() is None:
        time.sleep(0.02)
    time.sleep(0.5)
    process.send_signal(signal.SIGINT)
    code, said = process.communicate()
    assert code == 130, said
    assert said.strip().splitlines()[-1].startswith("stopped: committed results are kept")


def test_settings_of_one_command_do_not_reach_the_next_one_of_the_process(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("run.toml").write_text("[explain]\n")
    assert run("explain", "--config", "run.toml")[0] == 0
    assert app.config == ()  # which a later command in this process would read
    Path("run.toml").unlink()
    assert run("explain")[0] == 0
