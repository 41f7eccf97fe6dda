"""Where this machine stands in the cluster: its own address, the interface, and whether it is the head."""

import socket
from dataclasses import dataclass

import psutil

from qwen3_rl.errors import UserError
from qwen3_rl.launch.settings import Settings

LOOPBACK = "127.0.0.1"


@dataclass(frozen=True)
class Place:
    """`address` is this machine's on the cluster's `interface`, `head` the head's."""

    address: str
    interface: str
    head: str
    nnodes: int

    @property
    def is_head(self) -> bool:
        return self.address == self.head

    @property
    def alone(self) -> bool:
        return self.nnodes == 1

    def environment(self) -> dict[str, str]:
        """What Ray, gloo, HCCL and vLLM need to find each other on this interface, and no other."""
        if self.alone:
            # With this variable Ray keeps to the loopback interface (ray/_private/services.py, get_node_ip_address);
            # otherwise it replaces 127.0.0.1 by an address of the machine and listens on all of them.
            return {"RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER": "0"}
        names = ("GLOO_SOCKET_IFNAME", "HCCL_SOCKET_IFNAME", "TP_SOCKET_IFNAME")
        return {
            **dict.fromkeys(names, self.interface),
            "HCCL_IF_IP": self.address,
            "VLLM_HOST_IP": self.address,
            # A node whose head has gone notices after this many seconds, not after a minute.
            "RAY_gcs_rpc_server_reconnect_timeout_s": "10",
        }


def find_place(settings: Settings) -> Place:
    """Raises UserError naming the setting that is missing, or does not fit this machine."""
    if settings.nnodes == 1:
        return Place(LOOPBACK, "lo", LOOPBACK, 1)
    if not settings.master_addr:
        raise UserError(
            f"NNODES={settings.nnodes}, but MASTER_ADDR is not set",
            "set MASTER_ADDR to the head's address, on every node",
        )
    head = _resolve(settings.master_addr)
    own = _own_addresses()
    interface = settings.socket_ifname
    if interface and not any(name == interface for name in own.values()):
        known = ", ".join(sorted({f"{name} ({address})" for address, name in own.items()})) or "none with an address"
        raise UserError(
            f"SOCKET_IFNAME={interface}: this machine has no such interface with an address; it has {known}",
            "set SOCKET_IFNAME to the one that reaches the other nodes, or leave it out",
        )
    if head in own:
        if interface and own[head] != interface:
            raise UserError(
                f"MASTER_ADDR={settings.master_addr} is this machine's address on {own[head]}, not on "
                f"SOCKET_IFNAME={interface}",
                "let both name the same network",
            )
        return Place(head, own[head], head, settings.nnodes)
    address = _address_on(interface, own) if interface else _address_towards(head, settings.master_addr)
    return Place(address, own.get(address, interface or ""), head, settings.nnodes)


def _own_addresses() -> dict[str, str]:
    """Address to interface, without the loopback and link-local ones."""
    found = {}
    for name, entries in psutil.net_if_addrs().items():
        for entry in entries:
            if entry.family in (socket.AF_INET, socket.AF_INET6):
                address = entry.address.split("%")[0]
                if not address.startswith(("127.", "169.254.", "fe80:")) and address != "::1":
                    found[address] = name
    return found


def _resolve(master: str) -> str:
    if ":" in master:
        # Tried between two hosts: the head comes up, but no driver can register with its raylet.
        raise UserError(
            f"MASTER_ADDR={master} is an IPv6 address, over which Ray 2.49 forms no cluster",
            "set it to the head's IPv4 address, or to a name that has one",
        )
    try:
        address = socket.getaddrinfo(master, None, socket.AF_INET, socket.SOCK_STREAM)[0][4][0]
    except OSError as error:
        raise UserError(f"MASTER_ADDR={master}: {error.strerror}", "set it to the head's address") from None
    if address.startswith("127."):
        raise UserError(
            f"MASTER_ADDR={master} is the loopback address {address}, which other nodes cannot reach",
            "set it to the head's address on the cluster's network",
        )
    return address


def _address_on(interface: str, own: dict[str, str]) -> str:
    """The interface's IPv4 address."""
    for address, name in own.items():
        if name == interface and ":" not in address:
            return address
    raise UserError(
        f"SOCKET_IFNAME={interface} has no IPv4 address, which Ray needs",
        "give it one, or name the interface that reaches the other nodes",
    )


def _address_towards(head: str, master: str) -> str:
    """The address that this machine's routes give to packets for the head; nothing is sent."""
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        try:
            probe.connect((head, 9))
        except OSError as error:
            raise UserError(
                f"MASTER_ADDR={master}: this machine has no route there ({error.strerror})",
                "check MASTER_ADDR and the network, or set SOCKET_IFNAME",
            ) from None
        return probe.getsockname()[0]
