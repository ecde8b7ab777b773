"""Settings of an import.

Each dataclass field is a flag and a TOML key, with its help text.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Annotated, Any
from typing import Literal as Literal

from cyclopts import Parameter, Token

from oversharp.diagnostics.audit.config import CODE_BLOCK
from oversharp.diagnostics.audit.terms import SELECTED_BY, VerdictConfig
from oversharp.diagnostics.audit.terms import VERDICT as VERDICT  # type hints of inherited fields use it
from oversharp.diagnostics.records.arguments import check_settings
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

# type hints of inherited fields use it
from oversharp.diagnostics.verifiers.own_workers.config import GRADER as GRADER
from oversharp.diagnostics.verifiers.own_workers.config import GraderConfig
from oversharp.diagnostics.verifiers.reading.golds import GoldList

#: Names that ``--map`` accepts.
MAPPED = (
    "prompt", "response", "gold", "reward", "step", "problem", "index", "answer", "n_tokens", "finish_reason", "task",
    "cluster", "greedy", "n", "correct", "share", "messages",
)  # fmt: skip
#: Names that describe a response, not a problem.
_OF_TEXTS = frozenset({"messages", "response", "reward", "index", "answer", "n_tokens", "finish_reason", "greedy"})


def _pairs(_type: Any, tokens: Sequence[Token]) -> dict[str, str]:
    """Parse one or several ``--map prompt=question,response=output``."""
    pairs = [part for token in tokens for part in token.value.split(",") if part.strip()]
    fields = dict(pair.strip().split("=", 1) for pair in pairs if "=" in pair)
    if len(fields) < len(pairs) or not all(fields.values()):
        raise ValueError(f"{','.join(pairs)!r} is not a list of NAME=FIELD pairs such as prompt=question,reward=score")
    return fields


@Parameter(name="*")
@check_settings
@dataclass(frozen=True, kw_only=True)
class ImportConfig(GraderConfig, VerdictConfig):
    """Settings of an import: format and fields of the files, and values that the files lack.

    Attributes
    ----------
    store
        The audit.duckdb to write to; the report goes to the same folder.
    format
        Format of the files. Default: detected from their content.
    map
        Fields of a JSON, JSONL, Parquet or CSV: prompt=…,response=…,gold=…,reward=…,step=…. Nested fields are written
        as paths: doc.question, code[0], rollouts[].text (one sample per element). messages=… is a whole conversation
        with tool calls, instead of prompt and response. Counts without texts are problem=…,n=…,correct=…,step=….
        cluster=… marks related problems, such as variants of a template.
    base
        File or folder with samples of the base model (before RLVR), if its name has no step. They become step 0.
    name
        Name of the series. Default: the run's name in the files, else the folder's.
    step
        Step of all samples. Overrides fields and names.
    match
        Key that joins problems across steps: text (prompt and gold answer) or id (the tool's id). Use id where
        the prompt template or the spelling of the gold answers changed.
    window
        Merge this many steps into one, named after the last. For training rollouts, in which each problem occurs once
        per epoch.
    steps
        Import these steps only, comma-separated.
    reward
        Field with the reward, if the tool writes several. For lm-evaluation-harness: METRIC (a response is correct if
        any filter accepts it) or METRIC,FILTER, such as exact_match,flexible-extract.
    correct_at
        A response with at least this reward is correct. Default: 1.0, with a warning if some rewards are between wrong
        and right.
    problems
        File of problems, with the tests or golds that the imported files lack. Samples are joined to it by prompt,
        which may contain the problem's prompt, or with --match id by id. Other samples are left out.
    verifier
        Verifier of samples without a reward. FILE.py:function runs your code, judge:FILE.toml asks a model
        behind a server. Default: the verifier of the problems in --problems, else math.
    gold
        If the gold is a list: whether a response must state any or all of its members.
    answer_in_thoughts
        Accept a boxed answer inside the model's thinking if the text after the thinking states no answer.
    regrade
        Ignore the tool's rewards and grade every sample with the verifier.
    n
        Samples per problem and step to use. Problems with fewer samples at some step are excluded. Default: the number
        that most problems have at every step.
    until_solved
        The files have further samples of problems with fewer than UNTIL_SOLVED correct ones, which `oversharp plan
        --top-up` listed. Then n is the largest number of samples of a problem. 0: no. Default: as in the series' last
        import.
    first
        With until_solved: samples of every problem before the further ones. Default: the n of the series' last import,
        else the smallest number in the files.
    k
        Values of k for pass@k, comma-separated, none larger than n. Default: powers of two up to n.
    temperature
        Sampling temperature to record, if the files lack it.
    top_p
        Top-p (nucleus sampling) to record.
    max_tokens
        Token limit of responses to record.
    strategy_regex
        Regular expression of the strategy "code"; other responses are "prose".
    memory_gib
        Memory limit of queries, in GiB; larger intermediate results go to files next to the store. Default: 1, or half
        of the free memory if that is less.
    allow_pickle
        Read pickle files. A pickle can run code when it is read: only pass this for files that you created.
    dry_run
        Show files, formats, steps and counts; write nothing.
    selected_by
        base if the problems were selected by the imported base samples, with a filter such as "solved, but not
        always". none if not. These two words are reserved. Any other value is a field, written as in --map. Samples in
        which it is true selected the problems and are left out. Default: this is tested.
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
    problems: Path | None = None
    verifier: Annotated[str | None, Parameter(show_default=False)] = None
    gold: GoldList = "any"
    answer_in_thoughts: Annotated[bool, Parameter(negative=())] = False
    regrade: Annotated[bool, Parameter(negative=())] = False
    n: int | None = None
    until_solved: int | None = None
    first: int | None = None
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
            object.__setattr__(self, "verifier", in_thoughts(self.chosen_verifier))
        object.__setattr__(self, "store", store_file(self.store))
        if "score" in self.map:  # score is a common name of the reward
            if "reward" in self.map:
                raise ConfigError("--map has both reward=… and score=…; leave one out")
            named = {"reward" if name == "score" else name: field for name, field in self.map.items()}
            object.__setattr__(self, "map", named)
        for flag, value, least in (
            ("--step", self.step, 0),
            ("--window", self.window, 1),
            ("--n", self.n, 1),
            ("--until-solved", self.until_solved, 0),
            ("--first", self.first, 1),
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
            raise ConfigError(f"--map {unknown[0]}=…: unknown name; use one of {', '.join(MAPPED)}")
        self._require_fields()
        if self.temperature is not None and not 0 <= self.temperature < math.inf:
            raise ConfigError(f"--temperature {self.temperature}: must be a number, 0 or more")
        if self.top_p is not None and not 0 < self.top_p <= 1:
            raise ConfigError(f"--top-p {self.top_p}: must be above 0 and at most 1")
        if not math.isfinite(self.least_correct):
            raise ConfigError(f"--correct-at {self.correct_at}: must be a number")
        if self.selected_by is not None and not self.selected_by.strip():
            raise ConfigError(f"--selected-by {self.selected_by!r}: pass base, none or the name of a field")
        require_memory(self.memory_gib)
        require_name(self.name)
        VerdictConfig.__post_init__(self)
        GraderConfig.__post_init__(self)

    def _require_fields(self) -> None:
        """Raise ``ConfigError`` if ``map`` lacks fields that samples, or counts of samples, need."""
        if not self.map:
            return
        if self.map.keys() & {"n", "correct", "share"}:
            has_counts = "n" in self.map and len(self.map.keys() & {"correct", "share"}) == 1
            if not has_counts or not self.map.keys() & {"problem", "prompt"}:
                raise ConfigError("--map of counts needs n=…, correct=… or share=…, and problem=… or prompt=…")
            surplus = sorted(self.map.keys() & _OF_TEXTS)
            if surplus:
                raise ConfigError(
                    f"--map {surplus[0]}=…: counts (n=…, correct=…) have no responses; leave out either this name or "
                    "the counts"
                )
            if self.until_solved:
                raise ConfigError(
                    f"--until-solved {self.until_solved}: counts do not show which samples came first; import samples"
                )
            if self.regrade:
                raise ConfigError("--regrade: imported counts have no response texts to grade; leave out --regrade")
        elif {"messages", "response"} <= self.map.keys():
            raise ConfigError("--map messages=… contains the responses; leave out response=…")
        elif not ("messages" in self.map or self.map.keys() >= {"prompt", "response"}):
            raise ConfigError(
                "--map needs prompt=… and response=… (or messages=…), and reward=… or gold=…; for counts: problem=…, "
                "n=…, correct=…"
            )
        elif not self.map.keys() & {"reward", "gold"} and self.problems is None:
            raise ConfigError("--map needs reward=… or gold=…: responses cannot be graded without either")
        if self.format not in (None, self.chosen_format):
            raise ConfigError(
                f"--format {self.format}: the fields of this format are fixed; leave out --map or --format"
            )

    @property
    def chosen_verifier(self) -> str:
        """Verifier of samples without a reward."""
        return self.verifier or "math"

    @property
    def least_correct(self) -> float:
        """The least reward of a correct response."""
        return 1.0 if self.correct_at is None else self.correct_at

    @property
    def selected_field(self) -> str | None:
        """Field that marks the samples that selected the problems; None if ``selected_by`` is not a field."""
        return None if self.selected_by in SELECTED_BY else self.selected_by

    @property
    def chosen_format(self) -> str | None:
        """Format to read: ``mapped`` or ``counts`` if ``map`` is given, else ``format``."""
        if not self.map:
            return self.format
        return COUNTS_ALONE if "n" in self.map else "mapped"

    def settings(self, tool: str, from_files: Mapping[str, Any]) -> RecordedSettings:
        """Return the sampling settings of ``tool``. Flags override settings in the files."""
        from_flags = {"temperature": self.temperature, "top_p": self.top_p, "max_tokens": self.max_tokens}
        return RecordedSettings(
            sampler=tool, **{**from_files, **{name: value for name, value in from_flags.items() if value is not None}}
        )
