"""Numbers of samples that an audit plans, also those of a stopping rule."""
