"""Settings that clash: what the environment and a train script say, as far as it can be read without Hydra."""

import re
from collections.abc import Iterator
from pathlib import Path

from patchset.project import Project
from qwen3_rl.doctor.findings import Case, Finding, fault, ok, warning
from qwen3_rl.doctor.npu_smi import for_npu
from qwen3_rl.npugraph.keys import SWITCH, wrong_keys
from qwen3_rl.npugraph.settings import DEFAULT_MODE, GRAPH_MODES

ROLLOUT = "actor_rollout_ref.rollout."
VLLM = f"{ROLLOUT}engine_kwargs.vllm."
OVERRIDE = re.compile(r"""(?:^|\s)(["']?)\+{0,2}((?:[a-z_]\w*\.)+\w+)=(.*?)\1(?=\s*\\?$|\s)""", re.MULTILINE)


def read_overrides(script: str) -> dict[str, str | None]:
    """The Hydra overrides in a train script's text, the last one of a key; None where a shell variable is in it."""
    text = re.sub(r"(^|\s)#.*", r"\1", script)
    return {key: None if "$" in value else value.strip("\"'") for _, key, value in OVERRIDE.findall(text)}


def drafts_with_logprobs(project: Project) -> bool:
    """Does the vLLM checkout speculate for requests that want log-probs? Pristine 0.13.0 does not."""
    file: Path = project.path("vllm") / "vllm" / "v1" / "spec_decode" / "utils.py"
    try:
        return "sampling_params.logprobs is not None" not in file.read_text()
    except OSError:
        return False


def _true(case: Case, key: str, default: bool = False) -> bool:
    """Is a Hydra key on? One that a shell variable decides counts as its default."""
    value = case.overrides.get(key)
    return default if value is None else value.lower() == "true"


def _starting(case: Case, prefix: str) -> list[str]:
    return [key for key in case.overrides if key.startswith(prefix)]


def check_settings(case: Case, project: Project | None = None) -> Iterator[Finding]:
    found = [*_expandable_segments(case), *_launch_blocking(case), *_graphs(case), *_counts(case)]
    speculates = _starting(case, f"{VLLM}speculative_config")
    if speculates and _true(case, f"{ROLLOUT}calculate_log_probs") and not (project and drafts_with_logprobs(project)):
        found.append(
            warning(
                "settings",
                "rollout.calculate_log_probs=True with speculative_config",
                "one of them",
                "vLLM 0.13.0 drafts nothing for requests that want log-probs: the run is right, without speed-up",
            )
        )
    yield from found
    if not found:
        yield ok("settings", "no clash found in the environment" + (" and the train script" if case.overrides else ""))


def _expandable_segments(case: Case) -> Iterator[Finding]:
    if "expandable_segments:True" not in case.machine.env.get("PYTORCH_NPU_ALLOC_CONF", ""):
        return
    if _true(case, f"{ROLLOUT}enable_sleep_mode", True):
        yield fault(
            "settings",
            "PYTORCH_NPU_ALLOC_CONF=expandable_segments:True with sleep mode",
            "one of them",
            "vllm-ascend refuses both together: unset PYTORCH_NPU_ALLOC_CONF in the env script, or "
            f"+{ROLLOUT}enable_sleep_mode=False",
        )


def _launch_blocking(case: Case) -> Iterator[Finding]:
    if case.machine.env.get("ASCEND_LAUNCH_BLOCKING") == "1" and not _true(case, f"{ROLLOUT}enforce_eager"):
        yield fault(
            "settings",
            "ASCEND_LAUNCH_BLOCKING=1 with graphs",
            "one of them",
            f"vllm-ascend refuses both together: unset ASCEND_LAUNCH_BLOCKING, or {ROLLOUT}enforce_eager=True",
        )


def _graphs(case: Case) -> Iterator[Finding]:
    prefix = f"{VLLM}additional_config."
    for name, why in wrong_keys(_nested(case, prefix)):
        yield warning("settings", f"{prefix}{name}", f"+{prefix}{SWITCH}=True", why)
    mode = case.overrides.get(f"{VLLM}compilation_config.cudagraph_mode")
    if not _true(case, f"{prefix}{SWITCH}"):
        return
    if _true(case, f"{ROLLOUT}enforce_eager"):
        yield warning("settings", f"{SWITCH}=True with enforce_eager=True", "one of them", "veRL's server refuses both")
    if mode is not None and mode not in GRAPH_MODES:
        yield warning(
            "settings",
            f"{SWITCH}=True with cudagraph_mode={mode}",
            DEFAULT_MODE,
            f"npugraph_ex would be off: leave cudagraph_mode out, or +{VLLM}compilation_config.cudagraph_mode="
            f"{DEFAULT_MODE}",
        )


def _nested(case: Case, prefix: str) -> dict:
    """The overrides below ``prefix``, as a dictionary, of dictionaries where a key has a dot in it.

    Truth values as Hydra reads them; one that a shell variable decides counts as off.
    """
    found: dict = {}
    for key in _starting(case, prefix):
        first, _, inner = key.removeprefix(prefix).partition(".")
        said = case.overrides[key] or "false"
        value = {"true": True, "false": False}.get(said.lower(), said)
        if not inner:
            found.setdefault(first, value)
        elif isinstance(found.setdefault(first, {}), dict):
            found[first][inner] = value
    return found


def _counts(case: Case) -> Iterator[Finding]:
    """More dies asked for on a node than Ray is given: verl ends in `Total available GPUs is less than desired`."""
    wanted, given = case.overrides.get("trainer.n_gpus_per_node"), case.machine.env.get("NPUS_PER_NODE", "16")
    if wanted and wanted.isdigit() and given.isdigit() and int(wanted) > int(given) and for_npu(case.machine):
        yield fault(
            "settings",
            f"trainer.n_gpus_per_node={wanted}, NPUS_PER_NODE={given}",
            "as many as Ray has",
            "set both to the dies of a node",
        )
