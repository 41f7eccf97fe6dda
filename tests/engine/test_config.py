"""What the engine's configuration accepts and refuses."""

from types import SimpleNamespace

import pytest
from vllm.config.speculative import SpeculativeConfig
from vllm.sampling_params import SamplingParams
from vllm.v1.engine.input_processor import InputProcessor

from qwen3_rl.sam.config import SamConfig


def test_sam_stays_sam():
    config = SpeculativeConfig(method="sam", num_speculative_tokens=5, sam_config={"min_match": 2})
    assert config.method == "sam"
    assert repr(config) == "SpeculativeConfig(method='sam', model=None, num_spec_tokens=5)"


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"min_mach": 2}, ["'min_mach'", "2", "min_match"]),
        ({"min_match": 0}, ["min_match", "0", "1 to 1024"]),
        ({"min_match": 30}, ["min_match", "30", "max_match", "24"]),
        ({"min_match": "2"}, ["min_match", "'2'", "int"]),
        ({"min_probability": 1.5}, ["min_probability", "1.5"]),
        ({"max_bytes": 10}, ["max_bytes", "10"]),
        ({"max_bytes": True}, ["max_bytes", "True", "int"]),
        ({"sharing": "all"}, ["sharing", "'all'", "group"]),
        ({"gate": 1}, ["gate", "1", "bool"]),
    ],
)
def test_a_wrong_setting_is_named_with_its_value(given, words):
    with pytest.raises(ValueError) as caught:
        SpeculativeConfig(method="sam", num_speculative_tokens=5, sam_config=given)
    assert [word for word in words if word not in str(caught.value)] == []


@pytest.mark.parametrize("k", [None, 65])
def test_the_number_of_draft_tokens_is_checked(k):
    with pytest.raises(ValueError, match="num_speculative_tokens"):
        SpeculativeConfig(method="sam", num_speculative_tokens=k)


def test_sam_config_is_for_sam_only():
    with pytest.raises(ValueError, match=r"sam_config.*'ngram'"):
        SpeculativeConfig(method="ngram", num_speculative_tokens=5, sam_config={"min_match": 2})


def test_integers_pass_for_real_numbers():
    assert SamConfig.parse({"per_match": 4, "min_probability": 0}, 5).per_match == 4


def checked(params: SamplingParams, speculation: bool = True) -> None:
    config = SimpleNamespace(method="sam") if speculation else None
    processor = InputProcessor.__new__(InputProcessor)
    processor.vllm_config = SimpleNamespace(
        speculative_config=config, scheduler_config=SimpleNamespace(async_scheduling=False)
    )
    processor._validate_supported_sampling_params(params)


def test_what_speculation_would_drop_is_refused():
    for name, value in (("min_p", 0.1), ("logit_bias", {3: 1.0}), ("min_tokens", 4)):
        params = SamplingParams(**{name: value})
        with pytest.raises(ValueError, match=rf"{name}=.*'sam'.*speculative_config"):
            checked(params)
        checked(params, speculation=False)


def test_what_speculation_serves_is_not_refused():
    checked(SamplingParams(top_p=0.9, top_k=20, logprobs=0, seed=1, bad_words=["a"], repetition_penalty=1.1))
    checked(SamplingParams(temperature=0, min_p=0.1))  # greedy: min_p changes nothing, vLLM itself clears it
