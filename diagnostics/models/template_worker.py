"""Render one chat template under limits, and print the length of its output.

The limits are on time and memory, the length is in characters. ``templates`` runs this script in a separate process,
with a JSON object on standard input. A chat template can contain an endless loop, which cannot be stopped from within
its process. The Jinja environment is the same as in transformers, so a template behaves in the same way.
"""

from __future__ import annotations

import json
import resource
import sys
from datetime import datetime
from typing import Any


def main() -> None:
    """Print the number of characters, or "memory" or "error".

    "memory" means that the memory limit was exceeded, "error" that rendering failed.
    """
    job = json.load(sys.stdin)
    resource.setrlimit(resource.RLIMIT_AS, (job["memory_bytes"],) * 2)
    resource.setrlimit(resource.RLIMIT_CPU, (job["cpu_s"], job["cpu_s"] + 1))
    try:
        print(len(_environment().from_string(job["template"]).render(**job["variables"])))
    except MemoryError:
        print("memory")
    except Exception:  # noqa: BLE001  # the caller renders the template again and gets the same error
        print("error")


def _environment() -> Any:
    from jinja2 import TemplateError, nodes
    from jinja2.ext import Extension, loopcontrols
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    class Generation(Extension):
        """Support for the block {% generation %}, which does not change the output."""

        tags = {"generation"}  # noqa: RUF012

        def parse(self, parser: Any) -> Any:
            line = next(parser.stream).lineno
            body = parser.parse_statements(("name:endgeneration",), drop_needle=True)
            return nodes.Scope(body, lineno=line)

    def refuse(message: str) -> None:
        raise TemplateError(message)

    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[Generation, loopcontrols]
    )
    environment.filters["tojson"] = lambda value, **options: json.dumps(value, **{"ensure_ascii": False, **options})
    environment.globals["raise_exception"] = refuse
    environment.globals["strftime_now"] = lambda form: datetime.now().strftime(form)  # as transformers does
    return environment


if __name__ == "__main__":
    main()
