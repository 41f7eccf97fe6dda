"""What ALL_TO_ALL_RESHARD=1 does not go with. One definition: the dry run and the trainer."""

from collections.abc import Iterator

SWITCH = "ALL_TO_ALL_RESHARD"


def objections(rollout, mbridge: bool, legacy_worker: bool = True) -> Iterator[tuple[str, str]]:
    """Each setting that the switch does not go with, and what to do. rollout: veRL's section of that name;
    legacy_worker: the one whose synchronisation has the hook, so there it is always true."""
    engine = (rollout.get("engine_kwargs") or {}).get("vllm") or {}
    ascend = engine.get("additional_config") or {}
    if rollout.name != "vllm":
        yield f"rollout.name={rollout.name}", "set actor_rollout_ref.rollout.name=vllm"
    if not legacy_worker:
        yield "trainer.use_legacy_worker_impl=disable, whose worker it has no effect on", "set that to auto"
    if mbridge:
        yield "use_mbridge=True", "set actor_rollout_ref.actor.megatron.use_mbridge=False"
    if rollout.expert_parallel_size < 2:
        yield (
            f"rollout.expert_parallel_size={rollout.expert_parallel_size}, every rank having part of all experts",
            "set VLLM_ENABLE_EXPERT_PARALLEL=1",
        )
    if rollout.pipeline_model_parallel_size != 1:
        yield (
            f"rollout.pipeline_model_parallel_size={rollout.pipeline_model_parallel_size}",
            "set actor_rollout_ref.rollout.pipeline_model_parallel_size=1",
        )
    for key, settings in (("enable_eplb", engine), ("dynamic_eplb", ascend), ("expert_map_path", ascend)):
        if settings.get(key):
            yield f"{key}={settings[key]}, which moves experts", f"leave {key} out of rollout.engine_kwargs.vllm"
