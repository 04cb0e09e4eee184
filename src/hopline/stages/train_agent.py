"""torchrun without its tracebacks: ``python -m hopline.stages.train_agent`` takes the same arguments.

How a training ended is told by its processes; what torchrun adds would hide that.
"""

from __future__ import annotations

import sys

from torch.distributed.elastic.multiprocessing.api import SignalException
from torch.distributed.elastic.multiprocessing.errors import ChildFailedError
from torch.distributed.run import main as torchrun

__all__ = ["main"]


def main() -> int:
    """Start the processes, and start them again if one is lost; 0 if they ended well, else 1, or 128 and a signal."""
    try:
        torchrun(sys.argv[1:])
    except SignalException as end:
        return 128 + int(end.sigval)
    except ChildFailedError:
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
