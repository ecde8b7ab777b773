"""Check early in an audit whether the answers of the base's responses can be parsed.

With a missing chat template, a low token limit or an unrecognized answer format, hours of sampling would be useless.
The check prints one line. The line is a warning if the rates are unusual.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from oversharp.diagnostics.records.amounts import plural
from oversharp.diagnostics.records.cells import one_line
from oversharp.diagnostics.records.errors import UnreadableError
from oversharp.diagnostics.records.types import AuditKey
from oversharp.diagnostics.store import Store

#: Number of responses and of distinct problems that the final check needs; fewer if the base has no more.
ENOUGH_RESPONSES, ENOUGH_PROBLEMS = 512, 8
#: Share of unparsed or truncated responses from which a warning is printed, and from which --strict raises.
UNUSUAL_SHARE, UNUSABLE_SHARE = 0.5, 0.9
#: Number of characters of a response in the warning.
_SHOWN = 160

_TALLY = """
SELECT
    count(*) AS n,
    count(DISTINCT problem_id) AS n_problems,
    count(*) FILTER (state = 'ok') AS n_parsed,
    count(*) FILTER (finish_reason = 'length') AS n_truncated,
    count(why_unread(correct, finish_reason, state, n_boxed)) AS n_unparsed,
    count(*) FILTER (correct) AS n_right
FROM own_samples
WHERE audit_id = $audit_id AND is_base AND NOT greedy AND correct IS NOT NULL
  -- later rounds have only problems that are hardly solved
  AND sample_index < n_first_round
"""
#: The first unparsed response; without any, the first response.
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
    """Counts over the base's graded samples.

    ``n_right`` is the number of correct samples. ``n_unparsed`` counts wrong samples that are unparsed or were
    truncated before a boxed answer, as in the verdict.
    """

    n: int
    n_problems: int
    n_parsed: int
    n_truncated: int
    n_unparsed: int
    n_right: int

    @property
    def is_unusual(self) -> bool:
        """Whether most responses have no parsed answer, or are wrong and truncated or unparsed."""
        return max(self.n - self.n_parsed, self.n_unparsed) > UNUSUAL_SHARE * self.n

    @property
    def is_unusable(self) -> bool:
        """Whether nearly no answer is parsed, or nearly all are wrong and truncated or unparsed."""
        return max(self.n - self.n_parsed, self.n_unparsed) >= UNUSABLE_SHARE * self.n

    @property
    def hint(self) -> str:
        """Hint at the settings to check if the rates are unusual."""
        if self.n - self.n_parsed > UNUSUAL_SHARE * self.n:
            return (
                "pass@k cannot be measured without parsed answers: check the prompt (--prompt-template, --chat), "
                "--max-tokens and the verifier"
            )
        return "many wrong responses are truncated, which may be why they are wrong: check --max-tokens and the prompt"

    def describe(self, label: str, max_tokens: int) -> str:
        """Return the rates in one line.

        >>> Tally(n=512, n_problems=8, n_parsed=26, n_truncated=400, n_unparsed=500, n_right=2).describe("base", 64)
        'base: pass@1 so far .00; 26 of 512 responses to 8 problems have a parsed answer, 400 are truncated at
         64 tokens'
        """
        rate = f"{self.n_right / self.n:.2f}".removeprefix("0")
        of = f"{plural(self.n, 'response')} to {plural(self.n_problems, 'problem')}"
        truncated = f", {self.n_truncated:,} are truncated at {plural(max_tokens, 'token')}" if self.n_truncated else ""
        return f"{label}: pass@1 so far {rate}; {self.n_parsed:,} of {of} have a parsed answer{truncated}"


class FirstLook:
    """Check of the base's first grades.

    It prints their rates, and with ``is_strict`` it may stop the audit. ``label`` is the label of the base,
    ``max_tokens`` the token limit of a response, and ``n_problems`` the size of the problem set.
    """

    def __init__(
        self,
        store: Store,
        key: AuditKey,
        *,
        label: str,
        max_tokens: int,
        n_problems: int,
        is_strict: bool,
        note: Callable[[str], None],
    ) -> None:
        #: Whether enough grades were checked, so that the check is final.
        self.is_final = False
        self.is_strict = is_strict
        self._store, self._key, self._note = store, key, note
        self._label, self._max_tokens = label, max_tokens
        self._enough_problems = min(ENOUGH_PROBLEMS, n_problems)
        self._has_printed = False

    def check(self, *, is_last: bool = False) -> None:
        """Check the grades so far. ``is_last`` means that all responses are graded.

        With ``is_strict``, raises ``UnreadableError`` if nearly no response could be parsed.
        """
        if self.is_final:
            return
        row = self._store.frame(_TALLY, audit_id=self._key.audit_id).iloc[0]
        tally = Tally(**{str(name): int(value) for name, value in row.items()})
        if not tally.n:
            return
        self.is_final = is_last or (tally.n >= ENOUGH_RESPONSES and tally.n_problems >= self._enough_problems)
        line = tally.describe(self._label, self._max_tokens)
        if self.is_final and self.is_strict and tally.is_unusable:
            raise UnreadableError(
                f"--strict: {line}{self._example()}; fix the prompt (--prompt-template, --chat), --max-tokens or the "
                f"verifier; samples and grades are kept in {self._store.path}"
            )
        if self.is_final and tally.is_unusual:
            self._note(f"warning: {line}{self._example()}; {tally.hint}")
        elif not self._has_printed:
            self._note(f"{line}{self._example() if tally.is_unusual or not tally.n_right else ''}")
        self._has_printed = True

    def _example(self) -> str:
        rows = self._store.frame(_RESPONSE, audit_id=self._key.audit_id)
        return f"; first response: '{one_line(str(rows['text'].iloc[0]), _SHOWN)}'"
