"""Trees of the parser's errors, as jsonargparse 4.53.0 writes them, and the line that is kept of each."""

import textwrap

import pytest

from torchonline.command_line.messages import one_line

MODEL = """\
Parser key "model":
  Does not validate against any of the Union subtypes
  Subtypes: [<class 'pytorch_lightning.core.module.LightningModule'>, <class 'NoneType'>]
  Errors:
    - Problem with given class_path 'torchonline.models.NeuralLinearBandit':
        Parser key "head":
          Problem with given class_path 'torchonline.models.BanditHead':
            Parser key "policy":
{tree}
    - Expected a <class 'NoneType'>
  Given value type: <class 'jsonargparse._util.NestedArg'>
  Given value: NestedArg(key='head.policy', val='some value')
"""
POLICIES = (
    "Subtypes: [<class 'torchonline.policies.rules.Policy'>, <class 'torchonline.regression.estimator.Estimator'>]"
)
# What is wrong, with the tree, and the line.
CASES = {
    "no file": (
        "Parser key \"config\": File does not exist: '/home/none.yaml'",
        "config: File does not exist: '/home/none.yaml'",
    ),
    "unknown option": ("unrecognized arguments: --bogus 1", "unrecognized arguments: --bogus 1"),
    "missing argument": (
        """\
Parser key "model":
  Does not validate against any of the Union subtypes
  Subtypes: [<class 'pytorch_lightning.core.module.LightningModule'>, <class 'NoneType'>]
  Errors:
    - Problem with given class_path 'torchonline.models.NeuralLinearBandit':
        the following arguments are required: head
    - Expected a <class 'NoneType'>
  Given value type: <class 'jsonargparse._namespace.Namespace'>
  Given value: Namespace(class_path='torchonline.models.NeuralLinearBandit', init_args=Namespace(head=None))
""",
        "model: the following arguments are required: head",
    ),
    "value of another type": (
        """\
Parser key "trainer.max_epochs":
  Does not validate against any of the Union subtypes
  Subtypes: [<class 'int'>, <class 'NoneType'>]
  Errors:
    - Expected <class 'int'>
    - Expected <class 'NoneType'>
  Given value type: <class 'str'>
  Given value: many
""",
        "trainer.max_epochs: Expected <class 'int'>, got many",
    ),
    "refusal of a constructor": (
        """\
Does not validate against any of the Union subtypes
Subtypes: [<class 'pytorch_lightning.core.datamodule.LightningDataModule'>, <class 'NoneType'>]
Errors:
  - batch_size: expected an integer above 0, got 0
  - Expected a <class 'NoneType'>
Given value type: <class 'jsonargparse._namespace.Namespace'>
Given value: Namespace(class_path='torchonline.models.LogDataModule', init_args=Namespace(batch_size=0))
""",
        "batch_size: expected an integer above 0, got 0",
    ),
    "value that the message names": (
        """\
Parser key "data":
  Does not validate against any of the Union subtypes
  Subtypes: [<class 'pytorch_lightning.core.datamodule.LightningDataModule'>, <class 'NoneType'>]
  Errors:
    - Problem with given class_path 'torchonline.models.LogDataModule':
        Parser key "batch_size":
          Expected a <class 'int'>. Got value: many
    - Expected a <class 'NoneType'>
  Given value type: <class 'jsonargparse._util.NestedArg'>
  Given value: NestedArg(key='batch_size', val='many')
""",
        "data.batch_size: Expected a <class 'int'>. Got value: many",
    ),
    "unknown argument of a class": (
        MODEL.replace(
            "{tree}",
            f"""\
              Does not validate against any of the Union subtypes
              {POLICIES}
              Errors:
                - Import path torchonline.models.recommended_policy does not correspond to a subclass of Policy
                - Problem with given class_path 'torchonline.models.recommended_policy':
                    Option 'dimm' is not accepted
                - Import path torchonline.models.recommended_policy does not correspond to a subclass of Estimator
              Given value type: <class 'jsonargparse._util.NestedArg'>
              Given value: NestedArg(key='dimm', val='3')""",
        ),
        "model.head.policy: Option 'dimm' is not accepted",
    ),
    "unknown class": (
        MODEL.replace(
            "{tree}",
            f"""
              - Expected a path but Nothing either not accessible or invalid
              - Does not validate against any of the Union subtypes
              {POLICIES}
              Errors:
                - Expected a dot import path string: Nothing
                - Expected a dot import path string: Nothing
              Given value type: <class 'str'>
              Given value: Nothing""",
        ),
        "model.head.policy: expected a class, got Nothing: no known name, and no path such as package.Class",
    ),
    "unknown class, or a list": (
        """\
Parser key "trainer.callbacks":

  - Expected a path but Nothing either not accessible or invalid
  - Does not validate against any of the Union subtypes
  Subtypes: [list[Callback], <class 'pytorch_lightning.callbacks.callback.Callback'>, <class 'NoneType'>]
  Errors:
    - Expected a <class 'list'>
    - Expected a dot import path string: Nothing
    - Expected a <class 'NoneType'>
  Given value type: <class 'str'>
  Given value: Nothing
""",
        "trainer.callbacks: expected a class, got Nothing: no known name, and no path such as package.Class",
    ),
    "class of another kind": (
        MODEL.replace(
            "{tree}",
            f"""
              - Expected a path but torch.nn.Identity either not accessible or invalid
              - Does not validate against any of the Union subtypes
              {POLICIES}
              Errors:
                - Import path does not correspond to a subclass of Policy
                - Import path does not correspond to a subclass of Estimator
              Given value type: <class 'str'>
              Given value: torch.nn.Identity""",
        ),
        "model.head.policy: Import path does not correspond to a subclass of Policy, got torch.nn.Identity",
    ),
    "list with a class of another kind": (
        """\
Parser key "trainer.callbacks":

  - Expected a path but [torch.nn.Identity] either not accessible or invalid
  - Does not validate against any of the Union subtypes
  Subtypes: [list[Callback], <class 'pytorch_lightning.callbacks.callback.Callback'>, <class 'NoneType'>]
  Errors:
    - Import path torch.nn.Identity does not correspond to a subclass of Callback
    - Not a valid subclass of Callback
      Subclass types expect one of:
      - a class path (str)
      - a dict with class_path entry
      - a dict without class_path but with init_args entry (class path given previously)
      - a dict with parameters accepted by the base class (implicit class_path)
    - Expected a <class 'NoneType'>
  Given value type: <class 'list'>
  Given value: ['torch.nn.Identity']
""",
        "trainer.callbacks: Import path torch.nn.Identity does not correspond to a subclass of Callback",
    ),
}


@pytest.mark.parametrize("case", list(CASES))
def test_one_line_says_what_is_wrong(case: str) -> None:
    tree, line = CASES[case]
    assert one_line(tree) == line
    # Wherever the parser begins to indent.
    assert one_line(textwrap.indent(tree, "  ")) == line


def test_a_line_without_keys_is_kept() -> None:
    assert one_line("one\n  two") == "one two"
