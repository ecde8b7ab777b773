"""Two checkpoints of a small import: what was lost and gained, what is sure of it, what is answered instead."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path

import duckdb
import numpy as np
import pandas as pd
import pytest

import oversharp
from oversharp.diagnostics.app.cli import main
from oversharp.diagnostics.changes.lost import loss_order
from oversharp.diagnostics.changes.problems import problem_changes
from oversharp.diagnostics.records.errors import ConfigError, StoreError
from oversharp.diagnostics.statistics.problem_changes import ProblemCounts
from oversharp.diagnostics.store import Store
from oversharp.diagnostics.verdict.claims import FELL_HERE
from oversharp.reports.evidence.problem_changes import problem_changes as in_report
from oversharp.reports.evidence.source import read_source

pytestmark = pytest.mark.xdist_group("changes")

CHAT = "<|im_start|>system\nAdd.<|im_end|>\n<|im_start|>user\n{}<|im_end|>\n<|im_start|>assistant\n"
N = 16
#: Correct samples of 16 at steps 0, 10, 20: lost for sure, lost perhaps by chance, gained, and twenty that stay.
COUNTS = {"1 + 1?": (16, 14, 0), "2 + 2?": (1, 1, 0), "3 + 3?": (0, 1, 16)}
COUNTS |= {f"{i} + 9?": (8, 8, 8) for i in range(20)}


def dump(path: Path, steps: dict[int, int]) -> Path:
    """Rollouts of verl: a right answer is the problem's number with a distinct tail, a wrong one is 7."""
    with path.open("w", encoding="utf-8") as file:
        for step, place in steps.items():
            for prompt, counts in COUNTS.items():
                for i in range(N):
                    right = i < counts[place]
                    text = f"try {i} at {step}: \\boxed{{{prompt[0] if right else 'seven'}}}"
                    row = {"input": CHAT.format(prompt), "output": text, "gts": prompt[0], "score": float(right)}
                    file.write(json.dumps({**row, "step": step}) + "\n")
    return path


@pytest.fixture(scope="module")
def store_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    from oversharp.diagnostics.ingest.ingest import import_samples

    folder = tmp_path_factory.mktemp("changes")
    config = oversharp.ImportConfig(store=folder / "audit.duckdb", name="run", verifier="math")
    return import_samples([dump(folder / "run.jsonl", {0: 0, 10: 1, 20: 2})], config).store_path


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Callable[..., tuple[int, str, str]]:
    def invoke(*arguments: str) -> tuple[int, str, str]:
        with pytest.raises(SystemExit) as stop:
            main(arguments)
        captured = capsys.readouterr()
        return int(stop.value.code or 0), captured.out, captured.err

    return invoke


def test_what_was_lost_comes_first_by_what_is_sure_and_says_what_chance_would_make(store_path: Path) -> None:
    found = oversharp.lost(store_path)
    assert [(one.change.title, one.change.state, one.change.sure) for one in found.problems] == [
        ("1 + 1?", "lost", True),
        ("2 + 2?", "lost", False),
    ]
    assert (found.before.name, found.after.name) == ("the base", "step 20")
    assert found.lost_by_chance == pytest.approx(
        0.5, abs=0.001
    )  # the one hit of 2 + 2? falls to the base half the time
    assert found.sentence == (
        "23 problems: step 20 of run lost every correct sample of 2 that the base solved, 1 of them significantly "
        "(expected by chance: about 0.5). 0 other problems fell significantly."
    )


def test_answers_are_counted_at_both_checkpoints_right_ones_first(store_path: Path) -> None:
    (first, *_) = oversharp.lost(store_path, answers=True, since=10).problems
    assert [(one.answer, one.correct, one.n) for one in first.before] == [("1", True, 14), ("seven", False, 2)]
    assert [(one.answer, one.correct, one.n) for one in first.after] == [("seven", False, 16)]
    assert first.after[0].response == "try 0 at 20: \\boxed{seven}"


def test_a_response_in_which_no_answer_was_read_gives_none(store_path: Path, tmp_path: Path) -> None:
    path = Path(shutil.copy(store_path, tmp_path))
    with duckdb.connect(str(path)) as database:
        database.execute("UPDATE grades SET answer = 'NA' WHERE NOT correct")
    (first, *_) = oversharp.lost(path, answers=True, since=10).problems
    assert [(one.answer, one.correct, one.n) for one in first.after] == [(None, False, 16)]


def test_a_response_is_printed_also_where_it_is_its_answer_or_nothing(
    store_path: Path, tmp_path: Path, run: Callable[..., tuple[int, str, str]]
) -> None:
    path = Path(shutil.copy(store_path, tmp_path))
    with duckdb.connect(str(path)) as database:
        database.execute("UPDATE samples SET text = CASE WHEN text LIKE '%seven%' THEN '' ELSE '1' END")
    printed = run("lost", str(path), "--answers", "--most", "1")[1]
    assert "a correct response of the base:\n    | 1\n" in printed
    assert "a response of step 20:\n    | (empty)\n" in printed


@pytest.mark.slow
@pytest.mark.parametrize("verb", ["lost", "diff --steps 0 20", "ship"])
def test_a_series_of_a_strangers_store_does_not_retitle_the_terminal(
    store_path: Path, tmp_path: Path, run: Callable[..., tuple[int, str, str]], verb: str
) -> None:
    path = Path(shutil.copy(store_path, tmp_path))
    with duckdb.connect(str(path)) as database:
        for table in ("series", "series_checkpoints", "audits"):
            database.execute(f"UPDATE {table} SET series = series || chr(27) || ']0;owned'")
        database.execute("UPDATE series_checkpoints SET checkpoint = checkpoint || chr(27) || '[31m'")
    name, *flags = verb.split()
    printed = run(name, str(path), *flags)[1]
    assert "\x1b" not in printed
    assert "\\x1b" in printed


def test_a_difference_is_paired_over_problems_and_corrected_for_all_k_and_all_problems(store_path: Path) -> None:
    found = oversharp.diff(store_path, steps=(0, 20))
    assert [row.k for row in found.changes] == [1, 2, 4, 8]
    # one of 23 problems lost 16 of 16, one gained as many, one lost 1 of 16
    assert found.changes[0].difference == pytest.approx(-1 / 16 / 23)
    assert {one.title: (one.state, one.sure) for one in found.problems} == {
        "1 + 1?": ("lost", True),
        "3 + 3?": ("gained", True),
        "2 + 2?": ("lost", False),
    }
    assert "2 lost every correct sample, 1 gained a first one" in found.sentences[-1]
    assert found.sentences[-1].endswith("1 fell significantly, 1 rose significantly.")
    assert "no significant change up to k = 8" in found.sentences[0]
    back = oversharp.diff(store_path, steps=(20, 0))
    assert back.changes[0].difference == pytest.approx(1 / 16 / 23)


@pytest.mark.slow
def test_lost_diff_and_report_count_the_same_samples_where_the_base_has_more(tmp_path: Path) -> None:
    """Each problem has 16 samples more at the base, all wrong: pass@1 is half of it, a problem is what it was."""
    from oversharp.diagnostics.ingest.ingest import import_samples

    path = dump(tmp_path / "run.jsonl", {0: 0, 20: 2})
    more = [
        {
            "input": CHAT.format(prompt),
            "output": f"more {i}: \\boxed{{seven}}",
            "gts": prompt[0],
            "score": 0.0,
            "step": 0,
        }
        for prompt in COUNTS
        for i in range(N)
    ]
    path.write_text(
        path.read_text(encoding="utf-8") + "".join(f"{json.dumps(row)}\n" for row in more), encoding="utf-8"
    )
    config = oversharp.ImportConfig(store=tmp_path / "audit.duckdb", name="run", verifier="math")
    import_samples([path], config)
    with oversharp.open_store(config.store) as store:
        problems = store.problems().set_index("problem_id")
        found = store.diff(0, 20)
    with Store.open(config.store, read_only=True) as store:
        source = read_source(store, "audit.duckdb")
    report = in_report(source, source.series[0]).set_index("problem_id").loc[problems.index]
    assert set(problems["n_before"]) == set(problems["n_after"]) == {N}
    for ours, theirs in (("state", "state"), ("correct_before", "c_base"), ("correct_after", "c_late")):
        assert problems[ours].tolist() == report[theirs].tolist()
    assert found.changes[0].first == pytest.approx(sum(counts[0] for counts in COUNTS.values()) / 2 / N / len(COUNTS))
    assert {one.problem_id: one.n_before for one in found.problems} == dict.fromkeys(
        problems.index[problems["state"] != "unchanged"], N
    )


@pytest.mark.slow
def test_of_samples_that_are_no_draws_of_their_own_nothing_is_tested(store_path: Path, tmp_path: Path) -> None:
    """The verdict says so of sorted batches; here its document says so."""
    copied = Path(shutil.copy(store_path, tmp_path))
    with oversharp.open_store(copied) as store:
        verdict = store.verdict()
    assert verdict is not None
    told = json.loads(verdict.to_json())
    (claim,) = [one for one in told["claims"] if one["name"] == FELL_HERE]
    claim["why"] = "they hang together"
    with duckdb.connect(str(copied)) as connection:
        connection.execute("UPDATE audit_verdicts SET document = ?", [json.dumps(told)])
    found = oversharp.diff(copied, steps=(0, 20))
    assert found.why_untested == "they hang together"
    assert not any(one.sure or one.p_adjusted is not None for one in found.problems)
    assert all(row.low is row.high is row.p is row.p_adjusted is None for row in found.changes)
    assert "not tested: they hang together" in found.sentences[-1]
    assert "not tested: they hang together" in oversharp.lost(copied).sentence


def test_surely_lost_comes_before_surely_fell_and_that_before_lost_by_chance() -> None:
    counts = ProblemCounts(
        before_P=np.array([16, 1, 9, 16]), n_before_P=np.full(4, 16),
        after_P=np.array([2, 0, 0, 0]), n_after_P=np.full(4, 16),
    )  # fmt: skip
    names = ("fell, p = 6e-7", "lost, p = 0.5", "lost, p = 4e-4", "lost, p = 2e-9")
    changes = problem_changes(counts, problem_ids=names, names=names, titles=names)
    assert [one.problem for one in sorted(changes, key=loss_order)] == [names[3], names[2], names[0], names[1]]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("verb", "message"),
    [
        (lambda path: oversharp.diff(path, steps=(10, 10)), "steps=10 10: pass two different steps"),
        (lambda path: oversharp.lost(path, most=0), "most=0: must be 1 or more"),
        (lambda path: oversharp.ship(path, allow_loss_points=200), "allow_loss_points=200: must be 0 or more"),
        (lambda path: oversharp.export(path, figures=["nix"]), "figures=nix: the report has no picture of that name"),
    ],
)
def test_errors_of_the_api_name_its_arguments(store_path: Path, verb: Callable[[Path], object], message: str) -> None:
    with pytest.raises(ConfigError) as raised:
        verb(store_path)
    assert str(raised.value).startswith(message)
    assert raised.value.as_flags.startswith("--")


@pytest.mark.slow
@pytest.mark.usefixtures("few_figures")
def test_an_export_of_a_named_picture_says_which_file_it_is(
    run: Callable[..., tuple[int, str, str]], store_path: Path, tmp_path: Path
) -> None:
    out = tmp_path / "out"
    asked = ("export", str(store_path), "--out", str(out), "--figure", "frontier", "--format")
    code, printed, _ = run(*asked, "pdf,latex")
    pdf, tex = (out / "plots" / f"better-or-only-sharper-run.{form}" for form in ("pdf", "tex"))
    assert (code, printed) == (0, f"picture          {pdf}\ntable            {tex}\n")
    assert pdf.exists()
    assert tex.exists()
    _, printed, _ = run(*asked, "svg", "--json")
    (written,) = json.loads(printed)["written"]
    assert (written["n"], written["files"]) == (1, [str(pdf.with_suffix(".svg"))])


@pytest.mark.slow
def test_a_refused_export_leaves_no_folder(store_path: Path, tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"it has .* and others"):
        oversharp.export(store_path, figures=["nix"], out=tmp_path / "new")
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("diff", "10", "20"), "did you mean --steps 10 20?"),
        (("diff", "--steps", "10"), "--steps 10: pass two different steps"),
        (("diff", "--steps", "10", "10"), "pass two different steps"),
        (("diff", "--steps", "10", "30"), "no samples of step 30; there are samples of step 0 (base), 10, 20"),
        (("diff", "--steps", "0", "20", "--most", "0"), "--most 0: must be 1 or more"),
        (("lost", "--step", "5"), "--step: there are no samples of step 5"),
        (("lost", "--step", "10", "--since", "10"), "step 10 cannot be compared with itself"),
        (("lost", "--most", "0"), "--most 0: must be 1 or more"),
        (("lost", "--series", "nobody"), "has no audit of this series; audited series: run"),
    ],
)
def test_what_cannot_be_compared_is_one_line(
    run: Callable[..., tuple[int, str, str]], store_path: Path, arguments: tuple[str, ...], message: str
) -> None:
    code, printed, err = run(arguments[0], str(store_path), *arguments[1:])
    assert code in (2, 7)
    assert not printed
    assert message in err
    assert err.count("\n") == 1


def test_of_a_base_alone_nothing_is_lost_and_no_other_step_is_asked_for(store_path: Path, tmp_path: Path) -> None:
    """As an audit leaves it that was stopped when it had drawn its base."""
    path = Path(shutil.copy(store_path, tmp_path))
    with duckdb.connect(str(path)) as store:
        store.execute(
            "DELETE FROM samples WHERE checkpoint_id IN (SELECT checkpoint_id FROM series_checkpoints WHERE step > 0)"
        )
    with pytest.raises(ConfigError) as raised:
        oversharp.lost(path)
    assert str(raised.value) == "run: only the base has samples; a comparison needs samples of another checkpoint"


@pytest.mark.slow
@pytest.mark.parametrize("verb", ["report", "ship", "export", "diff --steps 0 20", "lost"])
def test_what_reads_a_store_takes_as_much_memory_as_it_is_given(
    run: Callable[..., tuple[int, str, str]], store_path: Path, verb: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    def bounded(_: Store, gib: float | None = None) -> None:
        raise StoreError(f"bounded by {gib}")

    name, *flags = verb.split()
    assert "--memory-gib 0: must be a number above 0" in run(name, str(store_path), *flags, "--memory-gib", "0")[2]
    monkeypatch.setattr(Store, "bound_memory", bounded)
    assert run(name, str(store_path), *flags, "--memory-gib", "0.25")[2] == "error: bounded by 0.25\n"


def test_a_store_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match=r"nix\.duckdb: no such store"):
        oversharp.lost(tmp_path / "nix.duckdb")


@pytest.mark.slow
def test_the_commands_print_tables_and_json_says_the_same(
    run: Callable[..., tuple[int, str, str]], store_path: Path
) -> None:
    code, printed, _ = run("lost", str(store_path))
    assert code == 0
    assert re.search(r"1 \+ 1\?.* lost$", printed, re.MULTILINE)
    assert printed.count("lost, or chance") == 1
    told = json.loads(run("lost", str(store_path), "--answers", "--json")[1])
    assert told["problems"][0]["after"][0] == {
        "answer": "seven", "correct": False, "n": 16, "response": "try 0 at 20: \\boxed{seven}",
    }  # fmt: skip
    assert "16 × seven" in run("lost", str(store_path), "--answers")[1]
    assert (
        "1 more problem lost, or solved significantly less often: add --most N"
        in run("lost", str(store_path), "--most", "1")[1]
    )
    cut = run("diff", str(store_path), "--steps", "0", "20", "--most", "1")[1]
    assert "1 more problem changed significantly: add --most N" in cut
    code, printed, _ = run("diff", str(store_path), "--steps", "0", "20")
    assert code == 0
    assert "more problem" not in printed
    assert re.search(r"^k +the base +step 20 +change, points +adjusted p$", printed, re.MULTILINE)
    sentence = json.loads(run("diff", str(store_path), "--steps", "0", "20", "--json")[1])["sentences"][0]
    assert sentence not in " ".join(printed.split())
    assert sentence in " ".join(run("diff", str(store_path), "--steps", "0", "20", "--explain")[1].split())


@pytest.mark.slow
def test_a_reader_gives_frames_and_cannot_write(store_path: Path) -> None:
    with oversharp.open_store(store_path) as store:
        assert store.series == ("run",)
        problems = store.problems()
        assert problems.loc[problems["sure"], "title"].tolist() in (["1 + 1?", "3 + 3?"], ["3 + 3?", "1 + 1?"])
        (known,) = problems.loc[problems["title"] == "1 + 1?", "problem_id"]
        samples = store.samples(step=20, problem=known)
        assert (len(samples), samples["correct"].sum()) == (N, 0)
        assert len(store.samples()) == 3 * N * len(COUNTS)
        with pytest.raises(
            ConfigError, match=r"^step: there are no samples of step 21; there are samples of step 0 \(base\), 10"
        ):
            store.samples(step=21)
        with pytest.raises(ConfigError, match=r"^problem q9: the audit of run has no problem of this id"):
            store.samples(step=20, problem="q9")
        assert store.diff(0, 20) == oversharp.diff(store_path, steps=(0, 20))
        assert store.lost() == oversharp.lost(store_path, answers=True)
        assert isinstance(store.frame("FROM findings"), pd.DataFrame)
        public = {name for name in dir(store) if not name.startswith("_")}
    assert not {name for name in public if name.startswith(("add", "begin", "end", "record", "write"))}


@pytest.mark.slow
def test_a_notebook_shows_what_the_commands_print(store_path: Path) -> None:
    found, changed = (
        oversharp.lost(store_path, answers=True, since=10),
        oversharp.diff(store_path, steps=(0, 20), most=1),
    )
    lost_shown, diff_shown = found._repr_html_(), changed._repr_html_()
    assert f"<p>{found.sentence}</p>" in lost_shown
    assert "<tr><td>1 + 1?</td><td>14 of 16</td><td>0 of 16</td><td>&lt;0.0001</td><td>surely lost</td>" in lost_shown
    assert "<td>1 ×14 ✓; seven ×2</td><td>seven ×16</td>" in lost_shown
    assert [f"<p>{one}</p>" in diff_shown for one in changed.sentences] == [True, True]
    assert "<th>step 20, %</th><th>change, points</th>" in diff_shown
    assert diff_shown.count("<td>surely lost</td>") + diff_shown.count("<td>surely rose</td>") == 1
    assert "<li>1 more problem changed significantly.</li>" in diff_shown
    assert "<th>answers" not in oversharp.lost(store_path)._repr_html_()
    assert "<p>23 problems: step 20 of &lt;img&gt; lost" in replace(found, series="<img>")._repr_html_()


@pytest.mark.slow
def test_two_checkpoints_that_are_named_backwards_are_told_so(store_path: Path) -> None:
    forwards, backwards = (oversharp.diff(store_path, steps=steps) for steps in ((10, 20), (20, 10)))
    assert forwards.notes == ()
    (note,) = backwards.notes
    assert note.startswith("step 20 is later in training than step 10, so lost and gained are exchanged here")
    assert note.endswith("--steps 10 20 for the order of training.")
    assert len(oversharp.diff(store_path, steps=(20, 0)).notes) == 1
    assert oversharp.diff(store_path, steps=(0, 20)).notes == ()


@pytest.mark.slow
@pytest.mark.usefixtures("few_figures")
def test_a_plot_shows_itself_and_is_saved_as_its_name_ends(store_path: Path, tmp_path: Path) -> None:
    with oversharp.open_store(store_path) as store:
        plot = store.plot("headline_delta")
        assert "<svg" in plot._repr_svg_()
        assert plot.save(tmp_path / "x.png").read_bytes().startswith(b"\x89PNG")
        assert "\\toprule" in plot.save(tmp_path / "x.tex").read_text(encoding="utf-8")
        with pytest.raises(ConfigError, match=r"x\.jpg: the suffix must be one of svg, png, pdf"):
            plot.save(tmp_path / "x.jpg")
        with pytest.raises(ConfigError, match=r"x\.svg: cannot be written \(No such file"):
            plot.save(tmp_path / "missing" / "x.svg")
        with pytest.raises(ConfigError, match=r"^name=fronteer: .*did you mean frontier"):
            store.plot("fronteer")
        with pytest.raises(ConfigError, match=r"did you mean headline-delta.*plots` writes all") as unknown:
            store.plot("headline-detla")
        assert len(str(unknown.value)) < 300  # there are more than a hundred
        with pytest.raises(ConfigError, match="pass one of them"):
            store.plot("problem")


@pytest.mark.slow
def test_a_checkpoint_that_the_verdict_leaves_out_is_told_with_the_reason(store_path: Path, tmp_path: Path) -> None:
    copied = Path(shutil.copy(store_path, tmp_path))
    with oversharp.open_store(copied) as store:
        verdict = store.verdict()
    assert verdict is not None
    told = json.loads(verdict.to_json())
    told["left_out"] = [{"checkpoint": "step 20", "step": 20, "why": "the very same samples as step 0"}]
    with duckdb.connect(str(copied)) as connection:
        connection.execute("UPDATE audit_verdicts SET document = ?", [json.dumps(told)])
    said = "The verdict leaves step 20 out: the very same samples as step 0."
    assert oversharp.lost(copied).notes == (said, *oversharp.lost(store_path).notes)
    assert said not in oversharp.lost(copied, step=10).notes
