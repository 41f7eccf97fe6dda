"""`Job`: a resolved configuration with the short names that checks and estimates use."""

from dataclasses import dataclass, field
from functools import cached_property
from typing import Any

from omegaconf import DictConfig, OmegaConf

from qwen3_rl.dry_run.model import ModelShape
from qwen3_rl.npugraph.settings import GraphSettings, read_settings, whole

ACTOR = "actor_rollout_ref.actor"
ROLLOUT = "actor_rollout_ref.rollout"
ENGINE = f"{ROLLOUT}.engine_kwargs.vllm"
# Whole numbers of 1 or more, where they are set at all.
COUNTS = (
    *("trainer.nnodes", "trainer.n_gpus_per_node", "data.train_batch_size"),
    *("data.max_prompt_length", "data.max_response_length", f"{ACTOR}.ppo_mini_batch_size"),
    *(f"{ROLLOUT}.{name}" for name in ("n", "max_num_seqs", "max_num_batched_tokens")),
    *(f"{ROLLOUT}.{kind}_parallel_size" for kind in ("tensor_model", "data", "expert")),
    *(
        f"{ACTOR}.megatron.{kind}_parallel_size"
        for kind in ("tensor_model", "pipeline_model", "context", "expert_model", "expert_tensor")
    ),
)


@dataclass(frozen=True)
class Job:
    """One training job: veRL's configuration, the environment it runs in, the model's numbers where known."""

    config: DictConfig
    module: str = "verl.trainer.main_ppo"
    environment: dict[str, str] = field(default_factory=dict)
    shape: ModelShape | None = None

    def get(self, key: str, default: Any = None) -> Any:
        """The value at ``key``; ``default`` where it is absent or null."""
        value = OmegaConf.select(self.config, key, throw_on_missing=False)
        return default if value is None else value

    def check_values(self) -> None:
        """Raises UserError naming a setting whose value can't be read, so that checks need not."""
        for key in COUNTS:
            if (value := self.get(key)) is not None:
                whole(key, value)
        self.graph_settings  # noqa: B018

    def actor(self, key: str, default: Any = None) -> Any:
        return self.get(f"{ACTOR}.{key}", default)

    def rollout(self, key: str, default: Any = None) -> Any:
        return self.get(f"{ROLLOUT}.{key}", default)

    def engine(self, key: str, default: Any = None) -> Any:
        return self.get(f"{ENGINE}.{key}", default)

    def megatron(self, key: str, default: Any = None) -> Any:
        return self.actor(f"megatron.{key}", default)

    @cached_property
    def megatron_settings(self) -> dict[str, Any]:
        return OmegaConf.to_container(OmegaConf.select(self.config, f"{ACTOR}.megatron"), resolve=True)

    @cached_property
    def rollout_settings(self) -> DictConfig:
        return OmegaConf.select(self.config, ROLLOUT)

    def transformer(self, key: str, default: Any = None) -> Any:
        return self.megatron(f"override_transformer_config.{key}", default)

    @cached_property
    def is_megatron(self) -> bool:
        return self.actor("strategy") == "megatron"

    @cached_property
    def dies(self) -> int:
        return self.get("trainer.nnodes") * self.get("trainer.n_gpus_per_node")

    @cached_property
    def tp(self) -> int:
        return self.megatron("tensor_model_parallel_size", 1) if self.is_megatron else 1

    @cached_property
    def pp(self) -> int:
        return self.megatron("pipeline_model_parallel_size", 1) if self.is_megatron else 1

    @cached_property
    def cp(self) -> int:
        """Dies that share a sequence: context parallelism, or Ulysses with FSDP."""
        if self.is_megatron:
            return self.megatron("context_parallel_size", 1)
        return max(
            self.actor("ulysses_sequence_parallel_size", 1), self.actor("fsdp_config.ulysses_sequence_parallel_size", 1)
        )

    @cached_property
    def ep(self) -> int:
        return self.megatron("expert_model_parallel_size", 1) if self.is_megatron else 1

    @cached_property
    def etp(self) -> int:
        return self.megatron("expert_tensor_parallel_size", self.tp) if self.is_megatron else 1

    @cached_property
    def dp(self) -> int:
        """Replicas of the model in training, at least 1."""
        return max(self.dies // (self.tp * self.pp * self.cp), 1)

    @cached_property
    def sequence(self) -> int:
        """Tokens of the longest sequence."""
        return self.get("data.max_prompt_length") + self.get("data.max_response_length")

    @cached_property
    def rollout_tp(self) -> int:
        return self.rollout("tensor_model_parallel_size")

    @cached_property
    def rollout_dp(self) -> int:
        return self.rollout("data_parallel_size", 1)

    @cached_property
    def draft_tokens(self) -> int:
        """Draft tokens a request and step, 0 without speculation."""
        return self.graph_settings.k

    @cached_property
    def stage_layers(self) -> list[int] | None:
        """Layers of each pipeline stage; None if they cannot be divided."""
        if self.shape is None:
            return None
        first = self.transformer("num_layers_in_first_pipeline_stage") if self.is_megatron else None
        last = self.transformer("num_layers_in_last_pipeline_stage") if self.is_megatron else None
        rest = self.shape.layers - (first or 0) - (last or 0)
        stages = self.pp - (first is not None) - (last is not None)
        if rest < 0 or (stages and rest % stages) or (not stages and rest):
            return None
        return [first] * (first is not None) + [rest // stages] * stages + [last] * (last is not None) if stages else [
            size for size in (first, last) if size is not None
        ]  # fmt: skip

    @cached_property
    def graph_settings(self) -> GraphSettings:
        """What the rollout's settings say about graphs."""
        engine = OmegaConf.select(self.config, ENGINE)
        engine = OmegaConf.to_container(engine, resolve=True) if engine is not None else {}
        return read_settings(engine, self.rollout_settings, self.environment)
