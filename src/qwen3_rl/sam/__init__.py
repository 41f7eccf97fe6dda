"""Model-free drafts for speculative decoding from a suffix automaton (docs/sam.md)."""

from qwen3_rl.sam.drafter import Match, SamDrafter

__all__ = ["Match", "SamDrafter"]
