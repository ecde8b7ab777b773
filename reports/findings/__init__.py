"""The findings of one measure as table and figure records."""
