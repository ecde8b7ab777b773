"""Estimate time, tokens and disk space of a sampling run."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from oversharp.diagnostics.records.amounts import about_time, disk_size, plural, short_count, two_digits

#: Smallest size, or growth, of a store from which disk space per sample is estimated. Empty tables and the log take
#: megabytes too.
LEAST_BYTES = 32 * 2**20


@dataclass(frozen=True, kw_only=True)
class SampleCost:
    """Mean cost of a sample, over ``n`` earlier samples of the same kind; None if unknown.

    ``bytes`` is the size of the store's files per sample.
    """

    n: int = 0
    tokens: float | None = None
    seconds: float | None = None
    bytes: float | None = None


class Pace:
    """Progress of a run over all its checkpoints.

    ``lacking`` maps the id of each incomplete checkpoint to its number of missing samples. ``perhaps`` is a number of
    additional samples that may follow. ``most`` is given if ``lacking`` has expected numbers: their largest possible
    total. ``began``, and ``now`` below, are seconds of the same clock.

    >>> pace = Pace({"base": 2000, "late": 1000, "last": 1000}, began=0.0)
    >>> pace.start_line(max_tokens=1024)
    'to draw: 4,000 samples at 3 checkpoints, at most 4.10 M tokens'
    >>> pace.begin("base")
    >>> pace.add_drawn("base", 500)
    >>> pace.line(now=25.0)
    'checkpoint 1 of 3 · about 3 min left · 20 samples/s'
    >>> pace.add_drawn("base", 1500)
    >>> pace.done_line("base", now=100.0, grown_bytes=2e9)
    'checkpoint 1 of 3 done: 20 samples/s, about 2 min and 2.0 GB of disk left'
    >>> pace.leave_out("late")
    >>> pace.begin("last")
    >>> pace.add_drawn("last", 1000)
    >>> pace.line(now=140.0)
    'checkpoint 3 of 3 · all samples are drawn · 21 samples/s'
    >>> pace.done_line("last", now=150.0)
    'checkpoint 3 of 3 done: 20 samples/s'
    >>> print(pace.done_line("complete", now=150.0))
    None
    """

    def __init__(self, lacking: Mapping[str, int], *, began: float, perhaps: int = 0, most: int | None = None) -> None:
        self._lacking = dict(lacking)
        self._checkpoints = len(lacking)
        self._began = began
        self._perhaps = perhaps
        self._most = most
        self._is_bound = most is not None and most == sum(lacking.values())
        self._drawn: dict[str, int] = {}
        self._at_work: set[str] = set()

    @property
    def total(self) -> int:
        """Number of samples to draw: an upper bound, or the expected number."""
        return sum(self._lacking.values()) + self._perhaps if self._lacking else 0

    def start_line(self, *, max_tokens: int) -> str:
        """Return the line about the samples to draw, with at most ``max_tokens`` tokens each."""
        checkpoints, most = plural(self._checkpoints, "checkpoint"), self.total
        samples = f"{'at most ' if self._perhaps else ''}{plural(self.total, 'sample')} at {checkpoints}"
        if self._most is not None:
            most = self._most + self._perhaps
            samples = f"at most {plural(most, 'sample')} at {checkpoints}, fewer as problems are solved"
            if not self._is_bound:
                samples = f"about {plural(self.total, 'sample')} (at most {most:,}) at {checkpoints}"
        return f"to draw: {samples}, at most {short_count(most * max_tokens)} tokens"

    def cost_line(self, cost: SampleCost, *, free_bytes: float) -> str:
        """Return the line about tokens, time and disk space, extrapolated from earlier samples.

        >>> pace = Pace({"base": 2000, "late": 1000}, began=0.0)
        >>> pace.cost_line(SampleCost(n=500, tokens=300.0, seconds=0.1, bytes=2e6), free_bytes=5e9)
        'estimate from the 500 samples in the store: 900 k tokens, about 5 min, 6.0 GB of disk (only 5.0 GB free)'
        >>> pace.cost_line(SampleCost(), free_bytes=5e9)
        'time and disk space are unknown until the first samples are drawn'
        """
        parts = []
        if cost.tokens is not None:
            parts.append(f"{short_count(self.total * cost.tokens)} tokens")
        if cost.seconds is not None:
            parts.append(f"{about_time(self.total * cost.seconds)}")
        if cost.bytes is not None:
            needed = self.total * cost.bytes
            free = f" (only {disk_size(free_bytes)} free)" if needed > free_bytes else ""
            parts.append(f"{disk_size(needed)} of disk{free}")
        if not parts:
            return "time and disk space are unknown until the first samples are drawn"
        return f"estimate from the {cost.n:,} samples in the store: {', '.join(parts)}"

    def begin(self, checkpoint_id: str) -> None:
        """Mark the checkpoint as being sampled."""
        if checkpoint_id in self._lacking:
            self._at_work.add(checkpoint_id)

    def add_drawn(self, checkpoint_id: str, count: int) -> None:
        """Add ``count`` new samples of the checkpoint."""
        self._drawn[checkpoint_id] = self._drawn.get(checkpoint_id, 0) + count

    def expect(self, checkpoint_id: str, change: int, *, is_bound: bool) -> None:
        """Change the expected number of samples of a checkpoint.

        ``is_bound``: the number of some checkpoint is still an upper bound.

        >>> pace = Pace({"base": 512, "late": 256}, began=0.0, most=768)
        >>> pace.start_line(max_tokens=100)
        'to draw: at most 768 samples at 2 checkpoints, fewer as problems are solved, at most 76.8 k tokens'
        >>> pace.begin("base")
        >>> pace.add_drawn("base", 32)
        >>> pace.line(now=2.0)
        'checkpoint 1 of 2 · at most 1 min left · 16 samples/s'
        >>> pace.expect("base", -416, is_bound=True)
        >>> pace.expect("late", -192, is_bound=False)
        >>> pace.line(now=2.0)
        'checkpoint 1 of 2 · less than 1 min left · 16 samples/s'
        """
        if checkpoint_id in self._lacking:
            self._lacking[checkpoint_id] += change
        self._is_bound = is_bound

    def leave_out(self, checkpoint_id: str) -> None:
        """Remove a checkpoint that will not be sampled."""
        self._lacking.pop(checkpoint_id, None)
        self._at_work.discard(checkpoint_id)

    def line(self, now: float) -> str:
        """Return the progress line of the whole run."""
        done = self._checkpoints - len(self._lacking)
        first, last = done + 1, done + max(1, len(self._at_work))
        position = f"checkpoint {first}" if first == last else f"checkpoints {first} to {last}"
        text = (
            f"{position} of {self._checkpoints}"
            if self._lacking
            else f"all {plural(self._checkpoints, 'checkpoint')} are done"
        )
        passed_s = now - self._began
        if not (drawn := sum(self._drawn.values())) or passed_s <= 0:
            return text
        per_s, left = drawn / passed_s, self._samples_left
        if left and self._lacking:
            text += f" · {self._time(left / per_s)} left"
        elif self._lacking:
            text += " · all samples are drawn"
        return f"{text} · {two_digits(per_s)} samples/s"

    def done_line(self, checkpoint_id: str, now: float, grown_bytes: float = 0.0) -> str | None:
        """Return the line about a finished checkpoint; None if it had no missing samples.

        ``grown_bytes`` is the growth of the store's files since the start of the run.
        """
        if checkpoint_id not in self._lacking:
            return None
        self.leave_out(checkpoint_id)
        drawn = max(1, sum(self._drawn.values()))
        per_s = drawn / max(now - self._began, 1e-9)
        position = f"checkpoint {self._checkpoints - len(self._lacking)} of {self._checkpoints}"
        text = f"{position} done: {two_digits(per_s)} samples/s"
        if not (left := self._samples_left):
            return text
        disk = f" and {disk_size(left * grown_bytes / drawn)} of disk" if grown_bytes >= LEAST_BYTES else ""
        return f"{text}, {self._time(left / per_s)}{disk} left"

    def _time(self, seconds: float) -> str:
        return about_time(seconds).replace("about ", "at most ") if self._is_bound else about_time(seconds)

    @property
    def _samples_left(self) -> int:
        return sum(max(0, n - self._drawn.get(checkpoint_id, 0)) for checkpoint_id, n in self._lacking.items())
