"""Answer the page's requests one at a time, reading from an open store and caching lists."""

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
    ViewedTurn,
    ViewSelection,
)
from oversharp.diagnostics.viewer.trajectories import MORE

_Answer = TypeVar("_Answer")
#: Number of cached problem lists, one per pair of checkpoints.
_LISTS = 16
#: Number of cached problems, without their responses.
_PROBLEMS = 64


class Viewer:
    """Thread-safe source of the page's data, from a store opened by ``open_viewed``."""

    def __init__(self, store: Store) -> None:
        self._store = store
        self._lock = RLock()  # a DuckDB connection is not thread-safe
        self._problems = lru_cache(_LISTS)(lambda selection: listing.list_problems(store, selection))
        self._load_problem = lru_cache(_PROBLEMS)(
            lambda series, problem: responses.load_problem(store, series, problem)
        )
        self._rows = lru_cache(_LISTS)(lambda selection: search.find_rows(store, selection))
        #: Series with at least two graded checkpoints.
        self.series: tuple[ViewedSeries, ...] = listing.list_series(store)

    @property
    def store_name(self) -> str:
        """File name of the store without its path, because a static copy must not contain the path."""
        return self._store.path.name

    def selection(self, series: str, before: str | None = None, after: str | None = None) -> ViewSelection:
        """Return a selection of two checkpoints by key, by default base and last.

        Raises ``ConfigError`` if a key is invalid.
        """
        keys = [point.key for viewed in self.series if viewed.name == series for point in viewed.checkpoints]
        last = next((key for key in reversed(keys) if key != (before or BASE)), "")
        chosen = ViewSelection(series=series, before=before or (keys or [BASE])[0], after=after or last)
        listing.require_pair(self.series, chosen)
        return chosen

    def problems(self, selection: ViewSelection) -> ProblemList:
        """Return all problems of a selection.

        Raises ``StoreError`` if no problem has samples at both checkpoints.
        """
        return self._run_locked(lambda: self._problems(replace(selection, only="all", search="")))

    def problem(self, selection: ViewSelection, problem_id: str) -> ViewedProblem:
        """Return a problem with its answers. Responses that contain the search text come first."""
        return self._run_locked(
            lambda: responses.view_problem(self._store, self._load_problem(selection.series, problem_id), selection)
        )

    def response(self, selection: ViewSelection, problem_id: str, key: str, response_id: str) -> ViewedResponse:
        """Return one full response.

        Raises ``ConfigError`` if the checkpoint ``key`` did not generate it.
        """
        by_id = self.responses(selection, problem_id, key, [response_id])
        if response_id not in by_id:
            raise ConfigError(f"{selection.series}: {key} has no response {response_id!r} to problem {problem_id!r}")
        return by_id[response_id]

    def responses(
        self, selection: ViewSelection, problem_id: str, key: str, response_ids: Sequence[str]
    ) -> dict[str, ViewedResponse]:
        """Return several full responses by id."""
        return self._run_locked(
            lambda: responses.view_responses(
                self._store, self._load_problem(selection.series, problem_id), selection, key, response_ids
            )
        )

    def turns(
        self,
        selection: ViewSelection,
        problem_id: str,
        key: str,
        response_id: str,
        start: int,
        most: int | None = MORE,
    ) -> tuple[ViewedTurn, ...]:
        """Return a part of the turns of a response, from number ``start`` on; all of them if ``most`` is None.

        Raises ``ConfigError`` if the checkpoint ``key`` did not generate the response, or it has no such turn.
        """
        return self._run_locked(
            lambda: responses.view_turns(
                self._store, self._load_problem(selection.series, problem_id), key, response_id, start, most
            )
        )

    def search(self, selection: ViewSelection, start: int = 0) -> SearchPart:
        """Return the matches of one part of a search, which starts at row ``start``."""
        place = replace(selection, only="all", search="")
        return self._run_locked(lambda: search.search_rows(self._store, selection, self._rows(place), start))

    def matching_problem_ids(self, selection: ViewSelection) -> frozenset[str]:
        """Return the ids of all problems that match the search."""
        problem_ids: set[str] = set()
        start: int | None = 0
        while start is not None:
            part = self.search(selection, start)
            problem_ids |= set(part.problem_ids)
            start = part.next
        return frozenset(problem_ids)

    def _run_locked(self, request: Callable[[], _Answer]) -> _Answer:
        with self._lock:
            return request()
