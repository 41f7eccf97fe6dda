"""Where each Hugging Face tensor of a Qwen3 lies in a Megatron-Core checkpoint of the stock layout.

Such a checkpoint holds whole tensors, whatever ranks wrote it; a layer is an index of the first axis, an expert of the
second. Every layer class of megatron-core 0.12.1 loads its own part from them: SequentialMLP, TEGroupedMLP and, by
`layout`'s transposition, GroupedMLP. L layers, E experts, H hidden, F intermediate, D head size, K key-value heads,
R query heads per key-value head.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property

from qwen3_rl.dry_run.model import ModelShape

Numbers = tuple[int, ...]


@dataclass(frozen=True)
class Place:
    """Rows ``begin:end`` of a Hugging Face tensor: the block at ``offset`` of the checkpoint's ``key``.

    ``shape`` is that of the whole key, ``block`` that of the rows with a leading 1 for the layer and for the expert.
    """

    key: str
    shape: Numbers
    offset: Numbers
    block: Numbers
    begin: int
    end: int


@dataclass(frozen=True)
class Tensor:
    """What a Hugging Face tensor must look like, and its places: disjoint row ranges that cover it."""

    shape: Numbers
    places: list[Place]


Axis = tuple[int, int]  # its size, and where on it a tensor lies


def _whole(key: str, shape: Numbers, *lead: Axis, first: int = 0, rows: int | None = None) -> Tensor:
    """A tensor of ``shape`` that starts at row ``first`` of ``rows``, below the leading axes (layer, expert)."""
    full = (*(size for size, _ in lead), rows or shape[0], *shape[1:])
    offset = (*(index for _, index in lead), first, *(0 for _ in shape[1:]))
    return Tensor(shape, [Place(key, full, offset, (*(1 for _ in lead), *shape), 0, shape[0])])


class Layout:
    """The Hugging Face tensors of ``model`` by name. ``tensors`` is what there must be; ``ignored`` may be there."""

    def __init__(self, model: ModelShape):
        self.model = model
        # A tied model's output layer is its embedding, in Megatron too.
        self.ignored = {"lm_head.weight"} if model.tied else set()

    @cached_property
    def tensors(self) -> dict[str, Tensor]:
        return dict(self._tensors())

    def _tensors(self) -> Iterator[tuple[str, Tensor]]:
        m = self.model
        yield "model.embed_tokens.weight", _whole("embedding.word_embeddings.weight", (m.vocab, m.hidden))
        yield "model.norm.weight", _whole("decoder.final_layernorm.weight", (m.hidden,))
        if not m.tied:
            yield "lm_head.weight", _whole("output_layer.weight", (m.vocab, m.hidden))
        for layer in range(m.layers):
            for name, tensor in self._layer(layer):
                yield f"model.layers.{layer}.{name}", tensor

    def _layer(self, layer: int) -> Iterator[tuple[str, Tensor]]:
        m = self.model

        def at(key: str, *shape: int) -> Tensor:
            return _whole(f"decoder.layers.{key}", shape, (m.layers, layer))

        yield "input_layernorm.weight", at("self_attention.linear_qkv.layer_norm_weight", m.hidden)
        for part in "qkv":
            yield f"self_attn.{part}_proj.weight", self._attention(part, layer)
        yield "self_attn.q_norm.weight", at("self_attention.q_layernorm.weight", m.head_dim)
        yield "self_attn.k_norm.weight", at("self_attention.k_layernorm.weight", m.head_dim)
        yield "self_attn.o_proj.weight", at("self_attention.linear_proj.weight", m.hidden, m.heads * m.head_dim)
        if not m.experts:
            yield "post_attention_layernorm.weight", at("mlp.linear_fc1.layer_norm_weight", m.hidden)
            yield from self._gated("mlp", "mlp", m.ffn, (m.layers, layer))
            return
        yield "post_attention_layernorm.weight", at("pre_mlp_layernorm.weight", m.hidden)
        yield "mlp.gate.weight", at("mlp.router.weight", m.experts, m.hidden)
        for expert in range(m.experts):
            name = f"mlp.experts.{expert}"
            yield from self._gated(name, "mlp.experts.experts", m.expert_ffn, (m.layers, layer), (m.experts, expert))

    def _gated(self, name: str, key: str, ffn: int, *lead: Axis) -> Iterator[tuple[str, Tensor]]:
        """gate and up are fc1's first and second half."""
        fc1, fc2 = (f"decoder.layers.{key}.linear_{part}.weight" for part in ("fc1", "fc2"))
        hidden = self.model.hidden
        yield f"{name}.gate_proj.weight", _whole(fc1, (ffn, hidden), *lead, rows=2 * ffn)
        yield f"{name}.up_proj.weight", _whole(fc1, (ffn, hidden), *lead, first=ffn, rows=2 * ffn)
        yield f"{name}.down_proj.weight", _whole(fc2, (hidden, ffn), *lead)

    def _attention(self, part: str, layer: int) -> Tensor:
        """linear_qkv's rows: for each key-value head its R query heads, its key, its value."""
        m = self.model
        queries = m.heads // m.kv_heads
        before, count = {"q": (0, queries), "k": (queries, 1), "v": (queries + 1, 1)}[part]
        rows, group = count * m.head_dim, (queries + 2) * m.head_dim
        shape = (m.layers, m.kv_heads * group, m.hidden)
        places = [
            Place(
                "decoder.layers.self_attention.linear_qkv.weight",
                shape,
                (layer, head * group + before * m.head_dim, 0),
                (1, rows, m.hidden),
                head * rows,
                (head + 1) * rows,
            )
            for head in range(m.kv_heads)
        ]
        return Tensor((m.kv_heads * rows, m.hidden), places)

    def extra_states(self) -> Iterator[str]:
        """Keys of the objects that layers ask for beside their weights (`_extra_state`), which are all None here.

        Which layers ask depends on their classes: more of them than any one model wants.
        """
        m = self.model
        layers = ["linear_qkv", "linear_proj", "core_attention", "q_layernorm", "k_layernorm"]
        modules = [f"self_attention.{name}" for name in layers]
        modules += ["pre_mlp_layernorm"] if m.experts else ["mlp.linear_fc1", "mlp.linear_fc2"]
        yield "decoder.final_layernorm._extra_state/shard_0_1"
        for layer in range(m.layers):
            for module in modules:
                yield f"decoder.layers.{module}._extra_state/shard_{layer}_{m.layers}"
            for expert in range(m.experts):
                for linear in ("linear_fc1", "linear_fc2"):
                    key = f"decoder.layers.mlp.experts.experts.{linear}._extra_state"
                    yield f"{key}/shard_{layer}.{expert}_{m.layers}.{m.experts}"
