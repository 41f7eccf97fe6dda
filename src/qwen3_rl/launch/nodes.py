"""Do all machines of the Ray cluster run the same patched trees? Asked once, before the train script starts."""

import argparse
import sys

import ray

from patchset.project import find_project
from patchset.verify import attestation
from qwen3_rl.errors import UserError, as_user_errors
from qwen3_rl.launch.attest import MODULES, attest, origin

PATIENCE = 60.0  # seconds for a node to start a worker and answer


def imported() -> dict[str, str]:
    """What this process would import: the attestation of the installed frameworks. Raises as `attest` does.

    That each of them comes from its checkout is checked first.
    """
    project = find_project(None)
    attest(project)
    said = attestation(project)
    return {key: value for key, value in said.items() if key not in MODULES or origin(MODULES[key])}


def report() -> dict[str, str]:
    """`imported`, with a fault as a value: an exception of one node must not hide the others' answers."""
    try:
        with as_user_errors():
            return imported()
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
            here, there = head.get(key, "not installed"), said.get(key, "not installed")
            if here != there:
                found.append(f"{node}: {key} is {there}, on the head it is {here}")
    return found


def ask_nodes() -> dict[str, dict[str, str]]:
    """Every alive node's report, by its address. Needs RAY_ADDRESS."""
    from ray.util.scheduling_strategies import NodeAffinitySchedulingStrategy

    ray.init(log_to_driver=False, logging_level="ERROR", configure_logging=False)
    task = ray.remote(num_cpus=0, max_retries=0)(report)
    asked = {}
    for node in ray.nodes():
        if node["Alive"]:
            on_it = NodeAffinitySchedulingStrategy(node["NodeID"], soft=False)
            asked[f"{node['NodeManagerHostname']} ({node['NodeManagerAddress']})"] = task.options(
                scheduling_strategy=on_it
            ).remote()
    answers = {}
    for node, answer in asked.items():
        try:
            answers[node] = ray.get(answer, timeout=PATIENCE)
        except ray.exceptions.RayError as error:
            # No worker, no answer, or a project there that is too old for the question.
            answers[node] = {"fault": f"cannot say what it imports: {str(error).strip().splitlines()[-1]}"}
    ray.shutdown()
    return answers


def check(head: dict[str, str], nodes: dict[str, dict[str, str]]) -> str:
    """One line on what all nodes agree on. Raises UserError naming node and framework otherwise."""
    if faults := differences(head, nodes):
        raise UserError(
            "the machines of this cluster do not run the same trees:\n" + "\n".join(f"    {each}" for each in faults),
            "on the machines named: the same checkout of this project, patchset apply, bash build_project.sh",
            1,
        )
    return f"{len(nodes)} node(s) import the same trees: " + " ".join(f"{key}:{said}" for key, said in head.items())


def main() -> int:
    """Prepare, wait for a line on stdin that says that Ray is up, and ask. Exit codes as the launcher's."""
    argparse.ArgumentParser(prog="python -m qwen3_rl.launch.nodes", description=__doc__).parse_args()
    try:
        with as_user_errors():
            head = imported()
            sys.stdin.readline()
            print(check(head, ask_nodes()), flush=True)
            return 0
    except UserError as error:
        print(error.render(), file=sys.stderr)
        return error.exit_code


if __name__ == "__main__":
    from qwen3_rl.launch import nodes  # functions of __main__ would be sent to the nodes, not looked up there

    sys.exit(nodes.main())
