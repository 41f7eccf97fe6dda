"""Ports, interfaces, the way to the head of the cluster."""

import ipaddress
import re
import socket
from collections.abc import Iterator, Mapping

from qwen3_rl.doctor.findings import Case, Finding, fault, note, ok, warning
from qwen3_rl.doctor.machine import Machine
from qwen3_rl.doctor.npu_smi import for_npu
from qwen3_rl.launch.settings import Settings

DASHBOARD = 8265
# HCCL takes this many from HCCL_IF_BASE_PORT on (CANN's reference of environment variables).
HCCL_BASE, HCCL_PORTS = 60000, 16
LISTEN = "0A"
INTERFACES = ("SOCKET_IFNAME", "GLOO_SOCKET_IFNAME", "HCCL_SOCKET_IFNAME", "TP_SOCKET_IFNAME")


def listeners(machine: Machine) -> dict[int, set[str]]:
    """The ports that somebody listens on, with the addresses: from the kernel's tables, so of all users."""
    found: dict[int, set[str]] = {}
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        for row in (machine.read(table) or "").splitlines()[1:]:
            cells = row.split()
            if len(cells) > 3 and cells[3] == LISTEN:
                address, port = cells[1].split(":")
                found.setdefault(int(port, 16), set()).add(_address(address))
    return found


def _address(digits: str) -> str:
    """An address as /proc/net shows it: 32-bit words, each in the machine's (little-endian) byte order."""
    words = [bytes.fromhex(digits[i : i + 8])[::-1] for i in range(0, len(digits), 8)]
    return str(ipaddress.ip_address(b"".join(words)))


def hccl_ports(env: Mapping[str, str]) -> list[int]:
    """The host ports that HCCL will take; none where the kernel is to choose (HCCL_HOST_SOCKET_PORT_RANGE=auto)."""
    said = env.get("HCCL_HOST_SOCKET_PORT_RANGE")
    if said == "auto":
        return []
    if said:
        spans = [each.split("-") for each in said.split(",") if re.fullmatch(r"\d+(-\d+)?", each.strip())]
        return [port for span in spans for port in range(int(span[0]), int(span[-1]) + 1)]
    base = env.get("HCCL_IF_BASE_PORT", "")
    first = int(base) if base.isdigit() else HCCL_BASE
    return list(range(first, first + HCCL_PORTS))


def check_ports(case: Case) -> Iterator[Finding]:
    taken = listeners(case.machine)
    said = case.machine.env.get("RAY_PORT", "")
    port = int(said) if said.isdigit() else Settings.model_fields["ray_port"].default
    if port in taken:
        fix = f"ss -ltnp 'sport = :{port}' names its owner; end a Ray of yours, or set RAY_PORT"
        yield fault("Ray port", f"{port} is taken", "free", fix)
    else:
        yield ok("Ray port", f"{port} is free", "free")
    if open_to := {each for each in taken.get(DASHBOARD, set()) if not ipaddress.ip_address(each).is_loopback}:
        yield warning(
            "Ray dashboard",
            f"port {DASHBOARD} is open on {', '.join(sorted(open_to))}",
            "127.0.0.1 only",
            "who reaches it can run any command here (CVE-2023-48022): stop that Ray, start it with "
            "--dashboard-host=127.0.0.1",
        )
    if for_npu(case.machine):
        yield from _check_hccl(case.machine, taken)


def _check_hccl(machine: Machine, taken: dict[int, set[str]]) -> Iterator[Finding]:
    ports = hccl_ports(machine.env)
    if not ports:
        return
    span = f"{ports[0]}-{ports[-1]}"
    if clash := [port for port in ports if port in taken]:
        yield fault(
            "HCCL ports",
            f"{', '.join(map(str, clash[:4]))} taken",
            f"{span} free",
            f"HCCL ends in EJ0003 or EI0019: end the other job (ss -ltnp 'sport = :{clash[0]}'), or set "
            "HCCL_IF_BASE_PORT on every node",
        )
        return
    low, high = _numbers(machine.read("/proc/sys/net/ipv4/ip_local_port_range")) or (32768, 60999)
    reserved = _spans(machine.read("/proc/sys/net/ipv4/ip_local_reserved_ports") or "")
    loose = [port for port in ports if low <= port <= high and not any(a <= port <= b for a, b in reserved)]
    if loose:
        yield warning(
            "HCCL ports",
            f"{span} free, but not reserved",
            "reserved",
            f"the kernel may give them to anybody: sysctl -w net.ipv4.ip_local_reserved_ports={span} (on the host)",
        )
    else:
        yield ok("HCCL ports", f"{span} free", "free, reserved")


def _numbers(text: str | None) -> list[int]:
    return [int(each) for each in (text or "").split()]


def _spans(text: str) -> list[tuple[int, int]]:
    spans = [each.split("-") for each in text.strip().split(",") if each]
    return [(int(span[0]), int(span[-1])) for span in spans]


def check_interfaces(case: Case) -> Iterator[Finding]:
    """What the environment names must exist; where it names nothing, gloo asks the hosts file."""
    machine, env = case.machine, case.machine.env
    present = machine.names("/sys/class/net", ".*")
    for variable in INTERFACES:
        for name in _named(env.get(variable, "")):
            # HCCL takes the beginning of a name too
            if name not in present and not (variable.startswith("HCCL") and any(p.startswith(name) for p in present)):
                fix = f"set {variable} to the interface of the cluster: ip -br addr"
                yield fault(variable, name, " or ".join(present), fix)
            elif (machine.read(f"/sys/class/net/{name}/operstate") or "").strip() == "down":
                yield fault(variable, f"{name} is down", "up", f"ip link set {name} up, or name another interface")
            else:
                yield ok(variable, name)
    if case.several and not env.get("GLOO_SOCKET_IFNAME"):
        host = (machine.read("/proc/sys/kernel/hostname") or "").strip()
        own = [row.split("#")[0].split() for row in (machine.read("/etc/hosts") or "").splitlines()]
        if loop := [row[0] for row in own if host in row[1:] and row[0].startswith("127.")]:
            yield fault(
                "host name",
                f"{host} is {loop[0]} in /etc/hosts",
                "the cluster's address",
                "other nodes would be told to connect to themselves (Gloo connectFullMesh failed): "
                "export GLOO_SOCKET_IFNAME=INTERFACE",
            )


def _named(value: str) -> list[str]:
    """The interfaces that a variable names: several with commas; `=` stands for the exact name, `^` for all but it."""
    return [] if value.startswith("^") else [name for name in value.removeprefix("=").split(",") if name]


def check_master(case: Case) -> Iterator[Finding]:
    """Does the kernel know a way to the head, and does it leave by the interface that is named?"""
    if case.master is None:
        yield note("route to the head", "not asked", "", "doctor --master ADDRESS")
        return
    try:
        own = case.machine.route_to(case.master)
    except socket.gaierror as error:
        yield fault(
            "route to the head", f"{case.master}: {error.strerror}", "an address", "give MASTER_ADDR as a number"
        )
        return
    fix = "is MASTER_ADDR the head's address in the cluster's network? `ip route get` shows the way"
    if own is None:
        yield fault("route to the head", f"none to {case.master}", "a route", fix)
        return
    try:
        local = ipaddress.ip_address(own).is_loopback
        outside = not ipaddress.ip_address(case.master).is_loopback
    except ValueError:
        local = outside = False
    env = case.machine.env
    named = _named(env.get("SOCKET_IFNAME") or env.get("GLOO_SOCKET_IFNAME") or "")
    interface = _interface_of(case.machine, own)
    if named and interface and interface not in named:
        yield fault(
            "route to the head",
            f"{case.master} through {interface} ({own})",
            ", ".join(named),
            f"other nodes do not reach {named[0]} from there: set SOCKET_IFNAME={interface}, or correct MASTER_ADDR",
        )
    elif local and outside:
        yield note("route to the head", f"{case.master} is this machine", "", "right on the head, wrong on a worker")
    else:
        yield ok("route to the head", f"{case.master} from {own}" + (f" ({interface})" if interface else ""))


def _interface_of(machine: Machine, address: str) -> str | None:
    """The interface that has ``address``, by `ip -o addr`; None where iproute2 is missing."""
    for row in (machine.run("ip", "-o", "addr") or "").splitlines():
        cells = row.split()
        if len(cells) > 3 and cells[3].split("/")[0] == address.split("%")[0]:
            return cells[1]
    return None
