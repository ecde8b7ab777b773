"""What can be taken out of a store: one file per kind of output. ``diagnostics.exporting`` says which and where."""
