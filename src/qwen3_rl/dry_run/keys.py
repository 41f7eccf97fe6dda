"""Hydra overrides against veRL's configuration: wrong and removed keys, and keys that nobody reads."""

import copy
import difflib
import functools
import importlib
from dataclasses import fields, is_dataclass
from pathlib import Path

from hydra import compose, initialize_config_dir
from hydra._internal.config_loader_impl import ConfigLoaderImpl
from hydra.core.override_parser.overrides_parser import OverridesParser
from hydra.core.override_parser.types import Override
from hydra.errors import HydraException
from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from qwen3_rl.dry_run import Finding
from qwen3_rl.dry_run.command import Command
from qwen3_rl.dry_run.sources import class_fields, literal_values, option_names, words_in
from qwen3_rl.errors import UserError

ENGINE = "actor_rollout_ref.rollout.engine_kwargs.vllm."
TRANSFORMER = ".megatron.override_transformer_config."

# What the scripts of this project set in MindSpeed; used where its source is absent (2.3.0_core_r0.12.1, 674226a15a82,
# the `register_args` below mindspeed/features_manager).
MINDSPEED = frozenset(
    (
        "swap_optimizer",
        "use_fused_rotary_pos_emb",
        "use_fused_swiglu",
        "context_parallel_algo",
        "use_cp_send_recv_overlap",
        "use_fused_ring_attention_update",
        "cp_window_size",
        "moe_alltoall_overlap_comm",
        "moe_zero_memory",
    )
)
# Megatron-LM's arguments that MindSpeed's patches read beside its own.
MEGATRON_ARGUMENTS = frozenset({"seq_length", "use_flash_attn", "context_parallel_size"})


@functools.cache
def _defaults(folder: str, config_name: str) -> DictConfig:
    if not (Path(folder) / f"{config_name}.yaml").is_file():
        names = sorted(path.stem for path in Path(folder).glob("ppo_*.yaml"))
        raise UserError(f"{folder} has no configuration {config_name}", f"take one of {', '.join(names)}")
    with initialize_config_dir(config_dir=folder, version_base=None):
        return compose(config_name)


def _with_overrides(base: DictConfig, overrides: list[Override], folder: str, config_name: str) -> DictConfig:
    """What compose() gives. Without a choice of a group, Hydra does no more than this with overrides."""
    if any(_is_group(override) for override in overrides):
        with initialize_config_dir(config_dir=folder, version_base=None):
            return compose(config_name, [override.input_line for override in overrides])
    config = copy.deepcopy(base)
    own = [override for override in overrides if not override.key_or_group.startswith("hydra.")]
    ConfigLoaderImpl._apply_overrides_to_config(own, config)
    return config


def _is_group(override: Override) -> bool:
    return override.key_or_group == "model_engine" or "/" in override.key_or_group or "@" in override.key_or_group


def compose_config(command: Command, frameworks: Path) -> tuple[DictConfig, list[Finding]]:
    """veRL's configuration with the overrides that fit, and findings on those that do not.

    Raises UserError for a configuration name that does not exist.
    """
    found: list[Finding] = []
    overrides: list[Override] = []
    for text in command.overrides:
        try:
            overrides.append(OverridesParser.create().parse_override(text))
        except HydraException as error:
            found.append(Finding("error", f"{text!r} is no Hydra override: {str(error).splitlines()[0]}"))
    folder = str((frameworks / "verl" / "verl" / "trainer" / "config").absolute())
    base = _defaults(folder, command.config_name)
    fitting: list[Override] = []
    added: set[str] = set()
    for override in overrides:
        problem = _problem(override, base, added)
        found += [Finding("error", problem)] if problem else []
        fitting += [] if problem else [override]
        added |= {override.key_or_group} if override.is_add() else set()
    try:
        config = _with_overrides(base, fitting, folder, command.config_name)
    except (HydraException, OmegaConfBaseException) as error:
        found.append(Finding("error", f"Hydra: {error}"))
        config = copy.deepcopy(base)
    for override in overrides:
        if override.is_add():
            found += _check_added(override.key_or_group, frameworks, base)
    return config, found


def key_names(config: DictConfig) -> list[str]:
    """Every key of ``config``, inner ones and leaves, with dots."""
    found = []

    def walk(node: DictConfig, prefix: str) -> None:
        for key in node:
            found.append(f"{prefix}{key}")
            if OmegaConf.is_dict(child := node._get_node(key)) and not child._is_none() and not child._is_missing():
                walk(child, f"{prefix}{key}.")

    walk(config, "")
    return found


def nearest(key: str, names: list[str]) -> str:
    """The name most like ``key``: one with the same last part where there is one, else the most similar spelling."""
    last = key.rsplit(".", 1)[-1]
    same = [name for name in names if name.rsplit(".", 1)[-1] == last]
    best = difflib.get_close_matches(key, same or names, n=1, cutoff=0.0)
    return best[0] if best else ""


def _exists(config: DictConfig, key: str) -> bool:
    node = config
    *parents, last = key.split(".")
    for part in parents:
        if not OmegaConf.is_dict(node) or part not in node._content or node._get_node(part)._is_none():
            return False
        node = node._get_node(part)
    return OmegaConf.is_dict(node) and last in (node._content or {})


def _problem(override: Override, base: DictConfig, added: set[str]) -> str | None:
    key = override.key_or_group
    if key.startswith("hydra.") or _is_group(override) or override.is_force_add():
        return None
    exists = key in added or _exists(base, key)
    if override.is_add() and exists:
        return f"+{key}: veRL has this key already; write it without +"
    if not override.is_add() and not exists:
        return f"{key}: veRL has no such key; the nearest is {nearest(key, key_names(base))}" + (
            "" if "." not in key else f" (+{key} would add it)" if _open(key, base) else ""
        )
    return None


def _open(key: str, base: DictConfig) -> bool:
    """Whether keys may be added below the parent of ``key``: it is a dictionary that veRL leaves to others."""
    parent = OmegaConf.select(base, key.rsplit(".", 1)[0])
    return OmegaConf.is_dict(parent) and not parent


@functools.cache
def _field_names(target: str | None) -> tuple[str, ...]:
    """The keys that a section with this `_target_` may have; () where that is no dataclass, or not there at all."""
    module, _, name = (target or "").rpartition(".")
    try:
        cls = getattr(importlib.import_module(module), name)
    except (ImportError, ValueError):
        return ()  # the reward manager's, in veRL 0.7.1
    return ("_target_", *(field.name for field in fields(cls))) if is_dataclass(cls) else ()


def _typed_section(key: str, config: DictConfig) -> tuple[str, str, tuple[str, ...]] | None:
    """(section, name in it, names it may have) of the innermost section above ``key`` that has a dataclass."""
    parts = key.split(".")
    for end in range(len(parts) - 1, 0, -1):
        node = OmegaConf.select(config, ".".join(parts[:end]))
        if OmegaConf.is_dict(node) and (names := _field_names(node.get("_target_"))):
            return ".".join(parts[:end]), parts[end], names
    return None


def _check_added(key: str, frameworks: Path, base: DictConfig) -> list[Finding]:
    """A key that Hydra adds without asking: does anybody read it?"""
    if key.startswith(ENGINE):
        return _check_engine(key.removeprefix(ENGINE), frameworks)
    if TRANSFORMER in key:
        return _check_transformer(key.rpartition(TRANSFORMER)[2], frameworks)
    if section := _typed_section(key, base):
        where, name, names = section
        if name in names:
            return []
        return [
            Finding("error", f"+{key}: {where} has no such key; the nearest is {where}.{nearest(name, list(names))}")
        ]
    last = key.rsplit(".", 1)[-1]
    readers = (frameworks / "verl" / "verl", Path(__file__).parents[1])
    if any(last in words_in(folder) for folder in readers):
        return []
    near = difflib.get_close_matches(key, key_names(base), n=1, cutoff=0.0)[0]
    return [Finding("error", f"+{key}: nothing in veRL reads a key {last}; the nearest is {near}")]


def _check_engine(key: str, frameworks: Path) -> list[Finding]:
    """A key below engine_kwargs.vllm against vLLM's and vLLM-Ascend's source."""
    vllm = frameworks / "vllm" / "vllm"
    first, _, rest = key.partition(".")
    engine = class_fields(vllm / "engine" / "arg_utils.py", "EngineArgs") | class_fields(
        vllm / "engine" / "arg_utils.py", "AsyncEngineArgs"
    )
    if not engine:
        return [Finding("note", f"engine_kwargs.vllm.{key} is not checked: vLLM's source is absent")]
    if first not in engine:
        return [Finding("error", f"engine_kwargs.vllm.{first}: vLLM has no such argument; {_near(first, engine)}")]
    inner: dict[str, object] | frozenset[str] = {
        "speculative_config": class_fields(vllm / "config" / "speculative.py", "SpeculativeConfig"),
        "compilation_config": class_fields(vllm / "config" / "compilation.py", "CompilationConfig"),
    }.get(first, {})
    name = rest.split(".")[0]
    if not rest or not inner or name in inner:
        return []
    return [Finding("error", f"{first}.{name}: vLLM has no such field; {_near(name, inner)}")]


def _check_transformer(key: str, frameworks: Path) -> list[Finding]:
    """A key below override_transformer_config against Megatron's TransformerConfig and MindSpeed's arguments."""
    core = frameworks / "megatron-core" / "megatron" / "core"
    config = class_fields(core / "transformer" / "transformer_config.py", "TransformerConfig")
    if not config:
        return [Finding("note", f"override_transformer_config.{key} is not checked: Megatron-Core's source is absent")]
    config = config | class_fields(core / "model_parallel_config.py", "ModelParallelConfig")
    mindspeed = option_names(frameworks / "mindspeed" / "mindspeed")
    names = set(config) | (mindspeed or MINDSPEED) | MEGATRON_ARGUMENTS
    if key in names:
        return []
    if not mindspeed:
        return [
            Finding(
                "warning",
                f"override_transformer_config.{key}: Megatron has no such field, and MindSpeed's source is absent; "
                + _near(key, names),
            )
        ]
    return [
        Finding(
            "error",
            f"override_transformer_config.{key}: neither Megatron nor MindSpeed has it; {_near(key, names)}",
        )
    ]


def speculative_methods(frameworks: Path) -> frozenset[str]:
    """The methods that the vLLM checkout knows; empty if it is absent."""
    file = frameworks / "vllm" / "vllm" / "config" / "speculative.py"
    return literal_values(file, "SpeculativeMethod")


def _near(key: str, names) -> str:
    return f"the nearest is {difflib.get_close_matches(key, sorted(names), n=1, cutoff=0.0)[0]}"
