"""What an export leaves behind, what it refuses, and the command."""

from __future__ import annotations

import json
import os
import re
import shlex
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pandas as pd
import pytest

from oversharp import export
from oversharp.diagnostics.app.cli import main
from oversharp.diagnostics.export.contract import EVERYTHING
from oversharp.diagnostics.export.export import MARKER, UNFINISHED
from oversharp.diagnostics.export.tables import findings_latex, verdicts_latex
from oversharp.diagnostics.records.errors import ConfigError, StoreError
from oversharp.diagnostics.store import Store

pytestmark = pytest.mark.xdist_group("audited_store")

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    """Run the command in this process: (exit code, stdout, stderr)."""

    def invoke(*arguments: str) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as stop:
            main(arguments)
        captured = capsys.readouterr()
        return int(stop.value.code or 0), captured.out, captured.err

    return invoke


@pytest.mark.slow
@pytest.mark.usefixtures("few_figures")
def test_the_command_writes_everything_and_names_each_file(run: Run, audited_store: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    flags = ("--out", str(out), "--what", "all", "--format", "csv,markdown,png", "--series", "iac, seed 1", "--json")
    code, printed, err = run("export", str(audited_store), *flags)
    assert code == 0, err
    result = json.loads(printed)
    assert result["series"] == ["iac, seed 1"]
    assert [one["what"] for one in result["written"]] == [
        *("findings", "findings", "verdicts", "verdicts", "samples", "every_eval_ever", "atif", "plots")
    ]
    assert all(Path(one["path"]).exists() and one["n"] > 0 for one in result["written"])
    tables = {f"{what}.{ending}" for what in ("findings", "verdicts") for ending in ("csv", "md")}
    assert {path.name for path in out.iterdir()} == tables | {"samples", "every_eval_ever", "atif", "plots"}
    pictures = list((out / "plots").glob("*.png"))
    assert len(pictures) == result["written"][-1]["n"]
    assert not list((out / "plots").glob("*.svg"))
    assert (out / "plots" / "pass-at-k.png").read_bytes().startswith(b"\x89PNG")
    index = (out / "plots" / "README.md").read_text(encoding="utf-8")
    assert all(path.name in index for path in pictures)


@pytest.mark.slow
def test_what_is_to_be_pushed_is_written_and_the_command_that_publishes_it_is_named(
    run: Run, audited_store: Path, tmp_path: Path
) -> None:
    code, printed, err = run("export", str(audited_store), "--out", str(tmp_path / "to share"), "--push", "me/it")
    assert code == 0, err
    assert [path.name for path in (tmp_path / "to share").iterdir()] == ["samples"]
    _, _, last = printed.splitlines()[-1].partition("  ")
    words = shlex.split(last)
    assert words == [
        "hf",
        "upload",
        "me/it",
        f"{tmp_path}/to share/samples",
        ".",
        *["--repo-type", "dataset", "--private"],
    ]


@pytest.mark.slow
@pytest.mark.usefixtures("few_figures")
def test_a_figure_is_written_by_name_alone_and_latex_holds_pass_at_k_by_step(
    run: Run, audited_store: Path, tmp_path: Path
) -> None:
    flags = ("--out", str(tmp_path), "--series", "grpo")
    assert run("export", str(audited_store), *flags, "--figure", "token_entropy", "--format", "pdf")[0] == 0
    assert {path.name for path in (tmp_path / "plots").iterdir()} == {"README.md", MARKER, "token-entropy.pdf"}
    before = (tmp_path / "plots" / "token-entropy.pdf").read_bytes()
    again = ("export", str(audited_store), *flags, "--figure", "token_entropy", "pass-at-k", "--format", "pdf")
    assert "token-entropy.pdf exists already; pass --replace" in run(*again)[2]
    assert not (tmp_path / "plots" / "pass-at-k.pdf").exists()
    assert run(*again[:-4], "token_entropy", "--format", "svg")[0] == 0
    both = {"token-entropy.pdf", "token-entropy.svg"}
    assert {path.name for path in (tmp_path / "plots").iterdir()} == {"README.md", MARKER, *both}
    assert (tmp_path / "plots" / "token-entropy.pdf").read_bytes() == before
    index = (tmp_path / "plots" / "README.md").read_text(encoding="utf-8")
    assert index.count("- [") == 2
    assert all(index.count(f"[{name}]") == 1 for name in both)
    code, said, _ = run("export", str(audited_store), *flags, "--what", "findings", "--format", "latex")
    assert code == 0
    written = (tmp_path / "findings.tex").read_text(encoding="utf-8")
    assert "step & pass@1 & pass@2" in written
    assert written.count("tabular") == 2
    assert f"({len(re.findall(r'^[0-9]+ &', written, flags=re.MULTILINE))})" in said, "rows of the table, not findings"
    twice = ("--figure", "pass-at-k", "pass-at-k", "--format", "svg", "--replace")
    assert run("export", str(audited_store), *flags, *twice)[1].count("pass-at-k.svg") == 1


@pytest.mark.slow
@pytest.mark.usefixtures("few_figures")
def test_a_figure_that_is_named_comes_as_a_table_for_a_paper_and_the_frontier_is_that_of_all_series(
    run: Run, audited_store: Path, tmp_path: Path
) -> None:
    asked = ("export", str(audited_store), "--out", str(tmp_path), "--figure", "frontier", "--format", "latex")
    code, _, err = run(*asked)
    assert code == 0, err
    (written,) = (tmp_path / "plots").glob("*.tex")
    assert written.name == "compare-sharpening.tex"
    lines = written.read_text(encoding="utf-8").splitlines()
    assert lines[1] == r"\begin{tabular}{llrr}"
    assert lines[3].startswith("series & checkpoint & pass@1 & pass@")
    assert [line.split(" & ")[1] for line in lines[5:8]] == ["base", "step 20", "step 40"]
    assert {line.split(" & ")[0] for line in lines[5:-2]} == {"all", "grpo", "iac, seed 1"}
    assert not list((tmp_path / "plots").glob("*.svg"))
    own = ("--series", "grpo", "--figure", "coverage-map", "--format", "latex,pdf")
    assert run("export", str(audited_store), "--out", str(tmp_path), *own)[0] == 0
    assert {one.suffix for one in (tmp_path / "plots").glob("coverage-map.*")} == {".tex", ".pdf"}
    assert (
        "only for findings and verdicts and figures named by --figure"
        in run("export", str(audited_store), "--out", str(tmp_path / "no"), "--what", "plots", "--format", "latex")[2]
    )


def test_verdicts_in_latex_say_their_package_and_call_labels_as_the_report_does() -> None:
    shown = {"series": "a_b", "label": "over_sharpened_here", "p_exact": 0.00123456, "p_population": None}
    written = verdicts_latex(pd.DataFrame([shown]))
    assert written.startswith("% needs \\usepackage{booktabs}\n\\begin{tabular}")
    assert "a\\_b & Coverage lost & 0.001235 & –" in written


def test_latex_marks_each_k_that_was_not_tested() -> None:
    row = {"series": "s", "step": 20, "scope": "all", "value": 0.5, "low": 0.4, "high": 0.6}
    band = {**row, "measure": "pass_at_k_band", "value": 0.1, "low": -0.1, "high": 0.3}
    shown = [{**row, "measure": "pass_at_k", "k": k} for k in (1, 2, 4)]
    written = findings_latex(pd.DataFrame([*shown, {**band, "k": 1}, {**band, "k": 4, "low": None, "high": None}]))
    assert r"step & pass@1 & pass@2$^{\dagger}$ & pass@4$^{\dagger}$ \\" in written
    assert "dagger: no test at this k" in written.splitlines()[0]


def test_latex_marks_what_surely_changed_and_what_is_unknown() -> None:
    rows = [(step, "pass_at_k", 1, value, None, None) for step, value in ((0, 0.5), (10, 0.25), (20, None))]
    rows += [(10, "pass_at_k_band", 1, -0.25, -0.3, -0.2)]
    frame = pd.DataFrame(rows, columns=["step", "measure", "k", "value", "low", "high"]).assign(
        series="a_b", scope="all"
    )
    written = findings_latex(frame)
    assert "0 & 50.0 \\\\" in written
    assert "10 & 25.0$^{\\downarrow}$" in written
    assert "20 & --" in written


@pytest.mark.slow
def test_findings_and_verdicts_come_by_default_beside_the_store(run: Run, audited_store: Path, tmp_path: Path) -> None:
    store = Path(shutil.copy(audited_store, tmp_path))
    code, printed, _ = run("export", str(store), "--quiet")
    assert code == 0
    written = [f"{what}{ending}" for what in ("findings", "verdicts") for ending in (".csv", ".parquet", ".md")]
    assert sorted(path.name for path in (tmp_path / "export").iterdir()) == sorted(written)
    assert all(str(tmp_path / "export" / name) in printed for name in written)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("flags", "code", "message"),
    [
        (("--what", "finding"), 2, "did you mean findings?"),
        (("--what", "samples", "--format", "csv"), 2, "only for findings and verdicts"),
        (("--what", "findings", "--format", "png"), 2, "only for plots; add plots to --what"),
        (("--format", "xlsx"), 2, "choose from csv, parquet, markdown, latex, svg, png, pdf"),
        (("--what", "findings,samples", "--figure", "k-star"), 2, "--figure k-star: figures belong to plots"),
        (("--series", "grp"), 7, "has no audit of this series; audited series: grpo, iac, seed 1"),
        (("--push", "it"), 2, "--push it: not a dataset name; use OWNER/NAME"),
        (("--push", "a b/c"), 2, "--push a b/c: not a dataset name; use OWNER/NAME"),
        (("--push", "me/it", "--what", "plots"), 2, "--push me/it: only samples are pushed; add samples to"),
        (("--out", "taken"), 2, "--out taken: is a file; pass a directory"),
        (("--out", "taken/deeper"), 7, "cannot be written"),
        (("--out", "full"), 2, "findings.csv: exists; pass --replace to overwrite it"),
        (("--out", "full", "--what", "samples", "--replace"), 2, "samples: exists and is not from an export"),
    ],
)
def test_bad_input_is_one_line_and_nothing_is_written(
    run: Run,
    audited_store: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    flags: tuple[str, ...],
    code: int,
    message: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    (tmp_path / "taken").write_text("mine")
    (tmp_path / "full" / "samples").mkdir(parents=True)
    (tmp_path / "full" / "findings.csv").write_text("mine")
    (tmp_path / "full" / "samples" / "notes.txt").write_text("mine")
    out = () if "--out" in flags else ("--out", "new")
    got, printed, err = run("export", str(audited_store), *out, *flags, "--quiet")
    assert got == code, err
    assert printed == ""
    assert message in err
    assert len(err.strip().splitlines()) == 1
    assert not (tmp_path / "new").exists()
    held = {path.relative_to(tmp_path).as_posix() for path in tmp_path.rglob("*") if path.is_file()}
    assert held == {"taken", "full/findings.csv", "full/samples/notes.txt"}


@pytest.mark.slow
def test_a_store_without_an_audit_or_without_findings_says_what_to_run(tmp_path: Path, audited_store: Path) -> None:
    empty = tmp_path / "empty.duckdb"
    Store.open(empty).close()
    with pytest.raises(StoreError, match="no audit in this store; run `oversharp audit` first"):
        export(empty, tmp_path / "out")
    begun = Path(shutil.copy(audited_store, tmp_path / "begun.duckdb"))
    with Store.open(begun) as store:
        for table in ("audit_findings", "audit_verdicts", "grades"):
            store._database.rows(f"DELETE FROM {table}")
    lacking = {"findings": "findings", "verdicts": "verdicts", "plots": "findings"}
    lacking |= dict.fromkeys(("samples", "every_eval_ever", "atif"), "graded samples")
    for what, missing in lacking.items():
        with pytest.raises(
            StoreError, match=f"no {missing} of grpo, iac, seed 1; run `oversharp audit` until it finishes"
        ):
            export(begun, tmp_path / "out", what=(what,))  # type: ignore[arg-type]
        assert not list(tmp_path.glob("out/*"))


@pytest.mark.slow
def test_what_an_earlier_export_left_is_replaced_as_a_whole_when_asked(audited_store: Path, tmp_path: Path) -> None:
    export(audited_store, tmp_path, what=("findings", "samples"))
    assert len(list(tmp_path.glob("samples/data/*/*.parquet"))) == 6
    with pytest.raises(ConfigError, match="exists; pass replace="):
        export(audited_store, tmp_path, what=("samples",))
    export(audited_store, tmp_path, what=("findings", "samples"), series=["grpo"], replace=True)
    assert len(list(tmp_path.glob("samples/data/*/*.parquet"))) == 3
    assert "iac" not in (tmp_path / "findings.csv").read_text(encoding="utf-8")
    made = json.loads((tmp_path / "samples" / MARKER).read_text(encoding="utf-8"))
    assert made["series"] == ["grpo"]


@pytest.mark.slow
def test_an_export_that_fails_halfway_leaves_what_was_there(
    audited_store: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    export(audited_store, tmp_path, what=("samples",))
    before = sorted(tmp_path.rglob("*"))
    read = Store.frame

    def cut_off(store: Store, sql: str, **parameters: object) -> object:
        if "graded_samples" in sql and parameters.get("step") == 20:
            raise StoreError("the store was cut off")
        return read(store, sql, **parameters)

    monkeypatch.setattr(Store, "frame", cut_off)
    with pytest.raises(StoreError, match="cut off"):
        export(audited_store, tmp_path, what=("samples",), replace=True)
    assert sorted(tmp_path.rglob("*")) == before


def test_every_output_is_named_in_the_commands_help(run: Run) -> None:
    _, printed, _ = run("export", "--help")
    assert all(name in printed for name in EVERYTHING)


@pytest.mark.slow
def test_an_export_that_was_killed_is_run_again_without_a_flag(audited_store: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    program = (
        "import os, oversharp; from oversharp.diagnostics.export import samples\n"
        "samples.write_samples = lambda *_, **__: os._exit(9)\n"
        f"oversharp.export({str(audited_store)!r}, {str(out)!r}, what=('findings', 'samples'))"
    )
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    ended = subprocess.run([sys.executable, "-c", program], env=environment, capture_output=True, check=False)
    assert ended.returncode == 9
    assert {path.name for path in out.iterdir()} >= {"findings.csv", UNFINISHED, ".samples.partial"}
    (out / "verdicts.csv").write_text("of somebody")
    with pytest.raises(ConfigError, match=r"verdicts\.csv: exists"):
        export(audited_store, out, what=("verdicts",), formats=("csv",))
    export(audited_store, out, what=("findings", "samples"), formats=("csv",))
    assert {path.name for path in out.iterdir()} >= {"findings.csv", "samples"}
    assert not (out / ".samples.partial").exists()
    with pytest.raises(ConfigError, match=r"findings\.csv: exists"):
        export(audited_store, out, what=("findings",), formats=("csv",))


@pytest.mark.slow
def test_an_export_that_was_killed_while_it_removed_a_folder_is_run_again(audited_store: Path, tmp_path: Path) -> None:
    out = tmp_path / "out"
    export(audited_store, out, what=("samples",))
    (out / UNFINISHED).write_text('["samples"]')
    (out / "samples" / MARKER).unlink()
    export(audited_store, out, what=("samples",))
    assert {path.name for path in out.iterdir()} == {"samples"}
    assert (out / "samples" / MARKER).is_file()
