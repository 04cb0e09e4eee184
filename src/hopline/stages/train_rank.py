"""One process of a group that trains together: what torchrun starts, ``python -m hopline.stages.train_rank``."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from hopline.config import GraphConfig
from hopline.errors import ConfigError, HoplineError
from hopline.progress import EventSink, JsonLinesSink, NullSink
from hopline.stages.generate_stage import open_dataset
from hopline.stages.inputs import train_request
from hopline.stages.requests import write_record
from hopline.stages.roots import open_root
from hopline.stages.train_group import JOB_VARIABLE, Outcome, RankJob, end_with_parent
from hopline.stages.training_run import carry_out
from hopline.training import close_distributed

__all__ = ["main"]


def main() -> int:
    """Take part in a run; the exit code is that of the error that ended it."""
    end_with_parent()
    rank = int(os.environ["RANK"])
    job = RankJob.model_validate_json(Path(os.environ[JOB_VARIABLE]).read_text(encoding="utf-8"))
    # The parent reads events from stdout, line by line; what else is printed goes there too, as text.
    sink: EventSink = JsonLinesSink(sys.stdout) if rank == 0 else NullSink()
    try:
        config = GraphConfig.model_validate_json(job.config)
        store = open_root(job.root)
        request = train_request(config, job.dataset_hash)
        if request.hash != job.run_hash:
            raise ConfigError(
                f"run {job.run_hash[:12]}: process {rank} has other sources than the one that started it, and would train "
                f"run {request.hash[:12]}; give all of them the same version, and start again"
            )
        result = carry_out(config, store, open_dataset(job.root, job.dataset_hash, sink=sink), job.run_hash, sink)
        if rank == 0:
            write_record(store, request, result)
        close_distributed()
    except HoplineError as error:
        outcome = Outcome(type=type(error).__name__, message=str(error))
        path = Path(job.outcomes) / f"{rank:06d}.json"
        path.with_suffix(".tmp").write_text(outcome.model_dump_json(), encoding="utf-8")
        path.with_suffix(".tmp").rename(path)
        return error.exit_code
    return 0


if __name__ == "__main__":
    sys.exit(main())
