"""Worker processes for a function in the user's file. They are reused, and can be killed."""
