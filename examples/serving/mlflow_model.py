"""A bandit as an MLflow model: log it with its parameters, load it, and ask for actions with their propensities.

    pip install mlflow
    python examples/serving/mlflow_model.py

The model holds this file, a state dict and the arguments of ``torchonline.bandit``: no pickle. ``predict`` takes a table of
contexts and returns a table of actions and propensities. It never learns: log a new model after each fit.
"""

import argparse
import tempfile
from pathlib import Path
from typing import Any

import mlflow
import pandas
import torch
from mlflow.pyfunc import PythonModel, PythonModelContext

import torchonline

ARGUMENTS = {"dim": 4, "rewards": "binary", "actions": ["setosa", "versicolor", "virginica"], "explore": "squarecb"}


class Chooser(PythonModel):
    """The policy behind ``predict``."""

    def load_context(self, context: PythonModelContext) -> None:
        self.policy = torchonline.bandit(**context.model_config)
        self.policy.load_state_dict(torch.load(context.artifacts["state"], weights_only=True))

    def predict(
        self, context: PythonModelContext, model_input: pandas.DataFrame, params: Any = None
    ) -> pandas.DataFrame:
        action, probability = self.policy.select_with_probability(model_input.to_numpy())
        names = self.policy.name_of(action)
        return pandas.DataFrame({"action": names, "probability": probability.numpy()}, index=model_input.index)


mlflow.models.set_model(Chooser())  # MLflow runs this file when it loads the model


def main() -> None:
    from sklearn.datasets import load_iris

    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--uri", default=None, help="an MLflow tracking server; default: a database in a temporary folder"
    )
    uri = parser.parse_args().uri

    torch.manual_seed(0)
    data = load_iris(as_frame=True)
    names = data.target_names[data.target].tolist()
    policy = torchonline.bandit(**ARGUMENTS)
    order = torch.randperm(150, generator=torch.Generator().manual_seed(0)).tolist()
    rewards = []
    for row in order:
        context = data.data.iloc[row].to_numpy()
        action = policy.select_name(context)
        rewards.append(float(action == names[row]))
        policy.step(context, action, rewards[-1])

    with tempfile.TemporaryDirectory() as folder:
        mlflow.set_tracking_uri(uri or f"sqlite:///{folder}/mlflow.db")
        if uri is None:
            mlflow.set_experiment(experiment_id=mlflow.create_experiment("bandit", Path(folder).as_uri()))
        state = Path(folder) / "state.pt"
        torch.save(policy.state_dict(), state)
        with mlflow.start_run():
            mlflow.log_params(policy.get_params())
            mlflow.log_metric("mean_reward", sum(rewards) / len(rewards))
            model = mlflow.pyfunc.log_model(
                name="policy",
                python_model=__file__,
                artifacts={"state": str(state)},
                model_config=ARGUMENTS,
                input_example=data.data.iloc[:2],
                pip_requirements=["torchonline"],
            )
        loaded = mlflow.pyfunc.load_model(model.model_uri)
        print(f"mean reward {sum(rewards) / len(rewards):.2f}")
        print(loaded.predict(data.data.iloc[[0, 60, 120]]))


if __name__ == "__main__":
    main()
