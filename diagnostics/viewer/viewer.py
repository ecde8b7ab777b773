"""An open store as the page asks for it: one question at a time, lists kept once they are made."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import lru_cache
from threading import RLock
from typing import TypeVar

from oversharp.diagnostics.records.errors import ConfigError
from oversharp.diagnostics.store import Store
from oversharp.diagnostics.viewer import listing, responses, search
from oversharp.diagnostics.viewer.records import (
    BASE,
    ProblemList,
    SearchPart,
    ViewedProblem,
    ViewedResponse,
    ViewedSeries,
    ViewSelection,
)

_Answer = TypeVar("_Answer")
#: Lists that are kept: pairs of checkpoints that were looked at last.
_LISTS = 16
#: What is kept of problems is without their responses.
_PROBLEMS = 64


class Viewer:
    """Answers the page's questions from a store that ``open_viewed`` opened. Safe to be asked by several threads."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._one_at_a_time = RLock()  # a connection of DuckDB is of one thread at a time
        self._problems = lru_cache(_LISTS)(lambda asked: listing.problem_list(store, asked))
        self._known = lru_cache(_PROBLEMS)(lambda series, problem: responses.known_problem(store, series, problem))
        self._rows = lru_cache(_LISTS)(lambda asked: search.searched_rows(store, asked))
        #: The series that can be looked at.
        self.series: tuple[ViewedSeries, ...] = listing.series_of(store)

    @property
    def store_name(self) -> str:
        """What the store is called: no path, which a copy would give away."""
        return self._store.path.name

    def selection(self, series: str, before: str | None = None, after: str | None = None) -> ViewSelection:
        """Two checkpoints of ``series`` by key: by default the base and the last. Raises ``ConfigError``."""
        keys = [point.key for one in self.series if one.name == series for point in one.checkpoints]
        last = next((key for key in reversed(keys) if key != (before or BASE)), "")
        chosen = ViewSelection(series=series, before=before or (keys or [BASE])[0], after=after or last)
        listing.require_pair(self.series, chosen)
        return chosen

    def problems(self, asked: ViewSelection) -> ProblemList:
        """All problems of a selection. Raises ``ConfigError`` and ``StoreError``."""
        return self._alone(lambda: self._problems(replace(asked, only="all", search="")))

    def problem(self, asked: ViewSelection, problem_id: str) -> ViewedProblem:
        """One problem with its answers; of the responses those with the searched text come first."""
        return self._alone(lambda: responses.viewed_problem(self._store, self._known(asked.series, problem_id), asked))

    def response(self, asked: ViewSelection, problem_id: str, key: str, response_id: str) -> ViewedResponse:
        """One response in full. Raises ``ConfigError`` where the checkpoint ``key`` did not say it."""
        found = self.responses(asked, problem_id, key, [response_id])
        if response_id not in found:
            raise ConfigError(f"{asked.series}: {key} has no response {response_id!r} to problem {problem_id!r}")
        return found[response_id]

    def responses(
        self, asked: ViewSelection, problem_id: str, key: str, response_ids: Sequence[str]
    ) -> dict[str, ViewedResponse]:
        """Several of them, by id."""
        return self._alone(
            lambda: responses.viewed_responses(
                self._store, self._known(asked.series, problem_id), asked, key, response_ids
            )
        )

    def search(self, asked: ViewSelection, start: int = 0) -> SearchPart:
        """A part of what a search finds, from ``start`` on."""
        place = replace(asked, only="all", search="")
        return self._alone(lambda: search.search_part(self._store, asked, self._rows(place), start))

    def found(self, asked: ViewSelection) -> frozenset[str]:
        """All problems that a search finds, to its end."""
        found: set[str] = set()
        start: int | None = 0
        while start is not None:
            part = self.search(asked, start)
            found |= set(part.problem_ids)
            start = part.next
        return frozenset(found)

    def _alone(self, question: Callable[[], _Answer]) -> _Answer:
        with self._one_at_a_time:
            return question()
