import pytest

from qwen3_rl.sam.metrics import StepMetrics, over_batches


def test_the_difference_that_a_step_made_over_all_engines():
    metrics = StepMetrics()
    one = {"steps": 10, "request_steps": 40, "drafts": 20, "draft_tokens": 50, "accepted_tokens": 20}
    one |= {"group_hits": 5, "gate": 7}
    metrics.step([one, one])
    two = {key: 2 * value for key, value in one.items()}
    assert metrics.step([two, one]) == {
        "rollout/spec_decode/acceptance_rate": 0.4,
        "rollout/spec_decode/mean_accepted": 0.5,
        "rollout/spec_decode/draft_tokens": 50,
        "rollout/spec_decode/group_hits": 0.25,
        "rollout/spec_decode/gate": 0.7,
    }
    assert set(metrics.step([two, one]).values()) == {0}


def test_over_the_generation_batches_of_a_step():
    batches = [{"rollout/spec_decode/draft_tokens": n, "rollout/spec_decode/gate": n / 1000} for n in (1000, 100)]
    assert over_batches(batches) == {"rollout/spec_decode/draft_tokens": 1100, "rollout/spec_decode/gate": 0.55}
    assert over_batches([{}, {}]) == {}


@pytest.mark.parametrize(
    ("engine_kwargs", "there"),
    [
        ({}, False),
        ({"vllm": None}, False),
        ({"vllm": {"speculative_config": {"method": "ngram"}}}, False),
        ({"vllm": {"speculative_config": {"method": "sam", "num_speculative_tokens": 3}}}, True),
        ({"vllm": {"speculative_config": '{"method": "sam", "num_speculative_tokens": 3}'}}, True),
    ],
)
def test_only_where_the_rollout_drafts_with_sam(engine_kwargs, there):
    assert (StepMetrics.of({"engine_kwargs": engine_kwargs}) is not None) == there
