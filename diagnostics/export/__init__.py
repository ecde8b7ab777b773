"""What can be taken out of a store: one file per kind of output. ``export`` says which and where."""
