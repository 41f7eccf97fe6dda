"""The token counts that torchair may compile static kernels for."""

from typing import Any

from qwen3_rl.npugraph.keys import STATIC_KERNEL


def static_kernel_sizes(vllm_config: Any) -> list[int]:
    """Tokens of the batches that graphs are captured for; [] if `enable_static_kernel` is off.

    The model is compiled before vLLM rounds the sizes up to multiples of k + 1, so that is done here as well.
    """
    if (vllm_config.additional_config or {}).get(STATIC_KERNEL) is not True:
        return []
    speculative = vllm_config.speculative_config
    width = 1 + (speculative.num_speculative_tokens if speculative else 0)
    most = vllm_config.scheduler_config.max_num_seqs * width
    rounded = {-(-size // width) * width for size in vllm_config.compilation_config.cudagraph_capture_sizes}
    return sorted(size for size in rounded if size <= most)
