"""Reading patch files: what they say, and that damage never passes as a smaller patch."""

import codecs
import os
import re
from pathlib import Path

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from patchset.errors import Exit, PatchsetError
from patchset.patchfile import read_patch

PATCH = """\
From 0000000000000000000000000000000000000000 Mon Sep 17 00:00:00 2001
From: =?UTF-8?q?J=C3=BCrgen?= <j@example.org>
Date: Thu, 1 Jan 2026 12:00:00 +0200
Subject: [PATCH 1/2] Ask the registry first, and
 only then the table

The table lacks late entries.

Feature: sam
Upstream-Status: Pending https://example.org/1
Tested-by: tests/test_x.py
---
 src/a.py | 2 +-
 1 file changed, 1 insertion(+), 1 deletion(-)

diff --git a/src/a.py b/src/a.py
index 1111111..2222222 100644
--- a/src/a.py
+++ b/src/a.py
@@ -1,3 +1,3 @@ def f():
 one
-two
+zwei
 three
@@ -9 +9 @@
-nine
+neun
diff --git a/src/n.py b/src/n.py
new file mode 100644
index 0000000..3333333
--- /dev/null
+++ b/src/n.py
@@ -0,0 +1 @@
+new
-- 
2.43.0

"""


def write(folder: Path, data: str | bytes, name: str = "0001-sam-ask.patch") -> Path:
    path = folder / name
    path.write_bytes(data.encode() if isinstance(data, str) else data)
    return path


def refuse(folder: Path, data: str | bytes, name: str = "0001-sam-ask.patch") -> str:
    with pytest.raises(PatchsetError) as caught:
        read_patch(write(folder, data, name), f"patches/x/{name}")
    assert caught.value.code is Exit.BAD_INPUT
    assert f"patches/x/{name}: " in caught.value.what
    return f"{caught.value.what} {caught.value.next_step}"


def test_all_parts_are_read(tmp_path: Path) -> None:
    patch = read_patch(write(tmp_path, PATCH), "shown")
    assert (patch.number, patch.author, patch.email) == (1, "Jürgen", "j@example.org")
    assert patch.date == "1767261600 +0200"
    assert patch.subject == "Ask the registry first, and only then the table"
    assert patch.message.endswith("Tested-by: tests/test_x.py\n")
    assert patch.trailers["Upstream-Status"] == "Pending https://example.org/1"
    assert patch.files == ["src/a.py", "src/n.py"]
    assert [len(file) for file in patch.diff] == [2, 1]


def test_crlf_is_refused_with_the_command_that_mends_it(tmp_path: Path) -> None:
    message = refuse(tmp_path, PATCH.replace("\n", "\r\n"))
    assert "CRLF" in message and "sed -i 's/\\r$//' patches/x/0001-sam-ask.patch" in message


def test_a_byte_order_mark_is_refused_with_the_command_that_removes_it(tmp_path: Path) -> None:
    whole = PATCH.encode()
    message = refuse(tmp_path, codecs.BOM_UTF8 + whole)
    assert "byte order mark" in message
    file = tmp_path / "marked"
    file.write_bytes(codecs.BOM_UTF8 + whole)
    os.system(message[message.index("sed ") :].replace("patches/x/0001-sam-ask.patch", str(file)))
    assert file.read_bytes() == whole


def test_a_patch_to_a_crlf_file_is_read(tmp_path: Path) -> None:
    text = PATCH.replace("\n one\n", "\n one\r\n").replace("two\n+zwei\n three\n", "two\r\n+zwei\r\n three\r\n")
    assert read_patch(write(tmp_path, text), "shown").files == ["src/a.py", "src/n.py"]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("diff --git", "diff --got"),
        ("@@ -1,3 +1,3 @@", "@@ -1,3 +1,4 @@"),
        ("@@ -9 +9 @@", "@@ -9 +9"),
        ("@@ -9 +9 @@", "@x -9 +9 @@"),
        ("+zwei\n", ""),
        ("From: =?UTF-8?q?J=C3=BCrgen?= <j@example.org>\n", ""),
        ("Thu, 1 Jan 2026", "Someday"),
        ("Thu, 1 Jan 2026", "Thu, 1 Jan 1969"),
        ("=?UTF-8?q?J=C3=BCrgen?=", "=?UTF-8?q?a=3Eb?="),
        ("Subject: ", "Subject: \0"),
        ("Subject: ", "Topic: "),
        (" a/src/a.py", " src/a.py"),
        ("--- a/src/a.py\n", "Binary files a/src/a.py and b/src/a.py differ\n--- a/src/a.py\n"),
    ],
)
def test_damage_is_refused(tmp_path: Path, old: str, new: str) -> None:
    assert old in PATCH
    refuse(tmp_path, PATCH.replace(old, new, 1))


def test_a_patch_that_is_cut_off_is_refused(tmp_path: Path) -> None:
    assert "is cut off" in refuse(tmp_path, PATCH[: PATCH.index("\n-- \n")])


@pytest.mark.parametrize("name", ["1-sam-ask.patch", "0001_sam.patch", "0001-Sam-ask.patch"])
def test_a_malformed_name_is_refused(tmp_path: Path, name: str) -> None:
    assert "NNNN-<feature>-<what>.patch" in refuse(tmp_path, PATCH, name)


@settings(max_examples=300, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(at=st.integers(PATCH.index("diff --git"), len(PATCH.encode()) - 1), value=st.integers(0, 255))
@example(at=PATCH.index("diff --git"), value=ord("x"))
@example(at=PATCH.index("@@ -9"), value=ord("x"))
def test_a_damaged_byte_never_drops_a_part_of_the_diff(tmp_path: Path, at: int, value: int) -> None:
    data = bytearray(PATCH.encode())
    data[at] = value
    try:
        patch = read_patch(write(tmp_path, bytes(data)), "shown")
    except PatchsetError as error:
        assert error.code is Exit.BAD_INPUT
        return
    lines = re.findall(r"^[-+ ](?![-+]{2} )", PATCH[PATCH.index("@@") : PATCH.index("-- \n2.43")], re.M)
    assert sum(len(hunk) for file in patch.diff for hunk in file) == len(lines)
