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


def test_without_a_compiler_nothing_is_preloaded_and_what_listens_is_named(tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    assert own_interface.environment(PLACE, tmp_path) == {}
    code = "import socket; s = socket.create_server(('', 0)); print(s.getsockname()[1], flush=True); input()"
    with subprocess.Popen(
        [sys.executable, "-c", code], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as server:
        port = server.stdout.readline().strip()
        assert any(f"(process {server.pid}, port {port})" in each for each in own_interface.everywhere())
        server.communicate("\n")


def test_a_compiler_that_fails(tmp_path, monkeypatch):
    (tmp_path / "cc").write_text("#!/bin/sh\nexit 1\n")
    (tmp_path / "cc").chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    assert own_interface.environment(PLACE, tmp_path) == {}
