"""Stands for CANN's Python binding: every call raises, nothing is made up."""


def missing(name: str):
    """A function of acl that says that it is not there."""

    def call(*args, **kwargs):
        raise RuntimeError(f"{name}: there is no CANN here")

    return call


def __getattr__(name: str):
    if name.startswith("__"):
        raise AttributeError(name)
    return missing(f"acl.{name}")


import acl.rt  # noqa: E402, F401 (needs `missing`; by name, since "from" would ask __getattr__)
