"""Viewer requests: lists, answers, responses, searches, and errors."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from dataclasses import replace
from http.client import HTTPConnection
from pathlib import Path
from typing import NoReturn

import duckdb
import pytest

from oversharp.diagnostics.app.cli import main
from oversharp.diagnostics.records.errors import ConfigError, StoreError
from oversharp.diagnostics.records.progress import SilentProgress
from oversharp.diagnostics.records.types import ForcedResponse
from oversharp.diagnostics.store import Store
from oversharp.diagnostics.viewer import search
from oversharp.diagnostics.viewer.listing import filter_problems, open_viewed
from oversharp.diagnostics.viewer.records import ONLY
from oversharp.diagnostics.viewer.viewer import Viewer
from tests.viewer.conftest import HOSTILE, PROBLEMS, SCORED, STEPS, TOKEN, Served, audit_key, write_store

LOST, GAINED, SAME = (one.problem_id for one in PROBLEMS)


def test_filters_choose_the_problems_that_they_name(viewer: Viewer) -> None:
    listed = viewer.problems(viewer.selection("grpo"))
    assert {problem.problem_id: (problem.state, problem.correct, problem.n) for problem in listed.problems} == {
        LOST: ("lost", (7, 0), (8, 8)), GAINED: ("gained", (0, 1), (8, 8)), SAME: ("unchanged", (8, 8), (8, 8)),
    }  # fmt: skip
    assert listed.problems[0].problem_id == LOST  # most significant first
    assert "lost every correct sample of 1 " in listed.sentence
    chosen = {only: {filter_problem.problem_id for filter_problem in filter_problems(listed, only)} for only in ONLY}
    assert chosen == {
        "all": {LOST, GAINED, SAME}, "lost": {LOST}, "fell": {LOST}, "gained": {GAINED}, "rose": {GAINED},
        "sure": {LOST}, "lenient": {LOST}, "cut": {LOST},
    }  # fmt: skip


@pytest.mark.slow
def test_an_accepted_response_that_the_problems_own_verifier_rejects_is_lenient(tmp_path: Path) -> None:
    path = write_store(tmp_path)
    with Store.open(path) as store:
        run = store._database.rows
        run("INSERT INTO grades SELECT * REPLACE ('v' AS verifier, NULL AS n_boxed) FROM grades")
        run("UPDATE grades SET correct = true WHERE verifier = 'v' AND answer = '7'")
        run("UPDATE audits SET verifier = 'v'")
    with open_viewed(path, lambda total: SilentProgress().stage("count", total)) as store:
        viewer = Viewer(store)
        chosen = viewer.selection("grpo")
        lenient = {problem.problem_id: problem.lenient for problem in viewer.problems(chosen).problems}
        assert lenient == {LOST: (1, 7), GAINED: (8, 7), SAME: (0, 0)}
        responses = [
            response for group in viewer.problem(chosen, LOST).sides[1].answers for response in group.responses
        ]
        assert [response.lenient for response in responses] == ["the problem's own verifier rejects it", ""]


@pytest.mark.slow
def test_imported_samples_show_no_series_name_as_task_and_name_their_grader(
    tmp_path: Path,
) -> None:
    path = write_store(tmp_path)
    with Store.open(path) as store:
        run = store._database.rows
        run("INSERT INTO grades SELECT * REPLACE ('recorded:verl' AS verifier) FROM grades")
        run("UPDATE audits SET verifier = 'recorded:verl'")
        run("UPDATE problems SET task = 'grpo' WHERE source_id = 'lost one'")
    views = []
    for kind in ("full", "recorded"):
        with Store.open(path) as store:
            store._database.rows(f"UPDATE checkpoints SET kind = '{kind}'")
        with open_viewed(path, lambda total: SilentProgress().stage("count", total)) as store:
            viewer = Viewer(store)
            problems = [viewer.problem(viewer.selection("grpo"), problem_id) for problem_id in (LOST, GAINED)]
            views.append([(problem.task, problem.grader) for problem in problems])
    by = "the reward that verl recorded"
    assert views == [[("grpo", by), ("mini", by)], [("", by), ("mini", by)]]


def test_answers_have_counts_and_responses(viewer: Viewer) -> None:
    problem = viewer.problem(viewer.selection("grpo"), LOST)
    assert [(one.name, one.n_correct, one.n) for one in problem.course] == [
        ("base", 7, 8), ("step 10", 2, 8), ("step 20", 0, 8),
    ]  # fmt: skip
    before, after = problem.sides
    assert [(answer.answer, answer.correct, answer.n, answer.n_responses) for answer in before.answers] == [
        ("6", True, 7, 2), ("7", False, 1, 1),
    ]  # fmt: skip
    assert [(answer.answer, answer.n) for answer in after.answers] == [("7", 7), (None, 1)]
    first, second = before.answers[0].responses
    assert (first.n, first.preview, first.lenient) == (6, SCORED, "")
    assert (second.n, second.lenient) == (1, "accepted with 2 different boxes")
    (unparsed,) = after.answers[1].responses
    assert unparsed.cut
    assert unparsed.why.startswith("parse_fail")


@pytest.mark.slow
def test_a_response_has_its_answer_marked_and_its_tokens_scored(viewer: Viewer, tmp_path: Path) -> None:
    chosen = viewer.selection("grpo")
    first = viewer.problem(chosen, LOST).sides[0].answers[0].responses[0]
    scored = viewer.response(chosen, LOST, "base", first.response_id)
    assert (scored.before, scored.answer, scored.after) == ("so \\boxed{", "6", "}")
    (score,) = scored.scores  # the last checkpoint was not scored
    assert (score.name, score.logps[:2], score.entropies[0]) == ("base", (-0.01, -3.0), 0.5)
    assert scored.pieces == tuple(SCORED)
    unscored = viewer.response(
        chosen, SAME, "20", viewer.problem(chosen, SAME).sides[1].answers[0].responses[0].response_id
    )
    assert unscored.before + unscored.answer + unscored.after == HOSTILE
    assert (unscored.scores, unscored.why_no_scores) == ((), "its tokens were not scored at these checkpoints")
    moved = write_store(tmp_path)
    with Store.open(moved) as store:
        of_server = ForcedResponse(
            problem_id=LOST, response_id=first.response_id, logp_sum=-2.0, token_logps=(-1.0, -1.0)
        )
        store.add_forced(audit_key("grpo"), f"grpo-{STEPS[-1]}", [of_server])
    with open_viewed(moved, lambda total: SilentProgress().stage("count", total)) as store:
        _, late = Viewer(store).response(chosen, LOST, "base", first.response_id).scores
    assert (late.logps, late.entropies) == ((-1.0, -1.0), ())
    shutil.rmtree(tmp_path / "checkpoint-0")
    with open_viewed(moved, lambda total: SilentProgress().stage("count", total)) as store:
        gone = Viewer(store).response(chosen, LOST, "base", first.response_id)
    assert (gone.pieces, gone.scores) == ((), (score, late))
    assert gone.why_no_pieces == "token texts are unknown: checkpoint-0 has no tokenizer.json"  # without its path


@pytest.mark.parametrize(
    ("text", "problem_ids"),
    [
        ("WHAT IS 2 * 3", {LOST}),  # a prompt; case is ignored
        ("ained on", {GAINED}),  # an id
        (GAINED[:8], {GAINED}),
        ("unfinished", {LOST}),  # a response of the later checkpoint
        ("i say", {LOST, GAINED}),
        ("100%_", set()),
    ],
)
def test_a_search_finds_prompts_ids_and_responses(
    viewer: Viewer, text: str, problem_ids: set[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert viewer.matching_problem_ids(replace(viewer.selection("grpo"), search=text)) == problem_ids
    monkeypatch.setattr(search, "_ROWS", 5)  # in parts
    monkeypatch.setattr(search, "PART_S", 0.0)
    assert viewer.matching_problem_ids(replace(viewer.selection("grpo"), search=text)) == problem_ids


def test_a_search_covers_only_the_two_checkpoints(viewer: Viewer) -> None:
    assert viewer.matching_problem_ids(replace(viewer.selection("grpo", "base", "10"), search="unfinished")) == set()


def test_an_invalid_pair_is_one_line(viewer: Viewer) -> None:
    for before, after, line in (("7", "20", "no samples of step '7'"), ("20", "20", "cannot be compared with itself")):
        with pytest.raises(ConfigError, match=line):
            viewer.selection("grpo", before, after)
    with pytest.raises(ConfigError, match="no samples of problem 'nothing'"):
        viewer.problem(viewer.selection("grpo"), "nothing")


def send_request(served: Served, path: str, *, method: str = "GET", **headers: str) -> tuple[int, str, dict[str, str]]:
    with closing(HTTPConnection("127.0.0.1", served.port, timeout=10)) as connection:
        connection.request(method, path, headers={name.replace("_", "-"): value for name, value in headers.items()})
        answer = connection.getresponse()
        return answer.status, answer.read().decode(), {name.lower(): value for name, value in answer.getheaders()}


def test_the_server_is_read_only_and_requires_the_token_and_a_local_host(served: Served) -> None:
    inside = f"/{TOKEN}/api/start"
    status, body, headers = send_request(served, inside)
    assert (status, json.loads(body)["store"]) == (200, "audit.duckdb")
    assert headers["content-security-policy"].startswith("default-src 'none'")
    assert "access-control-allow-origin" not in headers
    assert send_request(served, inside, Host=f"localhost:{served.port}")[0] == 200
    for path in ("/", "/api/start", f"/{TOKEN[:-1]}/api/start", f"/{TOKEN}x/api/start", "//api/start", "/%ff/"):
        assert send_request(served, path)[0] == 403, path
    assert send_request(served, inside, Host="attacker.example")[0] == 400
    assert send_request(served, inside, Sec_Fetch_Site="cross-site")[0] == 403
    for method in ("POST", "PUT", "DELETE", "PATCH", "OPTIONS"):
        status, _, headers = send_request(served, inside, method=method)
        assert (status, headers["allow"]) == (405, "GET, HEAD"), method
    assert send_request(served, f"/{TOKEN}/../../etc/passwd")[0] in (403, 404)
    assert send_request(served, f"/{TOKEN}/records.py")[0] == 404


def test_an_invalid_request_gets_a_one_line_error(served: Served) -> None:
    for query, line in (
        ("problems?series=nope", "--series nope: no such series"),
        ("problems?series=grpo&b=11", "available: base, 10, 20"),
        ("search?series=grpo&q=x&start=-1", "must be a whole number"),
        ("response?series=grpo&problem=x&at=base&response=y", "no samples of problem 'x'"),
    ):
        status, body, _ = send_request(served, f"/{TOKEN}/api/{query}")
        assert status == 400
        assert line in json.loads(body)["error"]


def _of_older_schema(path: Path) -> None:
    with duckdb.connect(path) as connection:
        connection.execute("UPDATE schema_version SET version = 3")


def _of_other_use(path: Path) -> None:
    path.unlink()
    with duckdb.connect(path) as connection:
        connection.execute("CREATE TABLE mine (i INTEGER)")


def _without_samples(path: Path) -> None:
    with duckdb.connect(path) as connection:
        connection.execute("DELETE FROM samples")


def _without_audit(path: Path) -> None:
    with duckdb.connect(path) as connection:
        connection.execute("DELETE FROM audits")


@pytest.mark.slow
@pytest.mark.parametrize(
    ("spoil", "line"),
    [
        (_of_older_schema, "written by older oversharp (schema 3"),
        (_of_other_use, "not an oversharp store"),
        (_without_samples, "no series has graded samples of two checkpoints"),
        (_without_audit, "no audit in this store"),
        (Path.unlink, "no such store"),
    ],
)
def test_a_store_that_cannot_be_viewed_is_one_line(
    viewed_path: Path, tmp_path: Path, spoil: Callable[[Path], None], line: str, capsys: pytest.CaptureFixture[str]
) -> None:
    path = Path(shutil.copy(viewed_path, tmp_path))
    spoil(path)
    with pytest.raises(SystemExit):
        main(["view", str(path), "--no-open", "--quiet"])
    message = capsys.readouterr().err
    assert line in message
    assert message.count("\n") == 1


@pytest.mark.slow
def test_a_store_locked_by_an_audit_is_one_line(
    viewed_path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = shutil.copy(viewed_path, tmp_path)
    hold = f"import duckdb; held = duckdb.connect({str(path)!r}); print('held', flush=True); input()"
    with subprocess.Popen(
        [sys.executable, "-c", hold], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as writer:
        assert writer.stdout is not None
        writer.stdout.readline()
        with pytest.raises(SystemExit):
            main(["view", str(path), "--no-open", "--quiet"])
        writer.communicate("\n")
    message = capsys.readouterr().err
    assert "locked by another process; wait for it to end" in message
    assert message.count("\n") == 1


@pytest.mark.slow
def test_a_missing_series_is_an_error_before_samples_are_counted(tmp_path: Path) -> None:
    def fail_to_count(total: int) -> NoReturn:
        raise AssertionError(f"counted {total} samples")

    with pytest.raises(StoreError, match=r"--series other: .* audited series: grpo"):
        open_viewed(write_store(tmp_path), fail_to_count, series="other")


@pytest.mark.slow
def test_bad_flags_are_one_line(
    viewed_path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], served: Served
) -> None:
    for flags, line in (
        (["--port", str(served.port)], "in use by another program; choose another"),
        (["--port", "99999"], "must be between 1 and 65535"),
        (["--series", "other"], "has no audit of this series; audited series: grpo"),
        (["--step", "11"], "available: base, 10, 20"),
        (["--bundle", str(tmp_path.parent)], "not an empty directory"),
        (["--bundle", str(tmp_path / "copy"), "--search", "no such text"], "the selection has no problems"),
        (["--most", "0"], "--most 0: must be 1 or more"),
        (["--memory-gib", "0"], "memory"),
    ):
        with pytest.raises(SystemExit):
            main(["view", str(viewed_path), "--no-open", "--quiet", *flags])
        assert line in capsys.readouterr().err, flags
    assert not (tmp_path / "copy").exists()


def test_a_copy_holds_the_selection_and_no_path(
    viewed_path: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    copy = tmp_path / "copy"
    with pytest.raises(SystemExit) as ended:
        main(["view", str(viewed_path), "--bundle", str(copy), "--only", "rose", "--quiet"])
    assert ended.value.code == 0
    assert f"{copy / 'index.html'}: 1 problem, 3 responses" in capsys.readouterr().out
    assert {path.relative_to(copy).as_posix() for path in copy.rglob("*") if path.is_file()} == {
        "index.html", "view.css", "turns.js", "view.js", "data/start.js", "data/problems.js", "data/problem-0.js",
    }  # fmt: skip
    texts = "".join(path.read_text() for path in copy.rglob("*.js"))
    assert "A copy of 1 problem, selected from 3 by --only rose. For each problem" in texts
    assert GAINED in texts
    assert LOST not in texts
    assert str(viewed_path.parent) not in texts
