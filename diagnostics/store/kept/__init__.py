"""Results computed once for many queries of a connection.

Samples of a series, counts of a store.
"""
