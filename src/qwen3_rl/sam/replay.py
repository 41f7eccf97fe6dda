"""`qwen3-rl replay-drafts TRACES`: what drafters would have drafted for recorded responses, and at what cost.

Siblings start in waves, each wave in lockstep: in a step every running request gets the tokens it accepted and one
more, then all drafts are made, then checked against the recording. The first token of a response comes without a draft,
as from a prefill.
"""

import importlib.util
import json
import os
import sys
from collections.abc import Callable, Iterable
from dataclasses import asdict, dataclass
from pathlib import Path
from time import perf_counter

from qwen3_rl.errors import UserError
from qwen3_rl.sam.rivals import Arctic, Ngram, Sam, ngram_class
from qwen3_rl.sam.traces import TraceGroup, load_traces

DRAFTERS = ("sam", "ngram", "arctic")
SHARINGS = ("self", "group", "epoch")


@dataclass(frozen=True)
class Result:
    """accepted_per_step: mean accepted draft tokens a step, the bonus token not counted. hit_rate: share of steps with
    at least one. us_per_request: mean microseconds for one request's new tokens and draft. bytes_per_token: memory for
    each token held, where most are held; None where unknown. stagger: siblings that start at once."""

    drafter: str
    sharing: str
    k: int
    stagger: int
    accepted_per_step: float
    hit_rate: float
    us_per_request: float
    bytes_per_token: float | None


def replay(make: Callable, groups: list[TraceGroup], name: str, sharing: str, k: int, wave: int) -> Result:
    """Run `groups` through the drafter that make() returns: epoch 0, or for "epoch" epoch 1 with epoch 0 known."""
    drafter = make()
    accepted = steps = hits = asked = kept = most = 0
    memory = None
    seconds = 0.0
    request = 0
    for group in groups:
        if sharing == "epoch":
            for response in group.epochs[0]:
                drafter.learn(group.prompt, response)
                kept += len(response)
        responses = [response.tolist() for response in group.epochs[1 if sharing == "epoch" else 0]]
        kept += len(group.prompt)
        for start in range(0, len(responses), wave):
            running = {}
            for response in responses[start : start + wave]:
                drafter.begin(request, group.prompt)
                running[request] = (response, 0, 1)
                request += 1
            while running:
                reqs = list(running)
                new = [response[seen:end] for response, seen, end in running.values()]
                if isinstance(drafter, Ngram):
                    drafter.note(reqs, new)
                begun = perf_counter()
                drafts = drafter.step(reqs, new)
                seconds += perf_counter() - begun
                asked += len(reqs)
                for req, draft in zip(reqs, drafts, strict=True):
                    response, _, end = running[req]
                    if end == len(response):
                        held = sum(end for _, _, end in running.values())
                        held += len(group.prompt) * len(running) if sharing == "self" else kept
                        if held > most:
                            most, memory = held, drafter.bytes_used()
                        drafter.end(req)
                        kept += end
                        del running[req]
                        continue
                    right = _common_prefix(draft, response, end)
                    accepted += right
                    hits += right > 0
                    steps += 1
                    running[req] = (response, end, min(len(response), end + right + 1))
    return Result(
        name,
        sharing,
        k,
        wave,
        accepted / max(steps, 1),
        hits / max(steps, 1),
        seconds / asked * 1e6,
        None if memory is None else memory / most,
    )


def _common_prefix(draft: list[int], response: list[int], start: int) -> int:
    length = 0
    for token, truth in zip(draft, response[start : start + len(draft)], strict=False):
        if token != truth:
            break
        length += 1
    return length


def makers(drafters: Iterable[str], groups: list[TraceGroup], spec_factors: list[float], vllm: str | None) -> dict:
    """{name: (sharings, make(k, sharing))} for the asked drafters. Raises UserError for one that isn't installed."""
    rows = max(len(epoch) for group in groups for epoch in group.epochs)
    width = max(len(g.prompt) + max(len(r) for epoch in g.epochs for r in epoch) for g in groups) + 1
    found: dict = {}
    for drafter in drafters:
        if drafter == "sam":
            found["sam"] = (SHARINGS, Sam)
        elif drafter == "ngram":
            proposer = ngram_class(vllm)
            if proposer is None:
                raise UserError("ngram: vLLM is not installed", "give --vllm or VLLM_PATH, or leave ngram out")
            found["ngram"] = (("self",), lambda k, sharing, p=proposer: Ngram(k, sharing, p, rows, width))
        elif importlib.util.find_spec("arctic_inference") is None:
            raise UserError(
                "arctic: arctic-inference is not installed", "pip install arctic-inference, or leave it out"
            )
        else:
            for factor in spec_factors:
                found[f"arctic-f{factor:g}"] = (SHARINGS, lambda k, sharing, f=factor: Arctic(k, sharing, f))
    return found


def replay_all(makers: dict, groups: list[TraceGroup], sharings, ks, waves, rounds: int = 1) -> list[Result]:
    """All combinations. Drafters take turns within each round; of several rounds the fastest time of each counts."""
    best: dict = {}
    for _ in range(rounds):
        for sharing in sharings:
            for wave in waves:
                for k in ks:
                    for name, (able, make) in makers.items():
                        if sharing not in able:
                            continue
                        once = replay(lambda m=make, k=k, s=sharing: m(k, s), groups, name, sharing, k, wave)
                        key = (name, sharing, k, wave)
                        if key not in best or once.us_per_request < best[key].us_per_request:
                            best[key] = once
    return list(best.values())


def table(results: list[Result]) -> str:
    lines = [
        f"{'drafter':<12} {'sharing':<8} {'k':>3} {'wave':>5} {'accepted':>9} {'hit rate':>9} {'us/req':>8}"
        f" {'B/token':>8}"
    ]
    for r in results:
        memory = "-" if r.bytes_per_token is None else f"{r.bytes_per_token:.0f}"
        lines.append(
            f"{r.drafter:<12} {r.sharing:<8} {r.k:>3} {r.stagger:>5} {r.accepted_per_step:>9.3f} {r.hit_rate:>9.3f}"
            f" {r.us_per_request:>8.2f} {memory:>8}"
        )
    return "\n".join(lines)


def draw(results: list[Result], path: Path) -> None:
    """Bars of accepted tokens a step, one panel for each sharing and wave. Raises UserError without matplotlib."""
    try:
        import matplotlib
    except ImportError:
        raise UserError("--png needs matplotlib", "pip install matplotlib, or leave --png out") from None
    matplotlib.use("Agg")
    from matplotlib import pyplot

    panels = list(dict.fromkeys((r.sharing, r.stagger) for r in results))
    figure, axes = pyplot.subplots(1, len(panels), figsize=(3.2 * len(panels), 3.6), sharey=True, squeeze=False)
    for axis, (sharing, stagger) in zip(axes[0], panels, strict=True):
        rows = [r for r in results if (r.sharing, r.stagger) == (sharing, stagger)]
        names, ks = list(dict.fromkeys(r.drafter for r in rows)), sorted({r.k for r in rows})
        for i, name in enumerate(names):
            heights = {r.k: r.accepted_per_step for r in rows if r.drafter == name}
            places = [j + (i + 0.5) / (len(names) + 1) for j in range(len(ks))]
            axis.bar(places, [heights.get(k, 0) for k in ks], 1 / (len(names) + 1), label=name)
        axis.set_xticks([j + 0.5 for j in range(len(ks))], [f"k={k}" for k in ks])
        axis.set_title(f"{sharing}, {stagger} at once")
        axis.legend(fontsize=7)
    axes[0][0].set_ylabel("accepted draft tokens a step")
    figure.tight_layout()
    try:
        figure.savefig(path)
    except (OSError, ValueError) as error:
        raise UserError(
            f"can't write {path}: {error}", "give --png a path that can be written, such as drafts.png"
        ) from None


def add_arguments(parser) -> None:
    parser.add_argument("traces", type=Path, metavar="TRACES", help="recorded rollouts, JSON (docs/sam.md)")
    parser.add_argument("--drafters", help="of sam,ngram,arctic (default: those that are installed)")
    parser.add_argument("--sharing", default="self,group,epoch", help="of self,group,epoch (default: all)")
    parser.add_argument("--k", default="3,5,8", help="most draft tokens a step (default: 3,5,8)")
    parser.add_argument(
        "--waves", default="all,1", help='siblings that start at once: numbers or "all" (default: all,1)'
    )
    parser.add_argument("--spec-factors", default="1,4,8,16", help="arctic's max_spec_factor (default: 1,4,8,16)")
    parser.add_argument("--vllm", default=os.environ.get("VLLM_PATH"), help="folder that holds vllm/ ($VLLM_PATH)")
    parser.add_argument("--rounds", default="1", help="repeat, drafters in turn, and keep the fastest times")
    parser.add_argument("--json", action="store_true", help="print a list of objects instead of a table")
    parser.add_argument("--png", type=Path, metavar="FILE", help="also draw accepted tokens a step")


def run(args) -> int:
    ks = _numbers("--k", args.k, 1, 64)
    rounds = _numbers("--rounds", args.rounds, 1, 1000)[0]
    factors = _numbers("--spec-factors", args.spec_factors, 0, 1000, float)
    sharings = _names("--sharing", args.sharing, SHARINGS)
    asked = _names("--drafters", args.drafters, DRAFTERS) if args.drafters else None
    groups = load_traces(args.traces)
    size = max(len(epoch) for group in groups for epoch in group.epochs)
    waves = [size if wave == "all" else _numbers("--waves", wave, 1, 1 << 20)[0] for wave in args.waves.split(",")]
    if "epoch" in sharings and min(len(group.epochs) for group in groups) < 2:
        if "epoch" in args.sharing and args.sharing != "self,group,epoch":
            raise UserError(f"{args.traces} has groups of one epoch", "leave epoch out of --sharing")
        print("replay-drafts: one epoch only, sharing epoch left out", file=sys.stderr)
        sharings = [sharing for sharing in sharings if sharing != "epoch"]
    found = {}
    for drafter in asked or DRAFTERS:
        try:
            found.update(makers([drafter], groups, factors, args.vllm))
        except UserError as error:
            if asked or args.vllm:
                raise
            print(f"replay-drafts: {error.what}; left out", file=sys.stderr)
    replay_all(found, groups[:1], sharings[:1], ks[:1], waves[:1])  # compile before the clock runs
    results = replay_all(found, groups, sharings, ks, dict.fromkeys(waves), rounds)
    print(json.dumps([asdict(r) for r in results], indent=1) if args.json else table(results))
    if args.png:
        draw(results, args.png)
    return 0


def _names(option: str, text: str, known: tuple[str, ...]) -> list[str]:
    names = text.split(",")
    for name in names:
        if name not in known:
            raise UserError(f"{option}: {name!r} is unknown", f"choose from {', '.join(known)}")
    return names


def _numbers(option: str, text: str, low: float, high: float, kind: type = int) -> list:
    try:
        numbers = [kind(part) for part in text.split(",")]
    except ValueError:
        raise UserError(f"{option}: {text!r} is no list of numbers", f"write it like {option} 3,5,8") from None
    for number in numbers:
        if not low <= number <= high:
            raise UserError(
                f"{option}: {number} is outside {low} to {high}", f"give {option} numbers from {low} to {high}"
            )
    return numbers
