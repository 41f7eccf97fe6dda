"""What an env script exports, read in a shell of its own: it cannot end the launcher."""

import os
import subprocess
import sys
from pathlib import Path

from qwen3_rl.errors import UserError

# Descriptor 3 carries the environment, so that the script may print what it likes. A failing last command is no fault:
# many a set_env.sh ends in a test.
SOURCE = 'source "$1"; exec /usr/bin/env -0 >&3 3>&-'


def check_script(script: Path) -> None:
    """Raises UserError if ``script`` is missing, has CRLF line ends, or is no bash."""
    if not script.is_file():
        internal = Path(__file__).parents[3] / "internal"
        raise UserError(f"there is no script {script}", f"ls {internal} shows the scripts that come with this project")
    if b"\r\n" in script.read_bytes():
        raise UserError(f"{script} has CRLF line ends", f"sed -i 's/\\r$//' {script}")
    checked = subprocess.run(["bash", "-n", str(script)], capture_output=True, text=True)
    if checked.returncode:
        raise UserError(f"{script} is not a bash script: {checked.stderr.strip()}", f"correct {script}")


def source_environment(script: Path) -> dict[str, str]:
    """The environment after ``source script``, with this Python's folder first on PATH.

    Raises UserError if the script ends the shell that sources it.
    """
    read, write = os.pipe()
    # As a shell at a terminal: no `set -eu`, which vendors' scripts are not written for. 3 is where bash expects it.
    shell = subprocess.Popen(
        ["bash", "-c", f"exec 3>&{write}; {SOURCE}", "bash", str(script.absolute())],
        stdin=subprocess.DEVNULL,
        pass_fds=[write],
    )
    os.close(write)
    with os.fdopen(read, "rb") as source:
        data = source.read()
    code = shell.wait()
    if not data:
        raise UserError(
            f"{script} ended the shell that sourced it (exit code {code})", "take `exit` or `exec` out of it"
        )
    pairs = (entry.partition(b"=") for entry in data.split(b"\0") if entry)
    env = {os.fsdecode(key): os.fsdecode(value) for key, _, value in pairs if not key.startswith(b"BASH_FUNC_")}
    env["PATH"] = f"{Path(sys.executable).parent}:{env.get('PATH') or os.defpath}"
    # Or a folder "vllm" in the working directory would be taken for the package.
    env["PYTHONSAFEPATH"] = "1"
    return env
