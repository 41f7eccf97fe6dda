"""`SamConfig`: what an engine's `sam_config` may hold."""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

SHARINGS = ("self", "group")
# The least and the most of each number. The arena's words are named by int32, hence 8 GiB.
RANGES: dict[str, tuple[float, float]] = {
    "k": (1, 64),
    "max_bytes": (1 << 18, 8 << 30),
    "history_tokens": (0, 1 << 30),
    "min_match": (1, 1024),
    "per_match": (1, 1e9),
    "min_probability": (0, 1),
    "max_match": (1, 1024),
}


def check_settings(**settings: Any) -> None:
    """Raises ValueError that names the first of SamDrafter's settings with a value it can't have."""
    for name, (low, high) in RANGES.items():
        if name in settings and not low <= settings[name] <= high:
            raise ValueError(f"{name} = {settings[name]!r} is outside {low} to {high}")
    if settings["min_match"] > settings["max_match"]:
        raise ValueError(f"min_match = {settings['min_match']} is above max_match = {settings['max_match']}")
    if settings["sharing"] not in SHARINGS:
        raise ValueError(f"sharing = {settings['sharing']!r} is none of {', '.join(SHARINGS)}")


@dataclass(frozen=True)
class SamConfig:
    """Settings of SAM drafting beside the number of draft tokens.

    gate: measure whether drafting pays, and draft less or not at all where it doesn't. The others are SamDrafter's.
    """

    sharing: str = "group"
    max_bytes: int = 1 << 29
    history_tokens: int = 1 << 16
    min_match: int = 1
    per_match: float = 8.0
    min_probability: float = 0.0
    max_match: int = 24
    gate: bool = True

    @classmethod
    def parse(cls, given: Mapping[str, Any] | None, num_speculative_tokens: int) -> "SamConfig":
        """Raises ValueError naming key and value for an unknown key, a wrong type or a value it can't have."""
        types = {field.name: field.type for field in fields(cls)}
        for key, value in (given or {}).items():
            if key not in types:
                raise ValueError(f"sam_config has no key {key!r} (value {value!r}); its keys are {', '.join(types)}")
            wanted = (int, float) if types[key] is float else types[key]
            if not isinstance(value, wanted) or isinstance(value, bool) != (types[key] is bool):
                raise ValueError(f"sam_config: {key} = {value!r} must be of type {types[key].__name__}")
        config = cls(**(given or {}))
        low, high = RANGES["k"]
        if not isinstance(num_speculative_tokens, int) or not low <= num_speculative_tokens <= high:
            raise ValueError(f"num_speculative_tokens = {num_speculative_tokens!r} is outside {low} to {high}")
        try:
            check_settings(**config.drafter_settings())
        except ValueError as error:
            raise ValueError(f"sam_config: {error}") from None
        return config

    def drafter_settings(self) -> dict[str, Any]:
        """SamDrafter's keyword arguments."""
        return {field.name: getattr(self, field.name) for field in fields(self) if field.name != "gate"}
