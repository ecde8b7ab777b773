"""The ways of correct responses in the store: what is read of them, what is still to be read, and the relations."""
