"""Renders one chat template under limits of time and memory, and prints how many characters come out.

A program of its own: ``templates`` starts it with a JSON object on standard input. A template is a program of its
author's, and one whose loops never end cannot be stopped from within its process. The environment is that of
transformers, so that a template does here what it will do there.
"""

from __future__ import annotations

import json
import resource
import sys
from datetime import datetime
from typing import Any


def main() -> None:
    """Print the number of characters, "memory" where there is not enough, or "error" for what the caller will meet."""
    job = json.load(sys.stdin)
    resource.setrlimit(resource.RLIMIT_AS, (job["memory_bytes"],) * 2)
    resource.setrlimit(resource.RLIMIT_CPU, (job["cpu_s"], job["cpu_s"] + 1))
    try:
        print(len(_environment().from_string(job["template"]).render(**job["variables"])))
    except MemoryError:
        print("memory")
    except Exception:  # noqa: BLE001  # rendered again by transformers, it raises the same, for a user to read
        print("error")


def _environment() -> Any:
    from jinja2 import TemplateError, nodes
    from jinja2.ext import Extension, loopcontrols
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    class Generation(Extension):
        """The block {% generation %}, which changes nothing in what is written."""

        tags = {"generation"}  # noqa: RUF012

        def parse(self, parser: Any) -> Any:
            line = next(parser.stream).lineno
            body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
            return nodes.Scope(body, lineno=line)

    def refuse(message: str) -> None:
        raise TemplateError(message)

    made = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[Generation, loopcontrols])
    made.filters["tojson"] = lambda value, **options: json.dumps(value, **{"ensure_ascii": False, **options})
    made.globals["raise_exception"] = refuse
    made.globals["strftime_now"] = lambda form: datetime.now().strftime(form)  # as transformers does
    return made


if __name__ == "__main__":
    main()
