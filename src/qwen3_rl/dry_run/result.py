"""What can be known of a run before it starts, and how it is shown."""

from dataclasses import dataclass
from pathlib import Path

from omegaconf import DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from qwen3_rl.dry_run import Finding, errors
from qwen3_rl.dry_run.checks import run_checks
from qwen3_rl.dry_run.command import Command
from qwen3_rl.dry_run.job import Job
from qwen3_rl.dry_run.keys import compose_config
from qwen3_rl.dry_run.memory import DIE, GIB, Estimate, estimate
from qwen3_rl.dry_run.model import shape_of
from qwen3_rl.dry_run.upstream import verl_validation, vllm_speculation
from qwen3_rl.errors import UserError
from qwen3_rl.npugraph.settings import DEFAULT_MODE
from qwen3_rl.npugraph.sizes import graph_cost, one_token_sizes

NOT_CHECKED = (
    "not checked here: whether the model fits kernels of the device, Megatron-Core's and MindSpeed's own validation "
    "(they are not imported), vLLM's (its arguments are compared by name only)"
)


@dataclass(frozen=True)
class Result:
    """What a dry run found. config: as veRL would get it, with keys that fit; readable: its numbers are numbers."""

    command: Command
    config: DictConfig
    job: Job
    findings: list[Finding]
    memory: Estimate | None
    model: str
    readable: bool = True


def dry_run(command: Command, frameworks: Path, die: float | None = None) -> Result:
    """Check ``command`` against the checkouts below ``frameworks``. die: memory of one in bytes."""
    from verl.experimental.reward_loop import migrate_legacy_reward_impl

    config, found = compose_config(command, frameworks)
    config = migrate_legacy_reward_impl(config)
    shape, model = shape_of(Path(str(OmegaConf.select(config, "actor_rollout_ref.model.path"))).expanduser())
    job = Job(config, command.module, command.environment, shape)
    try:
        OmegaConf.to_container(config, resolve=True, throw_on_missing=False)
        job.check_values()
        found += verl_validation(job) if not errors(found) else []
        found += run_checks(job)
        found += vllm_speculation(job, frameworks)
        device = job.get("trainer.device")
        die = die or DIE.get(device, 64 * GIB)
        memory = estimate(job, die)
    except (TypeError, ValueError, KeyError, ZeroDivisionError, OmegaConfBaseException) as error:
        found.append(Finding("error", f"a value has the wrong type, is 0 or is missing: {error}"))
        return Result(command, config, job, found, None, model, readable=False)
    except UserError as error:
        found.append(Finding("error", f"{error.what}: {error.next_step}"))
        return Result(command, config, job, found, None, model, readable=False)
    found += _too_large(memory, die, job) if memory and device != "cpu" else []
    return Result(command, config, job, found, memory, model)


def _too_large(memory: Estimate, die: float, job: Job) -> list[Finding]:
    found = []
    weights = memory.generation[0].bytes
    if weights > job.rollout("gpu_memory_utilization") * die:
        found.append(
            Finding(
                "error", f"rollout weights of {weights / GIB:.1f} GiB a die leave no KV cache in {die / GIB:.0f} GiB"
            )
        )
    if memory.training_bytes > die:
        found.append(
            Finding(
                "error",
                f"training takes {memory.training_bytes / GIB:.1f} GiB a die by estimate, of {die / GIB:.0f} GiB",
            )
        )
    return found


def print_result(result: Result, configuration: bool = True) -> None:
    """The resolved configuration, the memory table, the findings, to stdout."""
    if configuration:
        print(OmegaConf.to_yaml(result.config, resolve=result.readable))
    job = result.job
    print(f"command   python3 -m {result.command.module} --config-name={result.command.config_name}")
    print(f"model     {result.model}")
    if result.readable:
        print_layout(job)
    if result.memory:
        print_memory(result.memory)
    for finding in sorted(result.findings, key=lambda finding: ("error", "warning", "note").index(finding.level)):
        print(finding)
    print(NOT_CHECKED)
    count = len(errors(result.findings))
    print("dry run: " + (f"{count} error{'s' * (count > 1)}" if count else "passed"))


def print_layout(job: Job) -> None:
    replica = job.rollout_tp * job.rollout_dp
    print(
        f"layout    {job.dies} dies: TP {job.tp}, PP {job.pp}, CP {job.cp}, EP {job.ep}, DP {job.dp}; "
        f"rollout {job.dies // replica} replicas of {replica} dies"
    )
    if line := graphs_line(job):
        print(f"graphs    {line}")


def graphs_line(job: Job) -> str:
    """What the rollout server makes of the graph switch, and what its graphs hold on a die; empty without graphs."""
    settings = job.graph_settings
    sizes = settings.given_sizes or settings.computed_sizes()
    if not (settings.npugraph_ex and sizes):
        return ""
    single = one_token_sizes(sizes, settings.max_num_seqs) if settings.one_token else []
    text = f"{settings.mode or DEFAULT_MODE}, batches of {','.join(map(str, sizes))} tokens"
    if single:
        text += f", with one token a request {','.join(map(str, single))}"
    if job.shape is None:
        return text
    ffn = job.shape.experts_per_token * job.shape.expert_ffn or job.shape.ffn
    cost = graph_cost(sizes, single, job.shape.layers, job.shape.hidden, ffn // job.rollout_tp)
    return text + (
        f"; {cost.graphs} graphs with {cost.tasks} attention calls, {cost.pool_bytes / 2**20:.0f} MiB or more a die"
    )


def print_memory(memory: Estimate) -> None:
    tables = [
        ("training, estimate of the fullest die", memory.training, memory.training_bytes),
        ("generation, estimate of the fullest die", memory.generation, memory.generation_bytes),
    ]
    if memory.processes:
        tables.append(("the whole job on this machine", memory.processes, memory.machine_bytes))
    for title, parts, total in tables:
        print(f"memory    {title}: {total / GIB:.2f} GiB")
        for part in parts:
            where = " (on the host)" if part.moved else ""
            print(f"          {part.name:<16} {part.bytes / GIB:8.2f} GiB{where}  {part.formula}")
