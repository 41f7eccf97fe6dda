"""The cap's settings and arithmetic; that it reaches vLLM is tested in tests/frameworks and tests/e2e."""

from types import SimpleNamespace

import pytest

from qwen3_rl.errors import UserError
from qwen3_rl.length_aware.cap import PREFIX, limit_responses, read_cap


def limit(monkeypatch, expected: float | None, response_length: int = 34816, **settings) -> tuple[dict, dict, dict]:
    for name in ("ENABLE", "FACTOR", "MIN_TOKENS"):
        monkeypatch.delenv(PREFIX + name, raising=False)
    for name, value in settings.items():
        monkeypatch.setenv(PREFIX + name, value)
    batch, gen_batch = SimpleNamespace(meta_info={}), SimpleNamespace(meta_info={})
    sampler = SimpleNamespace(expected_longest=lambda _: expected)
    return limit_responses(sampler, batch, gen_batch, response_length), batch.meta_info, gen_batch.meta_info


def test_off_by_default(monkeypatch):
    assert limit(monkeypatch, 10.0) == ({}, {}, {})
    assert limit(monkeypatch, 10.0, ENABLE="0") == ({}, {}, {})


@pytest.mark.parametrize(
    ("expected", "cap"), [(6000.0, 12000), (4000.0, 10000), (30000.0, 34816), (None, 34816)]
)  # factor 2, at least 10000
def test_the_cap(monkeypatch, expected, cap):
    metrics, batch, gen_batch = limit(monkeypatch, expected, ENABLE="1")
    assert metrics == {"rollout/response_max_tokens_cap": cap}
    assert batch == gen_batch == {"response_max_tokens": cap}


def test_factor_and_minimum(monkeypatch):
    settings = {"ENABLE": "1", "FACTOR": "1.5", "MIN_TOKENS": "10"}
    assert limit(monkeypatch, 100.0, **settings)[0] == {"rollout/response_max_tokens_cap": 150}


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("ENABLE", "yes"),
        ("FACTOR", "0"),
        ("FACTOR", "x"),
        ("FACTOR", "nan"),
        ("MIN_TOKENS", "-1"),
        ("MIN_TOKENS", "1.5"),
    ],
)
def test_bad_settings_are_named(name, value):
    with pytest.raises(UserError) as caught:
        read_cap({PREFIX + "ENABLE": "1", PREFIX + name: value})
    assert f"{PREFIX}{name}={value}" in str(caught.value)


def test_a_sampler_that_knows_no_lengths(monkeypatch):
    monkeypatch.setenv(PREFIX + "ENABLE", "1")
    with pytest.raises(UserError, match="RandomSampler knows no response lengths"):
        limit_responses(type("RandomSampler", (), {})(), None, None, 100)
