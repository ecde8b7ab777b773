import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from benchmarks.papers.theory.bandit import bandit_logit_update, confidence_ratio
from benchmarks.papers.theory.softmax_dynamics import probability_change

objectives = st.sampled_from(["reinforce", "mle"])


def random_policy(seed: int) -> np.ndarray:
    return np.random.default_rng(seed).dirichlet(np.full(6, 0.7)) * 0.99 + 0.01 / 6


@settings(max_examples=80)
@given(st.integers(0, 10**6), objectives, st.floats(0.01, 5.0))
def test_the_corrected_lemma_is_a_gradient_step(seed, objective, step):
    policy_V = random_policy(seed)
    update_V = bandit_logit_update(policy_V, (4, 1), step=step, objective=objective)
    ratio_V = confidence_ratio(policy_V, (4, 1), step=step, objective=objective)
    assert ratio_V == pytest.approx(1 + probability_change(policy_V, update_V) / policy_V)


@pytest.mark.parametrize("objective", ["reinforce", "mle"])
def test_the_printed_lemma_is_wrong_for_the_second_rewarded_action_only(objective):
    policy_V = np.array([0.5, 0.2, 0.2, 0.1])
    true_V = confidence_ratio(policy_V, (0, 3), step=0.5, objective=objective)
    printed_V = confidence_ratio(policy_V, (0, 3), step=0.5, objective=objective, as_printed=True)
    assert printed_V[:3] == pytest.approx(true_V[:3])
    assert abs(printed_V[3] / true_V[3] - 1) > 0.01


@pytest.mark.parametrize("objective", ["reinforce", "mle"])
def test_updates_are_the_gradients_of_their_objectives(objective):
    policy_V = np.array([0.5, 0.3, 0.2])
    logit_V = np.log(policy_V)

    def value(logit_V: np.ndarray) -> float:
        probability_V = np.exp(logit_V) / np.exp(logit_V).sum()
        return probability_V[:2].sum() if objective == "reinforce" else np.log(probability_V[:2]).sum()

    numeric_V = [(value(logit_V + 1e-6 * e_V) - value(logit_V - 1e-6 * e_V)) / 2e-6 for e_V in np.eye(3)]
    assert bandit_logit_update(policy_V, (0, 1), step=1.0, objective=objective) == pytest.approx(numeric_V, abs=1e-8)


@settings(max_examples=60)
@given(st.integers(0, 10**6))
def test_likelihood_favours_the_rarer_of_two_correct_actions_and_reinforce_the_likelier_which_it_raises(seed):
    policy_V = random_policy(seed)
    rare, common = (0, 1) if policy_V[0] < policy_V[1] else (1, 0)
    mle_V = confidence_ratio(policy_V, (0, 1), step=0.5, objective="mle")
    reinforce_V = confidence_ratio(policy_V, (0, 1), step=0.5, objective="reinforce")
    assert mle_V[rare] >= mle_V[common]
    assert reinforce_V[common] >= reinforce_V[rare]
    assert reinforce_V[common] > 1


def test_a_negative_gradient_on_a_peaky_policy_feeds_the_greedy_action_alone():
    policy_V = np.array([0.9, 0.04, 0.03, 0.03])
    gradient_V = -policy_V[1] * (np.eye(4)[1] - policy_V)  # of A·π(y) in the logits, A = −1 ([C] Eq 8)
    change_V = probability_change(policy_V, 0.5 * gradient_V)
    assert change_V[0] > 0
    assert (change_V[1:] < 0).all()


@pytest.mark.parametrize(
    ("policy_V", "rewarded", "objective", "match"),
    [
        ([0.5, 0.5], (1, 1), "mle", "two different actions"),
        ([0.5, 0.5], (0, 1), "sgd", "objective"),
        ([1.0, 0.0], (0, 1), "mle", "above 0"),
    ],
)
def test_impossible_bandits_are_refused(policy_V, rewarded, objective, match):
    with pytest.raises(ValueError, match=match):
        confidence_ratio(policy_V, rewarded, step=0.1, objective=objective)
