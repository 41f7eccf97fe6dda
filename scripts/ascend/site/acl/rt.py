"""acl.rt, likewise."""

from acl import missing


def __getattr__(name: str):
    if name.startswith("__"):
        raise AttributeError(name)
    return missing(f"acl.rt.{name}")
