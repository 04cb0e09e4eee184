"""The dataset step.

KFP copies the source of the function into the compiled pipeline: everything it uses is imported inside it, and its
annotations are read as objects, so this module does not postpone their evaluation.
"""

from typing import NamedTuple

from kfp import dsl

__all__ = ["dataset"]


@dsl.component(base_image="hopline/dataset", install_kfp_package=False)
def dataset(
    config_json: str,
    root: str,
    data: dsl.Output[dsl.Dataset],
) -> NamedTuple("DatasetOutputs", [("dataset_uri", str), ("dataset_hash", str), ("result", str)]):  # type: ignore[valid-type]
    """Make the dataset that the config describes, or find the one that exists.

    Args:
        config_json: the whole config as JSON.
        root: URI of the root store.
        data: a small pointer to the dataset, with its hash and counts.

    Returns:
        dataset_uri: where the dataset is.
        dataset_hash: hash of its content.
        result: everything the stage says, as JSON.
    """
    from pathlib import Path

    from hopline.stages import GenerateResult, run_step

    made = run_step("generate", config_json=config_json, root=root)
    assert isinstance(made, GenerateResult)
    Path(data.path).write_text(made.model_dump_json(), encoding="utf-8")
    data.metadata.update(uri=made.dataset_uri, hash=made.dataset_hash, examples=made.examples, reused=made.reused)
    return made.dataset_uri, made.dataset_hash, made.model_dump_json()
