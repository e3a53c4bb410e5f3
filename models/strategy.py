"""Lightning strategy for learners that several processes share."""

from typing import Any

from pytorch_lightning.strategies import DDPStrategy, StrategyRegistry


class LearnerStrategy(DDPStrategy):
    """DDP without its wrapper, for learners that share their rounds themselves.

    DDP averages gradients, which no learner has, and before each batch sends the first rank's buffers to all, by which the rounds
    of the other ranks are lost. Under this strategy it does neither. Use it with
    :class:`~torchonline.models.NeuralLinearBandit` and :class:`~torchonline.models.RoundLoader`::

        Trainer(accelerator="cpu", devices=2, strategy=LearnerStrategy())

    ``strategy="learner"`` means the same once this module is imported. Arguments are those of Lightning's ``DDPStrategy``; a
    ``timeout`` there is that of the process group.
    """

    strategy_name = "learner"

    def configure_ddp(self) -> None:
        """Wrap nothing."""

    @classmethod
    def register_strategies(cls, strategy_registry: Any) -> None:
        """Register the strategy under its name."""
        strategy_registry.register(cls.strategy_name, cls, description=cls.__doc__.splitlines()[0])  # type: ignore[union-attr]


if LearnerStrategy.strategy_name not in StrategyRegistry:
    LearnerStrategy.register_strategies(StrategyRegistry)
