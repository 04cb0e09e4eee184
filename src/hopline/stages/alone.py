"""One stage called alone: it takes what the stages before it have left in the root."""

from __future__ import annotations

from typing import Literal

from hopline import stages  # each is loaded when it is called: making a dataset needs no torch
from hopline.config import ResolvedConfig
from hopline.progress import EventSink
from hopline.stages.find import find_evaluate, find_generate, find_train
from hopline.stages.results import StageResult

__all__ = ["StageName", "run_alone"]

StageName = Literal["generate", "train", "evaluate", "publish"]


def run_alone(
    stage: StageName,
    config: ResolvedConfig,
    *,
    root: str,
    sink: EventSink,
    dataset: tuple[str, str] | None = None,
) -> StageResult:
    """Run one stage of a config.

    Args:
        stage: its name.
        config, root, sink: as every stage takes them.
        dataset: URI and hash of the dataset of a training; None = the one that the config describes.

    Raises:
        NotFoundError: an earlier stage has not run; the message names the command that runs it.
        HoplineError: as the stage.
    """
    if stage == "generate":
        return stages.generate(config, root=root, sink=sink)
    if dataset is None:
        data = find_generate(config, root=root)
        dataset = data.dataset_uri, data.dataset_hash
    dataset_uri, dataset_hash = dataset
    inputs = {"root": root, "dataset_uri": dataset_uri, "dataset_hash": dataset_hash}
    if stage == "train":
        return stages.train(config, **inputs, sink=sink)
    run = find_train(config, root=root, dataset_hash=dataset_hash)
    inputs |= {"run_uri": run.run_uri, "run_hash": run.run_hash}
    if stage == "evaluate":
        return stages.evaluate(config, **inputs, sink=sink)
    chosen = find_evaluate(config, root=root, run=run)
    inputs |= {"checkpoint_uri": chosen.checkpoint_uri, "checkpoint_sha256": chosen.checkpoint_sha256}
    return stages.publish(config, **inputs, report_uri=chosen.report_uri, sink=sink)
