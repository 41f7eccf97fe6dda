"""The head's view of the cluster: waits for its machines, compares what they would run, watches them, tells the end.

A process of its own beside the launcher, `python -m qwen3_rl.launch.nodes`: it alone is connected to Ray. It reads
lines of JSON from the launcher and prints what the launcher shows, an empty line when the train script may start.
"""

import argparse
import json
import os
import select
import sys
import time
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path

import ray
from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

from patchset.project import find_project
from patchset.verify import attestation
from qwen3_rl.doctor.clock import Answer, skewed
from qwen3_rl.errors import UserError, as_user_errors
from qwen3_rl.launch.attest import MODULES, attest, origin
from qwen3_rl.launch.cluster import VERDICT

PATIENCE = 60.0  # seconds for a node to start a worker and answer
WATCH_SECONDS = 5.0
PACKAGES = ("torch", "torch_npu", "transformers", "ray", "numpy")
# Variables that change what a node computes or how it talks, and those among them that are a node's own.
SHARED_PREFIXES = (
    *("ALL_TO_ALL_", "ASCEND_", "GLOO_", "HCCL_", "NPUS_", "OMP_", "PYTORCH_", "TORCH", "USE_", "VERL_NPU_", "VLLM_"),
)
NODES_OWN = ("HCCL_IF_IP", "VLLM_HOST_IP", "VLLM_LOOPBACK_IP", "ASCEND_RT_VISIBLE_DEVICES")


def imported() -> dict[str, str]:
    """What this process would import: the attestation of the installed frameworks, and versions. Raises as `attest`.

    That each framework comes from its checkout is checked first.
    """
    project = find_project(None)
    attest(project)
    said = attestation(project)
    said = {key: value for key, value in said.items() if key not in MODULES or origin(MODULES[key])}
    said["python"] = ".".join(map(str, sys.version_info[:3]))
    for package in PACKAGES:
        try:
            said[package] = version(package)
        except PackageNotFoundError:
            continue
    return said


def report() -> dict[str, str]:
    """`imported`, with a fault as a value: an exception of one node must not hide the others' answers."""
    shared = {
        key: value for key, value in os.environ.items() if key.startswith(SHARED_PREFIXES) and key not in NODES_OWN
    }
    try:
        with as_user_errors():
            return {**imported(), **shared}
    except UserError as error:
        return {"fault": f"{error.what} (next, there: {error.next_step})"}


def differences(head: dict[str, str], nodes: dict[str, dict[str, str]]) -> list[str]:
    """One line for each thing in which a node differs from the head."""
    found = []
    for node, said in nodes.items():
        if "fault" in said:
            found.append(f"{node}: {said['fault']}")
            continue
        for key in sorted({*head, *said}):
            here, there = head.get(key, "not there"), said.get(key, "not there")
            if here != there:
                found.append(f"{node}: {key} is {there}, on the head it is {here}")
    return found


def check(head: dict[str, str], nodes: dict[str, dict[str, str]]) -> str:
    """One line on what all nodes agree on. head: the key of `nodes` that is compared with.

    Raises UserError naming node and difference.
    """
    if faults := differences(head, nodes):
        raise UserError(
            "the machines of this cluster do not run the same trees:\n" + "\n".join(f"    {each}" for each in faults),
            "on the machines named: the same checkout of this project, patchset apply, bash build_project.sh, and the "
            "same env script",
            1,
        )
    trees = " ".join(f"{key}:{said}" for key, said in head.items() if key in ("lock", *MODULES))
    return f"{len(nodes)} node(s) import the same trees: {trees}"


def alive() -> dict[str, dict]:
    """Ray's living nodes by address."""
    return {node["NodeManagerAddress"]: node for node in ray.nodes() if node["Alive"]}


def name_of(node: dict) -> str:
    return f"{node['NodeManagerHostname']} ({node['NodeManagerAddress']})"


def wait_for_nodes(count: int, npus: int, seconds: float, expected: list[str]) -> dict[str, dict]:
    """Until `count` nodes have joined, each named as it comes. Raises UserError after `seconds`, naming the missing."""
    deadline = time.monotonic() + seconds
    seen: set[str] = set()
    while True:
        nodes = alive()
        for address in sorted(nodes.keys() - seen):
            seen.add(address)
            if count > 1:
                has = nodes[address]["Resources"].get("NPU", 0)
                print(f"node {len(seen)} of {count}: {name_of(nodes[address])}, {has:.0f} NPU", flush=True)
        if len(nodes) >= count:
            break
        if time.monotonic() > deadline:
            missing = [address for address in expected if address not in nodes]
            raise UserError(
                f"{len(nodes)} of {count} nodes (NNODES) joined within {seconds:.0f} s: "
                f"{', '.join(name_of(node) for node in nodes.values())}"
                + (f"; missing: {', '.join(missing)}" if missing else ""),
                "see what ray_start_npu.sh says on the others"
                + ("" if expected else "; NODE_ADDRS, a list of all addresses, names them here")
                + "; RAY_JOIN_SECONDS waits longer",
                1,
            )
        time.sleep(0.5)
    wrong = [
        f"    {name_of(node)}: {node['Resources'].get('NPU', 0):.0f} NPU"
        for node in nodes.values()
        if node["Resources"].get("NPU", 0) != npus
    ]
    if wrong or len(nodes) > count:
        what = [f"    {len(nodes)} nodes, NNODES is {count}"] if len(nodes) > count else []
        raise UserError(
            f"the cluster is not {count} machines with {npus} NPU each:\n" + "\n".join(what + wrong),
            "set NNODES and NPUS_PER_NODE to the same, right values on every node",
            1,
        )
    return nodes


def on_each(nodes: dict[str, dict], function, *arguments) -> dict[str, object]:
    """Run a function once on every node; its result, or the exception, by the node's name."""
    task = ray.remote(num_cpus=0, max_retries=0)(function)
    asked = {}
    for node in nodes.values():
        on_it = NodeAffinitySchedulingStrategy(node["NodeID"], soft=False)
        asked[name_of(node)] = task.options(scheduling_strategy=on_it).remote(*arguments)
    answers: dict[str, object] = {}
    for name, answer in asked.items():
        try:
            answers[name] = ray.get(answer, timeout=PATIENCE)
        except ray.exceptions.RayError as error:
            answers[name] = error
    return answers


def reports(nodes: dict[str, dict]) -> dict[str, dict[str, str]]:
    """Every node's `report`."""
    return {
        name: answer
        if isinstance(answer, dict)
        # No worker, no answer, or a project there that is too old for the question.
        else {"fault": f"cannot say what it imports: {str(answer).strip().splitlines()[-1]}"}
        for name, answer in on_each(nodes, report).items()
    }


def clock() -> float:
    return time.time()


def skewed_clocks(nodes: dict[str, dict]) -> list[str]:
    """One line for each node whose clock is off. To be asked when every node has a worker: a start takes seconds."""
    asked, answers, answered = time.time(), on_each(nodes, clock), time.time()
    return skewed({name: Answer(asked, said, answered) for name, said in answers.items() if isinstance(said, float)})


def write_verdict(text: str) -> None:
    """Runs on a node: its launcher, which waits there, reads this."""
    draft = Path(os.environ["TMPDIR"]) / f".{VERDICT}"
    draft.write_text(text)
    draft.replace(draft.with_name(VERDICT))


def watch(nodes: dict[str, dict]) -> dict:
    """Name each node that leaves, until the launcher says how it ended; returns that."""
    left: set[str] = set()
    while not select.select([sys.stdin], [], [], WATCH_SECONDS)[0]:
        for address in nodes.keys() - alive().keys() - left:
            left.add(address)
            print(f"node {name_of(nodes[address])} has left the cluster", flush=True)
    return json.loads(sys.stdin.readline() or "{}")


def main() -> int:
    """Exit codes as the launcher's."""
    argparse.ArgumentParser(prog="python -m qwen3_rl.launch.nodes", description=__doc__).parse_args()
    cluster: dict = {}
    error = None
    try:
        with as_user_errors():
            head = imported()
            cluster = json.loads(sys.stdin.readline() or "{}")  # Ray is up now
            ray.init(log_to_driver=False, logging_level="ERROR", configure_logging=False)
            nodes = alive()
            if cluster:
                nodes = wait_for_nodes(cluster["count"], cluster["npus"], cluster["seconds"], cluster["expected"])
            said = reports(nodes)
            own = said.get(name_of(nodes[cluster["address"]]), {}) if cluster else {}
            print(check({**own, **head}, said))
            for line in skewed_clocks(nodes) if len(nodes) > 1 else []:
                print(f"warning: {line}")
            print(flush=True)
            verdict = watch(nodes) if len(nodes) > 1 else None
    except UserError as fault:
        verdict, error = {"code": fault.exit_code, "why": fault.what}, fault
    if verdict and cluster.get("count", 1) > 1 and ray.is_initialized():
        on_each(alive(), write_verdict, json.dumps(verdict))
    if error:
        print(error.render(), file=sys.stderr)
    return error.exit_code if error else 0


if __name__ == "__main__":
    from qwen3_rl.launch import nodes  # functions of __main__ would be sent to the nodes, not looked up there

    sys.exit(nodes.main())
