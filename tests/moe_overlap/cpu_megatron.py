"""megatron-core 0.12.1 on a CPU: the calls of CUDA, Transformer Engine and grouped_gemm that it makes, replaced.

All of this is the tests' alone. Nothing here touches how weights are laid out, saved or loaded: the layers are named
and shaped as Transformer Engine's, which veRL and MindSpeed build, and the grouped GEMM is a loop.
"""

import contextlib
import sys
import types

import torch
from torch.nn import functional


class Stream:
    """A CPU has one order of execution."""

    def wait_stream(self, other):
        pass

    def synchronize(self):
        pass

    def __eq__(self, other):
        return True

    def __hash__(self):
        return 0


def loop_gmm(a, b, batch_sizes, trans_b=False):
    """grouped_gemm.ops.gmm: rows of ``a`` in groups of ``batch_sizes``, each times its own matrix of ``b``."""
    ends = torch.as_tensor(batch_sizes).cumsum(0).tolist()
    starts = [0, *ends[:-1]]
    return torch.cat([a[i:j] @ (m.t() if trans_b else m) for i, j, m in zip(starts, ends, b, strict=True)])


def replace_cuda() -> None:
    """Before megatron is imported."""
    torch.cuda.current_device = lambda: "cpu"
    torch.cuda.Stream = lambda *args, **kwargs: Stream()
    torch.cuda.current_stream = lambda *args: Stream()
    torch.cuda.stream = lambda stream: contextlib.nullcontext()
    torch.cuda.synchronize = lambda *args: None
    torch.cuda.get_rng_state = lambda *args: torch.get_rng_state()
    torch.Tensor.cuda = lambda self, *args, **kwargs: self
    module = types.ModuleType("grouped_gemm")
    module.ops = types.SimpleNamespace(gmm=loop_gmm)
    sys.modules["grouped_gemm"] = module


def replace_for_the_optimizer() -> None:
    """It names CUDA as a device and in the types of parameters."""
    make, type_of = torch.tensor, torch.Tensor.type
    torch.tensor = lambda *args, device=None, **kwargs: make(*args, **kwargs)
    torch.Tensor.type = lambda self, *args: type_of(self, *args) if args else f"torch.cuda.{type_of(self)[6:]}"


def gather_rows(tensor, group=None, output_split_sizes=None, use_global_buffer=False):
    """gloo's all_gather wants equal sizes: as objects."""
    from megatron.core import parallel_state

    group = group or parallel_state.get_tensor_model_parallel_group()
    parts = [None] * torch.distributed.get_world_size(group)
    torch.distributed.all_gather_object(parts, tensor.detach(), group=group)
    return torch.cat(parts)


def scatter_sum_of_rows(tensor, group=None, input_split_sizes=None, use_global_buffer=False):
    from megatron.core import parallel_state

    group = group or parallel_state.get_tensor_model_parallel_group()
    total = tensor.detach().clone()
    torch.distributed.all_reduce(total, group=group)
    size = torch.distributed.get_world_size(group)
    sizes = input_split_sizes if input_split_sizes is not None else [len(total) // size] * size
    return total.split([int(n) for n in sizes])[torch.distributed.get_rank(group)]


def replace_in_megatron() -> None:
    """After megatron is imported."""
    from megatron.core.tensor_parallel import mappings, random
    from megatron.core.transformer.moe import token_dispatcher

    mappings._gather_along_first_dim = gather_rows
    mappings._reduce_scatter_along_first_dim = scatter_sum_of_rows
    random._get_cuda_rng_state = lambda *args, **kwargs: torch.get_rng_state()
    random._set_cuda_rng_state = lambda state, *args, **kwargs: torch.set_rng_state(state)

    def to_cpu(tensor, as_numpy=False, record_stream=False):
        return tensor.numpy() if as_numpy and torch.is_tensor(tensor) else tensor

    token_dispatcher.maybe_move_tensor_to_cpu = to_cpu


class RMSNorm(torch.nn.Module):
    """Transformer Engine's norm as far as Qwen3 uses it."""

    def __init__(self, config, hidden_size, eps=1e-6, **kwargs):
        super().__init__()
        self.eps = config.layernorm_epsilon
        self.weight = torch.nn.Parameter(torch.ones(hidden_size, dtype=config.params_dtype))

    def forward(self, x):
        return functional.rms_norm(x, self.weight.shape, self.weight, self.eps)


def layer_spec(config, use_transformer_engine=True, **kwargs):
    """get_gpt_decoder_block_spec with Transformer Engine's names and local layers."""
    from megatron.core.fusions.fused_bias_dropout import get_bias_dropout_add
    from megatron.core.models.gpt.moe_module_specs import get_moe_module_spec
    from megatron.core.tensor_parallel.layers import ColumnParallelLinear, RowParallelLinear
    from megatron.core.transformer.attention import SelfAttention, SelfAttentionSubmodules
    from megatron.core.transformer.dot_product_attention import DotProductAttention
    from megatron.core.transformer.enums import AttnMaskType
    from megatron.core.transformer.identity_op import IdentityOp
    from megatron.core.transformer.mlp import MLP, MLPSubmodules
    from megatron.core.transformer.spec_utils import ModuleSpec
    from megatron.core.transformer.transformer_block import TransformerBlockSubmodules, get_num_layers_to_build
    from megatron.core.transformer.transformer_layer import TransformerLayer, TransformerLayerSubmodules

    class NormColumnParallelLinear(ColumnParallelLinear):
        """TELayerNormColumnParallelLinear: the norm before it is its own parameter."""

        def __init__(self, input_size, output_size, *, config, **kwargs):
            super().__init__(input_size, output_size, config=config, **kwargs)
            self.layer_norm_weight = torch.nn.Parameter(torch.ones(input_size, dtype=config.params_dtype))

        def forward(self, x, *args, **kwargs):
            weight = self.layer_norm_weight
            return super().forward(
                functional.rms_norm(x, weight.shape, weight, self.config.layernorm_epsilon), *args, **kwargs
            )

    dense = ModuleSpec(
        module=MLP, submodules=MLPSubmodules(linear_fc1=NormColumnParallelLinear, linear_fc2=RowParallelLinear)
    )
    moe = config.num_moe_experts and get_moe_module_spec(
        use_te=False, num_experts=config.num_moe_experts, moe_grouped_gemm=config.moe_grouped_gemm
    )
    layer = ModuleSpec(
        module=TransformerLayer,
        submodules=TransformerLayerSubmodules(
            self_attention=ModuleSpec(
                module=SelfAttention,
                params={"attn_mask_type": AttnMaskType.causal},
                submodules=SelfAttentionSubmodules(
                    linear_qkv=NormColumnParallelLinear,
                    core_attention=DotProductAttention,
                    linear_proj=RowParallelLinear,
                    q_layernorm=RMSNorm,
                    k_layernorm=RMSNorm,
                ),
            ),
            self_attn_bda=get_bias_dropout_add,
            pre_mlp_layernorm=RMSNorm if moe else IdentityOp,
            mlp=moe or dense,
            mlp_bda=get_bias_dropout_add,
        ),
    )
    return TransformerBlockSubmodules(layer_specs=[layer] * get_num_layers_to_build(config), layer_norm=RMSNorm)
