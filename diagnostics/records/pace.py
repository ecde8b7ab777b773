"""What a run will take, as far as something was measured: before it draws, while it does, and for what is left."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from oversharp.diagnostics.records.amounts import about_time, disk_size, plural, short_count, two_digits

#: A smaller store, or growth, says nothing of a sample's size: tables without rows and the log take megabytes too.
LEAST_BYTES = 32 * 2**20


@dataclass(frozen=True, kw_only=True)
class SampleCost:
    """What one sample took on average where ``n`` of the same kind were drawn before; None for what is not known.

    ``bytes`` is its share of the store's files.
    """

    n: int = 0
    tokens: float | None = None
    seconds: float | None = None
    bytes: float | None = None


class Pace:
    """How far a run is over all its checkpoints.

    ``lacking`` are the samples that each still lacks, by its id; who lacks none is not counted. ``perhaps`` more may be
    drawn after them, or fewer of them than that. ``began``, and ``now`` below, are seconds of one clock.

    >>> pace = Pace({"base": 2000, "late": 1000, "last": 1000}, began=0.0)
    >>> pace.start_line(max_tokens=1024)
    'to draw: 4,000 samples at 3 checkpoints, at most 4.10 M tokens'
    >>> pace.begin("base")
    >>> pace.drew("base", 500)
    >>> pace.line(now=25.0)
    'checkpoint 1 of 3 · about 3 min left · 20 samples/s'
    >>> pace.drew("base", 1500)
    >>> pace.done_line("base", now=100.0, grown_bytes=2e9)
    'checkpoint 1 of 3 is done: 20 samples per second, about 2 min and 2.0 GB of disk for the others'
    >>> pace.leave_out("late")
    >>> pace.begin("last")
    >>> pace.drew("last", 1000)
    >>> pace.line(now=140.0)
    'checkpoint 3 of 3 · all samples are drawn · 21 samples/s'
    >>> pace.done_line("last", now=150.0)
    'checkpoint 3 of 3 is done: 20 samples per second'
    >>> print(pace.done_line("held", now=150.0))
    None
    """

    def __init__(self, lacking: Mapping[str, int], *, began: float, perhaps: int = 0, fewer: bool = False) -> None:
        self._lacking = dict(lacking)
        self._of = len(lacking)
        self._began = began
        self._perhaps = perhaps
        self._at_most = bool(perhaps) or fewer
        self._drawn: dict[str, int] = {}
        self._at_work: set[str] = set()

    @property
    def total(self) -> int:
        """Samples to draw, at most."""
        return sum(self._lacking.values()) + self._perhaps if self._lacking else 0

    def start_line(self, *, max_tokens: int) -> str:
        """What there is to draw, in responses of at most ``max_tokens``."""
        most = "at most " if self._at_most else ""
        at, tokens = plural(self._of, "checkpoint"), short_count(self.total * max_tokens)
        return f"to draw: {most}{plural(self.total, 'sample')} at {at}, at most {tokens} tokens"

    def cost_line(self, cost: SampleCost, *, free_bytes: float) -> str:
        """What that takes if it costs what was drawn before.

        >>> pace = Pace({"base": 2000, "late": 1000}, began=0.0)
        >>> pace.cost_line(SampleCost(n=500, tokens=300.0, seconds=0.1, bytes=2e6), free_bytes=5e9)
        'if they are like the 500 in the store: 900 k tokens, about 5 min, 6.0 GB of disk (only 5.0 GB are free)'
        >>> pace.cost_line(SampleCost(), free_bytes=5e9)
        'how long that takes, and how much disk, is not known before some are drawn'
        """
        told = []
        if cost.tokens is not None:
            told.append(f"{short_count(self.total * cost.tokens)} tokens")
        if cost.seconds is not None:
            told.append(f"{about_time(self.total * cost.seconds)}")
        if cost.bytes is not None:
            needed = self.total * cost.bytes
            free = f" (only {disk_size(free_bytes)} are free)" if needed > free_bytes else ""
            told.append(f"{disk_size(needed)} of disk{free}")
        if not told:
            return "how long that takes, and how much disk, is not known before some are drawn"
        return f"if they are like the {cost.n:,} in the store: {', '.join(told)}"

    def begin(self, checkpoint_id: str) -> None:
        """Its samples are drawn from now on."""
        if checkpoint_id in self._lacking:
            self._at_work.add(checkpoint_id)

    def drew(self, checkpoint_id: str, count: int) -> None:
        """So many more of its samples are drawn."""
        self._drawn[checkpoint_id] = self._drawn.get(checkpoint_id, 0) + count

    def leave_out(self, checkpoint_id: str) -> None:
        """Its samples will not be drawn."""
        self._lacking.pop(checkpoint_id, None)
        self._at_work.discard(checkpoint_id)

    def line(self, now: float) -> str:
        """How far all of it is, for who looks while it is at work."""
        done = self._of - len(self._lacking)
        first, last = done + 1, done + max(1, len(self._at_work))
        at = f"checkpoint {first}" if first == last else f"checkpoints {first} to {last}"
        said = f"{at} of {self._of}" if self._lacking else f"all {plural(self._of, 'checkpoint')} are done"
        passed_s = now - self._began
        if not (drawn := sum(self._drawn.values())) or passed_s <= 0:
            return said
        per_s, left = drawn / passed_s, self._left
        if left and self._lacking:
            said += f" · {about_time(left / per_s)} left"
        elif self._lacking:
            said += " · all samples are drawn"
        return f"{said} · {two_digits(per_s)} samples/s"

    def done_line(self, checkpoint_id: str, now: float, grown_bytes: float = 0.0) -> str | None:
        """What to say of a checkpoint that is done; None where it had nothing to draw.

        The store's files have ``grown_bytes`` since the beginning.
        """
        if checkpoint_id not in self._lacking:
            return None
        self.leave_out(checkpoint_id)
        drawn = max(1, sum(self._drawn.values()))
        per_s = drawn / max(now - self._began, 1e-9)
        said = (
            f"checkpoint {self._of - len(self._lacking)} of {self._of} is done: {two_digits(per_s)} samples per second"
        )
        if not (left := self._left):
            return said
        disk = f" and {disk_size(left * grown_bytes / drawn)} of disk" if grown_bytes >= LEAST_BYTES else ""
        return f"{said}, {about_time(left / per_s)}{disk} for the others"

    @property
    def _left(self) -> int:
        return sum(max(0, n - self._drawn.get(one, 0)) for one, n in self._lacking.items())
