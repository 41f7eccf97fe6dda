"""DAPO's dynamic sampling (arXiv 2503.14476) on veRL's PPO trainer.

veRL 0.7.1 has the rest of DAPO as settings: clip_ratio_low and _high, loss_agg_mode=token-mean, and the reward manager
`dapo` with its penalty for overlong responses. The trainer with dynamic sampling left its tree for a recipe repository.
"""
