"""The arithmetic of grouped weights, and what hands it to veRL."""

import weakref

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

from qwen3_rl.errors import UserError
from qwen3_rl.moe_overlap.layout import Expert, expert_of, fc1_of, fc2_of, grouped_of, share, stock_of
from qwen3_rl.moe_overlap.load import take_loaded
from qwen3_rl.moe_overlap.sync import stock_names, stock_parameters

HIDDEN, FFN = 6, 8


def experts(count: int) -> list[Expert]:
    numbers = iter(range(10**6))

    def tensor(*shape: int) -> torch.Tensor:
        return torch.tensor([next(numbers) for _ in range(torch.Size(shape).numel())]).view(shape)

    return [Expert(tensor(FFN, HIDDEN), tensor(FFN, HIDDEN), tensor(HIDDEN, FFN)) for _ in range(count)]


@given(st.sampled_from([1, 2, 4, 8]), st.sampled_from([1, 2, 4]))
def test_there_and_back(ep, etp):
    """Every expert comes back from the grouped weights of all ranks as it went in."""
    whole = experts(8)
    parts = {index: [] for index in range(8)}
    for ep_rank in range(ep):
        mine = share(8, ep, ep_rank)
        for etp_rank in range(etp):
            weight1, weight2 = grouped_of([stock_of(whole[index], etp, etp_rank) for index in mine])
            assert weight1.shape == (HIDDEN, len(mine) * 2 * FFN // etp)
            assert weight2.shape == (len(mine) * FFN // etp, HIDDEN)
            for local, index in enumerate(mine):
                parts[index].append((fc1_of(weight1, len(mine), local), fc2_of(weight2, len(mine), local)))
    for index, expert in enumerate(whole):
        back = expert_of(parts[index])
        assert torch.equal(back.gate, expert.gate)
        assert torch.equal(back.up, expert.up)
        assert torch.equal(back.down, expert.down)


def test_the_product_is_the_experts_own():
    """As GroupedMLP.forward reads them: x @ view(e, H, 2f) is x @ gate.T beside x @ up.T."""
    whole = experts(3)
    weight1, weight2 = grouped_of([stock_of(expert) for expert in whole])
    x = torch.arange(HIDDEN).view(1, HIDDEN)
    for index, expert in enumerate(whole):
        gate, up = (x @ weight1.view(3, HIDDEN, -1)[index]).chunk(2, dim=-1)
        assert torch.equal(gate, x @ expert.gate.t())
        assert torch.equal(up, x @ expert.up.t())
        assert torch.equal(up @ weight2.view(3, -1, HIDDEN)[index], up @ expert.down.t())


def test_what_cannot_be_divided_is_refused():
    with pytest.raises(ValueError, match="8 cannot be divided over 3 ranks"):
        share(8, 3, 0)


def test_names_and_tensors_come_in_the_same_order():
    weight1, _ = grouped_of([stock_of(expert) for expert in experts(2)])
    name = "module.decoder.layers.3.mlp.experts.weight1"
    names = stock_names(name, 2)
    assert names == [f"module.decoder.layers.3.mlp.experts.linear_fc1.weight{index}" for index in (0, 1)]
    given = list(stock_parameters(name, weight1, 2))
    assert [stock for stock, _ in given] == names
    assert all(tensor.is_contiguous() and tensor.shape == (2 * FFN, HIDDEN) for _, tensor in given)


def test_one_experts_copy_is_alive_at_a_time():
    weight1, _ = grouped_of([stock_of(expert) for expert in experts(4)])
    alive = []
    for _, tensor in stock_parameters("decoder.layers.0.mlp.experts.weight1", weight1, 4):
        assert tensor.data_ptr() != weight1.data_ptr()
        alive.append(weakref.ref(tensor))
        assert sum(one() is not None for one in alive) <= 2  # this one, and the last while it is being replaced


def test_other_parameters_pass():
    weight = torch.zeros(2)
    (given,) = stock_parameters("decoder.layers.0.mlp.router.weight", weight, 2)
    assert given == ("decoder.layers.0.mlp.router.weight", weight)


class Module(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.zeros(2))
        self.output_layer = torch.nn.Linear(2, 1, bias=False)


def test_a_tensor_without_values_is_an_error():
    with pytest.raises(UserError, match=r"1 of .* got no values \(such as \['output_layer.weight'\]\)"):
        take_loaded(Module(), {"weight": torch.ones(2)})


def test_a_value_models_head_may_be_absent():
    module = Module()
    take_loaded(module, {"a.weight": torch.ones(2), "a.b._extra_state": None}, prefix="a.", absent=["output_layer"])
    assert module.weight.tolist() == [1, 1]
