"""Integrations with other trainers: calibrations for verl and TRL, and the live audit during training.

The modules ``verl`` and ``trl`` require these trainers. ``callback`` runs the audit of ``live`` in transformers and
TRL, and ``verl_live`` runs it in verl.
"""
