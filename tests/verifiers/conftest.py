"""One pool of math workers for all tests that do not kill it."""

from collections.abc import Iterator

import pytest

from oversharp.diagnostics.verifiers.math import MathVerifier


@pytest.fixture(scope="session")
def math_verifier() -> Iterator[MathVerifier]:
    with MathVerifier(timeout_s=30.0, workers=1) as verifier:
        yield verifier
