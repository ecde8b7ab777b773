"""Corrections of grades by gold labels, and tests for graders that change."""
