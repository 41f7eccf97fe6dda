"""veRL's console log: its step lines, and the settings that it prints at the start.

A step is one line, ``step:N - name:value - name:value ...``. Around it stand Ray's prefix with the process, colour
codes, progress bars and what other workers print.
"""

import ast
import re
from itertools import groupby

from qwen3_rl.errors import UserError
from qwen3_rl.report.names import KEPT
from qwen3_rl.report.steps import KeptSteps

LONGEST_LINE = 4 << 20  # bytes; a step has about 4,000
MOST_LINES = 5000  # of printed settings
MOST_FOREIGN = 100  # lines among them that are none, and have none's form
SETTINGS_WITHIN = 16 << 20  # bytes from the start in which settings are looked for

STEP = re.compile(rb"(?<![\w/])step:(\d{1,18}) - ")
COLOUR = re.compile(rb"\x1b\[[0-9;?]*[A-Za-z]")
PREFIX = re.compile(r"\((\w+ pid=\d+(?:, ip=[^)]*)?)\) ?")
SETTING = re.compile(r"\s+'")  # how pprint begins all lines of the settings but the first
KEY = re.compile(SETTING.pattern + r"\w+':")
WRAPPED = re.compile(rb"[\w.]+\(([^(),]+)(?:,[^()]*)?\)")
TREE = re.compile(r"(?:^|\s)(verl|vllm|vllm-ascend|megatron-core|mindspeed) (\S+) +\d+ patches +([0-9a-f]{12})")
VERSIONS = {
    "vllm": re.compile(r"LLM engine \(v([\w.+-]+)\)"),
    "transformers": re.compile(r'"transformers_version": "([^"]+)"'),
}
TOTAL = re.compile(r"Total training steps: (\d{1,18})")


class Lines:
    """Cuts blocks into whole lines. A line longer than LONGEST_LINE is dropped and counted."""

    def __init__(self) -> None:
        self.rest = b""
        self.dropped = 0
        self._dropping = False

    def feed(self, block: bytes) -> bytes:
        """The whole lines that ``block`` completes."""
        if self._dropping:
            end = block.find(b"\n")
            if end < 0:
                return b""
            block = block[end + 1 :]
            self._dropping = False
        end = block.rfind(b"\n") + 1
        whole = self.rest + block[:end] if end else b""
        self.rest = block[end:] if end else self.rest + block
        if len(self.rest) > LONGEST_LINE:
            self.rest = b""
            self.dropped += 1
            self._dropping = True
        return whole


def number(text: bytes) -> float | None:
    """The value of ``0.5``, ``nan``, ``True``, ``np.float64(0.5)`` or ``tensor(0.5, device='npu:0')``; else None."""
    if text[:11] == b"np.float64(" and text[-1:] == b")":  # most values: quicker than the pattern
        text = text[11:-1]
    try:
        return float(text)
    except ValueError:
        pass
    if text in (b"True", b"False"):
        return float(text == b"True")
    wrapped = WRAPPED.fullmatch(text)
    return number(wrapped[1]) if wrapped else None


KEPT_BYTES = {name.encode(): name for name in KEPT}


def step_values(text: bytes) -> dict[str, float]:
    """The kept metrics of a step line's ``name:value - name:value``. A pair that is torn is left out.

    Ray may add "[repeated 2x across cluster]".
    """
    values = {}
    for pair in text.partition(b" [repeated ")[0].rstrip().split(b" - "):
        name, _, value = pair.partition(b":")
        if name in KEPT_BYTES and (parsed := number(value)) is not None:
            values[KEPT_BYTES[name]] = parsed
    return values


class Console:
    """Reads a log block by block; what it has found so far is always there to look at."""

    def __init__(self) -> None:
        self.steps = KeptSteps()
        self.settings: dict[str, object] = {}
        self.versions: dict[str, str] = {}
        self.total: int | None = None
        self._lines = Lines()
        self._read = 0
        self._writers: list[str] = []
        self._config: tuple[str, list[str]] | None = None  # the printing process and its lines so far

    def feed(self, block: bytes) -> None:
        whole = self._lines.feed(block)
        if self._read < SETTINGS_WITHIN:
            self._look_for_settings(whole)
        self._read += len(block)
        at = whole.find(b"step:")
        while at >= 0:
            start, end = whole.rfind(b"\n", 0, at) + 1, whole.find(b"\n", at)
            self._line(COLOUR.sub(b"", whole[start:end]))
            at = whole.find(b"step:", end)

    def notes(self) -> list[str]:
        notes = []
        if self.steps.restarts:
            notes.append(f"restarted {self.steps.restarts} times; steps that ran again count once, the last time")
        if self._lines.dropped:
            notes.append(f"{self._lines.dropped} lines of more than {LONGEST_LINE >> 20} MiB were left out")
        if STEP.search(self._lines.rest):
            notes.append("the last line was cut off, its step is left out")
        return notes

    def _line(self, line: bytes) -> None:
        found = STEP.search(line)
        if found and (values := step_values(line[found.end() :].partition(b"\r")[0])):
            prefix = PREFIX.match(line[: found.start()].decode(errors="replace"))
            self._written_by(prefix[1] if prefix else "")
            self.steps.add(int(found[1]), values)

    def _written_by(self, process: str) -> None:
        """A new process is a restart; one that comes back means two runs in one file, which no one can tell apart."""
        if not self._writers or self._writers[-1] != process:
            if process in self._writers:
                raise UserError(
                    f"the steps of two runs are interleaved, of {self._writers[-1] or 'no process'} and of {process}",
                    "split the log by process, as in: grep -F '(TaskRunner pid=N)' LOG > ONE",
                )
            self._writers.append(process)

    def _look_for_settings(self, whole: bytes) -> None:
        for raw in COLOUR.sub(b"", whole).decode(errors="replace").split("\n"):
            prefix = PREFIX.match(raw)
            process, line = (prefix[1], raw[prefix.end() :]) if prefix else ("", raw)
            line = line.rstrip("\r")
            if line.startswith("{'actor_rollout_ref'"):
                self._config = (process, [])
            if self._config and process == self._config[0]:
                self._config[1].append(line)
                # An inner dict's last line ends in "}," unless Ray broke the line there.
                if line.endswith("}") and (self._settings(self._config[1]) or len(self._config[1]) > MOST_LINES):
                    self._config = None
            elif total := TOTAL.search(line):
                self.total = int(total[1])
            else:
                self.versions.update(versions(line))

    def _settings(self, lines: list[str]) -> bool:
        """Whether these lines are all of them. Joined without a break, since Ray may break one in a word."""
        try:
            self.settings = dict(flat(ast.literal_eval("".join(without_foreign(lines)))))
        except (ValueError, SyntaxError, MemoryError, RecursionError):
            return False  # or another process wrote into it; the comparison says that the settings are unknown
        return True


def without_foreign(lines: list[str]) -> list[str]:
    """Printed settings without the lines that Ray has put among them from the same process's stderr.

    They come in whole lines; where Ray had broken a line of the settings, its rest is one of them.
    """
    runs = [(ours, list(run)) for ours, run in groupby(lines[1:], key=lambda line: bool(SETTING.match(line)))]
    if sum(len(run) for ours, run in runs if not ours) > MOST_FOREIGN:
        return lines
    kept = lines[:1]
    for (ours, run), (_, following) in zip(runs, [*runs[1:], (True, [""])], strict=True):
        if not ours:
            key = KEY.match(following[0])
            after = key[0] if key else ""
            candidates = [run, *([line] for line in reversed(run)), []]
            run = next((some for some in candidates if begins_a_literal("".join([*kept, *some, after]))), run)
        kept += run
    return kept


def begins_a_literal(text: str) -> bool:
    try:
        ast.parse(text, mode="eval")
    except SyntaxError as error:
        return "was never closed" in error.msg
    except (ValueError, MemoryError, RecursionError):
        return False
    return True


def versions(line: str) -> dict[str, str]:
    """What a line says of a framework: our launcher's line of a patched tree, or the framework's own word."""
    if tree := TREE.search(line):
        return {tree[1]: f"{tree[2]} ({tree[3]})"}
    return {name: found[1] for name, pattern in VERSIONS.items() if (found := pattern.search(line))}


def flat(tree: dict, prefix: str = ""):
    """The leaves of nested dicts as (dotted name, value)."""
    for key, value in tree.items():
        name = f"{prefix}{key}"
        if isinstance(value, dict) and value:
            yield from flat(value, f"{name}.")
        else:
            yield name, value
