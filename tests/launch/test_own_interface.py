"""Sockets for every interface become sockets of the node's address, for whatever starts with this environment."""

import os
import subprocess
import sys

import pytest

from qwen3_rl.launch import own_interface
from qwen3_rl.launch.place import Place

PLACE = Place("127.0.0.2", "lo", "127.0.0.2", 2)
BIND = """
import socket, sys
family, kind, address = sys.argv[1:]
with socket.socket(getattr(socket, family), getattr(socket, kind)) as sock:
    if family == "AF_INET6":
        sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, kind == "SOCK_STREAM" and address == "::only")
    sock.bind((address.removesuffix("only"), 0))
    print(sock.getsockname()[0])
"""


@pytest.mark.parametrize(
    ("socket_of", "bound"),
    [
        (("AF_INET", "SOCK_STREAM", "0.0.0.0"), "127.0.0.2"),
        (("AF_INET", "SOCK_STREAM", "127.0.0.3"), "127.0.0.3"),
        (("AF_INET", "SOCK_DGRAM", "0.0.0.0"), "0.0.0.0"),
        (("AF_INET6", "SOCK_STREAM", "::"), "::ffff:127.0.0.2"),
        (("AF_INET6", "SOCK_STREAM", "::ffff:0.0.0.0"), "::ffff:127.0.0.2"),
        (("AF_INET6", "SOCK_STREAM", "::only"), "::1"),
        (("AF_INET6", "SOCK_STREAM", "::1"), "::1"),
    ],
)
def test_where_a_socket_is_bound(tmp_path, socket_of, bound):
    env = {**os.environ, **own_interface.environment(PLACE, tmp_path)}
    assert subprocess.check_output([sys.executable, "-c", BIND, *socket_of], env=env, text=True).strip() == bound


def test_what_is_preloaded_already_stays_so(tmp_path):
    library = tmp_path / "own_interface.so"
    assert own_interface.environment(PLACE, tmp_path, "a.so:b.so")["LD_PRELOAD"] == f"{library}:a.so:b.so"
    assert own_interface.environment(PLACE, tmp_path)["LD_PRELOAD"] == str(library)


def test_a_socket_that_is_never_bound(tmp_path):
    env = {**os.environ, **own_interface.environment(PLACE, tmp_path)}
    code = "import socket; s = socket.socket(); s.listen(); print(s.getsockname()[0])"
    assert subprocess.check_output([sys.executable, "-c", code], env=env, text=True).strip() == "127.0.0.2"


def test_what_listens_on_every_interface_is_named():
    code = "import socket; s = socket.create_server(('', 0)); print(s.getsockname()[1], flush=True); input()"
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as server:
        port = server.stdout.readline().strip()
        assert any(f"(process {server.pid}, port {port})" in each for each in own_interface.everywhere())
        server.communicate("\n")


@pytest.mark.parametrize("content", ["", "#!/bin/sh\nexit 1\n", "no program"], ids=["none", "fails", "no program"])
def test_without_a_compiler(tmp_path, monkeypatch, content):
    if content:
        (tmp_path / "cc").write_text(content)
        (tmp_path / "cc").chmod(0o755)
    monkeypatch.setenv("PATH", str(tmp_path))
    with pytest.raises(own_interface.Unconfined, match="install a C compiler"):
        own_interface.environment(PLACE, tmp_path)


def test_a_compiler_that_fails_before_one_that_works(tmp_path, monkeypatch):
    (tmp_path / "cc").write_text("#!/bin/sh\nexit 1\n")
    (tmp_path / "cc").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    assert own_interface.environment(PLACE, tmp_path)["VLLM_LOOPBACK_IP"] == "127.0.0.2"


@pytest.mark.parametrize("name", ["a b", "a:b", "a$b"])
def test_a_folder_that_ld_preload_cannot_name(tmp_path, name):
    with pytest.raises(own_interface.Unconfined, match="set TMPDIR"):
        own_interface.environment(PLACE, tmp_path / name)


def test_a_folder_that_no_library_may_be_loaded_from(tmp_path):
    mount = ["mount", "-t", "tmpfs", "-o", "noexec", "none", str(tmp_path)]
    if subprocess.run(mount, capture_output=True).returncode != 0:
        pytest.skip("no right to mount a small file system")
    try:
        with pytest.raises(own_interface.Unconfined, match="set TMPDIR to a folder that libraries"):
            own_interface.environment(PLACE, tmp_path)
    finally:
        subprocess.run(["umount", "--lazy", str(tmp_path)], check=True)
