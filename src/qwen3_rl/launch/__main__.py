"""`python -m qwen3_rl.launch`: a signal during the imports ends it as quietly as one later on."""

import signal
import sys


def _end(number: int, _frame) -> None:
    sys.exit(128 + number)


for _number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
    signal.signal(_number, _end)

from qwen3_rl.launch.run import main  # noqa: E402

sys.exit(main())
