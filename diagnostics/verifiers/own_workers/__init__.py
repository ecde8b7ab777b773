"""Reused, killable worker processes for a function in the user's file."""
