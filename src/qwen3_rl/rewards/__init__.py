"""Rule rewards in veRL's ``custom_reward_function`` form: ``reward.custom_reward_function.path=pkg://qwen3_rl.rewards.math``.

``compute_score(data_source, solution_str, ground_truth, extra_info=None)`` gives 1.0 for a right answer, 0.0 for any
other. veRL 0.7.1 calls it from threads (NaiveRewardManager.run_single, run_in_executor): nothing here uses signals of
the calling process, and no text of a model is ever evaluated as Python.
"""
