"""The positions of what the plots of confidence draw, their labels, and their errors."""

from typing import Any

import numpy as np
import pytest
import torch
from matplotlib import pyplot
from torch import nn

from tests.learners import round_of
from tests.pictures import arms, learnt
from torchonline import (
    GLBOMD,
    OFUL,
    UCB,
    AdaptiveRidgeRegression,
    AnytimeHeavyTailUCB,
    DiscountedRidgeRegression,
    DisjointArms,
    EpsilonGreedy,
    FixedArms,
    GLMRegression,
    Greedy,
    HvtUCB,
    LocalGLB,
    LocalGLMRegression,
    Poisson,
    RadiusSelector,
    RidgeRegression,
    ScaledPolicy,
    SharedRadiusSelector,
    StandardScaler,
    SystemIdentification,
    ThompsonSampling,
)
from torchonline.baselines import BMM
from torchonline.models import BanditHead


def shown(axes: Any) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """Return the ends of the intervals, the estimates and the marked arm as drawn."""
    segments = np.array([segment for lines in axes.collections for segment in lines.get_segments()])
    order = segments[:, 0, 1].argsort()
    points = np.concatenate([line.get_xydata() for line in axes.lines if line.get_marker() == "o"])
    (mark,) = (line for line in axes.lines if line.get_marker() == "D")
    return segments[order, :, 0], points[points[:, 1].argsort(), 0], mark.get_xydata()[0]


def names(axis: Any) -> list[str]:
    return [label.get_text() for label in axis.get_ticklabels()]


def test_intervals_estimates_and_the_choice_are_where_they_belong() -> None:
    policy = learnt()
    figure, axes = policy.plot_confidence(arms(), names=["a", "b", "c", "d"])
    ends, estimates, mark = shown(axes)
    low, high = policy.estimator.interval(arms())
    np.testing.assert_allclose(ends, torch.stack([low, high], -1))
    np.testing.assert_allclose(estimates, policy.estimator(arms()))
    k = int(policy.select(arms()))
    assert mark.tolist() == [float(policy.estimator(arms())[k]), k]
    assert axes.figure is figure
    assert names(axes.yaxis) == ["a", "b", "c", "d"]
    assert (
        axes.get_xlabel()
        == "mean reward\ninterval: proved in all rounds if theta_bound = 1\nand noise_scale = 0.5 hold, delta = 0.01"
    )
    (right,) = axes.child_axes
    assert right.get_ylabel() == "score"
    assert names(right.yaxis) == [f"{score:.2f}" for score in policy(arms()).tolist()]
    assert [text.get_text() for text in axes.texts] == ["chosen"]


def test_given_axes_are_drawn_on() -> None:
    axes = pyplot.subplots()[1]
    assert learnt().plot_confidence(arms(), axes)[1] is axes
    assert learnt().estimator.plot_confidence_set(axes)[1] is axes


def test_two_policies_stand_below_each_other_with_their_labels() -> None:
    figure, axes = learnt(8).plot_confidence(arms(), label="before")
    learnt().plot_confidence(arms(), axes, label="after")
    texts = [text.get_text() for text in axes.texts]
    assert [text.partition(":")[0] for text in texts] == ["before", "after"]
    heights = sorted({segment[0, 1] for lines in axes.collections for segment in lines.get_segments()})
    np.testing.assert_allclose(heights, sorted([*range(4), *(k + 0.4 for k in range(4))]))
    assert axes.get_xlabel().count("interval") == 1  # the same theorem
    assert axes.child_axes == []
    figure.canvas.draw()
    boxes = [text.get_window_extent() for text in axes.texts]
    assert not boxes[0].overlaps(boxes[1])
    for bad, said in [
        (lambda: learnt().plot_confidence(arms(), axes), "label: expected one in each call"),
        (
            lambda: learnt().plot_confidence(arms(), axes, label="x"),
            "ax: expected the arms of at most one other policy",
        ),
        (
            lambda: learnt().plot_confidence(arms()[:2], learnt().plot_confidence(arms(), label="x")[1], label="y"),
            "ax: expected the axes of another policy with 2 arms",
        ),
    ]:
        with pytest.raises(ValueError, match=said):
            bad()
    other = UCB(AdaptiveRidgeRegression(2)).plot_confidence(arms(), label="x")[1]
    learnt().plot_confidence(arms(), other, label="y")
    assert other.get_xlabel().splitlines()[1:] == [
        "x: a heuristic (AdaptiveRidgeRegression has no theorem here)",
        "y: proved in all rounds if theta_bound = 1",
        "and noise_scale = 0.5 hold, delta = 0.01",
    ]


def test_random_policies_show_probabilities_and_greedy_no_column() -> None:
    estimator = learnt().estimator
    mask = torch.tensor([True, False, True, True])
    policy = EpsilonGreedy(estimator, epsilon=0.2)
    _, axes = policy.plot_confidence(arms(), mask=mask)
    (right,) = axes.child_axes
    found = [f"{100.0 * p:.1f} %" for p in policy.probabilities(arms(), mask).tolist()]
    assert names(right.yaxis) == [found[0], "", found[2], found[3]]
    assert shown(axes)[2][1] == int(policy.probabilities(arms(), mask).argmax())
    assert axes.texts[0].get_text() == "likeliest"
    assert Greedy(estimator).plot_confidence(arms())[1].child_axes == []
    torch.manual_seed(0)
    _, axes = ThompsonSampling(estimator).plot_confidence(arms())
    assert axes.child_axes[0].get_ylabel() == "probability"


CONTEXT = torch.tensor([0.5, 1.0], dtype=torch.float64)


def composed(name: str) -> tuple[Any, tuple[Any, ...], Any, Any]:
    """Return a policy, the arguments of its choice, its estimator, and what the estimator gets."""
    if name == "disjoint":
        policy: Any = DisjointArms(RidgeRegression(2), 3)
        policy.step(torch.eye(2), [0, 1], [1.0, 0.5])
        return policy, (CONTEXT,), policy.estimator, CONTEXT.expand(3, 1, 2)
    if name == "master":
        policy = RadiusSelector(RidgeRegression(2), 3)
        return policy, (CONTEXT,), policy.estimator, CONTEXT.expand(3, 1, 2)
    if name == "shared master":
        policy = SharedRadiusSelector(RidgeRegression(2), rule="exp4")
        return policy, (arms(),), policy.estimator, arms()
    if name == "scaled":
        policy = ScaledPolicy(RidgeRegression(3), StandardScaler(2))
        policy.step(arms()[:3].unsqueeze(-2), [0] * 3, torch.tensor([1.0, 0.5, 0.2]))
        return policy, (arms(),), policy.estimator, policy.scaler(arms())
    if name == "fixed":
        policy = FixedArms(learnt(), arms())
        return policy, (), policy.estimator, arms()
    torch.manual_seed(0)
    encoder = nn.Linear(3, 2).double()
    head, x = BanditHead(encoder, learnt()), torch.eye(3, dtype=torch.float64)
    return head, (x,), head.policy.estimator, encoder(x)


@pytest.mark.parametrize("name", ["disjoint", "master", "shared master", "scaled", "fixed", "head"])
def test_composed_policies_show_the_intervals_of_their_estimators(name: str) -> None:
    policy, decision, estimator, rows = composed(name)
    _, axes = policy.plot_confidence(*decision)
    ends, estimates, mark = shown(axes)
    low, high = (part.detach().reshape(-1) for part in estimator.interval(rows))
    np.testing.assert_allclose(ends, torch.stack([low, high], -1))
    np.testing.assert_allclose(estimates, estimator(rows).detach().reshape(-1))
    if name == "shared master":
        assert axes.child_axes[0].get_ylabel() == "probability"
    else:
        assert mark[1] == int(policy.select(*decision))


LABELS = [
    (OFUL(2), "proved in all rounds if theta_bound = 1\nand noise_scale = 0.5 hold, delta = 0.01"),
    (
        AnytimeHeavyTailUCB(2, noise_scale=3.0),
        "proved in all rounds if theta_bound = 1\nand noise_scale = 3 hold, delta = 0.01",
    ),
    (
        AnytimeHeavyTailUCB(2, noise="symmetric"),
        "proved in all rounds if theta_bound = 1\nand symmetric noise hold, delta = 0.01",
    ),
    (LocalGLB(2), "proved in all rounds if theta_bound = 1\nand link = Logistic hold, delta = 0.01"),
    (OFUL(2, radius_scale=0.5), "a heuristic (radius_scale = 0.5)"),
    (GLBOMD(2, link=Poisson()), "proved in all rounds if theta_bound = 1\nand link = Poisson hold, delta = 0.01"),
    (
        UCB(DiscountedRidgeRegression(2, discount=0.9)),
        "proved in each round if theta_bound = 1\nand noise_scale = 0.5 hold, delta = 0.01",
    ),
    (UCB(AdaptiveRidgeRegression(2)), "a heuristic (AdaptiveRidgeRegression has no theorem here)"),
    (HvtUCB(2, horizon=10), "see the guarantee of HuberRegression"),
    (ScaledPolicy(RidgeRegression(3), StandardScaler(2)), "a heuristic (the scaler moves)"),
]


@pytest.mark.parametrize(("policy", "label"), LABELS, ids=lambda value: value if isinstance(value, str) else None)
def test_the_label_says_whether_a_theorem_covers_the_intervals(policy: Any, label: str) -> None:
    _, axes = policy.plot_confidence(arms())
    assert axes.get_xlabel() == f"mean reward\ninterval: {label}"
    assert axes.child_axes[0].get_ylabel() == (
        "score of the predictor" if isinstance(policy, (GLBOMD, LocalGLB)) else "score"
    )


def test_the_label_of_arms_and_of_subclasses() -> None:
    _, axes = DisjointArms(RidgeRegression(2), 3).plot_confidence(CONTEXT)
    assert axes.get_xlabel().endswith(
        "proved in all rounds if theta_bound = 1\nand noise_scale = 0.5 hold, delta = 0.01"
    )
    frozen = ScaledPolicy(RidgeRegression(3), StandardScaler(2, freeze_after=2))
    frozen.step(arms()[:2].unsqueeze(-2), [0] * 2, torch.tensor([0.0, 1.0]))
    assert (
        frozen.plot_confidence(arms())[1]
        .get_xlabel()
        .endswith("proved in all rounds if theta_bound = 1\nand noise_scale = 0.5 hold, delta = 0.01")
    )
    head = BanditHead(nn.Identity(), OFUL(2), scaler=StandardScaler(2, intercept=False))
    assert head.plot_confidence(arms())[1].get_xlabel().endswith("a heuristic (the inputs are scaled)")

    class Bolder(RidgeRegression):
        def radius(self) -> torch.Tensor:
            return 0.5 * self.theta_bound + 0.0 * self.logdet

    class Renamed(RidgeRegression):
        pass

    assert (Bolder.guarantee, Renamed.guarantee) == ("", "in all rounds")
    with pytest.warns(UserWarning, match="heuristic here"):
        assert GLMRegression(2, radius="tight", ridge=0.1).guarantee == "none"


def test_an_estimate_outside_its_interval_is_named() -> None:
    """Clicks of a few percent, and a promise that allows no rate below a fourth."""
    policy = UCB(LocalGLMRegression(2))
    policy.learn(*round_of(policy, torch.eye(2).repeat(500, 1), torch.tensor([0.0] * 49 + [1.0]).repeat(20)))
    label = policy.plot_confidence(torch.eye(2))[1].get_xlabel()
    assert label.endswith("an estimate is outside its interval: theta_bound seems too small")


def test_an_empty_set_is_named() -> None:
    policy = OFUL(2, theta_bound=0.1, noise_scale=0.01)
    policy.learn(*round_of(policy, arms().repeat(100, 1), torch.ones(400)))
    assert policy.plot_confidence(arms())[1].get_xlabel().endswith("no parameter within theta_bound is in the set")


def test_a_decision_of_many_is_named_by_an_index() -> None:
    policy = OFUL(2, batch_shape=(2,))
    policy.step(*round_of(policy, arms()[:2], torch.tensor([1.0, -1.0])))
    many = arms().expand(2, 3, 4, 2)
    _, axes = policy.plot_confidence(many, index=(1, 2))
    np.testing.assert_allclose(shown(axes)[1], policy.estimator(many)[1, 2])
    fixed = FixedArms(policy, arms())
    np.testing.assert_allclose(shown(fixed.plot_confidence(index=1)[1])[1], policy.estimator(many)[1, 0])
    with pytest.raises(
        ValueError, match=r"^index: expected one of the \(2, 3\) decisions, such as index=\(0, 0\), got None"
    ):
        policy.plot_confidence(many)
    with pytest.raises(ValueError, match=r"^index: expected one of the \(2\) decisions, such as index=0, got 2"):
        policy.plot_confidence(arms().expand(2, 4, 2), index=2)
    with pytest.raises(ValueError, match=r"^index: expected None for a single one, got 0"):
        learnt().plot_confidence(arms(), index=0)
    with pytest.raises(ValueError, match=r"^names: expected 4 names, one for each arm, got \['a'\]"):
        learnt().plot_confidence(arms(), names=["a"])
    with pytest.raises(ValueError, match=r"^inputs: expected shape"):
        learnt().plot_confidence(torch.eye(3))


def test_the_shadow_is_what_the_set_reaches_in_each_direction() -> None:
    """The support function of the shadow is that of the ellipsoid: radius times the width of the direction."""
    torch.manual_seed(0)
    learner = RidgeRegression(4)
    learner.step(torch.randn(30, 4, dtype=torch.float64), torch.randn(30, dtype=torch.float64))
    figure, axes = learner.plot_confidence_set(
        coordinates=(3, 1), truth=[0.0, 1.0, 2.0, 3.0], label="30 rounds", color="red"
    )
    line, center, truth = axes.lines
    assert line.get_color() == "red"
    boundary = torch.tensor(line.get_xydata())
    for angle in torch.linspace(0.0, 6.0, 7, dtype=torch.float64):
        direction = torch.zeros(4, dtype=torch.float64)
        direction[3], direction[1] = angle.cos(), angle.sin()
        reach = float(learner(direction) + learner.radius() * learner.width(direction))
        assert float((boundary @ direction[[3, 1]]).max()) == pytest.approx(reach, rel=1e-3)
    assert center.get_xydata().tolist() == [learner.theta_hat[[3, 1]].tolist()]
    assert truth.get_xydata().tolist() == [[3.0, 1.0]]
    assert axes.get_xlabel() == "coordinate 3 of the parameter"
    assert (
        axes.get_title()
        == "confidence set\nproved in all rounds if theta_bound = 1\nand noise_scale = 0.5 hold, delta = 0.01"
    )
    assert [text.get_text() for text in axes.texts] == ["30 rounds", "truth"]
    assert axes.figure is figure


def test_sets_of_batches_and_of_outputs_are_named_by_an_index() -> None:
    batched = RidgeRegression(2, batch_shape=(2,))
    batched.step(torch.eye(2), torch.tensor([1.0, 2.0]))
    center = batched.plot_confidence_set(index=np.int64(1))[1].lines[1].get_xydata()[0]
    assert center.tolist() == batched.theta_hat[1].tolist()
    system = SystemIdentification(2, outputs=3)
    system.step(torch.tensor([1.0, 0.5]), torch.tensor([1.0, 2.0, 3.0]))
    center = system.plot_confidence_set(index=2)[1].lines[1].get_xydata()[0]
    np.testing.assert_allclose(center, system.theta_hat[:, 2])
    with pytest.raises(ValueError, match=r"^index: expected one of the \(2\) learners, such as index=0, got None"):
        batched.plot_confidence_set()


def test_other_sets_and_wrong_coordinates_are_refused() -> None:
    with pytest.raises(
        TypeError, match=r"^BMMRegression: expected a learner whose confidence set is an ellip.* own predictor"
    ):
        BMM(2, horizon=100).estimator.plot_confidence_set()
    for coordinates in [(0, 0), (0, 2), (-1, 0), (0,), (0.0, 1)]:
        with pytest.raises(ValueError, match=r"^coordinates: expected two different ones from 0 to 1, got "):
            learnt().estimator.plot_confidence_set(coordinates=coordinates)
    with pytest.raises(ValueError, match=r"^truth: expected shape \(2\), got \(3\)"):
        learnt().estimator.plot_confidence_set(truth=[1.0, 2.0, 3.0])
