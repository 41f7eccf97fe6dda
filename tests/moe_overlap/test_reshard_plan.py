"""The plan alone: who sends what, and that nothing smaller would do."""

from collections import Counter

import pytest

pytest.importorskip("torch", reason="needs build_project.sh --target cpu")
from hypothesis import given, settings
from hypothesis import strategies as st

from qwen3_rl.errors import UserError
from qwen3_rl.moe_overlap.reshard import Piece, Sizes, TrainLayout, plan_reshard, spread, traffic
from tests.moe_overlap.reshard_lab import divisors, uneven_layout


def layout_on(draw, world: int) -> TrainLayout:
    pp = draw(st.sampled_from(divisors(world)))
    ep = draw(st.sampled_from(divisors(world // pp)))
    return uneven_layout(world, pp, ep, draw(st.sampled_from(divisors(world // pp // ep))))


@st.composite
def plans(draw):
    world = draw(st.integers(1, 32))
    train = layout_on(draw, world)
    experts = train.ep * draw(st.integers(1, 4))
    return plan_reshard(train, draw(st.sampled_from(divisors(world))), experts)


def shards_held(train: TrainLayout, experts: int, rank: int) -> set[tuple[int, int, int]]:
    """(layer, expert, shard), written down from Megatron-Core's rank order anew."""
    shard, ep = rank % train.etp, rank // train.etp % train.ep
    stage = rank * len(train.stages) // train.world
    size = experts // train.ep
    return {(layer, expert, shard) for layer in train.stages[stage] for expert in range(ep * size, (ep + 1) * size)}


def shards_needed(train: TrainLayout, rollout_ep: int, experts: int, rank: int) -> set[tuple[int, int, int]]:
    return {
        (layer, expert, shard)
        for layers in train.stages
        for layer in layers
        for expert in spread(experts, rollout_ep, rank % rollout_ep)
        for shard in range(train.etp)
    }


@settings(max_examples=150, deadline=None)
@given(plans())
def test_every_rank_receives_what_it_lacks_once_and_from_a_holder(plan):
    train = plan.train
    held = [shards_held(train, plan.experts, rank) for rank in range(train.world)]
    arrived = [Counter() for _ in held]
    for piece in plan.pieces:
        for layer in train.stages[train.place(piece.sender).stage]:
            assert (layer, piece.expert, piece.shard) in held[piece.sender]
            arrived[piece.receiver][layer, piece.expert, piece.shard] += 1
    for rank, counts in enumerate(arrived):
        needed = shards_needed(train, plan.rollout_ep, plan.experts, rank)
        assert counts == Counter(needed - held[rank])


@settings(max_examples=150, deadline=None)
@given(plans())
def test_bytes_equal_the_lower_bound_and_all_gather_never_moves_less(plan):
    sizes = Sizes(hidden=3, ffn=2 * plan.train.etp, itemsize=2)
    shard_bytes = 3 * 3 * 2 * 2
    moved = traffic(plan, sizes)
    for rank in range(plan.train.world):
        held = shards_held(plan.train, plan.experts, rank)
        needed = shards_needed(plan.train, plan.rollout_ep, plan.experts, rank)
        everything = shards_needed(plan.train, 1, plan.experts, rank)
        assert moved.received[rank] == moved.lacking[rank] == shard_bytes * len(needed - held)
        assert moved.gathered[rank] == shard_bytes * len(everything - held) >= moved.received[rank]
    assert sum(moved.sent) == sum(moved.received)


@settings(max_examples=150, deadline=None)
@given(plans())
def test_replicas_send_alike(plan):
    load = Counter(piece.sender for piece in plan.pieces)
    alike = {}
    for rank in range(plan.train.world):
        alike.setdefault(plan.train.place(rank)._replace(replica=0), []).append(load[rank])
    assert all(max(counts) - min(counts) <= 1 for counts in alike.values())


@settings(max_examples=50, deadline=None)
@given(plans())
def test_a_rank_and_its_place(plan):
    train = plan.train
    assert [train.rank(train.place(rank)) for rank in range(train.world)] == list(range(train.world))


def test_a_plan_by_hand():
    """Two ranks, an expert each in training; rank 0 of the rollout needs both, as rank 1 does."""
    plan = plan_reshard(TrainLayout(2, ((0,),), ep=2), rollout_ep=1, experts=2)
    assert plan.pieces == (Piece(0, 1, 0, 0), Piece(1, 0, 1, 0))


def test_the_same_layout_moves_nothing():
    assert plan_reshard(TrainLayout(8, ((0, 1),), ep=8), rollout_ep=8, experts=16).pieces == ()


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: TrainLayout(8, ((0,), (1,)), ep=3), ["expert_model_parallel_size 3", "8 ranks"]),
        (lambda: plan_reshard(TrainLayout(8, ((0,),), ep=8), 8, 12), ["expert_model_parallel_size 8", "12 experts"]),
        (lambda: plan_reshard(TrainLayout(8, ((0,),), ep=8), 3, 16), ["expert_parallel_size 3", "8 ranks"]),
    ],
)
def test_layouts_that_do_not_fit(make, words):
    with pytest.raises(UserError) as caught:
        make()
    assert all(word in str(caught.value) for word in words)
