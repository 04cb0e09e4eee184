"""A worker process: reads tasks as JSON lines, makes shards, and says what it did as JSON lines.

Started as ``python -m hopline.datasets.worker WORK OUT``. It ends when its input does, or when nobody hears it any more, so
it never outlives the process that started it by more than a block.
"""

from __future__ import annotations

import gc
import json
import os
import sys
from pathlib import Path

from hopline.datasets.plan import Plan
from hopline.datasets.tasks import ShardTask, run_task
from hopline.errors import HoplineError

__all__ = ["main"]


def main(arguments: list[str]) -> int:
    """Work until the input ends."""
    work, out = map(Path, arguments)
    plan = Plan.load(work)
    # Nothing of the plan is ever garbage, and the examples of a shard are dropped as a whole.
    gc.freeze()
    gc.set_threshold(100_000, 20, 20)
    try:
        for line in sys.stdin:
            _serve(plan, ShardTask.model_validate_json(line), work, out)
    except BrokenPipeError:
        # Nobody listens any more. Leave without flushing what cannot be written.
        os._exit(1)
    return 0


def _serve(plan: Plan, task: ShardTask, work: Path, out: Path) -> None:
    try:
        result = run_task(plan, task, out, work, lambda made: _say({"made": made}))
    except BrokenPipeError:
        raise
    except (HoplineError, OSError) as error:
        _say({"error": type(error).__name__, "message": str(error)})
    else:
        _say({"result": result.model_dump(mode="json")})


def _say(message: dict[str, object]) -> None:
    sys.stdout.write(json.dumps(message) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
