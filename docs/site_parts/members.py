"""Which members of a class its page of the reference shows."""

import re
from pathlib import Path

EXAMPLES = Path(__file__).parents[2] / "examples" / "gallery"

# Classes of other projects, whose members have a reference of their own, and one that changes such members.
FOREIGN_BASES = (
    "Module, Metric, LightningModule, LightningDataModule, Callback, Optimizer, Strategy, IterableDataset, Dataset, "
    "DataHooks, ModelHooks, CheckpointHooks, HyperparametersMixin, _DeviceDtypeModuleMixin, DDPStrategy, ParallelStrategy, "
    "SingleDeviceStrategy, WithDelegated, Env, TensorDictModuleBase, tuple, list, dict, str, Exception, Warning, object"
)
# What Lightning, torchmetrics and the library's own parts call. A base class shows them, for those who write a subclass.
INNER_MEMBERS = (
    "extra_repr state_dict load_state_dict get_extra_state set_extra_state "
    "numpy_view parts scratch state view_for estimate_and_bonus grouped moves_of_width "
    "possible_reward raised width_allowance width_matrix scores_of distribution choice sync update_called setup teardown "
    "state_key configure_ddp configure_optimizers training_step validation_step test_step predict_step on_fit_start "
    "on_train_start on_train_end on_train_epoch_start on_train_epoch_end on_train_batch_start on_train_batch_end "
    "on_validation_start on_validation_end on_test_start on_test_end on_predict_start on_predict_end on_save_checkpoint "
    "on_load_checkpoint train_dataloader add_param_group check_bound"
)
# Every word of the gallery's scripts: a class that is among them gets a list of the examples that use it.
WORDS = {word for path in EXAMPLES.glob("*.py") for word in re.findall(r"\w+", path.read_text())}

CONTEXT = {
    "foreign_bases": FOREIGN_BASES,
    "inner_members": ", ".join(INNER_MEMBERS.split()),
    "words_of_gallery": sorted(WORDS),
}
