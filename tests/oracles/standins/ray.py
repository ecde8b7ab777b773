"""Stands where Ray would: enough for verl's algorithms to be imported. Nothing of it is ever called."""


class ObjectRef:
    """Named in verl's annotations."""
