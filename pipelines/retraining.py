"""The retraining pipeline: dataset, training, evaluation, publishing.

The same object runs on this machine (:mod:`pipelines.local_run`) and, compiled, on Kubeflow (:mod:`pipelines.compile`).
Steps hand each other URIs and hashes; the bytes stay in the root store.
"""

from typing import NamedTuple

from kfp import dsl

from components.dataset import dataset
from components.evaluate import evaluate
from components.images import Images
from components.publish import publish
from components.train import train
from pipelines.resources import settle

__all__ = ["PIPELINE_NAME", "Results", "build_pipeline"]

PIPELINE_NAME = "hopline-retraining"


class Results(NamedTuple):
    """What the pipeline returns: the result of each stage as JSON text."""

    generate: str
    train: str
    evaluate: str
    publish: str


def build_pipeline(images: Images) -> dsl.graph_component.GraphComponent:
    """The pipeline with its steps in the given images.

    It takes ``config_json``, the config as one JSON text, and ``root``, the URI of the root store: one compiled pipeline
    serves every config. It returns the result of every stage as JSON text, under the stage's name.
    """

    @dsl.pipeline(
        name=PIPELINE_NAME,
        display_name="Hopline retraining",
        description="From source data to a published model with a manifest that tells what made it.",
    )
    def retraining(config_json: str, root: str) -> Results:
        data = dataset(config_json=config_json, root=root)
        made = {"dataset_uri": data.outputs["dataset_uri"], "dataset_hash": data.outputs["dataset_hash"]}
        run = train(config_json=config_json, root=root, **made)
        trained = {"run_uri": run.outputs["run_uri"], "run_hash": run.outputs["run_hash"]}
        chosen = evaluate(config_json=config_json, root=root, **made, **trained)
        published = publish(
            config_json=config_json,
            root=root,
            **made,
            **trained,
            checkpoint_uri=chosen.outputs["checkpoint_uri"],
            checkpoint_sha256=chosen.outputs["checkpoint_sha256"],
            report_uri=chosen.outputs["report_uri"],
            run_id=dsl.PIPELINE_JOB_ID_PLACEHOLDER,
        )
        settle(data.set_display_name("Make the dataset"), "dataset", images.dataset)
        settle(run.set_display_name("Train"), "train", images.train)
        settle(chosen.set_display_name("Choose and measure"), "evaluate", images.evaluate)
        settle(published.set_display_name("Publish"), "publish", images.publish)
        return Results(
            generate=data.outputs["result"],
            train=run.outputs["result"],
            evaluate=chosen.outputs["result"],
            publish=published.outputs["result"],
        )

    return retraining
