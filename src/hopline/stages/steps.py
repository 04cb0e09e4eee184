"""One stage as a pipeline step: the config travels as text, events and the typed error go to the side file.

The KFP components call :func:`run_step` and nothing else of the library.
"""

from __future__ import annotations

import sys
import traceback
from collections.abc import Callable
from contextlib import ExitStack
from typing import Any, Final

import hopline.stages
from hopline.errors import HoplineError
from hopline.progress import Event, EventSink, JsonLinesSink, side_file_sink
from hopline.stages.encoding import decode_config
from hopline.stages.results import StageResult

__all__ = ["run_step"]

_STAGES: Final = ("generate", "train", "evaluate", "publish")


def run_step(stage: str, *, config_json: str, root: str, **inputs: Any) -> StageResult:
    """Run one stage inside a pipeline step.

    Events go to the side file that ``HOPLINE_EVENTS`` names, else as JSON lines to stderr. A typed error is told there
    too, and ends the process with its exit code.

    Args:
        stage: ``generate``, ``train``, ``evaluate`` or ``publish``.
        config_json: what :func:`hopline.stages.encode_config` wrote.
        root: URI of the root.
        inputs: the other keyword arguments of the stage's function.
    """
    with ExitStack() as stack:
        sink: EventSink = stack.enter_context(side_file_sink()) or JsonLinesSink()
        try:
            if stage not in _STAGES:
                raise ValueError(f"no stage '{stage}'; expected one of {', '.join(_STAGES)}")
            # Loaded by name, so that a step brings in what its own stage needs: the dataset step works without torch.
            function: Callable[..., StageResult] = getattr(hopline.stages, stage)
            return function(decode_config(config_json), root=root, sink=sink, **inputs)
        except HoplineError as error:
            _tell(sink, stage, str(error), type(error).__name__, error.exit_code)
            sys.exit(error.exit_code)
        except Exception as error:
            traceback.print_exc()
            _tell(sink, stage, f"{type(error).__name__}: {error}", "InternalError", 1)
            raise


def _tell(sink: EventSink, stage: str, message: str, kind: str, exit_code: int) -> None:
    sink.emit(Event(stage, "error", message, values={"type": kind, "exit_code": exit_code}))
