"""Published files to veRL's parquet: every form, every reason to leave a row out, and what a killed run leaves."""

import os
import signal
import subprocess
import sys
import time

import pytest

from qwen3_rl.cli import main
from qwen3_rl.data.raw import BATCH_ROWS, read_rows

from .raw_files import AIME, DAPO, DEEPSCALER, GSM8K, published, verl_row, write_array, write_lines, write_parquet

parquet = pytest.importorskip("pyarrow.parquet", reason="needs build_project.sh --target cpu")
FORMS = [
    "gsm8k hub",
    "gsm8k lines",
    "deepscaler array",
    "deepscaler lines",
    "dapo-math parquet",
    "aime verl",
    "aime parquet",
    "aime lines",
]


def rows_of(path):
    return parquet.read_table(path).to_pylist()


def convert(name, source, to, *options):
    return main(["data", name, "--from", str(source), "--to", str(to), *map(str, options)])


@pytest.mark.parametrize("form", FORMS)
def test_every_published_form(form, tmp_path):
    name = form.split()[0]
    assert convert(name, published(tmp_path)[form], tmp_path / "out") == 0
    for path in (tmp_path / "out").iterdir():
        rows = rows_of(path)
        assert [row["extra_info"]["index"] for row in rows] == list(range(len(rows)))
        for row in rows:
            assert row["extra_info"]["split"] == path.stem
            assert row["reward_model"]["style"] == "rule"
            assert [message["role"] for message in row["prompt"]] == ["user"]
            assert row["extra_info"]["problem"] in row["prompt"][0]["content"]


def test_gsm8k(tmp_path):
    assert convert("gsm8k", published(tmp_path)["gsm8k hub"], tmp_path / "out") == 0
    train = rows_of(tmp_path / "out/train.parquet")
    assert [row["reward_model"]["ground_truth"] for row in train] == ["1197", "14", "-5"]
    assert train[1]["data_source"] == "openai/gsm8k"
    assert train[1]["prompt"][0]["content"] == (
        'Ben runs 2 miles a day. How far in a week? Let\'s think step by step and output the final answer after "####".'
    )
    assert [row["reward_model"]["ground_truth"] for row in rows_of(tmp_path / "out/test.parquet")] == ["1.5"]


def test_deepscaler(tmp_path):
    assert convert("deepscaler", published(tmp_path)["deepscaler array"], tmp_path / "out") == 0
    rows = rows_of(tmp_path / "out/train.parquet")
    assert [row["reward_model"]["ground_truth"] for row in rows] == [row["answer"] for row in DEEPSCALER]
    assert rows[0]["prompt"][0]["content"] == (
        "Compute $\\frac{1}{4}+\\frac{1}{4}$. Let's think step by step and output the final answer within \\boxed{}."
    )


def test_repeated_rows_are_written_once(tmp_path, capsys):
    assert convert("dapo-math", published(tmp_path)["dapo-math parquet"], tmp_path / "out") == 0
    rows = rows_of(tmp_path / "out/train.parquet")
    assert [row["prompt"][0]["content"] for row in rows] == [row["prompt"][0]["content"] for row in DAPO]
    assert "2 of 6 rows" in (out := capsys.readouterr().out)
    assert "left out: 4 duplicates (the first: dapo-math-17k.parquet row 2)" in out


def test_both_forms_of_aime_are_asked_alike(tmp_path):
    sources = published(tmp_path)
    prompts = []
    for form in ("aime verl", "aime lines"):
        assert convert("aime", sources[form], tmp_path / form) == 0
        (path,) = (tmp_path / form).iterdir()
        assert path.name == "test.parquet"
        row = rows_of(path)[0]
        assert row["data_source"] == "aime_2024"
        prompts.append(row["prompt"][0]["content"].replace(row["extra_info"]["problem"], "*"))
    assert prompts[0] == prompts[1]
    assert "*" in prompts[0]


def test_rows_that_cannot_be_used_are_left_out_and_counted(tmp_path, capsys):
    raw = [
        {"problem": "One?", "answer": "1"},
        {"problem": " ONE\u00a0?\n", "answer": "1"},
        {"problem": "One?", "answer": "2"},
        {"problem": "", "answer": "2"},
        {"problem": "Two?", "answer": " "},
        {"problem": "Three?", "answer": None},
        {"problem": "Four?", "answer": 4},
    ]
    assert convert("deepscaler", write_array(tmp_path / "d.json", raw), tmp_path / "out") == 0
    rows = rows_of(tmp_path / "out/train.parquet")
    assert [(row["extra_info"]["problem"], row["reward_model"]["ground_truth"]) for row in rows] == [
        ("One?", "1"),
        ("Four?", "4"),
    ]
    out = capsys.readouterr().out
    for line in (
        "2 of 7 rows",
        "left out: 1 duplicates (the first: d.json row 1)",
        "left out: 1 duplicates with another answer (the first: d.json row 2)",
        "left out: 1 without a problem (the first: d.json row 3)",
        "left out: 2 without an answer (the first: d.json row 4)",
    ):
        assert line in out


def test_gsm8k_answers_that_its_reward_cannot_read(tmp_path, capsys):
    raw = [{"question": f"{n}?", "answer": answer} for n, answer in enumerate(["#### 1", "2", "#### x", "#### 3 or 4"])]
    assert convert("gsm8k", write_lines(tmp_path / "train.jsonl", raw), tmp_path / "out") == 0
    assert "left out: 3 without an answer" in capsys.readouterr().out


def test_leaks_between_train_and_test_of_one_set(tmp_path, capsys):
    leak = {"question": "two pens cost  3 dollars. What does one cost?", "answer": "#### 1.5"}
    write_lines(tmp_path / "raw/train.jsonl", [*GSM8K["train"], leak])
    write_lines(tmp_path / "raw/test.jsonl", GSM8K["test"])
    assert convert("gsm8k", tmp_path / "raw", tmp_path / "out") == 0
    assert len(rows_of(tmp_path / "out/train.parquet")) == len(GSM8K["train"])
    assert "1 that are in the validation set (the first: train.jsonl row 3)" in capsys.readouterr().out


@pytest.mark.parametrize("converted", [True, False])
def test_leaks_between_sets_with_other_wordings(tmp_path, capsys, converted):
    """DeepScaleR holds a problem of AIME, whose prompt is worded otherwise."""
    validation = write_parquet(tmp_path / "aime-2024.parquet", AIME)
    if converted:
        assert convert("aime", validation, tmp_path / "aime") == 0
        validation = tmp_path / "aime"
    leak = {"problem": "Every morning Aya walks $9$ km.", "answer": "204"}
    source = write_array(tmp_path / "deepscaler.json", [*DEEPSCALER, leak])
    assert convert("deepscaler", source, tmp_path / "out", "--validation", validation) == 0
    assert len(rows_of(tmp_path / "out/train.parquet")) == len(DEEPSCALER)
    assert "1 that are in the validation set" in capsys.readouterr().out


@pytest.fixture(scope="module")
def tokenizer_folder(tmp_path_factory):
    pytest.importorskip("transformers", reason="needs build_project.sh --target cpu")
    from qwen3_rl.data.tiny_model import build_tokenizer

    folder = tmp_path_factory.mktemp("tokenizer")
    build_tokenizer().save_pretrained(folder)
    return folder


def test_prompts_are_measured_with_the_models_tokenizer(tmp_path, capsys, tokenizer_folder):
    raw = [{"problem": "a" * n, "answer": "1"} for n in (10, 20, 30)]
    source = write_lines(tmp_path / "d.jsonl", raw)
    options = ["--tokenizer", tokenizer_folder]
    assert convert("deepscaler", source, tmp_path / "all", *options) == 0
    # One token a byte, and the template's: user turn and the start of the assistant's.
    template = len(" Let's think step by step and output the final answer within \\boxed{}.") + len(
        "xuser\nx\nxassistant\n"
    )
    assert f"longest {30 + template}" in capsys.readouterr().out
    assert convert("deepscaler", source, tmp_path / "out", *options, "--max-prompt-length", 20 + template) == 0
    assert len(rows_of(tmp_path / "out/train.parquet")) == 2
    assert f"left out: 1 longer than {20 + template} tokens (the first: d.jsonl row 2)" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("write", "message"),
    [
        (lambda folder: folder / "none.json", "does not exist"),
        (lambda folder: write_lines(folder / "x.txt", DEEPSCALER), "no .parquet, .json, .jsonl file"),
        (lambda folder: write_lines(folder / "x.jsonl", GSM8K["train"]), "its columns are question, answer"),
        (lambda folder: write_array(folder / "x.json", [1, 2]), "row 0 is no object but int"),
        (lambda folder: write_array(folder / "x.json", []), "0 of 0 rows"),
        (lambda folder: write_array(folder / "x.json", [{"problem": "", "answer": ""}]), "1 without a problem"),
    ],
)
def test_wrong_input_is_named(tmp_path, capsys, write, message):
    assert convert("deepscaler", write(tmp_path), tmp_path / "out") == 2
    assert message in capsys.readouterr().err
    assert not list((tmp_path / "out").glob("*") if (tmp_path / "out").exists() else [])


@pytest.mark.parametrize("name", ["x.parquet", "x.json", "x.jsonl"])
@pytest.mark.parametrize("cut", [0.5, "pointer"])
def test_damaged_files_are_named(tmp_path, capsys, name, cut):
    path = tmp_path / name
    if cut == "pointer":
        path.write_text("version https://git-lfs.github.com/spec/v1\noid sha256:0\nsize 1\n")
    else:
        {"x.parquet": write_parquet, "x.json": write_array, "x.jsonl": write_lines}[name](path, DEEPSCALER * 5)
        path.write_bytes(path.read_bytes()[: int(path.stat().st_size * cut)])
    assert convert("deepscaler", path, tmp_path / "out") == 2
    err = capsys.readouterr().err
    assert f"error: {path}" in err
    assert "Git LFS pointer" in err
    assert list((tmp_path / "out").iterdir()) == []


def test_wrong_options_are_named(tmp_path, capsys):
    source = write_lines(tmp_path / "d.jsonl", DEEPSCALER)
    for options, message in (
        (["--max-prompt-length", 5], "--tokenizer"),
        (["--tokenizer", tmp_path / "none"], "no tokenizer_config.json"),
        (["--tokenizer", tmp_path], str(tmp_path)),
        (["--validation", tmp_path / "none.parquet"], "does not exist"),
        (["--validation", source], "has no prompts in veRL's form"),
    ):
        assert convert("deepscaler", source, tmp_path / "out", *options) == 2
        assert message in capsys.readouterr().err
    assert not (tmp_path / "out").exists()


def test_an_existing_file_is_kept(tmp_path, capsys):
    source = write_lines(tmp_path / "d.jsonl", DEEPSCALER)
    assert convert("deepscaler", source, tmp_path) == 0
    before = (tmp_path / "train.parquet").read_bytes()
    assert convert("deepscaler", source, tmp_path) == 2
    assert "train.parquet exists" in capsys.readouterr().err
    assert (tmp_path / "train.parquet").read_bytes() == before


def test_a_killed_conversion_leaves_no_file(tmp_path):
    """SIGKILL while rows are being written; what it left under a hidden name is gone after the next run."""
    source = write_lines(tmp_path / "d.jsonl", [{"problem": f"{n}? {'x' * 200}", "answer": n} for n in range(60_000)])
    out = tmp_path / "out"
    command = [sys.executable, "-m", "qwen3_rl.cli", "data", "deepscaler", "--from", str(source), "--to", str(out)]
    process = subprocess.Popen(command)
    deadline = time.monotonic() + 120
    while not any(path.stat().st_size for path in out.glob(".train.parquet.part-*")):
        assert process.poll() is None
        assert time.monotonic() < deadline
        time.sleep(0.01)
    process.send_signal(signal.SIGKILL)
    assert process.wait() == -signal.SIGKILL
    assert not (out / "train.parquet").exists()
    assert len(list(out.iterdir())) == 1
    subprocess.run(command, check=True)
    assert [path.name for path in out.iterdir()] == ["train.parquet"]
    assert parquet.ParquetFile(out / "train.parquet").metadata.num_rows == 60_000


def test_the_part_of_a_running_conversion_is_left_alone(tmp_path):
    part = tmp_path / "out" / f".train.parquet.part-{os.getppid()}"
    part.parent.mkdir()
    part.write_text("being written")
    assert convert("deepscaler", write_lines(tmp_path / "d.jsonl", DEEPSCALER), tmp_path / "out") == 0
    assert part.exists()


# VmHWM, not ru_maxrss: the latter starts at what the process was before exec, the test's own.
PEAK = """
import re, sys
from pathlib import Path
from qwen3_rl.cli import main
code = main(sys.argv[1:])
print(re.search(r"VmHWM:\\s+(\\d+) kB", Path("/proc/self/status").read_text())[1])
sys.exit(code)
"""


@pytest.mark.parametrize("write", [write_parquet, write_array], ids=["parquet", "array"])
def test_memory_does_not_grow_with_the_file(tmp_path, write):
    """20,000 rows of 5 kB take less than 100 MB more than 6,000 do; read at once they would take 160 MB more."""

    def peak(count: int) -> int:
        rows = [verl_row(f"{n} {n * n} " * 300, "1", n) for n in range(count)]
        name = f"{count}.parquet" if write is write_parquet else f"{count}.json"
        arguments = ["data", "dapo-math", "--from", write(tmp_path / name, rows), "--to", tmp_path / str(count)]
        done = subprocess.run([sys.executable, "-c", PEAK, *map(str, arguments)], capture_output=True, text=True)
        assert done.returncode == 0, done.stderr
        return int(done.stdout.split()[-1]) // 1024

    assert peak(20_000) - peak(3 * BATCH_ROWS) < 100


def test_batches_are_read_one_at_a_time(tmp_path):
    path = write_parquet(tmp_path / "d.parquet", [{"n": n} for n in range(3 * BATCH_ROWS)])
    assert [row["n"] for row in read_rows(path)] == list(range(3 * BATCH_ROWS))


def test_the_hub_out_of_reach(tmp_path):
    environment = {
        **os.environ,
        "HF_ENDPOINT": "http://127.0.0.1:9",
        "HF_HOME": str(tmp_path / "hf"),
        "HF_HUB_OFFLINE": "0",
    }
    command = [sys.executable, "-m", "qwen3_rl.cli", "data", "aime", "--from", "hub", "--to", str(tmp_path / "out")]
    done = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert done.returncode == 2
    assert "BytedTsinghua-SIA/AIME-2024 could not be fetched" in done.stderr
    assert "Traceback" not in done.stderr
    assert not (tmp_path / "out").exists()
