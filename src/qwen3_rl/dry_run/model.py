"""The numbers of a model that checks and estimates need, from its config.json or from what its publisher states."""

from dataclasses import dataclass
from pathlib import Path

from pydantic import BaseModel, NonNegativeInt, PositiveInt

from qwen3_rl import typed_json
from qwen3_rl.errors import UserError

ADVICE = "take the config.json that belongs to the model"


@dataclass(frozen=True)
class ModelShape:
    """A Qwen3 decoder. experts = 0: dense; expert_ffn is the width of one expert. Counts, no units."""

    layers: int
    hidden: int
    heads: int
    kv_heads: int
    head_dim: int
    ffn: int
    vocab: int
    max_positions: int
    tied: bool = False
    experts: int = 0
    experts_per_token: int = 0
    expert_ffn: int = 0

    @property
    def attention_parameters(self) -> int:
        """Of one layer: query, key, value, output, and the norms."""
        projections = self.hidden * self.head_dim * (2 * self.heads + 2 * self.kv_heads)
        return projections + 2 * self.hidden + 2 * self.head_dim

    @property
    def ffn_parameters(self) -> int:
        """Of one layer, without experts: gate, up and down, or the router."""
        return self.hidden * self.experts if self.experts else 3 * self.hidden * self.ffn

    @property
    def expert_parameters(self) -> int:
        """Of all experts of one layer."""
        return self.experts * 3 * self.hidden * self.expert_ffn

    @property
    def embedding_parameters(self) -> int:
        return self.vocab * self.hidden

    @property
    def parameters(self) -> int:
        """All of them."""
        layer = self.attention_parameters + self.ffn_parameters + self.expert_parameters
        return self.layers * layer + self.hidden + self.embedding_parameters * (1 if self.tied else 2)


# Published at https://huggingface.co/Qwen/<name>/blob/main/config.json. Used while MODEL_PATH has no config.json.
PUBLISHED = {
    "Qwen3-235B-A22B": ModelShape(
        layers=94, hidden=4096, heads=64, kv_heads=4, head_dim=128, ffn=12288, vocab=151936, max_positions=40960,
        experts=128, experts_per_token=8, expert_ffn=1536,
    ),
    "Qwen3-32B": ModelShape(
        layers=64, hidden=5120, heads=64, kv_heads=8, head_dim=128, ffn=25600, vocab=151936, max_positions=40960
    ),
    "Qwen3-4B": ModelShape(
        layers=36, hidden=2560, heads=32, kv_heads=8, head_dim=128, ffn=9728, vocab=151936, max_positions=40960,
        tied=True,
    ),
}  # fmt: skip


def shape_of(path: Path) -> tuple[ModelShape | None, str]:
    """The model at ``path`` and where its numbers come from; None if nothing is known of it.

    Raises UserError for a config.json that is not one of a decoder.
    """
    file = path / "config.json"
    if file.is_file():
        return _shape(read_config(file), file), str(file)
    for name, shape in PUBLISHED.items():
        if path.name.startswith(name):
            return shape, f"published numbers of {name}, because {path} has no config.json"
    return None, f"nothing is known of the model: {path} has no config.json"


class Config(BaseModel):
    """What is used of a config.json; names, meanings and defaults are transformers'."""

    num_attention_heads: PositiveInt
    num_hidden_layers: PositiveInt
    hidden_size: PositiveInt
    num_key_value_heads: PositiveInt | None = None
    head_dim: PositiveInt | None = None
    intermediate_size: PositiveInt
    vocab_size: PositiveInt
    max_position_embeddings: PositiveInt
    tie_word_embeddings: bool = False
    num_experts: NonNegativeInt = 0
    num_experts_per_tok: NonNegativeInt = 0
    moe_intermediate_size: NonNegativeInt = 0
    architectures: list[str] | None = None
    attention_bias: bool = False
    mlp_only_layers: list[int] | None = None
    decoder_sparse_step: int = 1


def read_config(file: Path) -> Config:
    """Raises UserError naming the first key that is not what transformers takes."""
    return typed_json.parse(Config, file, file.read_bytes(), ADVICE)


def _shape(config: Config, file: Path) -> ModelShape:
    if config.num_experts and not config.moe_intermediate_size:
        raise UserError(f"{file}: {config.num_experts} experts, but moe_intermediate_size is missing or 0", ADVICE)
    return ModelShape(
        layers=config.num_hidden_layers,
        hidden=config.hidden_size,
        heads=config.num_attention_heads,
        kv_heads=config.num_key_value_heads or config.num_attention_heads,
        head_dim=config.head_dim or config.hidden_size // config.num_attention_heads,
        ffn=config.intermediate_size,
        vocab=config.vocab_size,
        max_positions=config.max_position_embeddings,
        tied=config.tie_word_embeddings,
        experts=config.num_experts,
        experts_per_token=config.num_experts_per_tok,
        expert_ffn=config.moe_intermediate_size,
    )
