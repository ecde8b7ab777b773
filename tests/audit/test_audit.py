"""Whole audits: they continue where they ended, report what is left out, and mix no settings."""

from __future__ import annotations

import json
import re
import shutil
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

import oversharp
import oversharp.diagnostics.kernel
from oversharp import open_store
from oversharp.diagnostics.app.cli import main
from oversharp.diagnostics.audit.audit import AuditResult, audit
from oversharp.diagnostics.audit.config import DEFAULT_SAMPLES, AuditConfig
from oversharp.diagnostics.audit.settings import first_round, resolve_dtype
from oversharp.diagnostics.kernel import GradientKernel, KernelRow
from oversharp.diagnostics.models.load import LoadedModel
from oversharp.diagnostics.records.amounts import short_count
from oversharp.diagnostics.records.errors import ConfigError, EngineRefusedError, KernelTooLargeError
from oversharp.diagnostics.records.types import Problem
from oversharp.diagnostics.samplers import Sampler, SamplerContext, make_sampler
from oversharp.diagnostics.series.finding import find_series
from oversharp.diagnostics.store import Store
from oversharp.diagnostics.store.load import cost_before, store_bytes, stored_key
from oversharp.diagnostics.tasks import load_problems
from oversharp.diagnostics.verdict.record import Verdict
from tests.audit.small_audits import Notes, config, frame, with_rollouts

FINDINGS = "SELECT * EXCLUDE (series) FROM findings ORDER BY ALL"
SAMPLES = """
SELECT checkpoint_id, settings_id, problem_id, greedy, sample_index, text, n_tokens, logp_sum_raw
FROM samples
ORDER BY ALL
"""


of_one_audit = pytest.mark.xdist_group("one audit")  # they share what takes seconds to make
OF_COMMAND = {"batch_size": 8, "kernel_problems": 1, "kernel_responses": 3}


def _command(series: Path, out: Path) -> list[str]:
    """The same audit as ``config(out, **OF_COMMAND)``: with kernels, in many commits."""
    flags = "--task countdown --limit 5 --n 16 --n-base 16 --panel 2 --entropy-samples 4 --batch-size 8"
    flags += " --kernel-problems 1 --kernel-responses 3 --name run --quiet --out"
    return ["audit", str(series), *flags.split(), str(out)]


@pytest.fixture(scope="module")
def whole(countdown_series: Path, tmp_path_factory: pytest.TempPathFactory) -> AuditResult:
    """What ``_command`` leaves, undisturbed. No test writes to it."""
    result = oversharp.audit([countdown_series], config(tmp_path_factory.mktemp("whole"), **OF_COMMAND))
    assert result.samples_drawn == 3 * 5 * (16 + 1) + 5 * 2
    return result


@pytest.fixture
def done(whole: AuditResult, tmp_path: Path) -> AuditResult:
    """A copy of that."""
    out = shutil.copytree(whole.store_path.parent, tmp_path / "done")
    return replace(whole, store_path=out / whole.store_path.name, report_path=out / whole.report_path.name)


@pytest.mark.slow
@of_one_audit
def test_the_same_audit_again_draws_nothing_and_finds_the_same(
    countdown_series: Path, whole: AuditResult, done: AuditResult
) -> None:
    first, out = done, done.store_path.parent
    before = frame(first.store_path, FINDINGS)
    page = first.report_path.read_text().replace(str(whole.store_path.parent), str(out))  # it tells the command
    first.store_path.with_suffix(".made.json").unlink()  # what stands would not be computed again
    first.report_path.unlink()
    second = oversharp.audit([countdown_series], config(out, **OF_COMMAND))
    assert second.samples_drawn == 0
    assert frame(second.store_path, FINDINGS).equals(before)
    assert second.report_path.read_text() == page
    written_ns = second.report_path.stat().st_mtime_ns
    progress = Notes()
    third = oversharp.audit([countdown_series], config(out, **OF_COMMAND), progress=progress)
    assert "findings and verdict of run are up to date" in progress.notes
    assert not [note for note in progress.notes if note.startswith("to draw")]
    assert third.verdict == first.verdict
    assert third.report_path.stat().st_mtime_ns == written_ns


@pytest.mark.slow
@of_one_audit
@pytest.mark.usefixtures("no_report")
def test_the_audit_ends_in_one_sentence_that_the_store_keeps(
    countdown_series: Path, done: AuditResult, capsys: pytest.CaptureFixture[str]
) -> None:
    verdict = done.verdict
    assert verdict.sentence.startswith("No verdict: the base solved none of these 5 problems")  # untrained
    assert (verdict.series, verdict.window, verdict.n_problems) == ("run", (), 5)
    assert [rates.step for rates in verdict.rates] == [0, 20, 40]
    with open_store(done.store_path) as store:
        assert store.verdict("run") == verdict
        stages = store.frame("SELECT stage, rows_written FROM events WHERE stage = 'verdict'").to_numpy().tolist()
    assert stages == [["verdict", 1]]
    for more in ([], ["--json"]):
        with pytest.raises(SystemExit):
            main([*_command(countdown_series, done.store_path.parent), *more])
        said = capsys.readouterr().out
        if more:
            assert Verdict.from_json(json.dumps(json.loads(said)["verdict"])) == verdict
        else:
            assert f"verdict {verdict.sentence.removesuffix('.')}" in " ".join(said.split())


@pytest.mark.usefixtures("few_measures")
def test_a_checkpoint_with_nan_weights_fails_alone_with_its_reason(countdown_series: Path, tmp_path: Path) -> None:
    import torch
    from safetensors.torch import load_file, save_file

    run = tmp_path / "run"
    shutil.copytree(countdown_series, run)
    path = run / "checkpoint-20" / "model.safetensors"
    tensors = load_file(path)
    tensors["model.norm.weight"] = torch.full_like(tensors["model.norm.weight"], float("nan"))
    save_file(tensors, path, metadata={"format": "pt"})
    result = audit([run], config(tmp_path / "out"))
    assert "model.norm.weight" in result.left_out["checkpoint-20"]
    rows = frame(
        result.store_path, "SELECT step, value, why FROM findings WHERE measure = 'pass_at_k' AND scope = 'all'"
    )
    assert rows.loc[rows["step"] == 20, "value"].isna().all()
    assert rows.loc[rows["step"] == 20, "why"].str.contains("model.norm.weight").all()
    assert rows.loc[rows["step"] == 40, "value"].notna().all()


@pytest.mark.slow
@pytest.mark.usefixtures("few_measures")
def test_two_series_that_share_a_base_sample_it_once(
    countdown_series: Path, make_checkpoint: Callable[[Path, int], Path], tmp_path: Path
) -> None:
    other = tmp_path / "other"
    shutil.copytree(countdown_series / "checkpoint-0", other / "checkpoint-0")
    make_checkpoint(other / "checkpoint-20", 99)
    out = tmp_path / "out"
    audit([countdown_series], config(out, name="one"))
    second = audit([other], config(out, name="two"))
    assert second.samples_drawn == 5 * (16 + 1)
    series = frame(second.store_path, "SELECT series FROM current_audits ORDER BY series")["series"]
    assert series.tolist() == ["one", "two"]


@pytest.mark.slow
@pytest.mark.usefixtures("few_measures")
def test_more_samples_continue_the_store_and_settings_never_mix(countdown_series: Path, tmp_path: Path) -> None:
    audit([countdown_series], config(tmp_path))
    more = audit([countdown_series], config(tmp_path, n=20, n_base=20))
    assert more.samples_drawn == 3 * 5 * 4
    warmer = audit([countdown_series], config(tmp_path, temperature=0.5))
    assert warmer.samples_drawn == 3 * 5 * (16 + 1)
    assert frame(warmer.store_path, "SELECT DISTINCT n FROM problem_counts")["n"].tolist() == [16]


@pytest.mark.slow
@pytest.mark.usefixtures("few_measures")
def test_a_top_up_adds_to_what_is_there_and_is_continued_not_repeated(
    countdown_series: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(
        "oversharp.diagnostics.store.load.LEAST_BYTES", 0
    )  # else so small a store says nothing of a sample
    more = {"top_up": 4, "n": DEFAULT_SAMPLES, "n_base": None}
    with pytest.raises(ConfigError, match="has no finished audit"):
        audit([countdown_series], config(tmp_path, **more))
    audit([countdown_series], config(tmp_path, n_base=32))
    with Store.open(tmp_path / "audit.duckdb") as store:
        samples = store.frame(SAMPLES)
        settings_id, max_tokens = store.frame(
            "SELECT settings_id, max_tokens FROM current_audits JOIN settings USING (settings_id)"
        ).iloc[0]
        before = cost_before(store, stored_key(store, "run"))
        took = store.frame("SELECT sum(wall_s) AS s FROM events WHERE stage IN ('sample', 'panel', 'teacher-force')")
        held = store.frame("SELECT count(*) AS n FROM samples")["n"].iloc[0]
    own = samples[~samples["greedy"] & (samples["settings_id"] == settings_id)]
    assert (before.n, before.tokens) == (len(own), own["n_tokens"].mean()) == (5 * 32 + 2 * 5 * 16, before.tokens)
    assert before.seconds == pytest.approx(took["s"].iloc[0] / (5 * (32 + 1) + 2 * 5 * (16 + 1) + 5 * 2))
    assert before.bytes == pytest.approx(store_bytes(tmp_path / "audit.duckdb") / held, rel=0.1)
    progress = Notes()
    topped = audit([countdown_series], config(tmp_path, **more), progress=progress)
    assert topped.samples_drawn == 5 * 8 + 2 * 5 * 4
    told, cost = (note for note in progress.notes if re.match("to draw|estimate from", note))
    assert told == f"to draw: 80 samples at 3 checkpoints, at most {short_count(80 * max_tokens)} tokens"
    tokens = short_count(80 * before.tokens)
    assert re.fullmatch(
        rf"estimate from the 320 samples in the store: {tokens} tokens, less than 1 min, .* MB of disk", cost
    )
    with Store.open(tmp_path / "audit.duckdb") as store:
        assert len(store.frame(SAMPLES).merge(samples)) == len(samples), "a sample was drawn anew"
        assert store.frame("SELECT n, n_base FROM current_audits").to_numpy().tolist() == [[20, 40]]
        # as if this audit had been killed at its end: the same command again goes on to the same n
        store._database.rows("UPDATE audits SET provenance = '{}' WHERE n = 20")
    assert audit([countdown_series], config(tmp_path, **more)).samples_drawn == 0


@pytest.mark.slow
@pytest.mark.usefixtures("few_measures")
def test_an_audit_that_continues_asks_as_it_did_and_a_new_one_says_that_it_asks_in_chats(
    countdown_series: Path, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    shutil.copytree(countdown_series, run)
    for checkpoint in run.iterdir():
        (checkpoint / "chat_template.jinja").write_text("{{ messages[0]['content'] }}")
    small = {"limit": 2, "n": 2, "n_base": 2, "panel": 0}
    audit([run], config(tmp_path / "old", **small, chat=False))
    notes = Notes()
    assert audit([run], config(tmp_path / "old", **small), progress=notes).samples_drawn == 0
    assert not [note for note in notes.notes if "chat" in note]
    assert audit([run], config(tmp_path / "new", **small), progress=notes).samples_drawn
    assert [note for note in notes.notes if "chat template" in note] == [
        "prompts are formatted with the tokenizer's chat template (--no-chat disables it)"
    ]
    asked = [frame(tmp_path / out / "audit.duckdb", "SELECT DISTINCT chat FROM settings") for out in ("old", "new")]
    assert [one["chat"].tolist() for one in asked] == [[False], [True]]


def test_an_audit_in_a_precision_that_this_cpu_has_no_instructions_for_says_so(
    countdown_series: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    base = find_series([countdown_series]).base
    monkeypatch.setattr("oversharp.diagnostics.models.devices.has_products_of", lambda dtype: dtype == "float32")
    progress = Notes()
    asked = config(tmp_path, dtype="bfloat16", device="cpu")
    assert resolve_dtype(asked, base, None, progress.note) == "bfloat16"
    assert [note.partition(":")[0] for note in progress.notes] == ["--dtype bfloat16"]
    assert resolve_dtype(config(tmp_path, dtype="float32", device="cpu"), base, None, progress.note) == "float32"
    assert len(progress.notes) == 1


@pytest.mark.slow
@pytest.mark.usefixtures("few_measures")
def test_auto_goes_on_with_transformers_where_the_engine_refuses_the_model(
    countdown_series: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(name: str, context: SamplerContext) -> Sampler:
        if name == "vllm":
            raise EngineRefusedError("checkpoint-0: vLLM cannot run this model here")
        return make_sampler(name, context)

    def choose(name: str, *_: object, **__: object) -> tuple[str, str]:
        return ("vllm" if name == "auto" else name), "planted"

    monkeypatch.setattr("oversharp.diagnostics.audit.prepare.choose_sampler", choose)
    monkeypatch.setattr("oversharp.diagnostics.engine.local.make_sampler", refuse)
    progress = Notes()
    result = audit([countdown_series], config(tmp_path), progress=progress)
    assert any("cannot run this model" in note for note in progress.notes)
    drew = "SELECT DISTINCT sampler FROM samples JOIN settings USING (settings_id)"
    assert frame(result.store_path, drew)["sampler"].tolist() == ["transformers"]
    why = "SELECT provenance->>'engine_refused' AS why FROM audits WHERE provenance <> '{}'"
    assert frame(result.store_path, why)["why"].tolist() == ["checkpoint-0: vLLM cannot run this model here"]
    with pytest.raises(EngineRefusedError):  # who asks for vLLM gets its refusal
        audit([countdown_series], config(tmp_path / "asked", sampler="vllm"))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("fits", "says"), [(9, "1 of 2 problems used"), (0, "no gradient kernel: .* not even those of one")]
)
@pytest.mark.usefixtures("few_measures")
def test_a_kernel_that_does_not_fit_holds_fewer_problems_and_is_no_failure(
    fits: int, says: str, countdown_series: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    computed = oversharp.diagnostics.kernel.gradient_kernel

    def bounded(loaded: LoadedModel, rows: Sequence[KernelRow], **settings: Any) -> GradientKernel:
        if len(rows) > fits:
            raise KernelTooLargeError("the gradient kernel: 1 GiB is too small", share=0.7)
        return computed(loaded, rows, **settings)

    monkeypatch.setattr("oversharp.diagnostics.kernel.gradient_kernel", bounded)
    progress = Notes()
    result = audit([countdown_series], config(tmp_path, kernel_problems=2, kernel_responses=3), progress=progress)
    assert len([note for note in progress.notes if re.search(says, note)]) == 3
    assert result.without_kernel == {}
    rows = frame(result.store_path, "SELECT count(DISTINCT problem_id) AS n FROM kernel_rows GROUP BY kernel_id")
    assert rows["n"].tolist() == ([1, 1, 1] if fits else [])


@pytest.mark.slow
@pytest.mark.usefixtures("few_measures")
def test_training_responses_of_the_run_are_scored(countdown_series: Path, tmp_path: Path) -> None:
    said = {"prompt": "1 2 3 = 7 :", "response": "1 + 2 * 3", "truncated": False, "correct": True}
    run = with_rollouts(countdown_series, tmp_path / "run", [{"step": step, **said} for step in (5, 20, 21)])
    (run / "rollouts" / "step_000060.parquet").write_bytes(b"cut short")
    progress = Notes()
    result = audit([run], config(tmp_path / "out"), progress=progress)
    tokens = frame(result.store_path, "FROM training_tokens ORDER BY step, problem_id")
    assert tokens["step"].tolist() == [20, 40]
    assert all(len(row.token_logps) == len(row.token_logps_before) == 6 for row in tokens.itertuples())
    assert any("step_000060.parquet" in note for note in progress.notes)
    pace = [note for note in progress.notes if re.match("to draw|not measured|checkpoint . of", note)]
    assert pace[0].startswith(f"to draw: {result.samples_drawn} samples at 3 checkpoints, at most ")
    assert pace[1].startswith("not measured yet: sampling takes less than 1 min, by rates measured on another machine")
    assert [re.sub("[0-9.,]+ samples", "n samples", note) for note in (pace[2], pace[-1])] == [
        "checkpoint 1 of 3 done: n samples/s, less than 1 min left",
        "checkpoint 3 of 3 done: n samples/s",
    ]


@pytest.mark.slow
@pytest.mark.usefixtures("few_measures")
def test_the_panel_shares_no_random_numbers_with_the_samples(countdown_series: Path, tmp_path: Path) -> None:
    result = audit([countdown_series], config(tmp_path, panel=16, panel_temperature=1.0))
    texts = frame(
        result.store_path,
        """
        SELECT s.problem_id, s.sample_index, list(DISTINCT s.text) AS texts
        FROM samples AS s
        JOIN series_checkpoints AS c USING (checkpoint_id)
        WHERE c.is_base AND NOT s.greedy
        GROUP BY ALL
        """,
    )
    assert (texts["texts"].map(len) == 2).mean() > 0.9  # untrained: two draws of one index are hardly ever equal


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"k": (1, 64)}, "--k 64 is larger than --n 16"),
        ({"top_up": 4}, "remove --n and --n-base"),
        ({"until_solved": -1}, "--until-solved -1: must be at least 0"),
        ({"until_solved": 4, "first": 0}, "--first 0: must be at least 1"),
        ({"until_solved": 17, "first": 4}, "--until-solved 17: a problem cannot have more correct samples than --n 16"),
        (
            {"until_solved": 4, "first": 16},
            r"--until-solved 4 saves no samples: the first round has 16 \(--first\), and --n is 16",
        ),
        ({"until_solved": 4, "first": 32}, "saves no samples: the first round has 32"),
        ({"first": 8}, "--first 8: there are no rounds without --until-solved; add it, or remove --first"),
        ({"until_solved": 0, "first": 8}, "--first 8: there are no rounds without --until-solved"),
        (
            {"until_solved": 4, "first": 4, "panel": 6},
            "--panel 6: is larger than the first round, --first 4, .*; pass --panel 4, or --first 6",
        ),
        ({"until_solved": 4, "first": 4, "entropy_samples": 8}, "--entropy-samples 8: is larger than the first round"),
        (
            {"until_solved": 4, "first": 4, "kernel_problems": 2},
            "--kernel-responses 6: is larger than the first round, --first 4, .*; pass --kernel-responses 4, or",
        ),
    ],
)
def test_flags_that_contradict_each_other_are_refused_before_anything_runs(
    changes: dict[str, object], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        config(Path("unused"), **changes)


def test_rounds_that_save_samples_are_accepted_and_the_default_entropy_samples_fit_in_the_first() -> None:
    given = config(Path("unused"), until_solved=4, first=4, kernel_problems=2, kernel_responses=4)
    assert (given.is_stopping, given.used_first, given.used_entropy_samples) == (True, 4, 4)
    assert config(Path("unused"), until_solved=4, first=8, entropy_samples=16).used_entropy_samples == 8
    assert config(Path("unused"), until_solved=16, first=15).is_stopping
    assert not config(Path("unused"), until_solved=0).is_stopping
    topped_up = {"top_up": 4, "n": DEFAULT_SAMPLES, "n_base": None}
    assert config(Path("unused"), until_solved=4, first=300, **topped_up).is_stopping  # n is not known yet


@pytest.mark.parametrize(
    ("verifiers", "given", "first"),
    [
        (("math",), {}, 32),
        (("math", "expression_thoughts"), {}, 64),  # its modes are compared in the first round
        (("modes",), {"n": 64}, 32),
        (("expression",), {"first": 8}, 8),
        (("expression",), {"verifier": "math"}, 32),
    ],
)
def test_the_first_round_is_longer_if_the_grader_distinguishes_modes(
    verifiers: tuple[str, ...], given: dict[str, Any], first: int
) -> None:
    made = config(Path("unused"), **{"n": 256, "n_base": None, "panel": 2, **given})
    problems = [Problem(task="t", prompt=f"p{name}", gold="1", verifier=name) for name in verifiers]
    assert first_round(made, problems) == first


@pytest.mark.parametrize(
    ("given", "rule"),
    [
        ({"n": 63}, (0, 15)),  # too few samples for rounds
        ({"n": 64}, (4, 16)),
        ({"n": 128}, (4, 32)),
        ({"n": 1024}, (4, 32)),
        ({"n": 256, "panel": 40}, (4, 40)),  # the panel scores single samples of every problem
        ({"n": 64, "panel": 64}, (0, 64)),
        ({"n": 256, "first": 8}, (4, 8)),
        ({"n": 256, "until_solved": 0}, (0, 32)),
        ({"n": 256, "until_solved": 2}, (2, 32)),
    ],
)
def test_large_audits_are_sampled_until_solved_unless_they_say_otherwise(
    given: dict[str, Any], rule: tuple[int, int]
) -> None:
    made = config(Path("unused"), **{"n_base": None, "panel": 2, **given})
    assert (made.used_until_solved, made.used_first) == rule


@pytest.mark.slow
@pytest.mark.usefixtures("few_measures")
def test_a_checkpoint_that_is_cut_short_is_left_out_with_a_caveat_until_it_is_mended(
    countdown_series: Path, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    shutil.copytree(countdown_series, run)
    weights = run / "checkpoint-40" / "model.safetensors"
    whole = weights.read_bytes()
    for content, labels in ((whole[:-1000], ["checkpoint-40"]), (whole, []), (whole[:-1000], ["checkpoint-40"])):
        weights.write_bytes(content)
        result = audit([run], config(tmp_path / "out"))
        recorded = frame(result.store_path, "SELECT json_keys(provenance -> 'left_out') AS labels FROM current_audits")
        assert list(recorded["labels"].iloc[0]) == labels == list(result.left_out)
        steps = frame(result.store_path, "SELECT DISTINCT step FROM findings ORDER BY step")["step"].tolist()
        assert steps == ([0, 20] if labels else [0, 20, 40])
        left_out = [caveat for caveat in result.verdict.caveats if caveat.startswith("Left out: ")]
        assert [caveat.partition(" (model.safetensors")[0] for caveat in left_out] == [f"Left out: {_}" for _ in labels]


@pytest.mark.slow
def test_exact_values_of_some_problems_are_not_given_as_those_of_all(countdown_series: Path, tmp_path: Path) -> None:
    problems = tmp_path / "problems.jsonl"
    listed = {"prompt": "1 2 3 = 7 :", "answer": "7", "modes": ["1 + 2 * 3", "2 * 3 + 1"]}
    unlisted = {"prompt": "1 2 4 = 7 :", "answer": "7", "verifier": "exact"}
    problems.write_text(f"{json.dumps(listed)}\n{json.dumps(unlisted)}\n")
    small = {"n": 4, "max_tokens": 6, "kernel_problems": 0, "sampler": "transformers", "name": "run"}
    config = AuditConfig(problems=problems, out=tmp_path / "out", **small)
    rows = frame(
        audit([countdown_series], config).store_path,
        "SELECT scope, value, why, n FROM findings WHERE measure = 'modes_fallen_10x' AND step = 40 ORDER BY scope",
    )
    assert rows["scope"].tolist() == ["all", "with_modes"]
    assert rows["why"].iloc[0].startswith("only 1 of 2 problems")
    assert rows["n"].iloc[1] == 2  # modes


@pytest.mark.slow
def test_a_single_k_still_ends_in_a_report(countdown_series: Path, tmp_path: Path) -> None:
    for k in (1, 8):
        result = oversharp.audit([countdown_series], config(tmp_path, k=(k,)))
        result.report_path.unlink()


@pytest.mark.slow
@pytest.mark.usefixtures("few_measures")
def test_more_entropy_samples_later_score_what_is_there(countdown_series: Path, tmp_path: Path) -> None:
    query = "SELECT step, value, n FROM findings WHERE measure = 'token_entropy' AND scope = 'all' ORDER BY step"
    audit([countdown_series], config(tmp_path / "grown", entropy_samples=2))
    grown = audit([countdown_series], config(tmp_path / "grown", entropy_samples=8))
    at_once = audit([countdown_series], config(tmp_path / "at-once", entropy_samples=8))
    with open_store(grown.store_path) as left, open_store(at_once.store_path) as right:
        values, expected = left.frame(query), right.frame(query)
    assert values["n"].tolist() == [5 * 8] * 3
    assert values["value"].tolist() == pytest.approx(expected["value"].tolist(), rel=1e-5)


@pytest.mark.slow
@pytest.mark.usefixtures("few_measures")
def test_a_checkpoint_without_its_tokenizer_settings_does_not_end_the_audit(
    countdown_series: Path, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    shutil.copytree(countdown_series, run)
    (run / "checkpoint-20" / "tokenizer_config.json").unlink()
    result = audit([run], config(tmp_path / "out"))
    assert list(result.left_out) in ([], ["checkpoint-20"])
    last = frame(result.store_path, "SELECT value FROM findings WHERE measure = 'pass_at_k' AND step = 40")
    assert last["value"].notna().all()


@pytest.mark.slow
@pytest.mark.usefixtures("few_measures", "no_report")
def test_responses_that_end_the_users_grader_are_named_while_they_are_drawn_and_in_place_of_a_verdict(
    countdown_series: Path, tmp_path: Path
) -> None:
    asked = [
        {"prompt": problem.prompt, "answer": problem.gold} for problem in load_problems(None, "countdown", limit=3)
    ]
    (tmp_path / "problems.jsonl").write_text("\n".join(map(json.dumps, asked)))
    code = "import os\ndef grade(response, answer):\n    return 1 if response == answer else os._exit(0)\n"
    (tmp_path / "reward.py").write_text(code)
    notes = Notes()
    problems = {"task": None, "problems": tmp_path / "problems.jsonl", "limit": None, "n": 4, "n_base": 4}
    result = audit(
        [countdown_series], config(tmp_path, **problems, verifier=f"{tmp_path}/reward.py:grade"), progress=notes
    )
    fault = r"could not be graded .*\(reward\.py:grade@\w+: the grader ended its process \(exit code 0\)"
    assert [note for note in notes.notes if re.match(rf"warning: \d+ of \d+ responses {fault}", note)]
    assert re.match(rf"1[0-2] of 12 samples of \S+ {fault}; more than 5 % at 3 of 3 ", result.verdict.why or "")
    states = frame(result.store_path, "SELECT DISTINCT state FROM grades")["state"]
    assert "error" in states.tolist()
