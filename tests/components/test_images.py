from __future__ import annotations

import pytest

import hopline
from components.images import PREFIX_VARIABLE, TAG_VARIABLE, Images, parse_image_options
from hopline.errors import ConfigError

DIGEST = "sha256:" + "0" * 64


@pytest.fixture(autouse=True)
def no_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(PREFIX_VARIABLE, raising=False)
    monkeypatch.delenv(TAG_VARIABLE, raising=False)


def test_defaults_name_the_version() -> None:
    assert Images.choose().train == f"hopline/train:{hopline.__version__}"


def test_environment_then_arguments(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(PREFIX_VARIABLE, "registry.example/team/")
    monkeypatch.setenv(TAG_VARIABLE, "main")
    assert Images.choose().dataset == "registry.example/team/dataset:main"
    assert Images.choose(prefix="other", tag="1").publish == "other/publish:1"


def test_one_stage_by_digest() -> None:
    images = Images.choose(overrides=parse_image_options([f"train=registry.example/t@{DIGEST}"]))
    assert images.train == f"registry.example/t@{DIGEST}"
    assert images.evaluate == f"hopline/evaluate:{hopline.__version__}"


@pytest.mark.parametrize("option", ["train", "=image", "train=", ""])
def test_an_option_of_another_form_is_refused(option: str) -> None:
    with pytest.raises(ConfigError, match="expected STAGE=IMAGE"):
        parse_image_options([option])


def test_an_unknown_stage_is_refused_with_the_known_ones() -> None:
    with pytest.raises(ConfigError, match="no stage 'trian'; expected one of dataset, train, evaluate, publish"):
        Images.choose(overrides={"trian": "x"})


@pytest.mark.parametrize("bad", ["a b", "a\nb", "a\tb"])
def test_an_image_name_with_space_is_refused(bad: str) -> None:
    with pytest.raises(ConfigError, match="image of stage dataset"):
        Images.choose(prefix=bad)
