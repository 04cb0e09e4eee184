"""A worker process: reads tasks as JSON lines, makes shards, and says what it did as JSON lines.

Started as ``python -m hopline.datasets.worker WORK OUT``. It ends when its input does, so it never outlives the process that
started it by more than one shard.
"""

from __future__ import annotations

import gc
import json
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
    for line in sys.stdin:
        task = ShardTask.model_validate_json(line)
        try:
            result = run_task(plan, task, out, lambda made: _say({"made": made}))
        except (HoplineError, OSError) as error:
            _say({"error": type(error).__name__, "message": str(error)})
        else:
            _say({"result": result.model_dump(mode="json")})
    return 0


def _say(message: dict[str, object]) -> None:
    sys.stdout.write(json.dumps(message) + "\n")
    sys.stdout.flush()


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
