"""The estimate of memory: known numbers, and how parts go with the settings."""

from dataclasses import replace

import pytest
from shipped_scripts import ROOT, check, write_tiny_config

from qwen3_rl.dry_run.memory import GIB, stage_parameters
from qwen3_rl.dry_run.model import PUBLISHED, shape_of
from qwen3_rl.errors import UserError

GRPO32 = ROOT / "internal/train_grpo_qwen3_32b_32die_true_weight.sh"
GRPO235 = ROOT / "internal/train_grpo_qwen3_235b_128die_true_weight.sh"
CPU = ROOT / "internal/train_grpo_qwen3_tiny_cpu.sh"

# "Number of Parameters" of the model cards, in billions.
CARDS = {"Qwen3-235B-A22B": 235, "Qwen3-32B": 32.8, "Qwen3-4B": 4.0}


@pytest.mark.parametrize("name", CARDS)
def test_parameters_are_those_of_the_model_cards(name):
    assert PUBLISHED[name].parameters / 1e9 == pytest.approx(CARDS[name], rel=0.01)


def test_parameters_are_those_of_transformers(tmp_path):
    """A tiny dense and a tiny mixture-of-experts model, counted by their own classes."""
    from transformers import Qwen3Config, Qwen3ForCausalLM, Qwen3MoeConfig, Qwen3MoeForCausalLM

    common = {"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 3, "num_attention_heads": 4}
    common |= {"num_key_value_heads": 2, "head_dim": 16, "vocab_size": 100}
    models = {
        "dense": Qwen3ForCausalLM(Qwen3Config(**common, tie_word_embeddings=False)),
        "tied": Qwen3ForCausalLM(Qwen3Config(**common, tie_word_embeddings=True)),
        "moe": Qwen3MoeForCausalLM(
            Qwen3MoeConfig(**common, num_experts=8, num_experts_per_tok=2, moe_intermediate_size=24)
        ),
    }
    for name, model in models.items():
        model.config.save_pretrained(tmp_path / name)
        shape, source = shape_of(tmp_path / name)
        assert shape.parameters == model.num_parameters()
        assert source.endswith("config.json")


def test_a_config_that_is_none(tmp_path):
    (tmp_path / "config.json").write_text('{"model_type": "clip"}')
    with pytest.raises(UserError, match="num_attention_heads"):
        shape_of(tmp_path)


def test_the_dies_hold_the_model_once():
    """The dense parameters of all stages times TP, the experts' times EP: the whole model."""
    job = check(GRPO235).job
    shape = job.shape
    dense = experts = 0.0
    for layers in job.stage_layers:
        one = replace(job, shape=replace(shape, layers=layers, vocab=0))
        one.__dict__["stage_layers"] = [layers]
        part = stage_parameters(one, one.shape)
        dense, experts = dense + part[0] * job.tp, experts + part[1] * job.ep
    assert experts == shape.layers * shape.expert_parameters
    assert dense + experts + 2 * shape.embedding_parameters + shape.hidden == shape.parameters


def test_kv_cache_and_weights_fill_the_share_of_the_die():
    memory = check(GRPO32).memory
    assert memory.generation_bytes == pytest.approx(0.87 * 64 * GIB)
    assert memory.generation[0].bytes == pytest.approx(2 * PUBLISHED["Qwen3-32B"].parameters / 8)


def test_offload_moves_the_optimizer_to_the_host():
    part = next(part for part in check(GRPO32).memory.training if part.name == "optimizer")
    assert part.moved
    transformer = "actor_rollout_ref.actor.megatron.override_transformer_config"
    kept = check(GRPO32, f"{transformer}.swap_optimizer=False").memory
    assert kept.training_bytes - check(GRPO32).memory.training_bytes == pytest.approx(part.bytes)


def test_the_cpu_job_is_near_what_was_measured(tmp_path):
    """7.3 GB: the quickstart's peak of proportional set sizes (2 cores x86-64, 2026-11-30)."""
    memory = check(CPU, MODEL_PATH=str(write_tiny_config(tmp_path))).memory
    assert memory.machine_bytes == pytest.approx(7.3e9, rel=0.25)
