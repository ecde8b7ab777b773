"""Buffer trajectories of imported samples, each once."""

from __future__ import annotations

import pyarrow as pa

from oversharp.diagnostics.ingest.formats.contract import Recorded
from oversharp.diagnostics.records.types import response_digest
from oversharp.diagnostics.store.write_import import trajectory_table
from oversharp.diagnostics.trajectories.record import Turns, storable_turns, trajectory_id


def recorded_response_id(item: Recorded) -> str:
    """Return the ``response_id`` of a sample: the hash of its trajectory, else of its text."""
    if item.turns is None:
        return response_digest(item.response.encode("utf-8", "replace")).hex()
    return trajectory_id(storable_turns(item.turns))


class TrajectoryBatch:
    """Rows of ``TRAJECTORIES`` for one transaction."""

    def __init__(self) -> None:
        self.n_bytes = 0
        self._turns: dict[str, Turns] = {}

    def add(self, turns: Turns) -> str:
        """Add a trajectory. Returns its ``response_id``."""
        turns = storable_turns(turns)
        own = trajectory_id(turns)
        if own not in self._turns:
            self._turns[own] = turns
            self.n_bytes += sum(len(turn.text) for turn in turns)
        return own

    def table(self) -> pa.Table:
        """Return one row for each distinct trajectory."""
        return trajectory_table(self._turns)
