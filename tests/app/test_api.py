"""The Python API: the same verbs as the command, light to import, documented."""

from __future__ import annotations

import ast
import inspect
import json
import re
import shutil
import subprocess
import sys
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest

import oversharp
from oversharp.diagnostics.app import api, api_page
from oversharp.diagnostics.app.reader import InlineReport
from oversharp.diagnostics.records.cells import short_repr
from oversharp.diagnostics.records.errors import FLAGS, ConfigError, OversharpError, with_arguments

ROOT = Path(__file__).resolve().parents[2]


def loaded_by(code: str) -> set[str]:
    """Modules that ``code`` loads in a process of its own."""
    probe = f"{code}\nimport sys\nprint('\\n'.join(sys.modules))"
    answer = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, check=True, cwd=ROOT)
    return set(answer.stdout.split())


def test_the_page_in_the_tree_is_the_one_that_the_docstrings_give() -> None:
    assert api_page.PAGE.read_text(encoding="utf-8") == api_page.page(), (
        "docs/api.md is out of date; run: python -m oversharp.diagnostics.app.api_page"
    )


def test_the_page_has_every_verb_with_its_arguments_and_every_record_with_its_fields() -> None:
    text = api_page.page()
    sections = dict(re.findall(r"^### `(\w+)`\n(.*?)(?=^##|\Z)", text, flags=re.MULTILINE | re.DOTALL))
    assert list(sections) == [*api.VERBS, *api.RECORDS]
    for name in api.VERBS:
        assert all(f"{argument}:" in sections[name] for argument in inspect.signature(getattr(api, name)).parameters)
    for name in ("AuditConfig", "Verdict", "ExportResult"):
        assert all(f"| `{field}` |" in sections[name] for field in getattr(api, name).__dataclass_fields__)
    assert "to_json() -> str" in sections["Verdict"]
    assert "add_samples" not in text
    assert ">>>" not in text


def test_every_code_block_of_the_page_is_python_and_every_verb_has_its_signature() -> None:
    blocks = re.findall(r"```python\n(.*?)\n```", api_page.page(), flags=re.DOTALL)
    signatures = [block for block in blocks if re.match(r"\w+\(.*\) -> \S", block, flags=re.DOTALL)]
    assert len(signatures) == len(api.VERBS)
    assert len(blocks) > len(signatures) + 5
    for name, block in zip(api.VERBS, signatures, strict=True):
        (function,) = ast.parse(f"def {block}: ...").body
        assert isinstance(function, ast.FunctionDef)
        given = (*function.args.args, *function.args.kwonlyargs, *filter(None, [function.args.kwarg]))
        assert (function.name, [one.arg for one in given]) == (
            name,
            list(inspect.signature(getattr(api, name)).parameters),
        )
    for block in blocks:
        if block not in signatures:
            compile(block, "docs/api.md", "exec")


def test_calls_in_the_page_and_flags_in_its_texts_name_arguments_that_there_are() -> None:
    text = api_page.page()
    calls = [
        node
        for block in re.findall(r"```python\n(.*?)\n```", text, flags=re.DOTALL)
        if not re.match(r"\w+\(.*\) -> \S", block, flags=re.DOTALL)
        for node in ast.walk(ast.parse(block))
        if isinstance(node, ast.Call) and ast.unparse(node.func).startswith("oversharp.")
    ]
    assert len(calls) > 5
    settings = {name for record in api.RECORDS if record.endswith("Config") for name in fields_of(record)}
    for call in calls:
        callee = getattr(oversharp, ast.unparse(call.func).removeprefix("oversharp."))
        known = set(inspect.signature(callee).parameters)
        takes_settings = "settings" in known or isinstance(callee, type)
        assert {one.arg for one in call.keywords} <= known | (settings if takes_settings else set())
    arguments = settings | {one for verb in api.VERBS for one in inspect.signature(getattr(api, verb)).parameters}
    flags = set(re.findall(r"(?<![\w-])--([a-z][a-z-]*)", re.sub(r"`oversharp [^`]*`", "", text)))
    named = {with_arguments(f"--{flag}").removesuffix("=").removeprefix("no_") for flag in flags}
    assert named - arguments == set()
    assert all(f"``{argument}``" in inspect.getdoc(api) for argument in FLAGS)


def fields_of(record: str) -> set[str]:
    return set(getattr(api, record).__dataclass_fields__)


def test_the_api_loads_nothing_that_the_package_does_not() -> None:
    plain = loaded_by("import oversharp")
    ours = {name for name in loaded_by("import oversharp; oversharp.audit") if name.startswith("oversharp.")}
    app = {"app", "app.api", "app.verbs", "app.verbs.preparing", "app.verbs.stores"}
    light = ("amounts", "arguments", "cells", "errors", "names", "provenance")
    records = {"records", *(f"records.{name}" for name in light)}
    assert ours == {"oversharp.diagnostics", *(f"oversharp.diagnostics.{name}" for name in app | records)}
    heavy = {"pandas", "numpy", "duckdb", "pyarrow", "torch", "cyclopts", "rich"}
    assert not heavy & (plain | loaded_by("import oversharp; oversharp.audit"))


@pytest.mark.slow
def test_the_package_has_every_verb_and_record_and_no_module_of_such_a_name() -> None:
    names = [*api.VERBS, *api.RECORDS]
    assert all(getattr(oversharp, name) is getattr(api, name) for name in names)
    assert {*names, "OversharpError", "RetryLater", "version"} == set(dir(oversharp)) == set(oversharp.__all__)
    alone = [sys.executable, "-c", "import oversharp; from oversharp import *; audit"]
    subprocess.run(alone, check=True)


def test_the_version_is_that_of_the_installed_package_and_loads_nothing_more() -> None:
    assert oversharp.__version__ == metadata.version("oversharp") == oversharp.version()
    assert loaded_by("import oversharp; oversharp.__version__") == loaded_by("import oversharp; oversharp.version()")


def test_an_unknown_name_is_an_attribute_error() -> None:
    for module in (oversharp, api):
        with pytest.raises(AttributeError, match="no attribute 'adit'"):
            module.adit  # noqa: B018


@pytest.mark.slow
@pytest.mark.xdist_group("audited_store")
@pytest.mark.usefixtures("few_figures")
def test_the_verbs_on_a_store_do_what_the_commands_do(audited_store: Path, tmp_path: Path) -> None:
    store_path = shutil.copy(audited_store, tmp_path)
    with oversharp.open_store(store_path) as store:
        verdict = store.verdict("grpo")
        every, one = store.ship(), store.ship("grpo")
        assert every.sentence == one.sentence
        assert {step.series for step in every.steps if not step.is_base} == {"grpo", "iac, seed 1"}
        assert store.plot("frontier").name == "compare-sharpening"
        with pytest.raises(ConfigError, match="has several series; pass series= with one of: grpo, iac, seed 1"):
            store.lost()
        shown = [verdict, every, store.plot("frontier"), store.report(), store.lost(series="grpo")]
        shown.append(store.diff(20, 40, series="grpo"))
    assert isinstance(verdict, oversharp.Verdict)
    assert repr(verdict).startswith("Verdict(series='grpo', label='")
    assert oversharp.report(store_path).name == "report.html"
    result = oversharp.export(store_path, what="verdicts", formats="csv", series="grpo")
    assert [one.path for one in result.written] == [tmp_path / "export" / "verdicts.csv"]
    assert oversharp.ship(store_path, series="grpo") == oversharp.ship(store_path, series=["grpo"])
    for one in (*shown, result, *oversharp.ship(store_path)):
        assert len(repr(one).splitlines()) == 1
        assert len(repr(one)) < 400
    with pytest.raises(ConfigError, match="pass series="):
        oversharp.plan(store_path)
    with pytest.raises(OversharpError, match=r"nothing\.duckdb"):
        oversharp.confirm(tmp_path / "nothing.duckdb")
    assert "Unit: probability" in oversharp.explain("pass_at_k")


def test_every_result_has_a_repr_of_one_line() -> None:
    results = [getattr(api, name) for name in api.RECORDS if not name.endswith(("Config", "ConsoleProgress", "Store"))]
    assert oversharp.LostProblems in results
    assert [one.__name__ for one in results if one.__repr__ is not short_repr] == []


@pytest.mark.slow
@pytest.mark.usefixtures("few_measures", "no_report")
def test_an_audit_takes_its_settings_by_name_and_they_win_over_a_config(countdown_series: Path, tmp_path: Path) -> None:
    config = oversharp.AuditConfig(task="countdown", limit=2, n=2, panel=0, kernel_problems=0, out=tmp_path)
    named = {"task": "countdown", "limit": 2, "n": 2, "panel": 0, "kernel_problems": 0, "out": tmp_path}
    first = oversharp.audit(countdown_series, config)
    again = oversharp.audit(countdown_series, **named)
    more = oversharp.audit(countdown_series, config, n=4, name="other")
    assert first.samples_drawn > 0
    assert again.samples_drawn == 0
    assert (again.series, again.store_path) == (first.series, first.store_path)
    assert more.samples_drawn > 0
    assert more.series == "other"
    assert len(repr(more)) < 400


@pytest.mark.slow
@pytest.mark.usefixtures("few_measures", "no_report")
def test_an_audit_records_the_call_without_what_is_default(countdown_series: Path, tmp_path: Path) -> None:
    config = oversharp.AuditConfig(task="countdown", limit=2, n=2, panel=0, kernel_problems=0, out=tmp_path, name="run")
    result = oversharp.audit(countdown_series, config)
    with oversharp.open_store(result.store_path) as store:
        command = store.frame("SELECT provenance ->> '$.command' AS command FROM current_audits")["command"].iloc[0]
    expected = f"task='countdown', limit=2, out={tmp_path!r}, name='run', n=2, panel=0, kernel_problems=0"
    assert command == f"oversharp.audit(['{countdown_series}'], AuditConfig({expected}))"


@pytest.mark.usefixtures("no_report")
def test_an_import_takes_one_path_or_several(tmp_path: Path) -> None:
    dump = tmp_path / "0.jsonl"
    dump.write_text('{"input": "1 + 1", "output": "2", "gts": "2", "score": 1.0, "step": 0}\n' * 4, encoding="utf-8")
    result = oversharp.import_samples(dump, oversharp.ImportConfig(store=tmp_path / "audit.duckdb"))
    assert result.files[0].n_samples == 4


def test_text_is_as_good_as_a_path_in_settings() -> None:
    text: Any = "some/where"
    trained = oversharp.TrainConfig(problems=text, model="base", output_dir=text)
    audited = oversharp.AuditConfig(problems=text, out=text)
    assert trained.problems == trained.output_dir == audited.problems == audited.out == Path(text)
    assert oversharp.ConfirmConfig(path=text).path == oversharp.ImportConfig(store=text).store == Path(text)
    assert oversharp.ConfirmConfig().path is None


@pytest.mark.slow
@pytest.mark.xdist_group("audited_store")
@pytest.mark.usefixtures("few_figures")
def test_the_notebook_of_the_docs_runs_and_its_cells_show_something(
    audited_store: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    cells = json.loads((ROOT / "docs" / "walk.ipynb").read_text(encoding="utf-8"))["cells"]
    names: dict[str, Any] = {}
    shown = []
    for cell in cells:
        if cell["cell_type"] == "code":
            body = ast.parse("".join(cell["source"]).replace("runs/demo/audit.duckdb", str(audited_store))).body
            last = body.pop() if isinstance(body[-1], ast.Expr) else None
            exec(compile(ast.Module(body, []), "cell", "exec"), names)
            if last is not None:
                shown.append(eval(compile(ast.Expression(last.value), "cell", "eval"), names))
    names["store"].close()
    (report,) = [one for one in shown if isinstance(one, InlineReport)]
    (picture,) = [one for one in shown if isinstance(one, oversharp.ReportPicture)]
    assert report._repr_html_().startswith("<iframe")
    assert "<svg" in picture._repr_svg_()
    assert "expected by chance" in capsys.readouterr().out
