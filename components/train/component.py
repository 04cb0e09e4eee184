"""The training step. (KFP copies the source of the function: it imports what it uses inside.)"""

from typing import NamedTuple

from kfp import dsl

__all__ = ["train"]


@dsl.component(base_image="hopline/train", install_kfp_package=False)
def train(
    config_json: str,
    root: str,
    dataset_uri: str,
    dataset_hash: str,
    run: dsl.Output[dsl.Model],
) -> NamedTuple("TrainOutputs", [("run_uri", str), ("run_hash", str), ("result", str)]):  # type: ignore[valid-type]
    """Train on the dataset, continue a run that was stopped, or find one that is done.

    Args:
        config_json: the whole config as JSON.
        root: URI of the root store.
        dataset_uri: where the dataset is.
        dataset_hash: hash of its content.
        run: a small pointer to the run, with its candidate checkpoints and their scores on valid.

    Returns:
        run_uri: where the run is.
        run_hash: hash of everything that decides it.
        result: everything the stage says, as JSON.
    """
    from pathlib import Path

    from hopline.stages import TrainResult, run_step

    done = run_step("train", config_json=config_json, root=root, dataset_uri=dataset_uri, dataset_hash=dataset_hash)
    assert isinstance(done, TrainResult)
    Path(run.path).write_text(done.model_dump_json(), encoding="utf-8")
    run.metadata.update(
        uri=done.run_uri,
        hash=done.run_hash,
        dataset_hash=dataset_hash,
        steps=done.steps,
        stop_reason=done.stop_reason,
        scores={f"step-{c.step}": c.score for c in done.candidates if c.score is not None},
        reused=done.reused,
    )
    return done.run_uri, done.run_hash, done.model_dump_json()
