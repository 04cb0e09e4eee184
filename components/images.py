"""Which container image each stage runs in."""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, fields
from typing import Final, Self

import hopline
from hopline.errors import ConfigError

__all__ = ["PREFIX_VARIABLE", "TAG_VARIABLE", "Images", "parse_image_options"]

PREFIX_VARIABLE: Final = "HOPLINE_IMAGE_PREFIX"
TAG_VARIABLE: Final = "HOPLINE_IMAGE_TAG"
DEFAULT_PREFIX: Final = "hopline"


@dataclass(frozen=True, slots=True)
class Images:
    """The image of each stage, as a cluster pulls it: ``registry/name:tag`` or ``registry/name@sha256:...``."""

    dataset: str
    train: str
    evaluate: str
    publish: str

    @classmethod
    def choose(
        cls, *, prefix: str | None = None, tag: str | None = None, overrides: Mapping[str, str] | None = None
    ) -> Self:
        """``<prefix>/<stage>:<tag>`` for every stage, except where an override names a whole image.

        Args:
            prefix: registry and folder; else ``HOPLINE_IMAGE_PREFIX``, else ``hopline``.
            tag: else ``HOPLINE_IMAGE_TAG``, else the version of Hopline.
            overrides: stage -> image.

        Raises:
            ConfigError: an override is for no stage, or an image name is not one.
        """
        prefix = prefix or os.environ.get(PREFIX_VARIABLE) or DEFAULT_PREFIX
        tag = tag or os.environ.get(TAG_VARIABLE) or hopline.__version__
        stages = [field.name for field in fields(cls)]
        chosen = {stage: f"{prefix.rstrip('/')}/{stage}:{tag}" for stage in stages}
        for stage, image in (overrides or {}).items():
            if stage not in chosen:
                raise ConfigError(f"--image {stage}={image}: no stage '{stage}'; expected one of {', '.join(stages)}")
            chosen[stage] = image
        for stage, image in chosen.items():
            if not image or any(c.isspace() or not c.isprintable() for c in image):
                raise ConfigError(
                    f"image of stage {stage}: found {image!r}, expected registry/name:tag or name@sha256:digest"
                )
        return cls(**chosen)

    def as_dict(self) -> dict[str, str]:
        """Stage -> image."""
        return asdict(self)


def parse_image_options(options: Sequence[str]) -> dict[str, str]:
    """``STAGE=IMAGE`` options as a mapping.

    Raises:
        ConfigError: an option has another form.
    """
    chosen: dict[str, str] = {}
    for option in options:
        stage, separator, image = option.partition("=")
        if not separator or not stage or not image:
            raise ConfigError(f"--image {option}: expected STAGE=IMAGE, for example train=registry/train@sha256:...")
        chosen[stage] = image
    return chosen
