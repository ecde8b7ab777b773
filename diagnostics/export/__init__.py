"""What can be taken out of a store: one file per kind of output. ``diagnostics.export.export`` says which and where."""
