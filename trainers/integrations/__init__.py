"""Integrations with other trainers: calibrations for verl and TRL, and the live audit during a training.

``verl`` and ``trl`` require that trainer. ``callback`` runs the audit of ``live`` in transformers and TRL, and
``verl_live`` in verl.
"""
