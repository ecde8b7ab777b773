"""A first look at the base's responses, minutes into an audit: whether their answers can be read at all.

A prompt without its chat template, too short a limit or another answer format than the verifier's make an audit of
nothing, and its sampling takes hours. The look is told once, in plain words where the rates are ordinary.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from oversharp.diagnostics.records.amounts import plural
from oversharp.diagnostics.records.cells import one_line
from oversharp.diagnostics.records.errors import UnreadableError
from oversharp.diagnostics.records.types import AuditKey
from oversharp.diagnostics.store import Store

#: What a look must have seen before it is judged: responses, and problems, which differ. Fewer are enough if they are
#: all that the base gives.
ENOUGH_RESPONSES, ENOUGH_PROBLEMS = 512, 8
#: Shares of responses without a readable answer, or cut off: from where it is odd, and from where nothing can be said.
ODD, HOPELESS = 0.5, 0.9
#: Of a response, so many characters are shown.
_SHOWN = 160

_TALLY = """
SELECT
    count(*) AS n,
    count(DISTINCT problem_id) AS n_problems,
    count(*) FILTER (state = 'ok') AS n_read,
    count(*) FILTER (finish_reason = 'length') AS n_cut_off,
    count(why_unread(correct, finish_reason, state, n_boxed)) AS n_unread,
    count(*) FILTER (correct) AS n_right
FROM own_samples
WHERE audit_id = $audit_id AND is_base AND NOT greedy AND correct IS NOT NULL
"""
#: The first response that went unread, else the first one.
_RESPONSE = """
SELECT s.text
FROM own_samples AS s
JOIN audit_problems AS p USING (audit_id, problem_id)
WHERE s.audit_id = $audit_id AND s.is_base AND NOT s.greedy AND s.correct IS NOT NULL
ORDER BY why_unread(s.correct, s.finish_reason, s.state, s.n_boxed) IS NULL, p.position, s.sample_index
LIMIT 1
"""


@dataclass(frozen=True, kw_only=True)
class Tally:
    """Of the base's graded samples: how many, of how many problems, and how many were read, cut off, and are right.

    ``n_unread`` are wrong, and without a readable answer or cut off before one stood in a box: what the verdict counts
    as unread.
    """

    n: int
    n_problems: int
    n_read: int
    n_cut_off: int
    n_unread: int
    n_right: int

    @property
    def is_odd(self) -> bool:
        """Whether most have no readable answer, or are wrong and were cut off or cannot be read."""
        return max(self.n - self.n_read, self.n_unread) > ODD * self.n

    @property
    def is_hopeless(self) -> bool:
        """Whether nearly none has a readable answer, or nearly all are wrong and were cut off or cannot be read."""
        return max(self.n - self.n_read, self.n_unread) >= HOPELESS * self.n

    @property
    def mend(self) -> str:
        """What to look at where it is odd."""
        if self.n - self.n_read > ODD * self.n:
            return (
                "where no answer is read nothing is measured: check the prompt (--prompt-template, --chat), "
                "--max-tokens and the verifier"
            )
        return "many of the wrong ones were cut off and may be wrong for that: check --max-tokens and the prompt"

    def told(self, label: str, max_tokens: int) -> str:
        """The rates in one line.

        >>> Tally(n=512, n_problems=8, n_read=26, n_cut_off=400, n_unread=500, n_right=2).told("checkpoint-0", 64)
        'checkpoint-0: pass@1 so far .00: a readable answer in 26 of 512 responses to 8 problems, 400 of them cut off
         at 64 tokens'
        """
        rate = f"{self.n_right / self.n:.2f}".removeprefix("0")
        of = f"{plural(self.n, 'response')} to {plural(self.n_problems, 'problem')}"
        cut_off = f", {self.n_cut_off:,} of them cut off at {plural(max_tokens, 'token')}" if self.n_cut_off else ""
        return f"{label}: pass@1 so far {rate}: a readable answer in {self.n_read:,} of {of}{cut_off}"


class FirstLook:
    """Looks at the base's grades until it has seen enough; says what it sees, and with ``strict`` stops the audit.

    ``label`` is the base's, ``max_tokens`` the longest response, ``n_problems`` how many are asked.
    """

    def __init__(
        self,
        store: Store,
        key: AuditKey,
        *,
        label: str,
        max_tokens: int,
        n_problems: int,
        strict: bool,
        note: Callable[[str], None],
    ) -> None:
        #: Whether it has seen enough.
        self.settled = False
        self.strict = strict
        self._store, self._key, self._note = store, key, note
        self._label, self._max_tokens = label, max_tokens
        self._enough_problems = min(ENOUGH_PROBLEMS, n_problems)
        self._told = False

    def take(self, *, whole: bool = False) -> None:
        """Look at what is graded by now, which with ``whole`` is all that will be.

        Raises ``UnreadableError`` with ``strict``, once enough was seen, where hardly a response could be read.
        """
        if self.settled:
            return
        seen = self._tally()
        if not seen.n:
            return
        self.settled = whole or (seen.n >= ENOUGH_RESPONSES and seen.n_problems >= self._enough_problems)
        if self.settled and self.strict and seen.is_hopeless:
            raise UnreadableError(
                f"--strict: {seen.told(self._label, self._max_tokens)}{self._response()}; mend the prompt "
                f"(--prompt-template, --chat), --max-tokens or the verifier; samples and grades are kept in "
                f"{self._store.path}"
            )
        if self.settled and seen.is_odd:
            self._note(f"warning: {seen.told(self._label, self._max_tokens)}{self._response()}; {seen.mend}")
        elif not self._told:
            response = self._response() if seen.is_odd or not seen.n_right else ""
            self._note(f"{seen.told(self._label, self._max_tokens)}{response}")
        self._told = True

    def _tally(self) -> Tally:
        row = self._store.frame(_TALLY, audit_id=self._key.audit_id).iloc[0]
        return Tally(**{str(name): int(value) for name, value in row.items()})

    def _response(self) -> str:
        rows = self._store.frame(_RESPONSE, audit_id=self._key.audit_id)
        return f"; first response: '{one_line(str(rows['text'].iloc[0]), _SHOWN)}'"
