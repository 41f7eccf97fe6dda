"""What the patches on veRL and Megatron-Core are for, each on the real code in one gloo process or two."""

from tests.moe_overlap.tiny import run_worlds


def test_megatron_saves_what_it_then_loads(moe, tmp_path):
    steps = ["build", "save", "scramble", "load", "unchanged"]
    assert run_worlds(tmp_path, moe, [{"steps": steps, "checkpoint": str(tmp_path / "saved")}]) == [[]]


def test_an_optimizer_with_a_state_that_is_none(moe, tmp_path):
    assert run_worlds(tmp_path, moe, [{"steps": ["build", "optimizer"], "checkpoint": str(tmp_path / "saved")}]) == [[]]


def test_the_loader_fills_grouped_experts(moe, converted, tmp_path):
    """The weights are compared as they lie in the parameters, with the layout's own arithmetic."""
    run = {"steps": ["build", "load", "weights"], "checkpoint": str(converted), "world": 2, "ep": 2}
    assert run_worlds(tmp_path, moe, [run]) == [[]]


def test_grouped_experts_reach_the_rollout(moe, converted, tmp_path):
    run = {"steps": ["build", "load", "export"], "checkpoint": str(converted), "world": 2, "ep": 2}
    assert run_worlds(tmp_path, moe, [run]) == [[]]


def test_the_worker_refuses_contradictions(moe, tmp_path):
    assert run_worlds(tmp_path, moe, [{"steps": ["worker"]}]) == [[]]
