"""Try to damage oversharp's results by kills, full disks and damaged files: ``python -m benchmarks.torture``.

Every trial is one command of ``stages``, one fault of ``faults`` and a number that seeds all of its random choices. It
passes if it ends like an undisturbed run, by ``states``, or in one correct line.
"""
