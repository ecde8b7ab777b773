"""Small real things shared by the tests: an untrained checkpoint series of the built-in task."""

from __future__ import annotations

import atexit
import functools
import gc
import os
import sys
from collections.abc import Callable, Generator, Iterator
from contextlib import contextmanager, suppress
from importlib import import_module
from pathlib import Path
from shutil import copyfile
from typing import Any

import pytest
from _pytest.doctest import DoctestModule
from hypothesis import settings

from tests.browser import chromium
from tests.preloaded import ENGINES, OF_COMMANDS, OF_ENGINES, ForkServer, RunningServer, fork_engines

os.environ.setdefault("HF_HUB_OFFLINE", "1")
os.environ.setdefault("OMP_NUM_THREADS", "1")
os.environ["OVERSHARP_CACHE"] = os.devnull  # hashes of weights that a test kept would outlive it

settings.register_profile("of_this_house", deadline=None)  # a test asserts no speed
settings.load_profile("of_this_house")

OF_ALL_WORKERS = pytest.StashKey[ForkServer]()


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """No collector looks through what is imported here, now or later: it took four of eleven seconds."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.freeze()
        gc.enable()


@pytest.hookimpl(wrapper=True)
def pytest_collect_file(file_path: Path) -> Generator[None, list[pytest.Collector], list[pytest.Collector]]:
    """Look for doctests only in modules without tests: the search inspects every object of a module."""
    collectors = yield
    return [each for each in collectors if not (isinstance(each, DoctestModule) and file_path.name.startswith("test_"))]


@pytest.hookimpl(wrapper=True)
def pytest_runtest_teardown(item: pytest.Item, nextitem: pytest.Item | None) -> Generator[None, None, None]:
    """Nor through what the tests of a file left: a full collection took a second, after hundreds of them."""
    yield
    if nextitem is None or nextitem.path != item.path:
        gc.collect()
        gc.freeze()


def pytest_sessionfinish() -> None:
    """Unfreeze for libraries that count unfreed objects at exit, but after pytest's last collections."""
    atexit.register(gc.unfreeze)


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Keep groups of ``xdist_group`` on one worker.

    pytest-xdist 3.8 marks a group by renaming its tests in a way that pytest 9.2 does not notice.
    """
    if "PYTEST_XDIST_WORKER" not in os.environ:
        return
    for item in items:
        for mark in item.iter_markers("xdist_group"):
            suffix = f"@{mark.args[0]}"
            if not item.nodeid.endswith(suffix):
                item._id = type(item._id).parse(item.nodeid + suffix)  # type: ignore[attr-defined]


def write_checkpoint(folder: Path, seed: int) -> Path:
    """A complete Countdown checkpoint with random weights.

    Its heads are of a size that vLLM's CPU kernels do not take: an audit with ``auto`` starts no engine, which takes
    longer than the audit.
    """
    import torch
    from transformers import Qwen3Config, Qwen3ForCausalLM

    from oversharp.trainers.worlds.base import build_model, build_tokenizer

    folder.mkdir(parents=True)
    plain = build_model(seed)
    heads = {"num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 24}
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = Qwen3ForCausalLM(Qwen3Config(**plain.config.to_dict() | heads))
    model.generation_config = plain.generation_config
    model.save_pretrained(folder)
    build_tokenizer().save_pretrained(folder)
    return folder


@pytest.fixture(scope="session")
def browser() -> Iterator[Any]:
    """Chromium; tests that use it share the group ``html``."""
    with chromium() as opened:
        yield opened


@pytest.fixture(scope="session")
def make_checkpoint() -> Callable[[Path, int], Path]:
    """Write a Countdown checkpoint into a new folder, weights drawn from the seed."""
    return write_checkpoint


#: Where it is looked at what audit would settle a verdict that is open.
_SETTLED_IN = ("verdict", "benchmarks")


@pytest.fixture(autouse=True, scope="module")
def _no_remedy(request: pytest.FixtureRequest) -> Iterator[None]:
    """No verdict says what audit would settle it: to find that takes most of the time of an open verdict."""
    with pytest.MonkeyPatch.context() as patch:
        if request.path.parent.name not in _SETTLED_IN:
            patch.setattr("oversharp.diagnostics.verdict.decide._remedy", lambda *_: None)
        yield


def _copy_new_stores(template: Path) -> None:
    """Make ``Database`` copy an empty store to the path of a new one.

    The tables and views of a new store take a tenth of a second.
    """
    from oversharp.diagnostics.records.names import require_store_place
    from oversharp.diagnostics.store.database import Database
    from oversharp.diagnostics.store.schema import NO_FILE, set_checked, state_of

    Database(template, read_only=False).close()
    create = Database.__init__

    @functools.wraps(create)
    def copy_or_create(self: Database, path: Path, *, read_only: bool, **settings: Any) -> None:
        require_store_place(path)
        if not read_only and str(path) != ":memory:" and state_of(path) == NO_FILE:
            with suppress(OSError):
                path.parent.mkdir(parents=True, exist_ok=True)
                copyfile(template, path)
                set_checked(path, state_of(path))
        create(self, path, read_only=read_only, **settings)

    Database.__init__ = copy_or_create  # type: ignore[method-assign]


@pytest.fixture(autouse=True, scope="module")
def _copied_stores(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Copy new stores in all tests of this process."""
    database = sys.modules.get("oversharp.diagnostics.store.database")
    if database is not None and not hasattr(database.Database.__init__, "__wrapped__"):
        _copy_new_stores(tmp_path_factory.mktemp("template") / "audit.duckdb")


_SOME_MEASURES = ("pass_at_k", "pass_at_k_delta", "pass_at_k_exact", "token_entropy")


@contextmanager
def audits_of_some_measures() -> Iterator[None]:
    """Audits and imports measure pass@k alone meanwhile: all the measures take a quarter of a small audit."""
    from oversharp.diagnostics.measures import all_measures

    few = {name: all_measures()[name] for name in _SOME_MEASURES}
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("oversharp.diagnostics.audit.measure.all_measures", lambda: few)
        yield


@pytest.fixture
def few_measures() -> Iterator[None]:
    """Audits and imports of this test measure pass@k alone."""
    with audits_of_some_measures():
        yield


@contextmanager
def figures_of_some_measures() -> Iterator[None]:
    """Reports and exported figures show few measures meanwhile: the figures of all take seconds to draw."""
    from oversharp.diagnostics.measures import all_measures

    # a section names the last one wherever there are findings of it
    few = {name: all_measures()[name] for name in (*_SOME_MEASURES, "strategy_share")}
    # modules that import the function by name come first: imported later, they would keep the replacement
    import_module("oversharp.diagnostics.audit.measure")
    import_module("oversharp.diagnostics.export.tables")
    with pytest.MonkeyPatch.context() as patch:
        for place in ("oversharp.diagnostics.app.plots", "oversharp.diagnostics.measures"):
            patch.setattr(f"{place}.all_measures", lambda: few)
        yield


@pytest.fixture
def few_figures() -> Iterator[None]:
    """Reports and exported figures of this test show few measures."""
    with figures_of_some_measures():
        yield


@pytest.fixture
def no_report(monkeypatch: pytest.MonkeyPatch) -> None:
    """A line stands for every report that this process writes: to draw one takes two seconds."""

    def instead(_store_path: Path, out_path: Path, **_: object) -> Path:
        out_path.write_text("<title>Over-sharpening report</title>\n", encoding="utf-8")
        return out_path

    # the room that takes it from the other first: imported after that one was changed, it would keep the line for good
    for place in ("oversharp.diagnostics.app.report.build_report", "oversharp.reports.build_report"):
        monkeypatch.setattr(place, instead)


@pytest.hookimpl(optionalhook=True)
def pytest_configure_node(node: Any) -> None:
    """The workers of pytest-xdist share one process that their commands are forked from."""
    stash = node.config.stash
    if OF_ALL_WORKERS not in stash:
        stash[OF_ALL_WORKERS] = ForkServer(OF_COMMANDS)
        node.config.add_cleanup(stash[OF_ALL_WORKERS].close)
    node.workerinput["commands"] = stash[OF_ALL_WORKERS].socket_path


@pytest.fixture(scope="session")
def commands(pytestconfig: pytest.Config) -> Iterator[RunningServer]:
    """Starts ``oversharp`` commands as processes of their own, without the seconds that their imports take."""
    if shared := getattr(pytestconfig, "workerinput", {}).get("commands"):
        yield RunningServer(shared)
        return
    server = ForkServer(OF_COMMANDS)
    yield server
    server.close()


@pytest.fixture(scope="session")
def engine_server() -> Iterator[str]:
    """Where engines of vLLM are forked from a process that has imported it."""
    from oversharp.diagnostics.samplers.contract import EngineSettings
    from oversharp.diagnostics.samplers.vllm_engine import engine_environment

    server = ForkServer(OF_ENGINES, engine_environment("cpu", EngineSettings(), os.environ))
    yield server.socket_path
    server.close()


@pytest.fixture(scope="session")
def forked_engines(engine_server: str) -> Iterator[None]:
    """The engines of vLLM that this process starts are forked, which saves half of the time that they take."""
    os.environ[ENGINES] = engine_server
    end = fork_engines()
    yield
    end()
    del os.environ[ENGINES]


@pytest.fixture(scope="session")
def countdown_series(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Three checkpoints with different random weights, as a run directory. Do not write into it."""
    run = tmp_path_factory.mktemp("series") / "run"
    for step in (0, 20, 40):
        write_checkpoint(run / f"checkpoint-{step}", seed=step)
    return run


@pytest.fixture(scope="session")
def audited_store(countdown_series: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The store of two real audits of that run, as series grpo and "iac, seed 1". Do not write into it.

    Tests that use it share the group ``audited_store``: it takes seconds to make.
    """
    from oversharp.diagnostics.audit.audit import audit
    from oversharp.diagnostics.audit.config import AuditConfig

    out = tmp_path_factory.mktemp("audited")
    small = {"task": "countdown", "limit": 4, "n": 8, "panel": 2, "entropy_samples": 4, "out": out}
    kernel = {"kernel_problems": 1, "kernel_responses": 3, "sampler": "transformers"}
    for name in ("grpo", "iac, seed 1"):
        audit([countdown_series], AuditConfig(**small, **kernel, name=name))
    return out / "audit.duckdb"
