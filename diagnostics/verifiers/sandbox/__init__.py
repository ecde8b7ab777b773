"""Jails for untrusted Python programs: which isolation this machine has, and processes that run programs in it."""
