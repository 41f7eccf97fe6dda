"""Runs steps of the weight path in worlds of gloo processes: `python harness.py JOB.json`.

JOB.json holds {"hf": FOLDER, "runs": [RUN...], "results": FILE}. A RUN is a world of processes with one layout that
does its ``steps`` in order (see STEPS); a step appends to the run's list of complaints. megatron and veRL are imported
once and the worlds are forked from there. PYTHONPATH says which megatron and veRL.
"""

import json
import os
import socket
import sys
import tempfile
import traceback
from dataclasses import dataclass, field
from pathlib import Path

os.environ["TORCHDYNAMO_DISABLE"] = "1"  # compiling takes longer than all the rest
import torch

sys.path.insert(0, str(Path(__file__).parent))
import cpu_megatron

cpu_megatron.replace_cuda()

from megatron.core import dist_checkpointing, parallel_state, tensor_parallel  # noqa: E402
from transformers import AutoConfig, AutoModelForCausalLM  # noqa: E402

cpu_megatron.replace_in_megatron()

from verl.models.mcore import (  # noqa: E402
    get_mcore_weight_converter,
    hf_to_mcore_config,
    init_mcore_model,
    model_initializer,
)
from verl.utils.megatron_utils import per_tensor_generator  # noqa: E402
from verl.utils.model import load_mcore_dist_weights  # noqa: E402

from qwen3_rl.moe_overlap import layout  # noqa: E402

model_initializer.get_gpt_decoder_block_spec = cpu_megatron.layer_spec

NAMES = {"qkv_layer_name": "self_attention.linear_qkv.", "gate_proj_layer_name": "linear_fc1."}


@dataclass
class Run:
    """One world: its layout, its checkpoint and what it does."""

    hf: str
    steps: list[str]
    world: int = 1
    tp: int = 1
    ep: int = 1
    etp: int = 1
    pp: int = 1
    first_stage: int | None = None
    grouped: bool = True
    checkpoint: str = ""
    converted: str = ""
    model: torch.nn.Module | None = None
    config: object = None
    kept: dict = field(default_factory=dict)
    complaints: list[str] = field(default_factory=list)

    def expect(self, condition: bool, what: str) -> None:
        if not condition:
            self.complaints.append(what)


def build(run: Run) -> None:
    """The model of this rank, with random weights that differ from rank to rank and from Hugging Face's."""
    hf = AutoConfig.from_pretrained(run.hf)
    run.config = hf_to_mcore_config(
        hf,
        torch.float32,
        use_cpu_initialization=True,
        moe_grouped_gemm=run.grouped,
        num_layers_in_first_pipeline_stage=run.first_stage,
        **dict.fromkeys(["persist_layer_norm", "masked_softmax_fusion", "bias_activation_fusion"], False),
        **dict.fromkeys(["bias_dropout_fusion", "gradient_accumulation_fusion", "apply_rope_fusion"], False),
    )
    tensor_parallel.model_parallel_cuda_manual_seed(1234 + torch.distributed.get_rank())
    torch.manual_seed(4321 + torch.distributed.get_rank())
    first, last = parallel_state.is_pipeline_first_stage(), parallel_state.is_pipeline_last_stage()
    run.model = init_mcore_model(
        run.config, hf, first, last, share_embeddings_and_output_weights=hf.tie_word_embeddings, value=False
    )
    for parameter in run.model.parameters():
        parameter.data.normal_()


def load(run: Run) -> None:
    """veRL's own loader, which a patch mends."""
    load_mcore_dist_weights([run.model], run.checkpoint)


def load_converted(run: Run) -> None:
    load_mcore_dist_weights([run.model], run.converted)


def save(run: Run) -> None:
    """megatron's own writer, which a patch mends."""
    Path(run.checkpoint).mkdir(exist_ok=True)
    dist_checkpointing.save(run.model.sharded_state_dict(), run.checkpoint, async_sharded_save=False)
    torch.distributed.barrier()


def scramble(run: Run) -> None:
    """Other weights; the old ones are kept aside."""
    for name, parameter in run.model.named_parameters():
        run.kept[name] = parameter.detach().clone()
        parameter.data.normal_()


def unchanged(run: Run) -> None:
    for name, parameter in run.model.named_parameters():
        run.expect(torch.equal(parameter, run.kept[name]), f"unchanged: {name} differs")


def weights(run: Run) -> None:
    """This rank's expert weights, as they lie in its parameters, against `layout`'s arithmetic on Hugging Face's."""
    hf = AutoModelForCausalLM.from_pretrained(run.hf, dtype=torch.float32)
    first = run.model.decoder.layers[0].layer_number - 1
    mine = layout.share(hf.config.num_experts, run.ep, parallel_state.get_expert_model_parallel_rank())
    etp_rank = parallel_state.get_expert_tensor_parallel_rank()
    for number, layer in enumerate(run.model.decoder.layers):
        experts = [hf.model.layers[first + number].mlp.experts[index] for index in mine]
        whole = [layout.Expert(e.gate_proj.weight, e.up_proj.weight, e.down_proj.weight) for e in experts]
        stock = [layout.stock_of(expert, run.etp, etp_rank) for expert in whole]
        there = layer.mlp.experts
        if run.grouped:
            pairs = zip(layout.grouped_of(stock), (there.weight1, there.weight2), strict=True)
        else:
            pairs = (
                pair
                for expected, expert in zip(stock, there.local_experts, strict=True)
                for pair in zip(expected, (expert.linear_fc1.weight, expert.linear_fc2.weight), strict=True)
            )
        for expected, found in pairs:
            run.expect(torch.equal(expected, found), f"weights: layer {first + number} differs")


def worker(run: Run) -> None:
    """veRL's Megatron worker, as far as it goes before it builds anything."""
    from omegaconf import OmegaConf
    from verl.workers import megatron_workers

    megatron_workers.Worker.__init__ = lambda self: None
    os.environ["USE_ALLTOALL_OVERLAP"] = "1"
    config = OmegaConf.create({"actor": {"megatron": {"override_transformer_config": {}}}})
    try:
        megatron_workers.ActorRolloutRefWorker(config, role="actor")
    except Exception as error:
        run.expect("USE_ALLTOALL_OVERLAP = 1" in str(error), f"worker: ended otherwise: {error!r}")
    else:
        run.complaints.append("worker: took settings that contradict")


def export(run: Run) -> None:
    """veRL's own weight sync: every tensor of the Hugging Face model, once, bit for bit, on every rank."""
    hf = AutoModelForCausalLM.from_pretrained(run.hf, dtype=torch.float32)
    left = dict(hf.state_dict())
    converter = get_mcore_weight_converter(hf.config, torch.float32)
    converter.mcore_config = run.config
    stream = per_tensor_generator([run.model], hf.config, converter, run.config, NAMES)
    for name, tensor in stream:
        expected = left.pop(name, None)
        if expected is None:
            run.complaints.append(f"export: {name} is not in the model, or comes twice")
        else:
            run.expect(torch.equal(tensor, expected), f"export: {name} differs")
    if hf.config.tie_word_embeddings:
        left.pop("lm_head.weight", None)  # comes where the last pipeline stage has its own copy
    run.expect(not left, f"export: {sorted(left)[:3]} and {len(left)} in all never come")


def forward(run: Run) -> None:
    """Logits against transformers', float32, other tokens on every data-parallel rank."""
    hf = AutoModelForCausalLM.from_pretrained(run.hf, dtype=torch.float32, attn_implementation="eager")
    generator = torch.Generator().manual_seed(parallel_state.get_data_parallel_rank())
    tokens = torch.randint(hf.config.vocab_size, (2, 8), generator=generator)
    mask = torch.ones(8, 8).triu(1).bool()[None, None]
    positions = torch.arange(8).expand(2, 8)
    group = parallel_state.get_pipeline_model_parallel_group()
    run.model.eval()
    with torch.no_grad():
        expected = hf.eval()(tokens).logits
        hidden = [None]
        for stage in range(run.pp):  # one stage after the other, its output as an object to all
            output = None
            if stage == parallel_state.get_pipeline_model_parallel_rank():
                if stage:
                    run.model.set_input_tensor(hidden[0])
                output = run.model(tokens, positions, mask)
            hidden = [output]
            source = torch.distributed.get_process_group_ranks(group)[stage]
            torch.distributed.broadcast_object_list(hidden, src=source, group=group)
    logits = hidden[0]
    if run.tp > 1:
        parts = [torch.empty_like(logits) for _ in range(run.tp)]
        torch.distributed.all_gather(parts, logits.contiguous(), group=parallel_state.get_tensor_model_parallel_group())
        logits = torch.cat(parts, dim=-1)
    worst = (logits - expected).abs().max().item()
    run.expect(worst <= 1e-5, f"forward: logits differ by {worst:.2e}")


def optimizer(run: Run) -> None:
    """Save and load a distributed optimizer with a state that is None, such as MindSpeed's swap_optimizer has."""
    from megatron.core.distributed import DistributedDataParallel, DistributedDataParallelConfig
    from megatron.core.optimizer import OptimizerConfig, get_megatron_optimizer

    cpu_megatron.replace_for_the_optimizer()
    ddp = DistributedDataParallel(run.config, DistributedDataParallelConfig(use_distributed_optimizer=True), run.model)
    settings = OptimizerConfig(optimizer="adam", lr=1e-3, use_distributed_optimizer=True, params_dtype=torch.float32)
    (part,) = get_megatron_optimizer(settings, [ddp]).chained_optimizers
    moments = []
    for parameter in (one for group in part.optimizer.param_groups for one in group["params"]):
        part.optimizer.state[parameter] = {"exp_avg": torch.rand_like(parameter), "max_exp_avg_sq": None}
        moments.append(part.optimizer.state[parameter]["exp_avg"])
    before = [moment.clone() for moment in moments]
    Path(run.checkpoint).mkdir(exist_ok=True)
    sharded = part.sharded_param_state_fs_model_space(run.model.sharded_state_dict())
    dist_checkpointing.save(sharded, run.checkpoint, async_sharded_save=False)
    for moment in moments:
        moment.zero_()
    sharded = part.sharded_param_state_fs_model_space(run.model.sharded_state_dict(), is_loading=True)
    part.load_parameter_state_from_fs_model_space(dist_checkpointing.load(sharded, run.checkpoint))
    same = all(torch.equal(old, new) for old, new in zip(before, moments, strict=True))
    run.expect(bool(before) and same, "optimizer: states differ after save and load")


STEPS = {
    step.__name__: step
    for step in (build, load, load_converted, save, scramble, unchanged, weights, export, forward, worker, optimizer)
}


def rank_main(rank: int, run: Run, port: int, results: str) -> None:
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port), RANK=str(rank), WORLD_SIZE=str(run.world))
    os.environ.update(LOCAL_RANK=str(rank), GLOO_SOCKET_IFNAME="lo")
    torch.distributed.init_process_group("gloo", rank=rank, world_size=run.world)
    try:
        parallel_state.initialize_model_parallel(
            tensor_model_parallel_size=run.tp,
            pipeline_model_parallel_size=run.pp,
            expert_model_parallel_size=run.ep,
            expert_tensor_parallel_size=run.etp,
        )
        for step in run.steps:
            STEPS[step](run)
    except BaseException:
        run.complaints.append(traceback.format_exc())
    Path(results, str(rank)).write_text(json.dumps(run.complaints))
    if not run.complaints:
        torch.distributed.barrier()
        torch.distributed.destroy_process_group()


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def do(run: Run) -> list[str]:
    """The complaints of all ranks of a world."""
    with tempfile.TemporaryDirectory() as results:
        context = torch.multiprocessing.get_context("fork")
        arguments = (run, free_port(), results)
        ranks = [context.Process(target=rank_main, args=(rank, *arguments)) for rank in range(run.world)]
        for process in ranks:
            process.start()
        for process in ranks:
            process.join(120)
            if process.exitcode is None:
                process.kill()
        found = []
        for rank in range(run.world):
            file = Path(results, str(rank))
            said = json.loads(file.read_text()) if file.exists() else ["it died or hung"]
            found += [f"rank {rank}: {what}" for what in said]
    return found


def main() -> None:
    job = json.loads(Path(sys.argv[1]).read_text())
    torch.set_num_threads(1)
    outcome = [do(Run(hf=job["hf"], **run)) for run in job["runs"]]
    Path(job["results"]).write_text(json.dumps(outcome))


if __name__ == "__main__":
    main()
