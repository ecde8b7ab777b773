"""``oversharp view``: a read-only browser page of a store's problems and responses.

An access token protects the page.
"""
