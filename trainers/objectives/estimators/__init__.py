"""Parts that turn rewards into advantages."""
