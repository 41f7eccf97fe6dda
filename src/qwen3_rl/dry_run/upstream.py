"""What veRL itself says of a configuration, and what the vLLM checkout makes of it."""

import contextlib
import io
import warnings
from pathlib import Path

from omegaconf import OmegaConf

from qwen3_rl.dry_run import Finding
from qwen3_rl.dry_run.job import ACTOR, ROLLOUT, Job
from qwen3_rl.dry_run.keys import speculative_methods

# Sections that veRL turns into dataclasses in a run; their __post_init__ checks them. (The model's would load it.)
SECTIONS = (ACTOR, ROLLOUT, "algorithm")


def verl_validation(job: Job) -> list[Finding]:
    """veRL's dataclasses and its validate_config, whose exceptions become findings."""
    from verl.trainer.ppo.utils import need_critic, need_reference_policy
    from verl.utils.config import omega_conf_to_dataclass, validate_config

    found: list[Finding] = []
    reference = need_reference_policy(job.config)
    for section in SECTIONS:
        _record(found, section, lambda section=section: omega_conf_to_dataclass(OmegaConf.select(job.config, section)))
    if not found:
        _record(
            found, "veRL's validate_config", lambda: validate_config(job.config, reference, need_critic(job.config))
        )
    return found


def _record(found: list[Finding], where: str, call) -> None:
    try:
        with contextlib.redirect_stdout(io.StringIO()), warnings.catch_warnings(action="ignore"):
            call()
    except Exception as error:  # whatever veRL objects to is a finding; hydra.instantiate wraps it
        cause = error.__cause__ or error
        found.append(Finding("error", f"{where}: {' '.join(str(cause).split()) or repr(cause)}"))


def vllm_speculation(job: Job, frameworks: Path) -> list[Finding]:
    """Whether the vLLM checkout knows the method, and whether it speculates for requests with log-probabilities."""
    method = job.engine("speculative_config.method")
    methods = speculative_methods(frameworks)
    if method is None or not methods:
        return []
    found = []
    if method not in methods:
        missing = f"speculative_config.method = {method}: the vLLM checkout has no such method"
        if method == "sam":
            found.append(Finding("warning", f"{missing} until its patches are applied"))
        else:
            found.append(Finding("error", f"{missing}; it has {', '.join(sorted(methods))}, and sam by a patch"))
    rule = frameworks / "vllm" / "vllm" / "v1" / "spec_decode" / "utils.py"
    if job.rollout("calculate_log_probs") and "logprobs is not None" in rule.read_text():
        found.append(
            Finding(
                "warning",
                "rollout.calculate_log_probs=True: this vLLM does not speculate for requests with log-probabilities",
            )
        )
    return found
