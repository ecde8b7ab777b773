"""Settings of an import. One dataclass field is the flag, the TOML key and the documentation."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any
from typing import Literal as Literal

from cyclopts import Parameter, Token

from oversharp.diagnostics.audit.config import CODE_BLOCK
from oversharp.diagnostics.audit.terms import VERDICT as VERDICT  # the command line reads inherited fields by it
from oversharp.diagnostics.audit.terms import VerdictConfig
from oversharp.diagnostics.records.arguments import checked_settings
from oversharp.diagnostics.records.errors import ConfigError
from oversharp.diagnostics.records.names import store_file
from oversharp.diagnostics.records.settings import (
    comma_separated,
    require_at_least,
    require_memory,
    require_name,
    require_storable,
)
from oversharp.diagnostics.records.types import COUNTS_ALONE, RecordedSettings
from oversharp.diagnostics.verifiers import in_thoughts
from oversharp.diagnostics.verifiers.own_workers.config import GRADER as GRADER  # as VERDICT above
from oversharp.diagnostics.verifiers.own_workers.config import GraderConfig
from oversharp.diagnostics.verifiers.reading.golds import GoldList

#: What ``--map`` may name.
MAPPED = (
    "prompt", "response", "gold", "reward", "step", "problem", "index", "answer", "n_tokens", "finish_reason", "task",
    "cluster", "greedy", "n", "correct", "share",
)  # fmt: skip
#: Of these, what only a response has.
_OF_TEXTS = frozenset({"response", "reward", "index", "answer", "n_tokens", "finish_reason", "greedy"})


def _pairs(_type: Any, tokens: Sequence[Token]) -> dict[str, str]:
    """``--map prompt=question,response=output`` and several ``--map`` mean the same."""
    pairs = [part for token in tokens for part in token.value.split(",") if part.strip()]
    named = dict(pair.strip().split("=", 1) for pair in pairs if "=" in pair)
    if len(named) < len(pairs) or not all(named.values()):
        raise ValueError(f"{','.join(pairs)!r} is not a list of NAME=FIELD pairs such as prompt=question,reward=score")
    return named


@Parameter(name="*")
@checked_settings
@dataclass(frozen=True, kw_only=True)
class ImportConfig(GraderConfig, VerdictConfig):
    """What the files are, and what they do not tell.

    Attributes
    ----------
    store
        The audit.duckdb to write to; the report is written beside it.
    format
        Whose files they are. Default: recognised by their content.
    map
        Fields of any JSON, JSONL, Parquet or CSV: prompt=…,response=…,gold=…,reward=…,step=…. Paths reach into objects
        and lists: doc.question, code[0], rollouts[].text (one sample each). Counts without texts are
        problem=…,n=…,correct=…,step=…. cluster=… says which problems are related, as variants of a template are.
    base
        File or folder of the samples before RLVR, if the step in its name does not tell: they count as step 0.
    name
        Name of the series. Default: the run's name where the files tell it, else the folder's.
    step
        Step of all samples, whatever fields and names say.
    match
        What joins a problem across steps: text, its prompt and gold answer, or id, the tool's own id of it, where the
        prompt template or the spelling of the gold answers changed.
    window
        Merge so many steps into one, named after the last. For rollouts of training: each problem comes once an epoch.
    steps
        Import these steps only, comma-separated.
    reward
        Field with the tool's reward or score, where it writes several. Of lm-evaluation-harness: METRIC, which counts a
        response as correct where any filter accepts it, or METRIC,FILTER such as exact_match,flexible-extract.
    correct_at
        A response with at least this reward is correct. Default: 1.0, with a warning where rewards lie in between.
    verifier
        Who grades samples that come without a reward: a verifier, or FILE.py:function, code of yours that is run.
    gold
        Where a gold is a list: whether a response must state any or all of its members.
    answer_in_thoughts
        Accept a box in a model's thoughts where nothing is stated behind them.
    regrade
        Leave the tool's rewards aside, let the verifier grade every sample.
    n
        Use so many samples per problem and step; problems that have fewer somewhere are left out. Default: as many as
        most problems have at every step.
    k
        Values of k for pass@k, comma-separated, none larger than n. Default: powers of two up to n.
    temperature
        What the samples were drawn at, for the record, if the files do not tell.
    top_p
        Nucleus mass, for the record.
    max_tokens
        Longest response in tokens, for the record.
    strategy_regex
        A response that matches is counted as strategy "code", any other as "prose".
    memory_gib
        Most memory for queries, in GiB; what needs more goes to files beside the store. Default: 1, or half of what is
        free if that is less.
    allow_pickle
        Read files that can run code when they are read. Only for files that you made.
    dry_run
        Show files, formats, steps and counts; write nothing.
    """

    store: Path = Path("audit/audit.duckdb")
    format: str | None = None
    map: Annotated[
        Mapping[str, str], Parameter(converter=_pairs, n_tokens=1, accepts_keys=False, negative=(), show_default=False)
    ] = field(default_factory=dict)
    base: Path | None = None
    name: str | None = None
    step: int | None = None
    match: Literal["text", "id"] = "text"
    window: int | None = None
    steps: Annotated[
        tuple[int, ...], Parameter(converter=comma_separated, n_tokens=1, negative=(), show_default=False)
    ] = ()
    reward: Annotated[str | None, Parameter(alias="--score")] = None
    correct_at: float | None = None
    verifier: str = "math"
    gold: GoldList = "any"
    answer_in_thoughts: Annotated[bool, Parameter(negative=())] = False
    regrade: Annotated[bool, Parameter(negative=())] = False
    n: int | None = None
    k: Annotated[
        tuple[int, ...], Parameter(converter=comma_separated, n_tokens=1, negative=(), show_default=False)
    ] = ()
    temperature: float | None = None
    top_p: float | None = None
    max_tokens: int | None = None
    strategy_regex: str = CODE_BLOCK
    memory_gib: float | None = None
    allow_pickle: Annotated[bool, Parameter(negative=())] = False
    dry_run: Annotated[bool, Parameter(negative=())] = False

    def __post_init__(self) -> None:
        if self.answer_in_thoughts:
            object.__setattr__(self, "verifier", in_thoughts(self.verifier))
        object.__setattr__(self, "store", store_file(self.store))
        if "score" in self.map:  # what many tools call a reward
            if "reward" in self.map:
                raise ConfigError("--map names the reward twice, as reward=… and as score=…; leave one out")
            named = {"reward" if name == "score" else name: field for name, field in self.map.items()}
            object.__setattr__(self, "map", named)
        for flag, value, least in (
            ("--step", self.step, 0),
            ("--window", self.window, 1),
            ("--n", self.n, 1),
            ("--max-tokens", self.max_tokens, 1),
            *(("--k", k, 1) for k in self.k),
            *(("--steps", step, 0) for step in self.steps),
        ):
            require_at_least(flag, value, least)
            require_storable(flag, value)
        if self.n is not None and self.k and max(self.k) > self.n:
            raise ConfigError(f"--k {max(self.k)} is larger than --n {self.n}: pass@k is not defined for k > n")
        unknown = sorted(self.map.keys() - set(MAPPED))
        if unknown:
            raise ConfigError(f"--map {unknown[0]}=…: not a name of ours; there are {', '.join(MAPPED)}")
        self._require_fields()
        if self.temperature is not None and not 0 <= self.temperature < math.inf:
            raise ConfigError(f"--temperature {self.temperature}: must be a number, 0 or more")
        if self.top_p is not None and not 0 < self.top_p <= 1:
            raise ConfigError(f"--top-p {self.top_p}: must lie in (0, 1]")
        if not math.isfinite(self.least_correct):
            raise ConfigError(f"--correct-at {self.correct_at}: must be a number")
        require_memory(self.memory_gib)
        require_name(self.name)
        VerdictConfig.__post_init__(self)
        GraderConfig.__post_init__(self)

    def _require_fields(self) -> None:
        """Raise ``ConfigError`` where ``map`` does not name what a sample, or a count of samples, needs."""
        if not self.map:
            return
        if self.map.keys() & {"n", "correct", "share"}:
            has_counts = "n" in self.map and len(self.map.keys() & {"correct", "share"}) == 1
            if not has_counts or not self.map.keys() & {"problem", "prompt"}:
                raise ConfigError("--map of counts needs n=…, correct=… or share=…, and problem=… or prompt=…")
            surplus = sorted(self.map.keys() & _OF_TEXTS)
            if surplus:
                raise ConfigError(
                    f"--map {surplus[0]}=…: counts (n=…, correct=…) have no responses; leave one of the two out"
                )
            if self.regrade:
                raise ConfigError("--regrade: counts have no responses that could be graded; leave it out")
        elif not self.map.keys() >= {"prompt", "response"}:
            raise ConfigError(
                "--map needs prompt=… and response=…, and reward=… or gold=…; of counts alone problem=…, n=…, correct=…"
            )
        elif not self.map.keys() & {"reward", "gold"}:
            raise ConfigError("--map needs reward=… or gold=…: without either nothing can be graded")
        if self.format not in (None, self.chosen_format):
            raise ConfigError(f"--format {self.format} knows its fields; leave --map out, or the format")

    @property
    def least_correct(self) -> float:
        """The least reward of a correct response."""
        return 1.0 if self.correct_at is None else self.correct_at

    @property
    def chosen_format(self) -> str | None:
        """The named format; with a mapping of fields that is ``mapped``, of counts ``counts``."""
        if not self.map:
            return self.format
        return COUNTS_ALONE if "n" in self.map else "mapped"

    def settings(self, tool: str, told: Mapping[str, Any]) -> RecordedSettings:
        """How ``tool`` drew: what the files told, and what was said here."""
        said = {"temperature": self.temperature, "top_p": self.top_p, "max_tokens": self.max_tokens}
        return RecordedSettings(
            sampler=tool, **{**told, **{name: value for name, value in said.items() if value is not None}}
        )
