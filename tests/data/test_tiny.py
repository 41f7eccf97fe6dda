"""The tiny model, its data and its reward."""

import json
import subprocess
import sys

import pytest

from qwen3_rl.cli import main
from qwen3_rl.data import arithmetic, countdown
from qwen3_rl.data.arithmetic import compute_score


def score(text: str, truth: str = "7") -> float:
    return compute_score(arithmetic.DATA_SOURCE, text, truth)


def test_the_bare_right_digit_gets_all():
    assert score("7") == 1.0


@pytest.mark.parametrize("text", ["", " 7", "x7", "-7", "²", "\u0667", "<|im_start|>7"])
def test_no_leading_digit_gets_nothing(text):
    assert score(text) == 0.0


def test_closer_and_shorter_is_better():
    assert 1 > score("6") > score("4") > score("0") > 0
    assert score("7") > score("7 ") > score("7 is it") > 0.2
    assert score("7") > score("77")  # no other number scores as the right one


def test_rows_are_right_and_reproducible():
    rows = arithmetic.build_rows(200, seed=3, split="train")
    assert rows == arithmetic.build_rows(200, seed=3, split="train")
    assert rows != arithmetic.build_rows(200, seed=4, split="train")
    for index, row in enumerate(rows):
        left, right = row["prompt"][0]["content"].removesuffix("=").split("+")
        assert int(left) + int(right) == int(row["reward_model"]["ground_truth"]) <= arithmetic.LARGEST_SUM
        assert row["extra_info"] == {"split": "train", "index": index}


def test_data_command(tmp_path, capsys):
    parquet = pytest.importorskip("pyarrow.parquet", reason="needs build_project.sh --target cpu")
    arguments = ["data", "arithmetic", "--to", str(tmp_path), "--train-rows", "10", "--test-rows", "3"]
    assert main(arguments) == 0
    assert parquet.read_table(tmp_path / "train.parquet").num_rows == 10
    assert sorted(path.name for path in tmp_path.iterdir()) == ["test.parquet", "train.parquet"]
    before = (tmp_path / "train.parquet").read_bytes()
    assert main(["data", "arithmetic", "--to", str(tmp_path), "--train-rows", "11"]) == 0
    assert (tmp_path / "train.parquet").read_bytes() == before
    assert main(["data", "arithmetic", "--to", str(tmp_path), "--train-rows", "0"]) == 2
    assert "--train-rows is 0" in capsys.readouterr().err


@pytest.fixture(scope="module")
def model_folder(tmp_path_factory):
    pytest.importorskip("transformers", reason="needs build_project.sh --target cpu")
    folder = tmp_path_factory.mktemp("model") / "tiny"
    # A process of its own: transformers reads HF_HUB_OFFLINE when it is imported.
    subprocess.run([sys.executable, "-m", "qwen3_rl.cli", "tiny-model", "--to", folder], check=True)
    return folder


def test_vocabulary_is_the_tokenizers(model_folder):
    from transformers import AutoTokenizer

    tokenizer = AutoTokenizer.from_pretrained(model_folder)
    config = json.loads((model_folder / "config.json").read_text())
    assert config["vocab_size"] == len(tokenizer)
    assert config["architectures"] == ["Qwen3ForCausalLM"]
    assert config["eos_token_id"] == tokenizer.eos_token_id != tokenizer.pad_token_id
    for text in ["3+4=", "Grüße, 世界 \n", "<|im_end|>"]:
        assert tokenizer.decode(tokenizer.encode(text)) == text
    chat = tokenizer.apply_chat_template([{"role": "user", "content": "3+4="}], add_generation_prompt=True, tokenize=0)
    assert chat == "<|im_start|>user\n3+4=<|im_end|>\n<|im_start|>assistant\n"


def test_weights_are_a_function_of_the_seed(model_folder, tmp_path):
    from safetensors.torch import load_file
    from torch import equal

    first = load_file(model_folder / "model.safetensors")
    for seed, same in ((0, True), (1, False)):
        assert main(["tiny-model", "--to", str(tmp_path / str(seed)), "--seed", str(seed)]) == 0
        other = load_file(tmp_path / str(seed) / "model.safetensors")
        assert equal(first["lm_head.weight"], other["lm_head.weight"]) is same


def test_another_folder_is_not_touched(tmp_path, capsys):
    (tmp_path / "thesis.txt").write_text("mine")
    assert main(["tiny-model", "--to", str(tmp_path)]) == 2
    assert "is not a model folder" in capsys.readouterr().err
    assert [path.name for path in tmp_path.iterdir()] == ["thesis.txt"]


def test_countdown_rows_are_all_different():
    rows = countdown.build_rows(30, seed=1, split="train")
    lengths = sorted(countdown.answer_length(row["prompt"][0]["content"]) for row in rows)
    assert len(set(lengths)) == 30
    assert (lengths[0], lengths[-1]) == (countdown.SHORTEST, countdown.LONGEST)
    assert [str(countdown.answer_length(row["prompt"][0]["content"])) for row in rows] == [
        row["reward_model"]["ground_truth"] for row in rows
    ]
    assert len(countdown.build_rows(100, seed=1, split="train")) == 100


@pytest.mark.parametrize("repeat", ["0", "0.1"])
def test_the_countdown_model_answers_as_long_as_asked(tmp_path, repeat):
    torch = pytest.importorskip("torch", reason="needs build_project.sh --target cpu")
    from transformers import AutoModelForCausalLM, AutoTokenizer

    assert main(["tiny-model", "--to", str(tmp_path / "model"), "--countdown", repeat]) == 0
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "model")
    model = AutoModelForCausalLM.from_pretrained(tmp_path / "model")
    torch.manual_seed(0)
    lengths = []
    for prompt in "(5":  # 8 and 21 tokens
        chat = [{"role": "user", "content": prompt}]
        ids = tokenizer.apply_chat_template(chat, add_generation_prompt=True, return_tensors="pt").expand(20, 1)
        answers = model.generate(ids, do_sample=True, top_k=0, max_new_tokens=40, pad_token_id=tokenizer.pad_token_id)
        lengths.append((answers[:, 1:] != tokenizer.pad_token_id).sum(1).double())
    if repeat == "0":
        assert [set(column.tolist()) for column in lengths] == [{8}, {21}]
        assert tokenizer.decode(answers[0, -3:]) == '"!<|im_end|>'
    else:
        # Each character is said 1 / (1 - repeat) times on the average; the prompt's own and the end are not.
        for column, length in zip(lengths, (8, 21), strict=True):
            assert column.mean().item() == pytest.approx(length / 0.9, abs=1.2)
            assert len(set(column.tolist())) > 1


def test_countdown_score():
    score = lambda text: countdown.compute_score(countdown.DATA_SOURCE, text, "3")  # noqa: E731
    assert score('#"!') == 1
    assert score('##"!') == 0.5
    assert score('##"""!') == 0.25


def test_a_repeat_that_is_no_probability(tmp_path, capsys):
    assert main(["tiny-model", "--to", str(tmp_path / "model"), "--countdown", "1"]) == 2
    assert "--countdown is 1.0" in capsys.readouterr().err
