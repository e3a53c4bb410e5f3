"""Lightning strategy for learners shared by several processes."""

from typing import Any

from pytorch_lightning.strategies import DDPStrategy, StrategyRegistry


class LearnerStrategy(DDPStrategy):
    """DDP without its wrapper, for learners that share their rounds themselves.

    DDP averages gradients, which learners do not have. Before each batch it also sends the first rank's buffers to all ranks,
    which loses the rounds of the other ranks. This strategy does neither. Use it with
    :class:`~torchonline.models.NeuralLinearBandit` and :class:`~torchonline.models.RoundLoader`::

        Trainer(accelerator="cpu", devices=2, strategy=LearnerStrategy())

    ``strategy="learner"`` means the same once this class is imported. The arguments are as in Lightning's ``DDPStrategy``;
    ``timeout`` is the timeout of the process group.
    """

    strategy_name = "learner"

    def configure_ddp(self) -> None:
        """Do not wrap the module."""

    @classmethod
    def register_strategies(cls, strategy_registry: Any) -> None:
        """Register the strategy under its name."""
        strategy_registry.register(cls.strategy_name, cls, description=cls.__doc__.splitlines()[0])  # type: ignore[union-attr]


if LearnerStrategy.strategy_name not in StrategyRegistry:
    LearnerStrategy.register_strategies(StrategyRegistry)
