"""A tiny Qwen3 with random weights, and a byte-level tokenizer for it: real classes, small enough for two CPU cores."""

import argparse
import shutil
import sys
import tempfile
from pathlib import Path

from qwen3_rl.errors import UserError

# Qwen3's own turn markers; <|endoftext|> pads, <|im_end|> ends a turn, as in the released models.
SPECIAL_TOKENS = ["<|endoftext|>", "<|im_start|>", "<|im_end|>"]
CHAT_TEMPLATE = (
    "{% for message in messages %}"
    "{{ '<|im_start|>' + message['role'] + '\n' + message['content'] + '<|im_end|>\n' }}"
    "{% endfor %}"
    "{% if add_generation_prompt %}{{ '<|im_start|>assistant\n' }}{% endif %}"
)


def build_tokenizer():
    """A byte-level BPE tokenizer without merges: one token a byte, so any text can be encoded."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers
    from transformers import PreTrainedTokenizerFast

    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    bpe = Tokenizer(models.BPE(vocab={symbol: i for i, symbol in enumerate(alphabet)}, merges=[]))
    bpe.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    bpe.decoder = decoders.ByteLevel()
    tokenizer = PreTrainedTokenizerFast(
        tokenizer_object=bpe,
        eos_token="<|im_end|>",
        pad_token="<|endoftext|>",
        additional_special_tokens=["<|im_start|>"],
    )
    tokenizer.add_special_tokens({"additional_special_tokens": ["<|im_start|>"]})
    tokenizer.chat_template = CHAT_TEMPLATE
    return tokenizer


def build_model(tokenizer, seed: int, hidden_size: int = 64):
    """A Qwen3ForCausalLM in float32, its weights a function of ``seed`` alone.

    vocab_size equals len(tokenizer): veRL masks the rollout's logits beyond the tokenizer's length, so with a larger
    vocabulary actor and rollout would normalise over different sets.
    """
    import torch
    from transformers import Qwen3Config, Qwen3ForCausalLM

    config = Qwen3Config(
        vocab_size=len(tokenizer),
        hidden_size=hidden_size,
        intermediate_size=128,
        num_hidden_layers=2,
        num_attention_heads=4,
        num_key_value_heads=2,
        head_dim=32,
        max_position_embeddings=4096,
        tie_word_embeddings=False,
        bos_token_id=None,
        eos_token_id=tokenizer.eos_token_id,
        pad_token_id=tokenizer.pad_token_id,
        dtype="float32",
    )
    with torch.random.fork_rng():
        torch.manual_seed(seed)
        return Qwen3ForCausalLM(config)


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--to", type=Path, required=True, metavar="FOLDER", help="where the Hugging Face folder goes")
    parser.add_argument("--seed", type=int, default=0, help="seed of the random weights (default: 0)")
    parser.add_argument(
        "--countdown",
        type=float,
        metavar="REPEAT",
        help="weights made by hand instead: counts down from the prompt's character (`data countdown`), each repeated "
        "with this probability",
    )


def build(args: argparse.Namespace):
    if args.countdown is not None:
        from qwen3_rl.data.countdown import build_countdown_model

        return build_countdown_model(args.seed, args.countdown)
    tokenizer = build_tokenizer()
    return build_model(tokenizer, args.seed), tokenizer


def run(args: argparse.Namespace) -> int:
    if (args.to / "config.json").exists():
        print(f"{args.to}: already there")
        return 0
    if args.to.exists() and any(args.to.iterdir()):
        raise UserError(f"{args.to} exists and is not a model folder (no config.json)", "name another folder with --to")
    if args.countdown is not None and not 0 <= args.countdown < 1:
        raise UserError(f"--countdown is {args.countdown}", "give --countdown a probability below 1, such as 0.1")
    args.to.parent.mkdir(parents=True, exist_ok=True)
    # Written beside and renamed, so that a folder with a config.json is always whole.
    staging = Path(tempfile.mkdtemp(prefix=f".{args.to.name}-", dir=args.to.parent))
    try:
        model, tokenizer = build(args)
        tokenizer.save_pretrained(staging)
        model.save_pretrained(staging)
        staging.chmod(0o755)
        if args.to.exists():
            args.to.rmdir()
        staging.rename(args.to)
    finally:
        shutil.rmtree(staging, ignore_errors=True)
    print(f"{args.to}: Qwen3, {model.num_parameters():,} parameters, vocabulary {len(tokenizer)}", file=sys.stdout)
    return 0
