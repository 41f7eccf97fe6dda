"""Converted sets in the patched veRL: its dataset class loads them, its reward manager scores them."""

import asyncio

import pytest

from qwen3_rl.cli import main

from .raw_files import published

pytest.importorskip("verl", reason="needs build_project.sh --target cpu")
pytest.importorskip("math_verify", reason="needs build_project.sh --target cpu")


@pytest.fixture(scope="module")
def tokenizer():
    from qwen3_rl.data.tiny_model import build_tokenizer

    return build_tokenizer()


def load(path, tokenizer, cache):
    from omegaconf import OmegaConf
    from verl.utils.dataset.rl_dataset import RLHFDataset

    config = {"max_prompt_length": 2048, "filter_overlong_prompts": True, "cache_dir": str(cache)}
    config["filter_overlong_prompts_workers"] = None
    return RLHFDataset(str(path), tokenizer, OmegaConf.create(config))


def reward_of(row: dict, response: str, module: str, tokenizer, manager: str) -> dict:
    """What veRL's reward manager makes of ``response``, with the reward named as a train script names it."""
    import numpy as np
    import torch
    from omegaconf import OmegaConf
    from verl import DataProto
    from verl.trainer.ppo.reward import load_reward_manager

    custom = {"path": f"pkg://{module}", "name": "compute_score", "reward_kwargs": {}} if module else {"path": None}
    config = {"custom_reward_function": custom, "reward_manager": {"source": "register", "name": manager}}
    ids = torch.tensor([tokenizer.encode(response)])
    batch = DataProto.from_dict(
        tensors={"responses": ids, "attention_mask": torch.ones_like(ids)},
        non_tensors={key: np.array([row[key]], dtype=object) for key in ("data_source", "reward_model", "extra_info")},
    )

    async def score() -> dict:
        return await load_reward_manager(OmegaConf.create({"reward": config}), tokenizer).run_single(batch)

    return asyncio.run(score())


MATH = "qwen3_rl.rewards.math"
RIGHT = {
    "gsm8k": "so\n#### {}",
    "deepscaler": "so \\boxed{{{}}}",
    "dapo-math": "so\nAnswer: {}",
    "aime": "so\nAnswer: {}",
}
WRONG = {name: response.format("12") for name, response in RIGHT.items()}


@pytest.mark.parametrize(
    ("form", "module", "manager"),
    [
        ("gsm8k hub", "qwen3_rl.rewards.gsm8k", "naive"),
        ("deepscaler array", MATH, "naive"),
        ("dapo-math parquet", MATH, "dapo"),
        ("aime verl", MATH, "dapo"),
        ("aime parquet", MATH, "naive"),
    ],
)
def test_a_converted_set_loads_and_is_scored(form, module, manager, tmp_path, tokenizer):
    name = form.split()[0]
    assert main(["data", name, "--from", str(published(tmp_path)[form]), "--to", str(tmp_path / "out")]) == 0
    for path in (tmp_path / "out").iterdir():
        dataset = load(path, tokenizer, tmp_path)
        assert len(dataset) > 0
        for index, row in enumerate([dataset[n] for n in range(len(dataset))]):
            assert row["index"] == index
            assert tokenizer.apply_chat_template(row["raw_prompt"], add_generation_prompt=True)
            truth = row["reward_model"]["ground_truth"]
            assert reward_of(row, RIGHT[name].format(truth), module, tokenizer, manager)["reward_score"] == 1.0
            assert reward_of(row, WRONG[name], module, tokenizer, manager)["reward_score"] == 0.0


@pytest.mark.parametrize("form", ["gsm8k hub", "dapo-math parquet", "aime parquet"])
def test_verls_own_rewards_know_the_sets(form, tmp_path, tokenizer):
    """Without a reward of ours, veRL chooses one by data_source; its wrong answer is 0 in GSM8K, -1 in DAPO's."""
    name = form.split()[0]
    assert main(["data", name, "--from", str(published(tmp_path)[form]), "--to", str(tmp_path / "out")]) == 0
    row = load(next((tmp_path / "out").iterdir()), tokenizer, tmp_path)[0]
    right = RIGHT[name].format(row["reward_model"]["ground_truth"])
    assert reward_of(row, right, "", tokenizer, "naive")["reward_score"] == 1.0
    assert reward_of(row, WRONG[name], "", tokenizer, "naive")["reward_score"] == (0.0 if name == "gsm8k" else -1.0)
