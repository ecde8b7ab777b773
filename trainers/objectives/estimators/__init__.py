"""Estimators: compute advantages from rewards."""
