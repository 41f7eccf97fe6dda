"""A checkout with very many edits: messages stay short, programs get all."""

import json

from patchset_lab import LONG, Lab


def test_all_files_deleted(empty_lab: Lab) -> None:
    lab = empty_lab
    lab.add_framework("gamma", {f"src/{i:03}.py": LONG for i in range(40)})
    lab.add_patch("gamma", 1, {f"src/{i:03}.py": LONG + "more\n" for i in range(40)})
    lab.ok("fetch")
    lab.ok("export")
    lab.ok("apply")
    for path in (lab.frameworks / "gamma/src").iterdir():
        path.unlink()
    found = json.loads(lab.ok("status", "--json").out)["frameworks"]["gamma"]
    assert len(found["patches"][0]["files"]) == 40
    for text in (lab.ok("status").out, lab.refused(4, "unapply"), lab.run("verify").out):
        assert "src/009.py" in text and "src/010.py" not in text
        assert "and 30 more (40 in all)" in text
    (lab.frameworks / "beta/src/b.py").unlink()
    lab.refused(4, "unapply", names=("beta/src/b.py is edited", "(40 in all)"))
