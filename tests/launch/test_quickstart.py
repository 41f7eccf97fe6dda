"""quickstart.sh: wrong arguments are told before anything is fetched or built."""

import subprocess

import pytest

from .conftest import ROOT


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--steps", "ten"], "--steps ten: not a positive number"),
        (["--steps", "0"], "--steps 0: not a positive number"),
        (["--steps"], "--steps : not a positive number"),
        (["--model", "/no/such/model"], "--model /no/such/model: no Hugging Face model folder"),
        (["--fast"], "unknown option --fast"),
        (["ten"], "ten is no Hydra override"),
    ],
)
def test_wrong_arguments(arguments, message, tmp_path):
    done = subprocess.run(["bash", ROOT / "quickstart.sh", *arguments], cwd=tmp_path, capture_output=True, text=True)
    assert done.returncode == 2
    assert done.stderr.startswith(f"error: {message}")
    assert "\n next: bash quickstart.sh" in done.stderr
    assert done.stdout == ""
