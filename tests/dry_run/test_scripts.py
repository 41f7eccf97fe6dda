"""Every shipped train script passes, and what the dry run says of it."""

import os
import subprocess

import pytest
from hydra import compose, initialize_config_dir
from shipped_scripts import ROOT, SCRIPTS, check, env_script, write_tiny_config
from verl.experimental.reward_loop import migrate_legacy_reward_impl

from qwen3_rl.cli import main
from qwen3_rl.dry_run import errors
from qwen3_rl.dry_run.command import command_of
from qwen3_rl.dry_run.result import graphs_line, print_result


@pytest.mark.parametrize("script", SCRIPTS, ids=lambda path: path.stem)
def test_every_script_passes(script):
    result = check(script)
    assert errors(result.findings) == []
    assert result.memory is not None or result.job.shape is None


def test_there_is_a_script_for_every_run():
    """README's table names each script and its env script."""
    text = (ROOT / "README.md").read_text()
    for script in SCRIPTS:
        assert f"`{script.name}`" in text
        env = env_script(script)
        assert env is None or f"`{env.name}`" in text


def test_the_layouts():
    by_name = {script.stem: script for script in SCRIPTS}
    job = check(by_name["train_grpo_qwen3_235b_128die_true_weight"]).job
    assert (job.dies, job.tp, job.pp, job.cp, job.ep, job.dp) == (128, 4, 4, 4, 32, 2)
    assert job.stage_layers == [23, 24, 24, 23]
    job = check(by_name["train_grpo_qwen3_32b_32die_true_weight"]).job
    assert (job.dies, job.tp, job.pp, job.cp, job.dp) == (32, 8, 2, 2, 1)
    assert job.get("actor_rollout_ref.actor.ppo_max_token_len_per_gpu") == 18432


def test_settings_come_from_the_environment_and_arguments():
    script = next(path for path in SCRIPTS if path.stem == "train_grpo_qwen3_32b_32die_true_weight")
    job = check(script, "data.train_batch_size=64", RESPONSES="4", DRAFT_TOKENS="0").job
    assert job.get("data.train_batch_size") == 64
    assert job.rollout("n") == 4
    assert job.engine("speculative_config") is None
    assert check(script, VLLM_ENABLE_GRAPH_MODE="0").job.rollout("enforce_eager") is True


@pytest.mark.parametrize(
    ("settings", "words"),
    [
        ({}, "32,48,64,96,128,192,256,384,512 tokens; 12 graphs with 768 attention calls, 16 MiB"),
        (
            {"VLLM_SPECULATIVE_BATCH_SIZE_THRE": "32"},
            "FULL_DECODE_ONLY, batches of 4,8,16,32,48,64,96,128 tokens; 8 graphs with 512 attention calls, 4 MiB",
        ),
        ({"DRAFT_TOKENS": "0", "MAX_NUM_SEQS": "8"}, "FULL_DECODE_ONLY, batches of 1,2,4,8 tokens; 4 graphs"),
        ({"GRAPH_SIZES": "16,64"}, "batches of 16,64 tokens; 2 graphs with 128"),
    ],
)
def test_graphs_with_and_without_drafts(settings, words):
    script = next(path for path in SCRIPTS if path.stem == "train_grpo_qwen3_32b_32die_true_weight")
    result = check(script, **settings)
    assert errors(result.findings) == []
    assert words in graphs_line(result.job)


def test_no_line_about_graphs_where_none_is_captured(capsys):
    """Drafting for no batch is an error beside the switch; without the switch there is nothing to say."""
    script = next(path for path in SCRIPTS if path.stem == "train_grpo_qwen3_32b_32die_true_weight")
    for settings, count in (({"VLLM_SPECULATIVE_BATCH_SIZE_THRE": "0"}, 1), ({"VLLM_ENABLE_GRAPH_MODE": "0"}, 0)):
        result = check(script, **settings)
        assert len(errors(result.findings)) == count
        print_result(result, configuration=False)
        said = capsys.readouterr().out
        assert "layout    32 dies" in said
        assert "graphs    " not in said


@pytest.mark.parametrize("drafts", ["0", "3"])
@pytest.mark.parametrize("script", [path for path in SCRIPTS if "tiny" not in path.stem and "gpu" not in path.stem])
def test_the_switch_works_in_every_run_on_npus(script, drafts):
    on = check(script, VLLM_ENABLE_GRAPH_MODE="1", DRAFT_TOKENS=drafts)
    off = check(script, VLLM_ENABLE_GRAPH_MODE="0", DRAFT_TOKENS=drafts)
    assert errors(on.findings) == errors(off.findings) == []
    assert (on.job.graph_settings.npugraph_ex, off.job.graph_settings.npugraph_ex) == (True, False)
    assert (on.job.rollout("enforce_eager"), off.job.rollout("enforce_eager")) == (False, True)


def test_a_gate_below_the_batch_runs_eager_without_one_token_graphs():
    script = next(path for path in SCRIPTS if path.stem == "train_grpo_qwen3_32b_32die_true_weight")
    key = "+actor_rollout_ref.rollout.engine_kwargs.vllm.additional_config.enable_one_token_graphs=True"
    words = "VLLM_SPECULATIVE_BATCH_SIZE_THRE = 32 with rollout.max_num_seqs = 128: larger batches are not drafted for"
    for overrides, said in (((), True), ((key,), False)):
        result = check(script, *overrides, VLLM_SPECULATIVE_BATCH_SIZE_THRE="32")
        assert errors(result.findings) == []
        assert any(words in finding.what for finding in result.findings) == said


def test_the_command(tmp_path, capsys, monkeypatch):
    monkeypatch.setenv("PATCHSET_ROOT", str(ROOT))
    monkeypatch.setenv("MODEL_PATH", str(write_tiny_config(tmp_path)))
    script, env = ROOT / "internal/train_grpo_qwen3_tiny_cpu.sh", ROOT / "internal/qwen3_tiny_cpu_env.sh"
    assert main(["dry-run", str(script), str(env)]) == 0
    said = capsys.readouterr().out
    assert "adv_estimator: grpo" in said
    assert "KV cache" in said
    assert said.rstrip().endswith("dry run: passed")
    assert main(["dry-run", "--quiet", str(script), str(env), "trainer.nnode=2"]) == 1
    said = capsys.readouterr().out
    assert "error: trainer.nnode: veRL has no such key; the nearest is trainer.nnodes" in said
    assert "adv_estimator" not in said
    assert said.rstrip().endswith("dry run: 1 error")


def test_a_script_that_starts_no_trainer(tmp_path, capsys):
    script = tmp_path / "train.sh"
    script.write_text("echo no data >&2; exit 3\n")
    assert main(["dry-run", str(script)]) == 2
    assert "ended (exit code 3) without starting verl.trainer.main_ppo" in capsys.readouterr().err


def test_dry_run_of_the_launcher_starts_nothing(tmp_path):
    if not (ROOT / ".venv" / "bin" / "qwen3-rl").exists():
        pytest.skip("needs .venv in this checkout")
    done = subprocess.run(
        ["bash", ROOT / "ray_start_npu.sh", ROOT / "internal/train_grpo_qwen3_tiny_cpu.sh",
         ROOT / "internal/qwen3_tiny_cpu_env.sh", "trainer.nnodes=two"],
        env={**os.environ, "DRY_RUN": "1", "OUTPUTS_DIR": str(tmp_path / "outputs")},
        capture_output=True, text=True,
    )  # fmt: skip
    assert done.returncode == 1, done.stderr
    assert "error: trainer.nnodes = 'two' is no whole number" in done.stdout
    assert not (tmp_path / "outputs").exists()


def test_python_that_is_no_trainer_runs_as_ever(tmp_path):
    script = tmp_path / "train.sh"
    script.write_text(
        'size=$(python3 -c "print(6 * 7)")\nexec python3 -m verl.trainer.main_ppo "data.train_batch_size=$size" "$@"\n'
    )
    command = command_of(script, dict(os.environ), ("a=b c",))
    assert command.overrides == ("data.train_batch_size=42", "a=b c")


def test_the_short_way_of_composing_is_hydras():
    """Overrides are put on defaults that are loaded once; compose() loads them anew and must give the same."""

    script = next(path for path in SCRIPTS if path.stem == "train_dapo_qwen3_235b_128die_true_weight")
    result = check(script)
    with initialize_config_dir(str(ROOT / "frameworks/verl/verl/trainer/config"), version_base=None):
        whole = compose(result.command.config_name, list(result.command.overrides))
    assert migrate_legacy_reward_impl(whole) == result.config
