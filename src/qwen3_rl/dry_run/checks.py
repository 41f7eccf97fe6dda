"""The arithmetic of a job: one function a check, all pure. `CHECKS` is the table of them.

A check yields findings for a `Job`; it yields nothing where what it looks at is not used.
"""

from collections.abc import Callable, Iterator
from pathlib import Path

from qwen3_rl.dry_run import Finding
from qwen3_rl.dry_run.job import Job
from qwen3_rl.launch.settings import read_settings
from qwen3_rl.moe_overlap.config import contradictions
from qwen3_rl.moe_overlap.reshard_config import SWITCH, objections
from qwen3_rl.npugraph.keys import ONE_TOKEN
from qwen3_rl.npugraph.settings import DRAFT_LIMIT, clashes


def error(what: str) -> Finding:
    return Finding("error", what)


def warning(what: str) -> Finding:
    return Finding("warning", what)


def dies_of_the_nodes(job: Job) -> Iterator[Finding]:
    offered = read_settings(job.environment).npus_per_node
    wanted = job.get("trainer.n_gpus_per_node")
    if job.get("trainer.device") == "npu" and wanted > offered:
        yield error(f"trainer.n_gpus_per_node = {wanted}, but a node offers NPUS_PER_NODE = {offered}")
    if job.get("trainer.device") not in ("npu", "cuda", "cpu"):
        yield error(f"trainer.device = {job.get('trainer.device')!r} is none of npu, cuda, cpu")


def dies_of_the_training_layout(job: Job) -> Iterator[Finding]:
    product = job.tp * job.pp * job.cp
    if job.dies % product:
        name = "TP * PP * CP" if job.is_megatron else "ulysses_sequence_parallel_size"
        yield error(f"{name} = {product} does not divide the {job.dies} dies")


def dies_of_the_expert_layout(job: Job) -> Iterator[Finding]:
    if job.ep == 1 or not job.is_megatron:
        return
    if job.dies % (job.ep * job.etp * job.pp):
        yield error(f"EP * ETP * PP = {job.ep} * {job.etp} * {job.pp} does not divide the {job.dies} dies")
    if job.shape and not job.shape.experts:
        yield error(f"expert_model_parallel_size = {job.ep}, but the model has no experts")
    elif job.shape and job.shape.experts % job.ep:
        yield error(f"expert_model_parallel_size = {job.ep} does not divide the {job.shape.experts} experts")


def tensor_parallel_size(job: Job) -> Iterator[Finding]:
    if job.shape is None:
        return
    parts = {"attention heads": job.shape.heads, "key-value heads": job.shape.kv_heads, "vocabulary": job.shape.vocab}
    for name, size in parts.items():
        if size % job.tp:
            yield error(f"tensor_model_parallel_size = {job.tp} does not divide the model's {size} {name}")
        if name == "key-value heads" and job.rollout_tp % size == 0:
            continue  # vLLM repeats key-value heads where there are more dies than heads
        if size % job.rollout_tp:
            yield error(
                f"rollout.tensor_model_parallel_size = {job.rollout_tp} does not divide the model's {size} {name}"
            )


def layers_of_the_stages(job: Job) -> Iterator[Finding]:
    if job.shape and job.stage_layers is None:
        first, last = (job.transformer(f"num_layers_in_{end}_pipeline_stage") for end in ("first", "last"))
        given = f", with {first} in the first and {last} in the last" if first or last else ""
        yield error(f"the model's {job.shape.layers} layers cannot be divided over PP = {job.pp} stages{given}")


def dies_of_the_rollout(job: Job) -> Iterator[Finding]:
    size = job.rollout_tp * job.rollout_dp
    if job.dies % size:
        yield error(f"a rollout replica takes {size} dies (tensor * data parallel), which do not divide {job.dies}")
    node = job.get("trainer.n_gpus_per_node")
    if node % job.rollout_tp:
        yield error(f"rollout.tensor_model_parallel_size = {job.rollout_tp} does not divide the {node} dies of a node")
    if job.rollout_dp > 1 and job.rollout("expert_parallel_size", 1) == 1:
        yield error(
            f"rollout.data_parallel_size = {job.rollout_dp} without expert_parallel_size: veRL then passes no data "
            "parallel size to vLLM"
        )
    if job.rollout("expert_parallel_size", 1) > 1 and job.shape and not job.shape.experts:
        yield error(
            f"rollout.expert_parallel_size = {job.rollout('expert_parallel_size')}, but the model has no experts"
        )


def batch_sizes(job: Job) -> Iterator[Finding]:
    batch, mini = job.get("data.train_batch_size"), job.actor("ppo_mini_batch_size")
    n = job.rollout("n")
    if batch < mini:
        yield error(f"data.train_batch_size = {batch} is less than actor.ppo_mini_batch_size = {mini}")
    elif batch % mini:
        yield error(f"actor.ppo_mini_batch_size = {mini} does not divide data.train_batch_size = {batch}")
    for name, prompts in (("data.train_batch_size", batch), ("actor.ppo_mini_batch_size", mini)):
        if prompts * n % job.dp:
            yield error(f"{name} * rollout.n = {prompts} * {n} responses cannot be divided over {job.dp} replicas")
    micro = job.actor("ppo_micro_batch_size_per_gpu")
    if not job.actor("use_dynamic_bsz") and micro and (mini * n // job.dp) % micro:
        yield error(
            f"actor.ppo_micro_batch_size_per_gpu = {micro} does not divide a replica's share of a mini batch, "
            f"{mini * n // job.dp} responses"
        )


def group_size(job: Job) -> Iterator[Finding]:
    if job.get("algorithm.adv_estimator") == "grpo" and job.rollout("n") < 2:
        yield error(
            f"rollout.n = {job.rollout('n')}: GRPO compares the responses of a group, every advantage would be 0"
        )


def token_budgets(job: Job) -> Iterator[Finding]:
    budgets = {"actor.ppo_max_token_len_per_gpu": job.actor("use_dynamic_bsz")}
    budgets["rollout.log_prob_max_token_len_per_gpu"] = job.rollout("log_prob_use_dynamic_bsz")
    if job.get("algorithm.use_kl_in_reward") or job.actor("use_kl_loss"):
        budgets["ref.log_prob_max_token_len_per_gpu"] = job.get("actor_rollout_ref.ref.log_prob_use_dynamic_bsz")
    for name, used in budgets.items():
        tokens = job.get(f"actor_rollout_ref.{name}")
        if used and tokens * job.cp < job.sequence:
            yield error(
                f"{name} = {tokens} times {job.cp} dies that share a sequence is less than the longest sequence, "
                f"{job.sequence} tokens (prompt + response)"
            )


def engine_lengths(job: Job) -> Iterator[Finding]:
    longest = job.rollout("max_model_len") or (job.shape.max_positions if job.shape else job.sequence)
    if longest < job.sequence:
        yield error(f"rollout.max_model_len = {longest} is less than prompt + response, {job.sequence} tokens")
    if job.shape and longest > job.shape.max_positions:
        yield error(f"rollout.max_model_len = {longest} is more than the model's {job.shape.max_positions} positions")
    chunked = job.rollout("enable_chunked_prefill")
    tokens = job.rollout("max_num_batched_tokens")
    if not chunked and tokens < longest:
        yield error(f"rollout.max_num_batched_tokens = {tokens} is less than {longest} without chunked prefill")
    if tokens < job.rollout("max_num_seqs"):
        yield error(
            f"rollout.max_num_batched_tokens = {tokens} is less than max_num_seqs = {job.rollout('max_num_seqs')}"
        )
    share = job.rollout("gpu_memory_utilization")
    if not 0 < share < 1:
        yield error(f"rollout.gpu_memory_utilization = {share} is not between 0 and 1")


def sampling(job: Job) -> Iterator[Finding]:
    temperature, top_p, top_k = (job.rollout(name) for name in ("temperature", "top_p", "top_k"))
    if temperature <= 0:
        yield error(f"rollout.temperature = {temperature}: all responses of a group would be equal")
    if not 0 < top_p <= 1:
        yield error(f"rollout.top_p = {top_p} is outside (0, 1]")
    if top_k != -1 and top_k < 1:
        yield error(f"rollout.top_k = {top_k}: take -1 for no limit")


def speculation(job: Job) -> Iterator[Finding]:
    method = job.engine("speculative_config.method")
    if method is None and job.draft_tokens == 0:
        return
    if method is None or job.draft_tokens < 1:
        yield error("speculative_config needs a method and num_speculative_tokens of 1 or more")
    if job.rollout("repetition_penalty", 1.0) != 1.0:
        yield warning("with rollout.repetition_penalty vLLM does not speculate")


def graphs(job: Job) -> Iterator[Finding]:
    """What the rollout server would refuse (`qwen3_rl.npugraph`), and batches that are drafted for without a graph."""
    settings = job.graph_settings
    for clash in clashes(settings):
        yield error(clash)
    sizes, limit = settings.given_sizes, settings.draft_limit
    width = settings.k + 1
    if settings.npugraph_ex and settings.k and not settings.one_token and limit and limit < settings.max_num_seqs:
        yield warning(
            f"{DRAFT_LIMIT} = {limit} with rollout.max_num_seqs = {settings.max_num_seqs}: larger batches are not "
            f"drafted for and run eager without additional_config.{ONE_TOKEN} (docs/graph-mode.md)"
        )
    if settings.k and sizes and limit and max(sizes) < min(limit, settings.max_num_seqs) * width:
        yield warning(
            f"batches of up to {limit} requests are drafted for, {limit * width} tokens, but the largest graph has "
            f"{max(sizes)}: larger batches run eager"
        )


def offload(job: Job) -> Iterator[Finding]:
    if job.is_megatron and job.transformer("swap_optimizer", False):
        if job.megatron("optimizer_offload"):
            yield error("megatron.optimizer_offload and swap_optimizer both move the optimizer's state: take one")
        if not job.megatron("use_distributed_optimizer"):
            yield error("swap_optimizer needs megatron.use_distributed_optimizer=True")
    if job.rollout("free_cache_engine") and not job.rollout("enable_sleep_mode", True):
        yield error(
            "rollout.free_cache_engine=True needs vLLM's sleep mode; +rollout.enable_sleep_mode=False turns it off"
        )
    if job.actor("fsdp_config.offload_policy", False) and job.actor("fsdp_config.param_offload", False):
        yield error("fsdp_config.offload_policy and fsdp_config.param_offload both move the weights: take one")


def context_parallel(job: Job) -> Iterator[Finding]:
    if not job.is_megatron:
        return
    given = job.transformer("context_parallel_size")
    if given is not None and given != job.cp:
        yield error(
            f"override_transformer_config.context_parallel_size = {given}, but that of megatron itself is {job.cp}"
        )
    if job.cp == 1 or job.transformer("context_parallel_algo") != "megatron_cp_algo":
        return
    window = job.transformer("cp_window_size", 1)
    if not 1 <= window < job.cp or job.cp % window:
        yield error(f"cp_window_size = {window} must be below context_parallel_size = {job.cp} and divide it")
    length = job.transformer("seq_length")
    if length and length % (2 * job.cp):
        yield error(f"seq_length = {length} is no multiple of 2 * context_parallel_size = {2 * job.cp}")


def expert_communication(job: Job) -> Iterator[Finding]:
    if job.is_megatron:
        yield from map(error, contradictions(job.megatron_settings, job.environment))
        switch = job.environment.get(SWITCH) or "0"
        if switch not in ("0", "1"):
            yield error(f"{SWITCH} = {switch!r} is neither 0 nor 1")
        if switch == "1":
            legacy = job.get("trainer.use_legacy_worker_impl") != "disable"
            bridge = bool(job.megatron("use_mbridge", False))
            for wrong, next_step in objections(job.rollout_settings, bridge, legacy):
                yield error(f"{SWITCH}=1 does not work with {wrong}: {next_step}")


def recomputation(job: Job) -> Iterator[Finding]:
    if job.is_megatron and job.transformer("recompute_granularity") == "full":
        for name in ("recompute_method", "recompute_num_layers"):
            if job.transformer(name) is None:
                yield error(f"recompute_granularity=full needs {name}")


def starting_weights(job: Job) -> Iterator[Finding]:
    if not job.is_megatron:
        return
    for part in ("actor", "ref"):
        prefix = f"actor_rollout_ref.{part}.megatron"
        if job.get(f"{prefix}.use_dist_checkpointing") and not job.get(f"{prefix}.dist_checkpointing_path"):
            yield error(f"{part}.megatron.use_dist_checkpointing=True needs {part}.megatron.dist_checkpointing_path")
    if job.actor("load_weight") != job.get("actor_rollout_ref.ref.load_weight"):
        yield error("actor.load_weight and ref.load_weight differ; veRL wants them equal")
    if job.megatron("dtype") == "float16" and not job.megatron("use_mbridge"):
        yield error("megatron.dtype=float16 needs megatron.use_mbridge=True")


def weight_transfer(job: Job) -> Iterator[Finding]:
    bucket = job.rollout("checkpoint_engine.update_weights_bucket_megabytes")
    if job.shape is None:
        return
    width = 4 if job.rollout("dtype") == "float32" else 2
    largest = job.shape.embedding_parameters * width / 2**20
    if largest > bucket:
        yield error(
            f"rollout.checkpoint_engine.update_weights_bucket_megabytes = {bucket} is less than the largest tensor, "
            f"the embedding of {largest:.0f} MB"
        )


def rollout_correction(job: Job) -> Iterator[Finding]:
    correction = "algorithm.rollout_correction"
    wants = (
        job.get(f"{correction}.rollout_is")
        or job.get(f"{correction}.rollout_rs")
        or job.get(f"{correction}.bypass_mode")
    )
    if wants and not job.rollout("calculate_log_probs"):
        yield error(f"{correction} needs the rollout's log-probabilities: rollout.calculate_log_probs=True")


def dynamic_sampling(job: Job) -> Iterator[Finding]:
    enabled = job.get("algorithm.filter_groups.enable", False)
    dapo = job.module == "qwen3_rl.dapo.main"
    if enabled and not dapo:
        yield error("algorithm.filter_groups is ignored by verl.trainer.main_ppo: start qwen3_rl.dapo.main")
    if not enabled:
        if job.get("data.gen_batch_size", job.get("data.train_batch_size")) != job.get("data.train_batch_size"):
            yield error("data.gen_batch_size differs from data.train_batch_size without algorithm.filter_groups")
        return
    if not job.get("algorithm.filter_groups.metric"):
        yield error("algorithm.filter_groups.enable=True needs algorithm.filter_groups.metric, such as acc")
    if job.get("reward.reward_model.enable"):
        yield error(
            "algorithm.filter_groups needs rewards at the time of generation, which a reward model does not give"
        )
    most = job.get("algorithm.filter_groups.max_num_gen_batches", 0)
    batch = job.get("data.gen_batch_size", job.get("data.train_batch_size"))
    if most > 0 and most * batch < job.get("data.train_batch_size"):
        yield error(
            f"max_num_gen_batches * gen_batch_size = {most} * {batch} prompts cannot fill a batch of "
            f"{job.get('data.train_batch_size')}"
        )


def overlong_penalty(job: Job) -> Iterator[Finding]:
    buffer = "reward.reward_kwargs.overlong_buffer_cfg"
    if not job.get(f"{buffer}.enable", False):
        return
    if job.get("reward.reward_manager.name") != "dapo":
        yield error("overlong_buffer_cfg needs reward.reward_manager.name=dapo")
    longest, response = job.get("reward.reward_kwargs.max_resp_len"), job.get("data.max_response_length")
    if longest != response:
        yield error(f"reward_kwargs.max_resp_len = {longest}, but data.max_response_length = {response}")
    if not 0 < job.get(f"{buffer}.len", 0) <= response:
        yield error(f"overlong_buffer_cfg.len = {job.get(f'{buffer}.len')} is not between 1 and {response}")


def clipping(job: Job) -> Iterator[Finding]:
    low, high, dual = (job.actor(name) for name in ("clip_ratio_low", "clip_ratio_high", "clip_ratio_c"))
    if not 0 < low < 1:
        yield error(f"actor.clip_ratio_low = {low} is not between 0 and 1")
    if high < low:
        yield error(f"actor.clip_ratio_high = {high} is below actor.clip_ratio_low = {low}")
    if dual <= 1:
        yield error(f"actor.clip_ratio_c = {dual} must be above 1")


def sampler(job: Job) -> Iterator[Finding]:
    custom = job.get("data.sampler.class_path")
    if custom and job.get("data.dataloader_num_workers") != 0:
        yield error(f"data.sampler needs data.dataloader_num_workers=0, not {job.get('data.dataloader_num_workers')}")
    if custom and not job.get("data.sampler.class_name"):
        yield error("data.sampler.class_path needs data.sampler.class_name")
    if not custom and job.environment.get("VLLM_ROLLOUT_EARLY_STOP_ENABLE") == "1":
        yield error(
            "VLLM_ROLLOUT_EARLY_STOP_ENABLE=1 needs the length-aware sampler: data.sampler.class_path is not set"
        )


def files(job: Job) -> Iterator[Finding]:
    """What a run reads and this machine does not have: no error, since a dry run may come before data and weights."""
    paths = {"actor_rollout_ref.model.path": [job.get("actor_rollout_ref.model.path")]}
    for key in ("data.train_files", "data.val_files"):
        value = job.get(key)
        paths[key] = [value] if isinstance(value, str) else list(value)
    if job.is_megatron and job.megatron("use_dist_checkpointing"):
        paths["actor.megatron.dist_checkpointing_path"] = [job.megatron("dist_checkpointing_path", "")]
    for key, values in paths.items():
        for value in values:
            if not Path(str(value)).expanduser().exists():
                yield Finding("note", f"{key}: {value} is not on this machine")


Check = Callable[[Job], Iterator[Finding]]
CHECKS: tuple[Check, ...] = (
    dies_of_the_nodes,
    dies_of_the_training_layout,
    dies_of_the_expert_layout,
    tensor_parallel_size,
    layers_of_the_stages,
    dies_of_the_rollout,
    batch_sizes,
    group_size,
    token_budgets,
    engine_lengths,
    sampling,
    speculation,
    graphs,
    offload,
    context_parallel,
    expert_communication,
    recomputation,
    starting_weights,
    weight_transfer,
    rollout_correction,
    dynamic_sampling,
    overlong_penalty,
    clipping,
    sampler,
    files,
)


def run_checks(job: Job) -> list[Finding]:
    return [finding for check in CHECKS for finding in check(job)]
