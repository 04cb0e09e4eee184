"""Runs the pipeline under kfp.local's DockerRunner. A script: CONFIG PIPELINE_ROOT.

Its last line is the pipeline's outputs as JSON.
"""

from __future__ import annotations

import json
import sys

from kfp import local

from components.images import Images
from hopline.config import load_config
from hopline.stages import encode_config
from pipelines.retraining import build_pipeline


def main(config: str, pipeline_root: str) -> None:
    runner = local.DockerRunner(network_mode="none", environment={"KFP_RUN_ID": ""})
    local.init(runner=runner, pipeline_root=pipeline_root)
    text = encode_config(load_config(config))
    # PIPELINE_ROOT is the one folder that the runner mounts, and it does so at the same path.
    task = build_pipeline(Images.choose())(config_json=text, root=f"file://{pipeline_root}/root")
    print(json.dumps(task.outputs))


if __name__ == "__main__":
    main(*sys.argv[1:])
