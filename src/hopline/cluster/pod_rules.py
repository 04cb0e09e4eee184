"""What a pod has to be beyond its types: what the API server refuses, and what Hopline asks of its pods."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any, Final

from hopline.cluster.findings import Finding, below, show
from hopline.config.kubernetes import (
    is_dns_label,
    is_label_key,
    is_label_value,
    looks_secret,
    names_secret,
    parse_quantity,
)

__all__ = ["Container", "check_labels", "check_pod", "containers_of"]

Container = tuple[str, Mapping[str, Any]]
"""A container and its path."""

_IMAGE_WITH_VERSION: Final = re.compile(r".+(:[^:/]+|@sha256:[0-9a-f]{64})")
_WRITABLE: Final = ("HOME", "TMPDIR", "HOPLINE_CACHE", "TORCHINDUCTOR_CACHE_DIR", "TRITON_CACHE_DIR")
_SHARES: Final = ("cpu", "memory", "ephemeral-storage")


def containers_of(pod: Mapping[str, Any], path: str) -> list[Container]:
    """All containers of a pod's spec: those that prepare, those that work, those that are added to look around."""
    return [
        (below(below(path, field), index), container)
        for field in ("initContainers", "containers", "ephemeralContainers")
        for index, container in enumerate(pod.get(field, []))
    ]


def check_pod(pod: Mapping[str, Any], path: str) -> Iterator[Finding]:
    """A pod's spec, whose types are right."""
    if not pod["containers"]:
        yield _refused(below(path, "containers"), "an empty list", "at least one container")
    names: dict[str, str] = {}
    for here, container in containers_of(pod, path):
        name = container["name"]
        if not is_dns_label(name):
            yield _refused(
                below(here, "name"), show(name), "1 to 63 of a-z, 0-9 and '-', a letter or digit at both ends"
            )
        if name in names:
            yield _refused(below(here, "name"), f"{show(name)} as in {names[name]}", "a name of its own")
        names.setdefault(name, here)
        yield from _check_container(container, here)
        yield from _check_mounts(container, here, pod)
        if ".ephemeralContainers[" not in here:
            yield from _check_shares(container, here)
    yield from _check_volumes(pod, path)
    for index, toleration in enumerate(pod.get("tolerations", [])):
        yield from _check_toleration(toleration, below(below(path, "tolerations"), index))
    if pod.get("terminationGracePeriodSeconds", 0) < 0:
        yield _refused(below(path, "terminationGracePeriodSeconds"), "a negative number", "0 or more seconds")
    yield from check_labels(pod.get("nodeSelector", {}), below(path, "nodeSelector"))


def check_labels(labels: Mapping[str, str], path: str) -> Iterator[Finding]:
    """Labels, or what is compared with labels."""
    for key, value in labels.items():
        if not is_label_key(key):
            yield _refused(path, show(key), "a label's key such as pool or example.com/pool")
        if not is_label_value(value):
            yield _refused(below(path, key), show(value), "at most 63 letters, digits, '-', '_' and '.'")


def _check_container(container: Mapping[str, Any], path: str) -> Iterator[Finding]:
    image = container.get("image", "")
    if not image:
        yield _refused(below(path, "image"), "nothing", "the image that the container runs")
    elif not _IMAGE_WITH_VERSION.fullmatch(image) or image.endswith(":latest"):
        yield _ours(
            below(path, "image"),
            show(image),
            "an image with a tag other than latest, or a digest: what ran can be told",
        )
    for index, variable in enumerate(container.get("env", [])):
        yield from _check_variable(variable, below(below(path, "env"), index))
    for index, port in enumerate(container.get("ports", [])):
        if not 1 <= port["containerPort"] <= 65535:
            yield _refused(f"{path}.ports[{index}].containerPort", show(port["containerPort"]), "1 to 65535")
    for where in ("requests", "limits"):
        for name, quantity in container.get("resources", {}).get(where, {}).items():
            amount = parse_quantity(str(quantity))
            if amount is not None and amount < 0:
                yield _refused(below(f"{path}.resources.{where}", name), show(quantity), "0 or more")


def _check_variable(variable: Mapping[str, Any], path: str) -> Iterator[Finding]:
    name, value, source = variable["name"], variable.get("value"), variable.get("valueFrom")
    if not name or "=" in name:
        yield _refused(below(path, "name"), show(name), "a name without '='")
    if source is not None and value:
        yield _refused(path, "value and valueFrom", "one of them")
    if source is not None and len(source) != 1:
        yield _refused(below(path, "valueFrom"), f"{len(source)} sources", "exactly one")
    if value and (names_secret(name) or looks_secret(value)):
        yield _ours(below(path, "value"), f"what looks like a secret in {name}", "valueFrom.secretKeyRef")


def _check_mounts(container: Mapping[str, Any], path: str, pod: Mapping[str, Any]) -> Iterator[Finding]:
    volumes = {volume["name"]: volume for volume in pod.get("volumes", [])}
    written = []
    for index, mount in enumerate(container.get("volumeMounts", [])):
        here, place = f"{path}.volumeMounts[{index}]", mount["mountPath"]
        if mount["name"] not in volumes:
            known = ", ".join(volumes) or "none"
            yield _refused(below(here, "name"), show(mount["name"]), f"a volume of the pod ({known})")
        elif "emptyDir" in volumes[mount["name"]] and not mount.get("readOnly", False):
            written.append(place.rstrip("/"))
        if not place.startswith("/") or ":" in place:
            yield _refused(below(here, "mountPath"), show(place), "an absolute path without ':'")
    if "/tmp" not in written:  # noqa: S108 - a path of the container
        yield _ours(
            below(path, "volumeMounts"), "no writable /tmp", "an emptyDir there: the root file system is read-only"
        )
    for index, variable in enumerate(container.get("env", [])):
        place = variable.get("value")
        if variable["name"] not in _WRITABLE or place is None:
            continue
        if not any(place == folder or place.startswith(f"{folder}/") for folder in written):
            folders = ", ".join(written) or "none is mounted"
            yield _ours(f"{path}.env[{index}].value", show(place), f"a folder in a writable emptyDir ({folders})")


def _check_shares(container: Mapping[str, Any], path: str) -> Iterator[Finding]:
    resources = container.get("resources", {})
    requests, limits = resources.get("requests", {}), resources.get("limits", {})
    for name in _SHARES:
        for where, given in (("requests", requests), ("limits", limits)):
            if name not in given:
                yield _ours(below(f"{path}.resources.{where}", name), "nothing", f"how much {name} it gets")
    for name, quantity in requests.items():
        least, most = parse_quantity(str(quantity)), parse_quantity(str(limits.get(name, quantity)))
        here = below(f"{path}.resources.requests", name)
        if least is not None and most is not None and least > most:
            yield _refused(here, show(quantity), f"at most the limit {limits[name]}")
        elif "/" in name and least != most:
            yield _refused(here, show(quantity), f"as much as the limit {limits[name]}: {name} is not shared")
        elif "/" in name and name not in limits:
            yield _refused(below(f"{path}.resources.limits", name), "nothing", f"as much as the request {quantity}")


def _check_volumes(pod: Mapping[str, Any], path: str) -> Iterator[Finding]:
    for index, volume in enumerate(pod.get("volumes", [])):
        here = f"{path}.volumes[{index}]"
        if not is_dns_label(volume["name"]):
            yield _refused(below(here, "name"), show(volume["name"]), "1 to 63 of a-z, 0-9 and '-'")
        sources = sorted(set(volume) - {"name"})
        if len(sources) > 1:
            yield _refused(here, " and ".join(sources), "one source")
        medium = volume.get("emptyDir", {}).get("medium", "")
        if medium not in ("", "Memory") and not medium.startswith("HugePages"):
            yield _refused(f"{here}.emptyDir.medium", show(medium), "Memory, or nothing for the node's disk")


def _check_toleration(toleration: Mapping[str, Any], path: str) -> Iterator[Finding]:
    operator = toleration.get("operator", "Equal")
    if operator == "Exists" and toleration.get("value"):
        yield _refused(below(path, "value"), show(toleration["value"]), "nothing with operator Exists")
    if operator == "Equal" and not toleration.get("key"):
        yield _refused(below(path, "operator"), "Equal without a key", "a key, or operator Exists")
    if "tolerationSeconds" in toleration and toleration.get("effect") != "NoExecute":
        yield _refused(below(path, "effect"), show(toleration.get("effect")), "NoExecute, for tolerationSeconds")


def _refused(path: str, found: str, expected: str) -> Finding:
    return Finding(path, found, expected, "kubernetes")


def _ours(path: str, found: str, expected: str) -> Finding:
    return Finding(path, found, expected, "hopline")
