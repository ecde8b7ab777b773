"""Gradient kernel: which responses an update can only move together."""
