"""Runs a function of the user's file in worker processes that stay warm and can be killed."""
