"""Tries to hurt what oversharp keeps: kills, full disks, damaged files. ``python -m benchmarks.torture``.

Every trial is one command of ``stages``, one fault of ``faults`` and a number that all of its random choices come from.
It holds where it ends as a run that nothing disturbed, by ``states``, or in one line that is true.
"""
