"""Where the command starts: `patchset`, and `python -m patchset`."""

import sys


def main() -> int:
    """Run the command line; Ctrl-C is quiet even while its modules are imported."""
    try:
        from .cli import main as run

        return run()
    except KeyboardInterrupt:
        print("error: interrupted\nnext: nothing is half done; run the command again when you like", file=sys.stderr)
        return 130


if __name__ == "__main__":
    sys.exit(main())
