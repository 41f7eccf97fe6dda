"""One set of metric names for the logs of veRL 0.5, 0.6 and 0.7: veRL 0.7.1's own where it has one."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Metric:
    """A metric of a training step.

    key: its one name. aliases: what other versions log, in order of preference. better: "less" or "more" where one
    run can beat another at it.
    """

    key: str
    label: str
    unit: str = ""
    better: str = ""
    aliases: tuple[str, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        return (self.key, *self.aliases)


GENERATION = Metric("timing_s/gen", "generation", "s", "less", ("timing_s/generate_sequences",))
UPDATE = Metric("timing_s/update_actor", "actor update", "s", "less")
STEP = Metric("timing_s/step", "step", "s", "less", ("perf/time_per_step",))
DEVICE_RATE = Metric("perf/throughput", "end to end", "tokens/s per device", "more")
# Calculated here, from perf/total_num_tokens and the step's seconds.
RATE = Metric("tokens_per_s", "throughput", "tokens/s", "more")
MFU = Metric("perf/mfu/actor", "MFU of the actor", "", "more", ("actor/mfu",))
ACCEPTANCE = Metric(
    "rollout/spec_decode/acceptance_rate", "draft acceptance", "", "more", ("rollout/spec_accept_rate",)
)
ACCEPTED = Metric("rollout/spec_decode/mean_accepted", "accepted a decoding step", "tokens", "more")
DRAFTED = Metric("rollout/spec_decode/draft_tokens", "drafted", "tokens")
GROUP_HITS = Metric("rollout/spec_decode/group_hits", "drafts with group text")
GATE = Metric("rollout/spec_decode/gate", "highest chance that the gate refused")
BUBBLE = Metric("rollout/bubble_ratio", "rollout bubble", "", "less")
CAPPED = Metric("rollout/capped_ratio", "capped responses")
REWARD = Metric("critic/rewards/mean", "reward", aliases=("critic/score/mean",))
LENGTH = Metric("response_length/mean", "response length", "tokens")
ENTROPY = Metric("actor/entropy", "entropy", aliases=("actor/entropy_loss",))
KL = Metric("actor/kl_loss", "KL to the reference", aliases=("actor/reward_kl_penalty", "critic/kl"))
OLD_KL = Metric("actor/ppo_kl", "KL to the old policy")
LOSS = Metric("actor/pg_loss", "policy loss", aliases=("actor/loss",))
GRAD_NORM = Metric("actor/grad_norm", "gradient norm")
LOG_PROB = Metric(
    "rollout_corr/training_log_ppl", "minus log-prob of the actor", aliases=("mismatch/mismatch_training_log_ppl",)
)
ROLLOUT_DIFF = Metric("training/rollout_probs_diff_mean", "rollout and actor apart")

SPEED = (DEVICE_RATE, GENERATION, UPDATE, STEP, RATE, MFU)
ROLLOUT = (ACCEPTANCE, ACCEPTED, DRAFTED, GROUP_HITS, GATE, BUBBLE, CAPPED)
LEARNING = (REWARD, LENGTH, ENTROPY, KL, OLD_KL, LOSS, GRAD_NORM, LOG_PROB, ROLLOUT_DIFF)
METRICS = (*SPEED, *ROLLOUT, *LEARNING)

TABLE = (*SPEED, *ROLLOUT, REWARD, LENGTH)
CURVES = (REWARD, LENGTH, ENTROPY, KL, OLD_KL, LOSS, GRAD_NORM, LOG_PROB, STEP, DEVICE_RATE, ACCEPTANCE, BUBBLE)
AGREEMENT = (REWARD, LOSS, LOG_PROB)

# The parts of a step that follow one another, in their order: their sum is the step but for small change.
PARTS = (
    GENERATION,
    Metric("timing_s/gen_max", "baseline generation"),
    Metric("timing_s/reward", "reward"),
    Metric("timing_s/old_log_prob", "old log-prob"),
    Metric("timing_s/ref", "reference"),
    Metric("timing_s/values", "values"),
    Metric("timing_s/adv", "advantage"),
    Metric("timing_s/update_critic", "critic update"),
    UPDATE,
    Metric("timing_s/update_weights", "weight transfer"),
    Metric("timing_s/testing", "validation"),
    Metric("timing_s/save_checkpoint", "checkpoint"),
)

TOKENS = "perf/total_num_tokens"
PROMPT = "prompt_length/mean"
LONGEST = "response_length/max"
CLIPPED = "response_length/clip_ratio"
GLOBAL_STEP = "training/global_step"

KEPT = frozenset(name for metric in (*METRICS, *PARTS) for name in metric.names) | {
    TOKENS,
    PROMPT,
    LONGEST,
    CLIPPED,
    GLOBAL_STEP,
}


def is_training(data: dict) -> bool:
    """A training step's line, not that of a validation alone? (veRL 0.3 has no training/global_step.)"""
    return any(name in data for name in (GLOBAL_STEP, *STEP.names))


def markdown_table() -> str:
    """The table of docs/comparing.md."""
    rows = [f"| `{m.key}` | {m.label} | {m.unit} | {', '.join(f'`{a}`' for a in m.aliases)} |" for m in METRICS]
    return "\n".join(["| name here | what it is | unit | also read from |", "|---|---|---|---|", *rows])
