"""The order of the gallery."""

from pathlib import Path

# From what can be seen to what is shipped.
ORDER = [
    "confidence_ellipses",
    "one_outlier",
    "click_rates",
    "doctor_visits",
    "model_per_arm",
    "neural_linear_images",
    "radius_finds_itself",
    "drift_and_restarts",
    "off_policy_intervals",
    "privacy_utility",
    "no_learning_rate",
    "thousand_learners",
    "million_rows",
    "export_to_cpp",
]


class InReadingOrder:
    """Key of a script: its place in ORDER. A script without a place is an error."""

    def __init__(self, folder: str) -> None:
        self.folder = folder

    def __call__(self, name: str) -> int:
        return ORDER.index(Path(name).stem)

    def __repr__(self) -> str:
        return "InReadingOrder"
