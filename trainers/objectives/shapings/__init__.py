"""Shapings: change rewards before they are compared."""
