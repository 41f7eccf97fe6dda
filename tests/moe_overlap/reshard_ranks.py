"""The reshard in real processes with gloo: python -m tests.moe_overlap.reshard_ranks [PROCESSES]

Every pair of layouts on that many ranks against the all-gather, bit for bit, with the bytes that the collective was
given to receive against the lower bound.
"""

import sys
import tempfile

import torch
from torch import distributed, multiprocessing

from qwen3_rl.moe_overlap.reshard import Sizes, plan_reshard, reshard, traffic
from tests.moe_overlap.reshard_lab import HIDDEN, all_gather_way, model_for, pairs, rows_of, same_as_gathered


def run_rank(rank: int, world: int, rendezvous: str) -> None:
    torch.set_num_threads(1)
    distributed.init_process_group("gloo", init_method=f"file://{rendezvous}", rank=rank, world_size=world)
    received = []
    collective = distributed.all_to_all_single

    def counted(output, *args, **kwargs):
        received.append(output.nbytes)
        return collective(output, *args, **kwargs)

    distributed.all_to_all_single = counted
    count = 0
    for train, rollout_ep in pairs(world):
        received.clear()
        plan = plan_reshard(train, rollout_ep, experts=world)
        model = model_for(train, world)
        gathered = all_gather_way(model, train)
        like = model.gate.new_empty(0, 3 * HIDDEN * 2)
        layers = list(reshard(plan, lambda layer, m=model, t=train: rows_of(m, t, rank, layer), HIDDEN, like))
        assert sorted(layer.layer for layer in layers) == list(range(len(model.gate))), (train, rollout_ep)
        assert all(same_as_gathered(layer, gathered) for layer in layers), (train, rollout_ep)
        assert sum(received) == traffic(plan, Sizes(HIDDEN, 2 * train.etp, 2)).lacking[rank], (train, rollout_ep)
        count += 1
    distributed.barrier()
    if rank == 0:
        print(f"{count} pairs, {world} processes: bit-equal, bytes at the lower bound")
    distributed.destroy_process_group()


if __name__ == "__main__":
    world = int(sys.argv[1]) if len(sys.argv) > 1 else 16
    with tempfile.TemporaryDirectory() as folder:
        # Forked: torch is imported once.
        multiprocessing.start_processes(run_rank, (world, f"{folder}/rendezvous"), world, start_method="fork")
