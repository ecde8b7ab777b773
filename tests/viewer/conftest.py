"""A small store: a lost problem, a gained one, and one whose texts contain markup."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from threading import Thread

import pytest

from oversharp.diagnostics.records.progress import SilentProgress
from oversharp.diagnostics.records.types import Checkpoint, ForcedResponse, Grade, Problem, Sample, Series, response_id
from oversharp.diagnostics.store import Store
from oversharp.diagnostics.viewer.listing import open_viewed
from oversharp.diagnostics.viewer.records import ViewStart
from oversharp.diagnostics.viewer.server import create_app, create_server, listen
from oversharp.diagnostics.viewer.viewer import Viewer
from tests.reports.parts import SETTINGS, audit_key
from tests.viewer.agents import write_small_agents

TOKEN = "the-token-of-this-test"
STEPS = (0, 10, 20)
HOSTILE = "<script>document.title='owned'</script><img src=x onerror=\"document.title='owned'\"> \u202e \\boxed{9}"
SCORED = "so \\boxed{6}"
LONG = "A long way round. " * 400
PROBLEMS = (
    Problem(task="mini", prompt="What is 2 * 3?", gold="6", verifier="math", source_id="lost one"),
    Problem(task="mini", prompt=f"What is 2 + 3?\n{LONG}", gold="5", verifier="math", source_id="gained one"),
    Problem(task="mini", prompt=f"What is 4 + 5? {HOSTILE}", gold="9", verifier="math", source_id="<b>third</b>"),
)
#: Problem → step → (text, answer, correct, distinct boxes, truncated) of each of eight samples.
_RIGHT, _WRONG = (SCORED, "6", True, 1, False), ("I say \\boxed{7}", "7", False, 1, False)
_OTHER = ("\\boxed{7}, no: \\boxed{6}", "6", True, 2, False)
_UNPARSED = (f"{LONG}unfinished", "NA", False, 0, True)
_FIVE, _NINE = ("\\boxed{5}", "5", True, 1, False), (HOSTILE, "9", True, 1, False)
RESPONSES = {
    0: {0: [*[_RIGHT] * 6, _OTHER, _WRONG], 10: [*[_RIGHT] * 2, *[_WRONG] * 6], 20: [*[_WRONG] * 7, _UNPARSED]},
    1: {0: [_WRONG] * 8, 10: [_WRONG] * 8, 20: [_FIVE, *[_WRONG] * 7]},
    2: {0: [_NINE] * 8, 10: [_NINE] * 8, 20: [_NINE] * 8},
}


def write_tokenizer(folder: Path) -> list[int]:
    """Write a byte-level tokenizer and return the ids of ``SCORED``."""
    from tokenizers import Tokenizer
    from tokenizers.decoders import ByteLevel as ByteDecoder
    from tokenizers.models import BPE
    from tokenizers.pre_tokenizers import ByteLevel

    tokenizer = Tokenizer(BPE(vocab={one: i for i, one in enumerate(sorted(ByteLevel.alphabet()))}, merges=[]))
    tokenizer.pre_tokenizer, tokenizer.decoder = ByteLevel(add_prefix_space=False), ByteDecoder()
    folder.mkdir(parents=True)
    tokenizer.save(str(folder / "tokenizer.json"))
    return list(tokenizer.encode(SCORED).ids)


def write_store(folder: Path, names: tuple[str, ...] = ("grpo",)) -> Path:
    """Write ``audit.duckdb``; its base has a tokenizer and token scores of the first problem's first response."""
    ids = write_tokenizer(folder / "checkpoint-0")
    with Store.open(folder / "audit.duckdb") as store:
        store.add_problems(PROBLEMS)
        for name in names:
            _write_series(store, folder, name, ids)
    return folder / "audit.duckdb"


def _write_series(store: Store, folder: Path, name: str, ids: list[int]) -> None:
    checkpoints = tuple(
        Checkpoint(
            step=step, label=f"checkpoint-{step}", path=folder / f"checkpoint-{step}", kind="full",
            weights_hash=f"{name}-{step}" if step else "base-0",
        )
        for step in STEPS
    )  # fmt: skip
    store.add_series(Series(name=name, path=folder, layout="hf", checkpoints=checkpoints, metrics=()))
    key = audit_key(name)
    store.begin_audit(key, settings=SETTINGS, panel_settings=SETTINGS, problem_ids=[one.problem_id for one in PROBLEMS])
    grades = []
    for checkpoint in checkpoints:
        samples = []
        for problem, responses in zip(PROBLEMS, (RESPONSES[i][checkpoint.step] for i in RESPONSES), strict=True):
            for index, (text, answer, correct, n_boxed, cut) in enumerate(responses):
                samples.append(
                    Sample(
                        problem_id=problem.problem_id, sample_index=index, greedy=False, text=text,
                        token_ids=tuple(ids) if text == SCORED else (1, 2), logp_sum_raw=-1.0,
                        finish_reason="length" if cut else "stop",
                    )
                )  # fmt: skip
                state = "parse_fail" if answer == "NA" else "ok"
                grade = Grade(answer=answer, mode=None, reward=float(correct), n_boxed=n_boxed, state=state)
                grades.append((problem.problem_id, response_id(text), problem.verifier, grade))
        store.add_samples(key.settings_id, checkpoint.checkpoint_id, samples)
    store.add_grades(grades)
    logps = (-0.01, *(-3.0 for _ in ids[1:]))
    store.add_forced(
        key,
        checkpoints[0].checkpoint_id,
        [
            ForcedResponse(
                problem_id=PROBLEMS[0].problem_id, response_id=response_id(SCORED), logp_sum=sum(logps),
                entropy_sum=0.5 * len(ids), token_logps=logps, token_entropies=(0.5,) * len(ids),
            )
        ],
    )  # fmt: skip


@pytest.fixture(scope="session")
def viewed_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Path of the store; tests must not write to it."""
    return write_store(tmp_path_factory.mktemp("viewed"))


@pytest.fixture(scope="session")
def viewer(viewed_path: Path) -> Iterator[Viewer]:
    """Viewer of the store."""
    with open_viewed(viewed_path, lambda total: SilentProgress().stage("count", total)) as store:
        yield Viewer(store)


@pytest.fixture(scope="session")
def agents_path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Path of a store with trajectories; tests must not write to it."""
    return write_small_agents(tmp_path_factory.mktemp("agents"))


@pytest.fixture(scope="session")
def agents(agents_path: Path) -> Iterator[Viewer]:
    """Viewer of the store with trajectories."""
    with open_viewed(agents_path, lambda total: SilentProgress().stage("count", total)) as store:
        yield Viewer(store)


@pytest.fixture(scope="session")
def served_agents(agents: Viewer) -> Iterator[Served]:
    """Server of the store with trajectories."""
    with serving(agents, "agent") as server:
        yield server


@dataclass(frozen=True, kw_only=True)
class Served:
    """A server of this process."""

    port: int

    @property
    def address(self) -> str:
        """Address of the page."""
        return f"http://127.0.0.1:{self.port}/{TOKEN}/"


@contextmanager
def serving(viewer: Viewer, series: str = "grpo") -> Iterator[Served]:
    """Serve the page over HTTP from a thread."""
    start = ViewStart(store="audit.duckdb", series=viewer.series, selection=viewer.selection(series))
    place = listen(0)
    server = create_server(create_app(viewer, start, TOKEN))
    thread = Thread(target=server.run, kwargs={"sockets": [place]})
    thread.start()
    try:
        yield Served(port=place.getsockname()[1])
    finally:
        server.should_exit = True
        thread.join()
        place.close()


@pytest.fixture(scope="session")
def served(viewer: Viewer) -> Iterator[Served]:
    """Server of the small store."""
    with serving(viewer) as server:
        yield server
