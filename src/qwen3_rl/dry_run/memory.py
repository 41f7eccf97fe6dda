"""An estimate of a die's memory, part by part, with the formula of each.

What it leaves out: kernels' workspaces, communication buffers, fragmentation, graphs. Measure before you rely on the
last gigabytes. Bytes everywhere; GiB only in the table.
"""

from dataclasses import dataclass

from qwen3_rl.dry_run.job import Job
from qwen3_rl.dry_run.model import ModelShape

GIB = 2**30
DIE = {"npu": 64 * GIB, "cuda": 96 * GIB}  # a die of Atlas A3; an H20
WIDTH = {"float32": 4, "fp32": 4, "bfloat16": 2, "bf16": 2, "float16": 2, "fp16": 2}
# What a layer keeps for its backward pass, in bytes a token and hidden unit (Korthikanti et al. 2022, without the
# attention scores, which flash attention does not keep).
LAYER_BYTES = 34
# Logits of a die: bfloat16, their float32 copy and its gradient.
LOGITS_BYTES = 2 + 4 + 4


# On a CPU the job's processes are most of it. Proportional set sizes on x86-64, 2026-11-30, of this project's versions:
# a Python that has imported torch, transformers and veRL or vLLM took 0.44 to 0.67 GB; Ray's own together 0.7.
PROCESS = 0.6e9
RAY = 0.7e9


@dataclass(frozen=True)
class Part:
    """bytes: what is on the device; moved: what is on the host instead or part of the time."""

    name: str
    bytes: float
    formula: str
    moved: bool = False


@dataclass(frozen=True)
class Estimate:
    """training and generation: the parts that are on the die at the same time in each phase.

    processes: of a job on a CPU, where all parts are in the machine's memory at the same time; else ().
    """

    training: tuple[Part, ...]
    generation: tuple[Part, ...]
    processes: tuple[Part, ...] = ()

    @property
    def training_bytes(self) -> float:
        return sum(part.bytes for part in self.training if not part.moved)

    @property
    def generation_bytes(self) -> float:
        return sum(part.bytes for part in self.generation if not part.moved)

    @property
    def machine_bytes(self) -> float:
        """Of a job on a CPU."""
        return self.training_bytes + self.generation_bytes + sum(part.bytes for part in self.processes)


def estimate(job: Job, die: float) -> Estimate | None:
    """The memory of the fullest die of ``die`` bytes; None where the model or its layout is not known."""
    if job.shape is None or job.stage_layers is None:
        return None
    train = _megatron(job, job.shape) if job.is_megatron else _fsdp(job, job.shape)
    on_cpu = job.environment.get("VLLM_CPU_KVCACHE_SPACE") is not None
    return Estimate(
        (*train, *_activations(job, job.shape)),
        _generation(job, job.shape, die),
        _processes(job) if on_cpu else (),
    )


def _processes(job: Job) -> tuple[Part, ...]:
    agents, rewards = job.rollout("agent.num_workers"), job.get("reward.num_workers")
    replicas = job.dies // (job.rollout_tp * job.rollout_dp)
    count = 2 + job.dies + agents + rewards + replicas * 2 + job.dies
    return (
        Part(
            "processes",
            count * PROCESS,
            f"{PROCESS / 1e9} GB * {count}: driver, runner, {job.dies} trainers, {agents} agent loops, "
            f"{rewards} reward workers, {replicas} servers and engines, {job.dies} rollout workers",
        ),
        Part("Ray", RAY, "its own processes"),
    )


def stage_parameters(job: Job, shape: ModelShape) -> tuple[float, float]:
    """(dense, expert) parameters of a die of the fullest pipeline stage."""
    layers = job.stage_layers or [shape.layers]
    best = (0.0, 0.0)
    for index, count in enumerate(layers):
        ends = (index == 0) + (index == len(layers) - 1 and not (shape.tied and len(layers) == 1))
        dense = count * (shape.attention_parameters + shape.ffn_parameters) + ends * shape.embedding_parameters
        experts = count * shape.expert_parameters
        best = max(best, (dense / job.tp, experts / (job.ep * job.etp)), key=sum)
    return best


def _megatron(job: Job, shape: ModelShape) -> tuple[Part, ...]:
    dense, experts = stage_parameters(job, shape)
    own = dense + experts
    shards = job.dp * job.cp if job.megatron("use_distributed_optimizer") else 1
    expert_shards = max(job.dies // (job.ep * job.etp * job.pp), 1) if job.megatron("use_distributed_optimizer") else 1
    count = f"P = {own / 1e9:.2f}e9 parameters a die"
    return (
        Part("weights", 2 * own, f"2 B * P; {count}"),
        Part("gradients", 4 * own, "4 B * P (reduced in float32)"),
        Part(
            "optimizer",
            12 * (dense / shards + experts / expert_shards),
            f"12 B (float32 copy, two moments) * P, over {shards} dies ({expert_shards} for experts)",
            moved=bool(job.transformer("swap_optimizer", False)) or job.megatron("optimizer_offload"),
        ),
    )


def _fsdp(job: Job, shape: ModelShape) -> tuple[Part, ...]:
    width = WIDTH[job.actor("fsdp_config.model_dtype", "fp32")]
    own = shape.parameters / job.dies
    count = f"P = {shape.parameters / 1e9:.2f}e9 parameters / {job.dies} dies"
    gathered = 2 * shape.parameters / shape.layers if job.dies > 1 else 0
    reference = _has_reference(job) and not job.get("actor_rollout_ref.ref.fsdp_config.param_offload", False)
    return (
        Part("weights", width * own, f"{width} B * P; {count}"),
        Part("gradients", width * own, f"{width} B * P"),
        Part("optimizer", 2 * width * own, f"{2 * width} B (two moments) * P"),
        Part("gathered layers", 2 * gathered, "2 B * two whole layers, the one in use and the next"),
        Part("reference model", width * own * reference, f"{width} B * P, unless it is offloaded or there is none"),
    )


def _has_reference(job: Job) -> bool:
    return bool(job.get("algorithm.use_kl_in_reward") or job.actor("use_kl_loss"))


def micro_batch_tokens(job: Job) -> int:
    """Tokens of a die's largest micro batch, padding included where it is computed."""
    if job.actor("use_dynamic_bsz"):
        return job.actor("ppo_max_token_len_per_gpu")
    rows = job.actor("ppo_micro_batch_size_per_gpu") or 1
    return min(rows, max(job.actor("ppo_mini_batch_size") * job.rollout("n") // job.dp, 1)) * job.sequence // job.cp


def _activations(job: Job, shape: ModelShape) -> tuple[Part, ...]:
    tokens = micro_batch_tokens(job)
    if job.is_megatron:
        recomputes = job.transformer("recompute_granularity") == "full"
    else:
        recomputes = job.get("actor_rollout_ref.model.enable_gradient_checkpointing")
    width = 4 if not job.is_megatron and job.actor("fsdp_config.dtype") == "float32" else 2
    layers = max(job.stage_layers or [shape.layers])
    units = tokens * shape.hidden / job.tp
    ffn = shape.experts_per_token * shape.expert_ffn if shape.experts else shape.ffn
    layer = LAYER_BYTES * width / 2 * max(ffn / (4 * shape.hidden), 1)  # stated for an MLP four times as wide
    held = (width * layers * job.pp + layer) if recomputes else layer * layers * job.pp
    how = (
        f"{width} B * {layers} layers * PP {job.pp} + {layer:.0f} B for one"
        if recomputes
        else f"{layer:.0f} B * layers"
    )
    size = f"{tokens} tokens"
    return (
        Part("activations", units * held, f"{size} * hidden {shape.hidden} / TP {job.tp} * ({how})"),
        Part(
            "logits",
            LOGITS_BYTES * width / 2 * tokens * shape.vocab / job.tp,
            f"{size} * vocabulary {shape.vocab} / TP {job.tp} * {LOGITS_BYTES * width // 2} B",
        ),
    )


def expert_spread(job: Job) -> int:
    """Dies that share the rollout's experts."""
    return max(job.rollout("expert_parallel_size", 1), job.rollout_tp)


def rollout_weights(job: Job, shape: ModelShape) -> float:
    """Bytes of the rollout's weights on a die."""
    experts = shape.layers * shape.expert_parameters
    dense = shape.parameters - experts
    return WIDTH[job.rollout("dtype")] * (dense / job.rollout_tp + experts / expert_spread(job))


def kv_bytes_per_token(job: Job, shape: ModelShape) -> float:
    """Bytes that a token takes in a die's KV cache."""
    heads = max(shape.kv_heads / job.rollout_tp, 1)
    return 2 * shape.layers * heads * shape.head_dim * WIDTH[job.rollout("dtype")]


def _generation(job: Job, shape: ModelShape, die: float) -> tuple[Part, ...]:
    weights = rollout_weights(job, shape)
    share = job.rollout("gpu_memory_utilization")
    token = kv_bytes_per_token(job, shape)
    if on_cpu := job.environment.get("VLLM_CPU_KVCACHE_SPACE"):
        cache, how = float(on_cpu) * GIB, "VLLM_CPU_KVCACHE_SPACE"
    else:
        cache, how = max(share * die - weights, 0.0), f"{share} of {die / GIB:.0f} GiB - weights"
    width = WIDTH[job.rollout("dtype")]
    return (
        Part(
            "rollout weights",
            weights,
            f"{width} B * parameters / TP {job.rollout_tp}" + f", experts / {expert_spread(job)}" * bool(shape.experts),
        ),
        Part(
            "KV cache",
            cache,
            f"{how}: {cache / token / 1e3:.0f}e3 tokens of {token / 1024:.1f} KiB, "
            f"{cache / token / job.sequence:.1f} of the longest sequences",
        ),
    )
