"""apply --feature: what a choice needs, in all frameworks, and nothing else."""

import json
from pathlib import Path

import pytest
from patchset_lab import LONG, Lab


@pytest.fixture
def lab(empty_lab: Lab) -> Lab:
    """alpha: a fix, cpu, sam (which needs cpu's lines); beta: sam, which depends on alpha's, and cpu."""
    lab = empty_lab
    fixed = LONG.replace("line 40\n", "line forty\n")
    cpu = fixed.replace("line 5\n", "line five\n")
    lab.add_patch("alpha", 1, {"src/a.py": fixed})
    lab.add_patch("alpha", 2, {"src/a.py": cpu}, "cpu")
    lab.add_patch("alpha", 3, {"src/a.py": cpu.replace("line 6\n", "line six\n")}, "sam")
    lab.add_patch("beta", 1, {"src/c.py": "cpu\n"}, "cpu")
    lab.add_patch("beta", 2, {"src/b.py": LONG + "more\n"}, "sam")
    lab.ok("fetch")
    lab.ok("export")
    return lab


def depend(lab: Lab, file: str, on: str) -> None:
    path = lab.root / "patches" / file
    path.write_text(path.read_text().replace("::test_it\n", f"::test_it\nDepends-on: {on}\n"))


def test_a_feature_and_the_fixes(lab: Lab) -> None:
    lab.ok("apply", "--feature", "cpu")
    found = json.loads(lab.ok("status", "--json").out)
    assert found["features"] == ["cpu"]
    states = {n: [p["state"] for p in each["patches"]] for n, each in found["frameworks"].items()}
    assert states == {"alpha": ["applied", "applied", "left out"], "beta": ["applied", "left out"]}
    assert lab.states() == {"alpha": "applied", "beta": "applied"}
    assert b"line forty" in lab.snapshot()["alpha/src/a.py"] and "beta/src/c.py" in lab.snapshot()
    assert "these patches are applied already" in lab.ok("apply", "--feature", "cpu").out
    assert "features:cpu" in lab.ok("verify").out
    lab.write(lab.frameworks, {"beta/src/c.py": "gpu\n"})
    assert lab.run("verify").code == 5


def test_several_features_and_back_to_all(lab: Lab) -> None:
    pristine = lab.snapshot()
    lab.ok("apply")
    everything = lab.snapshot(), lab.heads()
    lab.ok("apply", "--feature", "cpu", "--feature", "sam")
    assert (lab.snapshot(), lab.heads()) == everything
    lab.ok("apply", "--feature", "fix")
    assert lab.states() == {"alpha": "applied", "beta": "no patches"}
    lab.ok("apply")
    assert (lab.snapshot(), lab.heads()) == everything
    assert json.loads(lab.ok("status", "--json").out)["features"] is None
    lab.ok("apply", "--feature", "fix")
    lab.ok("unapply")
    assert lab.snapshot() == pristine and lab.states() == {"alpha": "not applied", "beta": "not applied"}
    lab.ok("export", "--check")


def test_a_needed_patch_that_is_left_out_is_named(lab: Lab) -> None:
    before = lab.snapshot()
    message = lab.refused(5, "apply", "--feature", "sam", names=("alpha/0003-sam-change.patch does not apply",))
    assert "0003-sam-change.patch needs a patch that the selection leaves out: patches/alpha/0002-cpu-change" in message
    assert "`Depends-on: cpu-change`" in message
    assert lab.snapshot() == before


def test_declared_dependencies_are_resolved(lab: Lab) -> None:
    depend(lab, "alpha/0003-sam-change.patch", "cpu-change")
    depend(lab, "beta/0002-sam-change.patch", "alpha/sam-change, cpu-change")
    done = lab.ok("apply", "--feature", "sam")
    assert "patches/alpha/0002-cpu-change.patch too, because patches/alpha/0003-sam-change.patch depends" in done.out
    assert "patches/beta/0001-cpu-change.patch too, because patches/beta/0002" in done.out
    assert "left out" not in lab.ok("status").out


@pytest.mark.parametrize("on", ["cpu-gone", "beta/cpu-gone", "gamma/cpu-change", "sam-change", "0002-cpu-change.patch"])
def test_a_dependency_that_is_not_there(lab: Lab, on: str) -> None:
    depend(lab, "alpha/0003-sam-change.patch", on)
    lab.refused(3, "apply", "--feature", "sam", names=("patches/alpha/0003-sam-change.patch: Depends-on", on))


def test_an_unknown_feature(lab: Lab) -> None:
    lab.refused(2, "apply", "--feature", "sma", names=("'sma'", "sam, cpu, fix"))


def test_a_damaged_record(lab: Lab) -> None:
    lab.ok("apply", "--feature", "cpu")
    (lab.frameworks / ".patchset-features.json").write_text("[")
    for command in ("status", "verify", "unapply"):
        lab.refused(4, command, names=(".patchset-features.json is damaged", "remove it"))


def test_a_failed_apply_keeps_the_old_selection(lab: Lab, monkeypatch: pytest.MonkeyPatch) -> None:
    lab.ok("apply", "--feature", "cpu")
    lab.refused(5, "apply", "--feature", "sam")
    assert "features:cpu" in lab.ok("verify").out


def test_no_shipped_patch_is_lost_by_selecting_everything() -> None:
    from patchset.project import find_project
    from patchset.selection import choose

    project = find_project(str(Path(__file__).parents[2]))
    assert choose(project, list(project.lock.features))[0] == project.series
    assert all(patch.feature in ("fix", "cpu") for each in choose(project, ["cpu"])[0].values() for patch in each)
