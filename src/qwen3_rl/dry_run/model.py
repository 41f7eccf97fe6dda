"""The numbers of a model that checks and estimates need, from its config.json or from what its publisher states."""

import json
from dataclasses import dataclass
from pathlib import Path

from qwen3_rl.errors import UserError


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
        try:
            return _read(json.loads(file.read_text())), str(file)
        except (ValueError, KeyError) as error:
            raise UserError(f"{file}: {error!r}", "take the config.json that belongs to the model") from error
    for name, shape in PUBLISHED.items():
        if path.name.startswith(name):
            return shape, f"published numbers of {name}, because {path} has no config.json"
    return None, f"nothing is known of the model: {path} has no config.json"


def _read(config: dict) -> ModelShape:
    heads = config["num_attention_heads"]
    return ModelShape(
        layers=config["num_hidden_layers"],
        hidden=config["hidden_size"],
        heads=heads,
        kv_heads=config.get("num_key_value_heads", heads),
        head_dim=config.get("head_dim") or config["hidden_size"] // heads,
        ffn=config["intermediate_size"],
        vocab=config["vocab_size"],
        max_positions=config["max_position_embeddings"],
        tied=config.get("tie_word_embeddings", False),
        experts=config.get("num_experts", 0),
        experts_per_token=config.get("num_experts_per_tok", 0),
        expert_ffn=config.get("moe_intermediate_size", 0),
    )
