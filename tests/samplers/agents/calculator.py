"""An environment: a calculator, and tools that misbehave."""

import os
import signal
import time


class Calculator:
    """Correct if the last sum is the answer."""

    def reset(self, prompt: str, answer: str, **others: object) -> str:
        self.answer, self.result = float(answer), None
        return " ?"

    def add(self, a: float, b: float) -> float:
        """Add two numbers.

        Args:
            a: first number.
            b: second number.
        """
        self.result = a + b
        return self.result

    def sleep(self) -> str:
        """Sleep for a minute."""
        time.sleep(60)
        return "awake"

    def hang(self) -> str:
        """Hang so that no signal ends the call."""
        signal.pthread_sigmask(signal.SIG_BLOCK, [signal.SIGALRM])
        time.sleep(60)
        return "awake"

    def exit(self) -> None:
        """End the process."""
        os._exit(3)

    def fail(self) -> None:
        """Raise an error."""
        raise ValueError("no power")

    def say(self) -> str:
        """Return characters that no store accepts."""
        return "\ud800\0" + "a" * 100_000

    def get_reward(self) -> float:
        """Return 1 for a correct sum."""
        return float(self.result == self.answer)
