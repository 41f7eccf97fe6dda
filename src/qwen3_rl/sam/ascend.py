"""`AscendSamProposer`: SAM in vllm-ascend's model runner, whose `get_spec_decode_method` makes it for method `sam`."""

from typing import Any

from vllm.config import CUDAGraphMode
from vllm_ascend.spec_decode.interface import Proposer, SpecDcodeType

from qwen3_rl.npugraph.one_token import set_query_len
from qwen3_rl.sam.proposer import SamProposer


class AscendSamProposer(Proposer):
    """Drafts of `SamProposer`, padded where that lets the next step run as a graph.

    runner: the NPUModelRunner; its `input_batch`, `requests`, `compilation_config` and `cudagraph_dispatcher` are read
    at each step. Raises ValueError for a wrong sam_config.
    """

    def __init__(self, vllm_config: Any, device: Any, runner: Any):
        self.name = SpecDcodeType.SAM
        self.stats = (sam := SamProposer(vllm_config)).stats
        self._sam = sam
        self._runner = runner
        self._k = vllm_config.speculative_config.num_speculative_tokens
        self._max_model_len = vllm_config.model_config.max_model_len
        self._token_budget = vllm_config.scheduler_config.max_num_batched_tokens

    def load_model(self, *args: Any, **kwargs: Any) -> None:
        """There is no model."""

    def dummy_run(self, *args: Any, **kwargs: Any) -> None:
        """There is nothing to warm up or to capture."""

    def generate_token_ids(
        self,
        valid_sampled_token_ids: list[list[int]],
        sampling_metadata: Any = None,
        scheduler_output: Any = None,
        *unused: Any,
        **also_unused: Any,
    ) -> list[list[int]]:
        """One draft, perhaps empty, for each request of the runner's batch; called when the step's tokens are in it."""
        batch = self._runner.input_batch
        padded = all(valid_sampled_token_ids) and self.graph_wants_padding(len(batch.req_ids))
        verified = scheduler_output.scheduled_spec_decode_tokens
        drafts = self._sam.propose(batch, self._runner.requests, verified, padded)
        return self.filled(drafts) if padded and any(drafts) else drafts

    def graph_wants_padding(self, requests: int) -> bool:
        """Whether graphs exist only for batches in which every request has k + 1 tokens, and one fits this batch.

        In mode FULL ragged batches have graphs too, and the dispatcher asserts that a uniform batch's graph has a
        multiple of k + 1 tokens, which only FULL_DECODE_ONLY sees to.
        """
        mode = self._runner.compilation_config.cudagraph_mode
        tokens = requests * (self._k + 1)
        if mode != CUDAGraphMode.FULL_DECODE_ONLY or tokens > self._token_budget:
            return False
        has_lora = len(self._runner.input_batch.lora_id_to_lora_request) > 0
        set_query_len(self._runner, [self._k + 1])
        found, _ = self._runner.cudagraph_dispatcher.dispatch(tokens, uniform_decode=True, has_lora=has_lora)
        return found == CUDAGraphMode.FULL

    def filled(self, drafts: list[list[int]]) -> list[list[int]]:
        """All drafts at length k, or, where one request can't have that, all as they are.

        What a draft is filled with is verified like any other token, so it can't change the output's law.
        """
        batch = self._runner.input_batch
        lengths = batch.num_tokens_no_spec[: len(drafts)].tolist()
        if max(lengths) + self._k >= self._max_model_len or batch.spec_decode_unsupported_reqs:
            return drafts
        last = [draft[-1] if draft else int(batch.token_ids_cpu[i, lengths[i] - 1]) for i, draft in enumerate(drafts)]
        return [draft + [token] * (self._k - len(draft)) for draft, token in zip(drafts, last, strict=True)]
