"""Hugging Face -> qwen3-rl convert -> Megatron's load in many layouts -> veRL's weight sync: bit for bit."""

import itertools

from qwen3_rl.moe_overlap.torch_dist import Checkpoint
from tests.moe_overlap.tiny import convert, run_worlds

ALL = ["build", "load", "weights", "export", "forward"]
SIZES = itertools.product([1, 2, 4], [1, 2, 4], [1, 2], [1, 2])
LAYOUTS = [
    {"world": world, "ep": ep, "etp": etp, "pp": pp, "first_stage": 1 if pp == 2 else None}
    for world, ep, etp, pp in SIZES
    if world % (ep * etp * pp) == 0
]
DENSE = [{}, {"world": 2, "tp": 2}, {"world": 2, "pp": 2, "first_stage": 1}]
LAYOUTS.append({"world": 4, "tp": 2, "ep": 2, "etp": 2})


def shapes(checkpoint) -> dict:
    """Shape by key, None for objects."""
    entries = Checkpoint(checkpoint).metadata.state_dict_metadata
    return {key: getattr(entry, "size", None) for key, entry in entries.items()}


def test_every_layout(moe, converted, tmp_path):
    """Every tensor equal, and the logits are transformers' own within 1e-5."""
    runs = [{"steps": ALL, "checkpoint": str(converted), **layout} for layout in LAYOUTS]
    outcome = run_worlds(tmp_path, moe, runs)
    assert {str(layout): said for layout, said in zip(LAYOUTS, outcome, strict=True) if said} == {}


def test_dense_and_tied(dense, tmp_path):
    checkpoint = convert(dense, tmp_path / "mcore")
    steps = ["build", "load", "export", "forward"]
    runs = [{"steps": steps, "checkpoint": str(checkpoint), **layout} for layout in DENSE]
    assert run_worlds(tmp_path, dense, runs) == [[]] * len(DENSE)


def test_the_stock_layout_is_megatrons_own(moe, converted, tmp_path):
    """The converter's checkpoint has the keys and shapes that Megatron's has, from a model of either kind of expert."""
    steps = ["build", "save", "load_converted", "weights"]
    saved = {True: tmp_path / "grouped", False: tmp_path / "sequential"}
    runs = [{"checkpoint": str(folder), "grouped": grouped} for grouped, folder in saved.items()]
    assert run_worlds(tmp_path, moe, [{"steps": steps, "converted": str(converted), **run} for run in runs]) == [[], []]
    ours = shapes(converted)
    for theirs in map(shapes, saved.values()):
        assert theirs.items() <= ours.items()
        assert all(size is None for key, size in ours.items() if key not in theirs)
