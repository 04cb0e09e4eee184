"""The publishing step. (KFP copies the source of the function: it imports what it uses inside.)"""

from typing import NamedTuple

from kfp import dsl

__all__ = ["publish"]


@dsl.component(base_image="hopline/publish", install_kfp_package=False)
def publish(
    config_json: str,
    root: str,
    dataset_uri: str,
    dataset_hash: str,
    run_uri: str,
    run_hash: str,
    checkpoint_uri: str,
    checkpoint_sha256: str,
    report_uri: str,
    run_id: str,
    model: dsl.Output[dsl.Model],
) -> NamedTuple("PublishOutputs", [("manifest_uri", str), ("manifest_hash", str), ("result", str)]):  # type: ignore[valid-type]
    """Publish the chosen checkpoint as an immutable version, and let the gate decide whether it becomes the champion.

    Args:
        config_json: the whole config as JSON.
        root: URI of the root store.
        dataset_uri: where the dataset is.
        dataset_hash: hash of its content.
        run_uri: where the run is.
        run_hash: hash of everything that decides it.
        checkpoint_uri: where the chosen checkpoint is.
        checkpoint_sha256: digest of its index.
        report_uri: where the report is.
        run_id: KFP's id of this pipeline run, for the manifest.
        model: a small pointer to the published version.

    Returns:
        manifest_uri: where the manifest of the published version is.
        manifest_hash: its hash, which names the version.
        result: everything the stage says, as JSON.
    """
    import os
    from pathlib import Path

    from hopline.stages import PublishResult, run_step

    # A run on one machine sets it to nothing: its id is a random number, and the manifest would differ from run to run.
    os.environ.setdefault("KFP_RUN_ID", run_id)
    published = run_step(
        "publish",
        config_json=config_json,
        root=root,
        dataset_uri=dataset_uri,
        dataset_hash=dataset_hash,
        run_uri=run_uri,
        run_hash=run_hash,
        checkpoint_uri=checkpoint_uri,
        checkpoint_sha256=checkpoint_sha256,
        report_uri=report_uri,
    )
    assert isinstance(published, PublishResult)
    Path(model.path).write_text(published.model_dump_json(), encoding="utf-8")
    model.metadata.update(
        uri=published.manifest_uri,
        hash=published.manifest_hash,
        checkpoint_sha256=checkpoint_sha256,
        run_hash=run_hash,
        dataset_hash=dataset_hash,
        champion=published.champion,
        reasons=list(published.reasons),
        reused=published.reused,
    )
    return published.manifest_uri, published.manifest_hash, published.model_dump_json()
