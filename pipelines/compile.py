"""Compile the pipeline to the yaml that Kubeflow takes: the same bytes for the same arguments, wherever it is done."""

from __future__ import annotations

import hashlib
import os
import tempfile
from dataclasses import dataclass
from pathlib import Path

from kfp import compiler

from components.images import Images
from hopline.config import ResolvedConfig
from hopline.errors import ConfigError
from hopline.stages import encode_config
from pipelines.retraining import build_pipeline

__all__ = ["Compiled", "compile_pipeline"]


@dataclass(frozen=True, slots=True)
class Compiled:
    """A compiled pipeline: where it is, the sha256 of its bytes, and the images it names."""

    path: Path
    sha256: str
    images: Images


def compile_pipeline(
    out: Path, images: Images, *, config: ResolvedConfig | None = None, root: str | None = None
) -> Compiled:
    """Write the pipeline to ``out``, all at once.

    Args:
        out: a ``.yaml`` file.
        images: the image of each step.
        config: becomes the default of the parameter ``config_json``, which is required otherwise.
        root: becomes the default of the parameter ``root``, which is required otherwise.

    Raises:
        ConfigError: the file cannot be written, or is no ``.yaml``.
    """
    if out.suffix not in {".yaml", ".yml"}:
        raise ConfigError(f"{out}: found the suffix '{out.suffix}', expected .yaml; Kubeflow takes no other")
    defaults = {"config_json": encode_config(config) if config else None, "root": root}
    try:
        with tempfile.TemporaryDirectory(dir=out.parent, prefix=".hopline-") as folder:
            fresh = Path(folder) / "pipeline.yaml"
            compiler.Compiler().compile(
                build_pipeline(images),
                str(fresh),
                pipeline_parameters={name: value for name, value in defaults.items() if value is not None},
            )
            digest = hashlib.sha256(fresh.read_bytes()).hexdigest()
            fresh.chmod(0o666 & ~_umask())
            fresh.replace(out)
    except OSError as error:
        raise ConfigError(f"{out}: cannot be written: {error.strerror}; choose another with -o") from None
    return Compiled(out, digest, images)


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
