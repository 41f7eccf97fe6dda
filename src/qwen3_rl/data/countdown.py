"""Prompts that say how long their answer is, and a tiny Qwen3 with handmade weights that obeys: for trying out what
depends on response lengths, without training anything first.

A prompt is one character. The model answers with the characters below it one by one, down to "!", and ends its turn:
"&" gives "%$#\"!", six tokens. It looks at nothing but the last token: the layers' output projections are zero, so that
the head sees the token's own embedding.
"""

import math

import numpy as np

from qwen3_rl.data.tiny_model import build_model, build_tokenizer

DATA_SOURCE = "qwen3_rl/countdown"
LAST, FIRST = "!", "~"  # the printable characters of ASCII without the space
SHORTEST = 8
LONGEST = ord(FIRST) - ord(LAST) + 1  # tokens: of "~", with the end of the turn
HIDDEN_SIZE = 128
LOGIT = 34.0  # of the next token; the others have 0
PROMPT_ONLY = "{{ messages[-1]['content'] }}"


def answer_length(prompt: str) -> int:
    """Tokens of the answer to ``prompt``, where no token is repeated."""
    return ord(prompt) - ord(LAST) + 1


def build_rows(count: int, seed: int, split: str) -> list[dict]:
    """``count`` rows in veRL's form, with answers of 8 to 94 tokens, most of them short; up to 30 rows no two alike."""
    lengths = np.geomspace(SHORTEST, LONGEST, min(count, 30))
    for i in range(1, len(lengths)):
        lengths[i] = max(round(lengths[i]), lengths[i - 1] + 1)
    lengths = np.resize(lengths.astype(int), count)
    np.random.default_rng(seed).shuffle(lengths)
    return [
        {
            "data_source": DATA_SOURCE,
            "prompt": [{"role": "user", "content": chr(ord(LAST) + int(length) - 1)}],
            "ability": "counting",
            "reward_model": {"style": "rule", "ground_truth": str(length)},
            "extra_info": {"split": split, "index": index},
        }
        for index, length in enumerate(lengths)
    ]


def build_countdown_model(seed: int, repeat: float):
    """(Qwen3ForCausalLM in float32, its tokenizer). ``repeat``: the probability of saying a character once more instead
    of the next, in [0, 1); with 0 an answer's length is certain, else it is spread about length / (1 - repeat)."""
    import torch

    tokenizer = build_tokenizer()
    tokenizer.chat_template = PROMPT_ONLY
    model = build_model(tokenizer, seed, HIDDEN_SIZE)
    characters = [tokenizer.encode(chr(code))[0] for code in range(ord(LAST), ord(FIRST) + 1)]
    places = list(range(len(characters)))
    with torch.no_grad():
        for name, weight in model.named_parameters():
            if name.endswith(("o_proj.weight", "down_proj.weight", "embed_tokens.weight", "lm_head.weight")):
                weight.zero_()
        # A place of its own for each character, of the length that the final norm gives to every vector anyway.
        model.model.embed_tokens.weight[characters, places] = HIDDEN_SIZE**0.5
        head = model.lm_head.weight
        head[[tokenizer.eos_token_id, *characters[:-1]], places] = LOGIT / HIDDEN_SIZE**0.5
        if repeat:
            head[characters, places] = (LOGIT + math.log(repeat / (1 - repeat))) / HIDDEN_SIZE**0.5
    return model, tokenizer


def compute_score(data_source: str, solution_str: str, ground_truth: str, extra_info: dict | None = None) -> float:
    """1 / (1 + repeated characters): the longer the answer, the harder (veRL's custom_reward_function signature)."""
    return 1 / (1 + len(solution_str) - len(set(solution_str)))
