import json
import os
import sys
import types

import numpy as np
import pytest
from sam_traces import sibling_traces

from qwen3_rl.cli import main
from qwen3_rl.sam.replay import replay
from qwen3_rl.sam.traces import TraceGroup, load_traces

KEYS = ["drafter", "sharing", "k", "stagger", "accepted_per_step", "hit_rate", "us_per_request", "bytes_per_token"]


class Oracle:
    """Drafts fixed tokens and keeps what it was told."""

    def __init__(self, draft):
        self.draft, self.heard, self.most = draft, {}, 0

    def begin(self, req, prompt):
        self.heard[req] = prompt.tolist()

    def step(self, reqs, new):
        self.most = max(self.most, len(reqs))
        for req, tokens in zip(reqs, new, strict=True):
            self.heard[req] += tokens
        return [self.draft for _ in reqs]

    def end(self, req):
        pass

    def learn(self, prompt, response):
        self.heard[len(self.heard)] = response.tolist()

    def bytes_used(self):
        return 100


def group(*responses):
    return TraceGroup(np.array([1], np.int32), [[np.array(r, np.int32) for r in responses]])


def test_replay_counts_accepted_tokens_without_the_bonus():
    oracle = Oracle([5, 5, 5])
    result = replay(lambda: oracle, [group([5, 5, 5, 9, 5, 5])], "oracle", "group", 3, 1)
    # Steps at 1, 4 and nowhere else: [5, 5, .] + 9, then [5, 5] to the end.
    assert result.accepted_per_step == 4 / 2
    assert result.hit_rate == 1.0
    assert result.bytes_per_token == 100 / 7
    assert oracle.heard[0] == [1, 5, 5, 5, 9, 5, 5]


def test_waves_start_as_many_siblings_as_asked():
    for wave, most in ((1, 1), (2, 2), (5, 3)):
        oracle = Oracle([])
        replay(lambda o=oracle: o, [group([1, 2], [3, 4], [5, 6])], "oracle", "group", 3, wave)
        assert oracle.most == most


def test_json_output(trace_file, capsys):
    assert main(["replay-drafts", str(trace_file), "--drafters", "sam", "--json", "--k", "3,5"]) == 0
    results = json.loads(capsys.readouterr().out)
    assert [list(result) for result in results] == [KEYS] * 12
    assert {result["stagger"] for result in results} == {4, 1}
    by = {(r["sharing"], r["k"], r["stagger"]): r["accepted_per_step"] for r in results}
    for k, stagger in ((3, 4), (5, 1)):
        assert by["self", k, stagger] < by["group", k, stagger] < by["epoch", k, stagger]


def test_table_and_png(trace_file, capsys, tmp_path):
    pytest.importorskip("matplotlib")
    png = tmp_path / "drafts.png"
    command = ["replay-drafts", str(trace_file), "--drafters", "sam", "--k", "3", "--waves", "2", "--png", str(png)]
    assert main(command) == 0
    assert capsys.readouterr().out.split("\n")[0].split()[0] == "drafter"
    assert png.read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("content", "options", "words"),
    [
        (None, [], "can't read"),
        ("{", [], "not JSON"),
        ("[]", [], "not a trace file"),
        ('{"groups": []}', [], "no groups"),
        ('{"groups": [{"prompt": [1]}]}', [], "'epochs' is missing"),
        ('{"groups": [{"prompt": [1], "epochs": [[[]]]}]}', [], "empty"),
        ('{"groups": [{"prompt": ["a"], "epochs": [[[1]]]}]}', [], "token ids"),
        ('{"groups": [{"prompt": [1], "epochs": [[[1]]]}]}', ["--sharing", "epoch"], "one epoch"),
        ('{"groups": [{"prompt": [1], "epochs": [[[1]]]}]}', ["--drafters", "eagle"], "eagle"),
        ('{"groups": [{"prompt": [1], "epochs": [[[1]]]}]}', ["--k", "0"], "--k: 0"),
        ('{"groups": [{"prompt": [1], "epochs": [[[1]]]}]}', ["--k", "x"], "--k"),
        ('{"groups": [{"prompt": [1], "epochs": [[[1]]]}]}', ["--waves", "0"], "--waves"),
        ('{"groups": [{"prompt": [1], "epochs": [[[1]]]}]}', ["--vllm", "nowhere"], "ngram_proposer.py"),
    ],
)
def test_wrong_input_is_explained(tmp_path, capsys, content, options, words):
    path = tmp_path / "traces.json"
    if content is not None:
        path.write_text(content)
    assert main(["replay-drafts", str(path), *options]) == 2
    error = capsys.readouterr().err
    assert "error: " in error and words in error and "next: " in error


def test_drafters_that_are_missing_are_left_out_unless_asked_for(trace_file, capsys, monkeypatch):
    monkeypatch.delenv("VLLM_PATH", raising=False)
    monkeypatch.setattr("importlib.util.find_spec", lambda name: None)
    assert main(["replay-drafts", str(trace_file), "--k", "3", "--sharing", "self", "--waves", "1"]) == 0
    assert "left out" in capsys.readouterr().err
    assert main(["replay-drafts", str(trace_file), "--drafters", "arctic"]) == 2
    assert "not installed" in capsys.readouterr().err


@pytest.mark.skipif(not os.environ.get("VLLM_PATH"), reason="VLLM_PATH names no folder with vLLM's source")
def test_the_real_ngram_proposer(trace_file, capsys):
    before = sys.modules.get("vllm")
    command = ["replay-drafts", str(trace_file), "--drafters", "ngram", "--json", "--k", "3", "--waves", "1"]
    assert main(command) == 0
    assert json.loads(capsys.readouterr().out)[0]["accepted_per_step"] > 0
    assert sys.modules.get("vllm") is before


def test_ngram_is_loaded_without_its_framework(tmp_path, monkeypatch):
    from qwen3_rl.sam.rivals import ngram_class

    folder = tmp_path / "vllm/v1/spec_decode"
    folder.mkdir(parents=True)
    (folder / "ngram_proposer.py").write_text("from vllm.config import VllmConfig\nclass NgramProposer: pass\n")
    real = types.ModuleType("vllm")
    monkeypatch.setitem(sys.modules, "vllm", real)
    assert ngram_class(str(tmp_path)).__name__ == "NgramProposer"
    assert sys.modules["vllm"] is real


@pytest.mark.skipif(not os.environ.get("ROLLOUT_TRACES"), reason="ROLLOUT_TRACES names no file of real rollouts")
def test_sharing_helps_on_real_rollouts():
    from qwen3_rl.sam.rivals import Sam

    groups = load_traces(__import__("pathlib").Path(os.environ["ROLLOUT_TRACES"]))
    alone, shared, epoch = (
        replay(lambda s=s: Sam(5, s), groups, "sam", s, 5, 8).accepted_per_step for s in ("self", "group", "epoch")
    )
    assert alone < shared < epoch


def test_made_up_traces_are_valid(trace_file):
    assert len(load_traces(trace_file)) == len(sibling_traces()["groups"])
