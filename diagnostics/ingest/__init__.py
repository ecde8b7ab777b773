"""Import of other tools' samples: from their files to a verdict."""
