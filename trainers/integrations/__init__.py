"""Other trainers: the calibrations in ``verl`` and ``trl``, and the audit beside a training.

``verl`` and ``trl`` need that trainer installed. ``live`` is the audit, which ``callback`` brings to transformers and
TRL and ``verl_live`` to verl.
"""
