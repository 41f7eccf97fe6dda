"""Train scripts broken on purpose, each with the message that the dry run must give."""

import re

import pytest
from shipped_scripts import ROOT, check

from qwen3_rl.dry_run import errors
from qwen3_rl.dry_run.command import Command
from qwen3_rl.dry_run.keys import compose_config
from qwen3_rl.dry_run.upstream import vllm_speculation
from qwen3_rl.errors import UserError

A = "actor_rollout_ref.actor."
R = "actor_rollout_ref.rollout."
M = f"{A}megatron."
T = f"{M}override_transformer_config."
E = f"{R}engine_kwargs.vllm."

GRPO32 = "train_grpo_qwen3_32b_32die_true_weight.sh"
DAPO32 = "train_dapo_qwen3_32b_32die_true_weight.sh"
GRPO235 = "train_grpo_qwen3_235b_128die_true_weight.sh"
GSM8K = "train_grpo_qwen3_4b_16die_gsm8k.sh"
CPU = "train_grpo_qwen3_tiny_cpu.sh"

# (script, settings by environment, overrides, what one error must say)
BROKEN = [
    # Keys.
    (GRPO32, {}, ["trainer.nnode=2"], r"trainer.nnode: veRL has no such key; the nearest is trainer.nnodes"),
    (GRPO32, {}, [f"{A}clip_ratio_hi=0.3"], r"clip_ratio_hi: .* nearest is actor_rollout_ref.actor.clip_ratio_high"),
    (CPU, {}, ["algorithm.filter_groups.enable=True"], r"filter_groups.enable: veRL has no such key"),
    (GRPO32, {}, [f"+{A}recompute_old_log_prob=False"], r"recompute_old_log_prob: actor_rollout_ref.actor has no such"),
    (GRPO32, {}, ["+trainer.nnodes=2"], r"\+trainer.nnodes: veRL has this key already; write it without \+"),
    (GRPO32, {}, ["+trainer.profile_all=True"], r"nothing in veRL reads a key profile_all"),
    (GRPO32, {}, ["data.train_batch_size=[32"], r"'data.train_batch_size=\[32' is no Hydra override"),
    (GRPO32, {}, [f"+{E}max_seqs=4"], r"vLLM has no such argument; the nearest is max_\w+"),
    (GRPO32, {}, [f"+{E}speculative_config.num_tokens=4"], r"speculative_config.num_tokens: vLLM has no such field"),
    (GRPO32, {}, [f"+{E}additional_config.enable_npu_graph=True"], r"enable_npu_graph: vLLM-Ascend reads no such"),
    # Types and values that veRL itself refuses.
    (GRPO32, {}, ["trainer.nnodes=two"], r"trainer.nnodes = 'two' is no whole number of 1 or more"),
    (CPU, {}, [f"{R}tensor_model_parallel_size=0"], r"tensor_model_parallel_size = 0 is no whole number of 1 or more"),
    (CPU, {}, [f"{R}name=???"], r"Missing mandatory value: .*rollout.name"),
    (GRPO32, {}, [f"{A}loss_agg_mode=tokens"], r"Invalid loss_agg_mode: tokens"),
    (GRPO32, {}, [f"{R}mode=sync"], r"Rollout mode 'sync' has been removed"),
    (CPU, {}, [f"{A}ppo_micro_batch_size=4"], r"have set both 'actor.ppo_micro_batch_size' AND"),
    (CPU, {}, [f"{R}log_prob_micro_batch_size_per_gpu=null"], r"Please set at least one of .*log_prob_micro"),
    # Dies.
    (GRPO32, {"NNODES": "3", "CP": "2"}, [], r"TP \* PP \* CP = 32 does not divide the 48 dies"),
    (GRPO32, {"TP": "16", "CP": "1"}, [], r"tensor_model_parallel_size = 16 does not divide the model's 8 key-value"),
    (GRPO32, {"PP": "4", "CP": "1"}, [f"+{T}num_layers_in_first_pipeline_stage=15"], r"64 layers cannot be divided"),
    (GRPO32, {}, [f"{M}expert_model_parallel_size=2"], r"expert_model_parallel_size = 2, but the model has no experts"),
    (GRPO235, {"EP": "24"}, [], r"EP \* ETP \* PP = 24 \* 1 \* 4 does not divide the 128 dies"),
    (GRPO235, {"FIRST_STAGE": "22"}, [], r"94 layers cannot be divided over PP = 4 stages, with 22 in the first"),
    (GRPO32, {"ROLLOUT_TP": "5"}, [], r"replica takes 5 dies .* which do not divide 32"),
    (GRPO235, {}, [f"{R}expert_parallel_size=1"], r"data_parallel_size = 4 without expert_parallel_size"),
    (GRPO235, {}, [f"{R}expert_parallel_size=8"], r"expert_parallel_size must be equal to tensor_model_parallel_size"),
    (GSM8K, {}, ["trainer.n_gpus_per_node=32"], r"n_gpus_per_node = 32, but a node offers NPUS_PER_NODE = 16"),
    # Batches and lengths.
    (GRPO32, {"MINI_BATCH": "64"}, [], r"train_batch_size = 32 is less than actor.ppo_mini_batch_size = 64"),
    (GRPO32, {"MINI_BATCH": "24"}, [], r"ppo_mini_batch_size = 24 does not divide data.train_batch_size = 32"),
    (GSM8K, {"TRAIN_BATCH": "514", "MINI_BATCH": "257"}, [], r"514 \* 5 responses cannot be divided over 16 replicas"),
    (GRPO32, {"RESPONSES": "1"}, [], r"rollout.n = 1: GRPO compares the responses of a group"),
    (GSM8K, {}, [f"{A}ppo_max_token_len_per_gpu=2000"], r"= 2000 times 1 dies .* less than the longest sequence, 2048"),
    (GRPO32, {}, [f"{R}max_model_len=32768"], r"max_model_len = 32768 is less than prompt \+ response, 36864 tokens"),
    (GRPO32, {"RESPONSE_LENGTH": "40000"}, [], r"max_model_len = 42048 is more than the model's 40960 positions"),
    # Rollout.
    (GRPO32, {"GRAPH_SIZES": "16,30,64"}, [], r"capture sizes \[30\] are no multiples of 4"),
    (GRPO32, {"MAX_NUM_SEQS": "16", "GRAPH_SIZES": "64,128"}, [], r"capture size 128 is never reached: max_num_seqs"),
    (
        GRPO32,
        {"GRAPH_SIZES": "4,8"},
        [f"+{E}compilation_config.cudagraph_capture_sizes=[4,8,16]"],
        r"rollout.cudagraph_capture_sizes and compilation_config.cudagraph_capture_sizes differ",
    ),
    (GRPO32, {"VLLM_ENABLE_GRAPH_MODE": "0"}, [f"+{E}additional_config.enable_npugraph_ex=True"], r"MODE=0 with addit"),
    ("train_grpo_qwen3_4b_8gpu_gsm8k.sh", {"VLLM_ENABLE_GRAPH_MODE": "1"}, [], r"MODE=1 with rollout.enforce_eager"),
    (GRPO32, {"ASCEND_LAUNCH_BLOCKING": "1"}, [], r"enable_npugraph_ex with ASCEND_LAUNCH_BLOCKING=1"),
    (GRPO32, {"GRAPH_SIZES": "0,4"}, [], r"rollout.cudagraph_capture_sizes\[0\] = 0 is no whole number"),
    (GRPO32, {"GRAPH_SIZES": "abc"}, [], r"rollout.cudagraph_capture_sizes\[0\] = 'abc' is no whole number"),
    (GRPO32, {"MAX_NUM_SEQS": "-1"}, [], r"rollout.max_num_seqs = -1 is no whole number"),
    (GRPO32, {"MAX_NUM_SEQS": "x"}, [], r"rollout.max_num_seqs = 'x' is no whole number"),
    (GRPO32, {}, [f"+{E}additional_config.enable_static_kernel=yes"], r"enable_static_kernel: 'yes' is neither True"),
    (GRPO235, {"EP": "x"}, [], r"expert_model_parallel_size = 'x' is no whole number"),
    (GRPO32, {"DRAFT_TOKENS": "16"}, [], r"num_speculative_tokens=16: attention takes at most 15"),
    (GRPO235, {}, [f"+{E}additional_config.enable_one_token_graphs=True"], r"with data_parallel_size=4: ranks would"),
    (GRPO32, {}, [f"+{E}compilation_config.cudagraph_mode=PIECEWISE"], r"cudagraph_mode=PIECEWISE: that turns it off"),
    (GRPO32, {}, [f"{R}enforce_eager=True"], r"enable_npugraph_ex with rollout.enforce_eager=True"),
    (GRPO32, {}, [f"+{E}additional_config.npugraph_ex_config.enable=True"], r"npugraph_ex_config"),
    (GRPO32, {}, [f"{E}speculative_config.method=sma"], r"method = sma: the vLLM checkout has no such method"),
    (GRPO32, {"MEMORY_UTILIZATION": "1.2"}, [], r"gpu_memory_utilization = 1.2 is not between 0 and 1"),
    (GRPO235, {"VLLM_DP_SIZE": "1"}, [], r"rollout weights of 1\d\d.\d GiB a die leave no KV cache in 64 GiB"),
    (CPU, {}, [f"{R}free_cache_engine=True"], r"free_cache_engine=True needs vLLM's sleep mode"),
    (GRPO32, {}, [f"{R}checkpoint_engine.update_weights_bucket_megabytes=512"], r"less than the largest tensor"),
    (GRPO32, {"VLLM_SPECULATIVE_BATCH_SIZE_THRE": "many"}, [], r"'many' is no number of requests"),
    # Training.
    (GRPO32, {}, [f"{M}optimizer_offload=True"], r"optimizer_offload and swap_optimizer both move the optimizer's"),
    (GRPO32, {}, [f"{T}cp_window_size=2"], r"cp_window_size = 2 must be below context_parallel_size = 2"),
    (GRPO32, {}, [f"{T}recompute_method=null"], r"recompute_granularity=full needs recompute_method"),
    (GRPO235, {}, [f"{T}moe_grouped_gemm=False"], r"moe_alltoall_overlap_comm needs moe_grouped_gemm=True"),
    (GRPO235, {}, [f"{T}moe_alltoall_overlap_comm=False"], r"USE_ALLTOALL_OVERLAP = 1, but .*overlap_comm = False"),
    (GRPO235, {"USE_ALLTOALL_OVERLAP": "yes"}, [], r"USE_ALLTOALL_OVERLAP = 'yes' is neither 0 nor 1"),
    (GRPO235, {"ALL_TO_ALL_RESHARD": "on"}, [], r"ALL_TO_ALL_RESHARD = 'on' is neither 0 nor 1"),
    (
        *(GRPO235, {"ALL_TO_ALL_RESHARD": "1"}, ["trainer.use_legacy_worker_impl=disable"]),
        r"ALL_TO_ALL_RESHARD=1 does not work with trainer.use_legacy_worker_impl=disable, .*: set that to auto",
    ),
    (
        *(GRPO235, {"ALL_TO_ALL_RESHARD": "1", "VLLM_ENABLE_EXPERT_PARALLEL": "0"}, []),
        r"ALL_TO_ALL_RESHARD=1 does not work with rollout.expert_parallel_size=1, .*: set VLLM_ENABLE_EXPERT",
    ),
    (GRPO235, {}, [f"{T}moe_token_dispatcher_type=allgather"], r"needs moe_token_dispatcher_type alltoall"),
    (GRPO235, {}, ["actor_rollout_ref.actor.megatron.use_mbridge=True"], r"use_mbridge=True knows no grouped"),
    (GRPO235, {}, [f"{T}moe_zero_memory=level2"], r"moe_zero_memory = 'level2' is none of disable, level0, level1"),
    (GRPO235, {}, [f"{M}dist_checkpointing_path=null"], r"use_dist_checkpointing=True needs actor.megatron.dist_check"),
    (GRPO235, {}, [f"{A}load_weight=False"], r"actor.load_weight and ref.load_weight differ"),
    # DAPO, the sampler.
    (GRPO32, {}, ["+algorithm.filter_groups.enable=True"], r"filter_groups is ignored by verl.trainer.main_ppo"),
    (DAPO32, {}, ["algorithm.filter_groups.metric=null"], r"needs algorithm.filter_groups.metric, such as acc"),
    (DAPO32, {"GEN_BATCH": "2"}, [], r"gen_batch_size = 10 \* 2 prompts cannot fill a batch of 32"),
    (DAPO32, {}, [f"{R}calculate_log_probs=False"], r"rollout_correction needs the rollout's log-probabilities"),
    (DAPO32, {"OVERLONG_PENALTY": "True", "OVERLONG_BUFFER": "40000"}, [], r"overlong_buffer_cfg.len = 40000 is not"),
    (DAPO32, {}, [f"{A}clip_ratio_high=0.1"], r"clip_ratio_high = 0.1 is below actor.clip_ratio_low = 0.2"),
    (GRPO32, {"VLLM_ROLLOUT_EARLY_STOP_ENABLE": "1"}, [], r"EARLY_STOP_ENABLE=1 needs the length-aware sampler"),
    (GRPO32, {}, ["data.sampler.class_path=a", "data.sampler.class_name=B"], r"needs data.dataloader_num_workers=0"),
]  # fmt: skip


@pytest.mark.parametrize(("script", "settings", "overrides", "message"), BROKEN, ids=[row[3][:40] for row in BROKEN])
def test_the_message(script, settings, overrides, message):
    result = check(ROOT / "internal" / script, *overrides, **settings)
    said = [str(finding) for finding in errors(result.findings)]
    assert any(re.search(message, line) for line in said), said


@pytest.mark.parametrize(
    ("script", "name", "value", "message"),
    [
        (GRPO32, "VLLM_ENABLE_GRAPH_MODE", "yes", "is neither 0 nor 1"),
        (GRPO235, "VLLM_ENABLE_EXPERT_PARALLEL", "yes", "is neither 0 nor 1"),
        (GRPO32, "DRAFT_TOKENS", "3.5", "is no whole number"),
        (GRPO32, "DRAFT_TOKENS", "-1", "is no whole number"),
        (GRPO32, "DRAFT_TOKENS", "x", "is no whole number"),
        *((GRPO32, name, "abc", "is no whole number of 1 or more") for name in ("TP", "PP", "CP", "RESPONSE_LENGTH")),
        (GRPO32, "NNODES", "08", "is no whole number of 1 or more"),
        *((GRPO235, name, "1.5", "is no whole number of 1 or more") for name in ("PP", "ROLLOUT_TP", "VLLM_DP_SIZE")),
        (CPU, "TRAIN_BATCH", "abc", "is no whole number of 1 or more"),
    ],
)
def test_a_value_that_the_script_refuses(script, name, value, message):
    with pytest.raises(UserError, match=f"exit code 2.*{name} = {value} {message}"):
        check(ROOT / "internal" / script, **{name: value})


@pytest.mark.parametrize("value", ["abc", "1.5", "0"])
@pytest.mark.parametrize("name", ["NNODES", "NPUS_PER_NODE"])
@pytest.mark.parametrize("script", [GRPO32, GSM8K])
def test_a_setting_that_the_launcher_refuses(script, name, value):
    """Said before the script reckons with it, in the launcher's words."""
    with pytest.raises(UserError, match=f"^{name}='{value}': Input should be .*next: set it right in the env script"):
        check(ROOT / "internal" / script, **{name: value})


def test_an_empty_switch_is_the_default():
    found = check(ROOT / "internal" / GRPO235, ALL_TO_ALL_RESHARD="", VLLM_ENABLE_GRAPH_MODE="").findings
    assert errors(found) == []


def test_there_are_forty():
    assert len(BROKEN) >= 40


def test_a_configuration_that_does_not_exist():
    with pytest.raises(UserError, match="no configuration ppo_megatron") as caught:
        compose_config(Command("verl.trainer.main_ppo", "ppo_megatron", ()), ROOT / "frameworks")
    assert "ppo_megatron_trainer" in caught.value.next_step


def test_a_key_that_neither_megatron_nor_mindspeed_has():
    """An error where MindSpeed's source is there; where it is absent it might know the key, and a warning says so."""
    found = check(ROOT / "internal" / GRPO32, f"+{T}swap_optimiser=True").findings
    said = [finding for finding in found if "swap_optimiser" in finding.what]
    assert len(said) == 1
    assert said[0].what.endswith("the nearest is swap_optimizer")
    mindspeed = ROOT / "frameworks" / "mindspeed" / "mindspeed"
    assert said[0].level == ("error" if mindspeed.is_dir() else "warning")


def test_what_turns_speculation_off_is_a_warning(tmp_path):
    """The rule of vLLM 0.13.0 that no drafts are made for requests with log-probabilities, and a tree without it."""
    job = check(ROOT / "internal" / DAPO32).job
    texts = {
        "config/speculative.py": 'SpeculativeMethod = Literal["ngram", "sam"]',
        "v1/spec_decode/utils.py": "# or sampling_params.logprobs is not None",
    }
    for name, text in texts.items():
        file = tmp_path / "vllm" / "vllm" / name
        file.parent.mkdir(parents=True)
        file.write_text(text)
    (warning,) = vllm_speculation(job, tmp_path)
    assert warning.level == "warning"
    assert "does not speculate for requests with log-probabilities" in warning.what
    (tmp_path / "vllm" / "vllm" / "v1/spec_decode/utils.py").write_text("")
    assert vllm_speculation(job, tmp_path) == []
