"""`GraphSettings`: what a rollout's settings say about graph mode, what contradicts itself there, what is missing."""

import contextlib
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from qwen3_rl.errors import UserError
from qwen3_rl.npugraph.keys import ONE_TOKEN, PAD_ATTENTION, STATIC_KERNEL, SWITCH, wrong_keys
from qwen3_rl.npugraph.sizes import capture_sizes

ENVIRONMENT = "VLLM_ENABLE_GRAPH_MODE"
DRAFT_LIMIT = "VLLM_SPECULATIVE_BATCH_SIZE_THRE"
DEFAULT_MODE = "FULL_DECODE_ONLY"
GRAPH_MODES = ("FULL_DECODE_ONLY", "FULL")
MAX_DRAFT_TOKENS = 15  # vLLM-Ascend's attention takes at most 16 tokens of a request
VERL_MODE = "FULL_AND_PIECEWISE (veRL's default)"


@dataclass(frozen=True)
class GraphSettings:
    """A rollout's settings as given; None where nothing was. Names are veRL's and vLLM's, sizes are tokens.

    switch: VLLM_ENABLE_GRAPH_MODE. mode: compilation_config.cudagraph_mode. level: compilation_config.mode.
    rollout_sizes, sizes: rollout.cudagraph_capture_sizes and compilation_config.cudagraph_capture_sizes. k: draft
    tokens, 0 without speculation. draft_limit: the largest batch that is drafted for.
    """

    additional: Mapping[str, Any]
    switch: str | None = None
    enforce_eager: bool = False
    mode: str | None = None
    level: str | None = None
    sizes: tuple[int, ...] | None = None
    rollout_sizes: tuple[int, ...] | None = None
    k: int = 0
    draft_limit: int | None = None
    max_num_seqs: int = 256
    max_num_batched_tokens: int = 8192
    data_parallel_size: int = 1
    launch_blocking: bool = False

    @property
    def npugraph_ex(self) -> bool:
        return self.additional.get(SWITCH) is True

    @property
    def one_token(self) -> bool:
        return self.additional.get(ONE_TOKEN) is True

    @property
    def given_sizes(self) -> list[int] | None:
        given = self.sizes or self.rollout_sizes
        return list(given) if given else None

    def computed_sizes(self) -> list[int]:
        """The capture sizes that fit these settings."""
        sizes = capture_sizes(self.max_num_seqs, self.k, self.draft_limit, self.one_token)
        return [size for size in sizes if size <= self.max_num_batched_tokens]


def read_settings(engine: Mapping[str, Any], rollout: Any, environment: Mapping[str, str]) -> GraphSettings:
    """From engine_kwargs.vllm, veRL's rollout section (attributes or keys) and the environment.

    Raises UserError naming a setting whose value can't be read.
    """

    def of(name: str, default: Any = None) -> Any:
        value = rollout.get(name, default) if hasattr(rollout, "get") else getattr(rollout, name, default)
        return default if value is None else value

    compilation = _section(engine, "compilation_config")
    speculative = _section(engine, "speculative_config")
    k = whole("speculative_config.num_speculative_tokens", speculative.get("num_speculative_tokens") or 0, least=0)
    return GraphSettings(
        additional=_section(engine, "additional_config"),
        switch=environment.get(ENVIRONMENT) or None,
        enforce_eager=bool(of("enforce_eager", False)),
        mode=compilation.get("cudagraph_mode"),
        level=None if (level := compilation.get("mode")) is None else str(level),
        sizes=_sizes("compilation_config", compilation.get("cudagraph_capture_sizes")),
        rollout_sizes=_sizes("rollout", of("cudagraph_capture_sizes")),
        k=k,
        draft_limit=_draft_limit(environment.get(DRAFT_LIMIT)) if k else None,
        max_num_seqs=whole("rollout.max_num_seqs", of("max_num_seqs", 256)),
        max_num_batched_tokens=whole("rollout.max_num_batched_tokens", of("max_num_batched_tokens", 8192)),
        data_parallel_size=whole("rollout.data_parallel_size", of("data_parallel_size", 1)),
        launch_blocking=environment.get("ASCEND_LAUNCH_BLOCKING") == "1",
    )


def clashes(settings: GraphSettings) -> Iterator[str]:
    """What contradicts itself, each naming both settings and what to do."""
    for key, why in wrong_keys(settings.additional):
        yield f"additional_config.{key}: {why}"
    yield from _switch_clashes(settings)
    if not settings.npugraph_ex:
        for key in (ONE_TOKEN, STATIC_KERNEL, PAD_ATTENTION):
            if settings.additional.get(key) is True:
                yield f"additional_config.{key} without additional_config.{SWITCH} does nothing: set both or none"
    yield from _mode_clashes(settings)
    if settings.given_sizes:
        yield from _size_clashes(settings)


def _switch_clashes(settings: GraphSettings) -> Iterator[str]:
    if settings.switch not in (None, "0", "1"):
        yield f"{ENVIRONMENT} = {settings.switch!r} is neither 0 nor 1: set one"
    if settings.switch == "0" and settings.npugraph_ex:
        yield f"{ENVIRONMENT}=0 with additional_config.{SWITCH}=True: one says eager, the other graphs, drop one"
    if settings.switch == "1" and settings.enforce_eager and not settings.npugraph_ex:
        yield f"{ENVIRONMENT}=1 with rollout.enforce_eager=True: one says graphs, the other eager, drop one"


def _mode_clashes(settings: GraphSettings) -> Iterator[str]:
    if not settings.npugraph_ex:
        return
    if settings.enforce_eager:
        yield f"{SWITCH} with rollout.enforce_eager=True: nothing would be compiled, set it to False"
    if settings.mode is not None and settings.mode not in GRAPH_MODES:
        yield f"{SWITCH} with cudagraph_mode={settings.mode}: that turns it off, take FULL_DECODE_ONLY or FULL"
    if settings.level is not None and settings.level.upper() not in ("3", "VLLM_COMPILE"):
        yield f"{SWITCH} with compilation_config.mode={settings.level}: the compiler would not be called, take 3"
    if settings.launch_blocking:
        yield f"{SWITCH} with ASCEND_LAUNCH_BLOCKING=1: vLLM-Ascend refuses both together, unset it"
    if settings.k > MAX_DRAFT_TOKENS:
        yield f"{SWITCH} with num_speculative_tokens={settings.k}: attention takes at most {MAX_DRAFT_TOKENS}"
    elif settings.k >= settings.max_num_batched_tokens and not settings.given_sizes:
        yield (
            f"rollout.max_num_batched_tokens = {settings.max_num_batched_tokens} is less than the {settings.k + 1} "
            f"tokens that a request has with {settings.k} drafts: raise it"
        )
    elif not settings.given_sizes and not settings.computed_sizes():
        yield f"{SWITCH} with {DRAFT_LIMIT}=0 and drafts: no batch has a graph, set the limit to -1 or leave drafts out"
    if settings.one_token and settings.mode == "FULL":
        yield f"{ONE_TOKEN} with cudagraph_mode=FULL, in which one graph serves all batches: take {DEFAULT_MODE}"
    if settings.one_token and not settings.k:
        yield f"{ONE_TOKEN} without speculative_config: every graph has one token a request, leave it out"
    if settings.one_token and settings.data_parallel_size > 1:
        size = settings.data_parallel_size
        yield f"{ONE_TOKEN} with data_parallel_size={size}: ranks would replay unequal graphs, leave it out"


def _size_clashes(settings: GraphSettings) -> Iterator[str]:
    sizes = settings.given_sizes
    if settings.sizes and settings.rollout_sizes and settings.sizes != settings.rollout_sizes:
        yield "rollout.cudagraph_capture_sizes and compilation_config.cudagraph_capture_sizes differ: set one"
    if settings.enforce_eager:
        yield "cudagraph_capture_sizes with rollout.enforce_eager=True: no graph would be captured, drop one"
    width = settings.k + 1
    if odd := [size for size in sizes if size % width]:
        given = f"capture sizes {odd} are no multiples of {width}"
        yield f"{given}, the tokens a request has with {settings.k} drafts: leave them out"
    limit = settings.max_num_seqs * width
    if max(sizes) > limit:
        yield f"capture size {max(sizes)} is never reached: max_num_seqs * {width} tokens are {limit}, leave it out"
    if max(sizes) > settings.max_num_batched_tokens:
        most = settings.max_num_batched_tokens
        yield f"capture size {max(sizes)} is more than max_num_batched_tokens = {most}: leave it out"
    if sizes != sorted(set(sizes)):
        yield f"capture sizes {sizes} are not in rising order: sort them"


def completed(engine: Mapping[str, Any], rollout: Any, environment: Mapping[str, str] | None = None) -> dict[str, Any]:
    """``engine`` with the graph mode and the capture sizes that go with `enable_npugraph_ex`; called by veRL's server.

    Equal to ``engine`` without the switch. Raises UserError where settings contradict each other.
    """
    settings = read_settings(engine, rollout, os.environ if environment is None else environment)
    if found := list(clashes(settings)):
        raise UserError("; ".join(found), "change one of the settings named (docs/graph-mode.md)")
    if not settings.npugraph_ex:
        return dict(engine)
    graphs = {
        "cudagraph_mode": settings.mode or DEFAULT_MODE,
        "cudagraph_capture_sizes": settings.given_sizes or settings.computed_sizes(),
    }
    return {**engine, "compilation_config": {**_section(engine, "compilation_config"), **graphs}}


def whole(name: str, value: Any, least: int = 1) -> int:
    """``value``, of the setting ``name``. Raises UserError unless it is a whole number of ``least`` or more."""
    if not isinstance(value, int) or isinstance(value, bool) or value < least:
        raise UserError(f"{name} = {value!r} is no whole number of {least} or more", f"set {name} to one")
    return value


def _section(engine: Mapping[str, Any], name: str) -> dict[str, Any]:
    """A part of engine_kwargs, which may be a dictionary or JSON."""
    given = value = engine.get(name) or {}
    if isinstance(value, str):
        with contextlib.suppress(ValueError):
            value = json.loads(value)
    if not isinstance(value, Mapping):
        raise UserError(f"engine_kwargs.vllm.{name} = {given!r} is no mapping", "give it keys, or leave it out")
    return dict(value)


def _sizes(section: str, value: Any) -> tuple[int, ...] | None:
    name = f"{section}.cudagraph_capture_sizes"
    if value is not None and (isinstance(value, str) or not isinstance(value, Sequence)):
        raise UserError(f"{name} = {value!r} is no list", f"set {name}=[4,8,...]")
    return tuple(whole(f"{name}[{i}]", size) for i, size in enumerate(value)) if value else None


def _draft_limit(value: str | None) -> int | None:
    if not value or value == "-1":
        return None
    if not (value.isascii() and value.isdigit()):
        raise UserError(f"{DRAFT_LIMIT} = {value!r} is no number of requests, nor -1 for any", f"set {DRAFT_LIMIT}=-1")
    return int(value)
