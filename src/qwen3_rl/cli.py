"""`qwen3-rl COMMAND`: what a user runs beside the patched frameworks.

Each command lives in its own module, which is imported only when that command is asked for, and offers
``add_arguments(parser)`` and ``run(args) -> int`` (the exit code).

Exit codes: 0 done; 1 the command found what it looks for to be wrong; 2 wrong usage or input.
"""

import argparse
import importlib
import io
import os
import signal
import sys

from qwen3_rl.errors import UserError, as_user_errors

COMMANDS = {
    "build": ("qwen3_rl.build", "install the patched checkouts and what they import"),
    "data": ("qwen3_rl.data.cli", "make training data in veRL's parquet form"),
    "tiny-model": ("qwen3_rl.data.tiny_model", "make a tiny, randomly initialised Qwen3 with its tokenizer"),
    "convert": ("qwen3_rl.moe_overlap.convert", "make a Megatron-Core checkpoint of a Qwen3's Hugging Face weights"),
    "attest": (
        "qwen3_rl.launch.attest",
        "are the verl and vllm that this Python imports the patched ones?",
    ),
    "replay-drafts": ("qwen3_rl.sam.replay", "replay recorded responses through drafters"),
    "doctor": ("qwen3_rl.doctor.cli", "examine this machine: versions, NPUs, trees, ports, memory, caches, settings"),
    "dry-run": ("qwen3_rl.dry_run.cli", "check a train script without starting anything"),
    "simulate-sampler": ("qwen3_rl.length_aware.simulate", "what the length-aware order saves on a machine, simulated"),
    "summary": ("qwen3_rl.report.summary", "table and curves of one run"),
    "compare": ("qwen3_rl.report.compare", "two to six runs against one another: ratios, curves, agreement"),
    "watch": ("qwen3_rl.report.watch", "the steps of a running job, and when it will end"),
}


def main(argv: list[str] | None = None) -> int:
    argv = sys.argv[1:] if argv is None else argv
    parser = argparse.ArgumentParser(
        prog="qwen3-rl",
        description="RL post-training of Qwen3 on patched veRL and vLLM: preparing, checking, reporting.",
        epilog="Exit codes: 0 done, 1 a check failed, 2 wrong usage or input.",
    )
    subparsers = parser.add_subparsers(dest="command", metavar="COMMAND", required=True)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):  # names of files need not be text, nor the encoding able to show them
            stream.reconfigure(errors="backslashreplace")
    try:
        with as_user_errors():
            for name, (module, help_text) in COMMANDS.items():
                description = help_text[0].upper() + help_text[1:] + "."
                sub = subparsers.add_parser(name, help=help_text, description=description)
                if argv[:1] == [name]:
                    command = importlib.import_module(module)
                    command.add_arguments(sub)
                    sub.set_defaults(run=command.run)
            args = parser.parse_args(argv)
            code = args.run(args)
            sys.stdout.flush()
            return code
    except BrokenPipeError:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())  # or Python complains at its end
        return 128 + signal.SIGPIPE
    except UserError as error:
        print(error.render(), file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        return 130


if __name__ == "__main__":
    sys.exit(main())
