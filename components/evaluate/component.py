"""The evaluation step. (KFP copies the source of the function: it imports what it uses inside.)"""

from typing import NamedTuple

from kfp import dsl

__all__ = ["evaluate"]


@dsl.component(base_image="hopline/evaluate", install_kfp_package=False)
def evaluate(
    config_json: str,
    root: str,
    dataset_uri: str,
    dataset_hash: str,
    run_uri: str,
    run_hash: str,
    checkpoint: dsl.Output[dsl.Model],
    metrics: dsl.Output[dsl.Metrics],
    report: dsl.Output[dsl.HTML],
) -> NamedTuple(  # type: ignore[valid-type]
    "EvaluateOutputs", [("checkpoint_uri", str), ("checkpoint_sha256", str), ("report_uri", str), ("result", str)]
):
    """Choose the best checkpoint on valid, and measure it on test.

    Args:
        config_json: the whole config as JSON.
        root: URI of the root store.
        dataset_uri: where the dataset is.
        dataset_hash: hash of its content.
        run_uri: where the run is.
        run_hash: hash of everything that decides it.
        checkpoint: a small pointer to the chosen checkpoint.
        metrics: its figures on test.
        report: the whole report.

    Returns:
        checkpoint_uri: where the chosen checkpoint is.
        checkpoint_sha256: digest of its index.
        report_uri: where the report is.
        result: everything the stage says, as JSON.
    """
    import math
    from pathlib import Path

    from hopline.stages import EvaluateResult, run_step
    from hopline.storage import open_object

    chosen = run_step(
        "evaluate",
        config_json=config_json,
        root=root,
        dataset_uri=dataset_uri,
        dataset_hash=dataset_hash,
        run_uri=run_uri,
        run_hash=run_hash,
    )
    assert isinstance(chosen, EvaluateResult)
    Path(checkpoint.path).write_text(chosen.model_dump_json(), encoding="utf-8")
    checkpoint.metadata.update(
        uri=chosen.checkpoint_uri,
        hash=chosen.checkpoint_sha256,
        step=chosen.step,
        run_hash=run_hash,
        dataset_hash=dataset_hash,
        reused=chosen.reused,
    )
    for name, value in sorted(chosen.metrics.items()):
        if math.isfinite(value):
            metrics.log_metric(name, value)
    Path(metrics.path).write_text(chosen.model_dump_json(include={"metrics"}), encoding="utf-8")
    store, key = open_object(chosen.report_uri)
    Path(report.path).write_bytes(store.get_bytes(key))
    report.metadata.update(uri=chosen.report_uri)
    return chosen.checkpoint_uri, chosen.checkpoint_sha256, chosen.report_uri, chosen.model_dump_json()
