"""``oversharp view``: problems and responses of a store in the browser, read-only, for whoever has the token."""
