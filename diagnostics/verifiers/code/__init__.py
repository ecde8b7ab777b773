"""Verifier "code": extracts a Python program from a response, runs it in a jail, and compares results outside."""
