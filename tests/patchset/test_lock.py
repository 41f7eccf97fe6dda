"""The lock: what is shipped parses; what is wrong is refused by file, key and value."""

from pathlib import Path

import pytest

from patchset.errors import Exit, PatchsetError
from patchset.lock import load_lock, parse_lock, set_key

SHIPPED = Path(__file__).parents[2] / "patches" / "stack.toml"


def test_the_shipped_lock_parses() -> None:
    lock = load_lock(SHIPPED, "stack.toml")
    assert list(lock.frameworks) == ["verl", "vllm", "vllm-ascend", "megatron-core", "mindspeed"]
    assert lock.frameworks["mindspeed"].sdist is None
    assert lock.frameworks["vllm-ascend"].submodules


@pytest.mark.parametrize(
    ("old", "new", "named"),
    [
        ('ray = "', 'rai = "', "platform.rai"),
        ('tag = "v0.7.1"', 'label = "v0.7.1"', "unknown key frameworks.verl.label = 'v0.7.1'"),
        ('"bec9ef74768dd', '"BEC9ef74768dd', "frameworks.verl.commit = 'BEC9ef74768dd"),
        ('"bec9ef74768dd', '"bec9', "frameworks.verl.commit = 'bec9"),
        ('"0c208c03d5', '"xc208c03d5', "frameworks.verl.sdist.sha256 = 'xc208c03d5"),
        ('paths = ["verl/"', 'paths = ["../verl/"', "frameworks.verl.paths.0 = '../verl/'"),
        ('paths = ["verl/"', 'paths = ["/verl/"', "frameworks.verl.paths.0 = '/verl/'"),
        ('file = "verl-0.7.1.tar.gz"', 'file = "../verl-0.7.1.tar.gz"', "frameworks.verl.sdist.file = '../verl"),
        ('"https://github.com/verl-project/verl"', '"--upload-pack=evil"', "frameworks.verl.sources.0 = '--upload"),
        ("[frameworks.mindspeed]", "[frameworks.Mind_Speed]", "frameworks.Mind_Speed"),
        ("submodules = true", 'submodules = "yes"', "frameworks.vllm-ascend.submodules = 'yes'"),
        ("[platform]", "[platform", "not valid TOML"),
    ],
)
def test_a_bad_value_is_named(old: str, new: str, named: str) -> None:
    text = SHIPPED.read_text()
    assert old in text
    with pytest.raises(PatchsetError) as caught:
        parse_lock(text.replace(old, new, 1), "patches/stack.toml")
    assert caught.value.code is Exit.BAD_INPUT
    assert "patches/stack.toml: " in caught.value.what and named in caught.value.what


def test_writing_a_hash_changes_one_line() -> None:
    text = SHIPPED.read_text()
    for name in ("verl", "vllm", "mindspeed"):
        once = set_key(text, name, "patched_sha256", "a" * 64)
        twice = set_key(once, name, "patched_sha256", "b" * 64)
        assert parse_lock(twice, "x").frameworks[name].patched_sha256 == "b" * 64
        left = [line for line in twice.splitlines() if "b" * 64 not in line]
        assert [line for line in text.splitlines() if line in left] == left
        removed = set_key(twice, name, "patched_sha256", None)
        assert parse_lock(removed, "x").frameworks[name].patched_sha256 is None
        others = [each for each in parse_lock(text, "x").frameworks if each != name]
        assert all(parse_lock(twice, "x").frameworks[o] == parse_lock(text, "x").frameworks[o] for o in others)


@pytest.mark.parametrize(
    "header",
    ["[frameworks.verl] # ours", "  [ frameworks . verl ]", '[frameworks."verl"]', "[frameworks.'verl']  # a"],
)
def test_writing_a_hash_below_any_header(header: str) -> None:
    text = SHIPPED.read_text().replace("[frameworks.verl]", header, 1).replace("patched_sha256 =", "patched_sha256=")
    once = set_key(text, "verl", "patched_sha256", "a" * 64)
    assert parse_lock(once, "x").frameworks["verl"].patched_sha256 == "a" * 64
    assert header in once


def test_a_framework_that_has_no_header() -> None:
    with pytest.raises(PatchsetError) as caught:
        set_key('frameworks = {verl = {version = "1"}}\n', "verl", "patched_sha256", "a" * 64)
    assert caught.value.code is Exit.BAD_INPUT and "[frameworks.verl]" in caught.value.what
