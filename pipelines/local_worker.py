"""Runs the pipeline under kfp.local: ``python -m pipelines.local_worker JOB RESULTS PIPELINE_ROOT``.

In a process of its own, because kfp.local prints what it and every step say to stdout, and because the steps can then be
stopped together: they are its process group. The file JOB holds the pipeline's parameters as JSON; the file RESULTS gets
its outputs, last. PIPELINE_ROOT is a folder for the small files that KFP keeps.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import sys
import threading
import time
import warnings
from pathlib import Path
from types import FrameType

from kfp import local

from components.images import Images
from pipelines.progress import GRACE
from pipelines.retraining import build_pipeline

__all__ = ["main"]


def main(job: Path, results: Path, pipeline_root: Path) -> int:
    """Run the pipeline. Returns 0, or 1 if a step failed."""
    parameters = json.loads(job.read_text(encoding="utf-8"))
    # A handler, unlike SIG_IGN, is not handed down to the steps: they get the signal and end, and this process sees it.
    signal.signal(signal.SIGTERM, _leave_it_to_the_step)
    abandoned = threading.Event()
    threading.Thread(target=_watch_the_parent, args=(abandoned,), daemon=True).start()
    # kfp warns of images without "python" in their names; nothing runs in an image here.
    warnings.filterwarnings("ignore", category=RuntimeWarning, module="kfp")
    local.init(
        runner=local.SubprocessRunner(use_venv=False),
        pipeline_root=str(pipeline_root),
        workspace_root=str(pipeline_root / "workspace"),
    )
    try:
        task = build_pipeline(Images.choose())(**parameters)
    except RuntimeError as error:
        print(error, flush=True)  # the step has said why in its events
        if abandoned.is_set():
            shutil.rmtree(job.parent, ignore_errors=True)  # nobody else will
        return 1
    results.write_text(json.dumps(task.outputs), encoding="utf-8")
    return 0


def _leave_it_to_the_step(number: int, frame: FrameType | None) -> None:
    return


def _watch_the_parent(abandoned: threading.Event) -> None:
    """Stdin is a pipe that the parent never writes to: its end means that the parent is gone, even by kill -9."""
    while os.read(0, 1):  # not sys.stdin: its lock would be held when the interpreter ends
        continue
    abandoned.set()
    os.killpg(os.getpgrp(), signal.SIGTERM)
    time.sleep(GRACE)
    os.killpg(os.getpgrp(), signal.SIGKILL)


if __name__ == "__main__":
    sys.exit(main(*map(Path, sys.argv[1:])))
