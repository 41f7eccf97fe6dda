"""Batches of prompts whose answers are about equally long, and a cap on answers that are not (docs/length-aware.md)."""

# Names that the patched veRL uses too.
ROW_ID = "dataset_row"  # in non_tensor_batch: the row's position in the (filtered) dataset
MAX_TOKENS = "response_max_tokens"  # in meta_info: the batch's cap on response tokens
