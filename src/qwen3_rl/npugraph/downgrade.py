"""Is npugraph_ex on, once vLLM-Ascend's platform has resolved the graph mode? Said aloud, and written back."""

from typing import Any

from qwen3_rl.npugraph.keys import SWITCH
from qwen3_rl.npugraph.settings import GRAPH_MODES


def settle(vllm_config: Any, ascend_config: Any, logger: Any) -> None:
    """Set the flag to what holds, in this process' ascend_config and in what is sent to the workers.

    vllm_config: `compilation_config.{cudagraph_mode, mode}` are read; `additional_config` is where spawned workers
    read the flag. ascend_config: the platform's, which an earlier engine of the process may have left.
    """
    additional = vllm_config.additional_config
    wanted = isinstance(additional, dict) and bool(additional.get(SWITCH))
    compilation = vllm_config.compilation_config
    mode, level = (getattr(value, "name", str(value)) for value in (compilation.cudagraph_mode, compilation.mode))
    ascend_config.enable_npugraph_ex = wanted and mode in GRAPH_MODES and level == "VLLM_COMPILE"
    if wanted and not ascend_config.enable_npugraph_ex:
        additional[SWITCH] = False
        logger.warning(
            "additional_config.%s=True has no effect: it needs cudagraph_mode FULL_DECODE_ONLY or FULL and compilation "
            "mode VLLM_COMPILE, but they are %s and %s.",
            SWITCH,
            mode,
            level,
        )
