"""The Pod Security profile "restricted" of Kubernetes 1.36, and what Hopline asks beyond it.

https://kubernetes.io/docs/concepts/security/pod-security-standards/
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final

from hopline.cluster.findings import Finding, below, show
from hopline.cluster.pod_rules import containers_of

__all__ = ["check_security"]

_VOLUMES: Final = frozenset(
    {"configMap", "csi", "downwardAPI", "emptyDir", "ephemeral", "persistentVolumeClaim", "projected", "secret"}
)
_SYSCTLS: Final = frozenset(
    {
        "kernel.shm_rmid_forced",
        "net.ipv4.ip_local_port_range",
        "net.ipv4.ip_local_reserved_ports",
        "net.ipv4.ip_unprivileged_port_start",
        "net.ipv4.ping_group_range",
        "net.ipv4.tcp_fin_timeout",
        "net.ipv4.tcp_keepalive_intvl",
        "net.ipv4.tcp_keepalive_probes",
        "net.ipv4.tcp_keepalive_time",
        "net.ipv4.tcp_rmem",
        "net.ipv4.tcp_syncookies",
        "net.ipv4.tcp_wmem",
    }
)
_SELINUX_TYPES: Final = frozenset({"", "container_t", "container_init_t", "container_kvm_t", "container_engine_t"})
_PROFILES: Final = ("RuntimeDefault", "Localhost")


def check_security(pod: Mapping[str, Any], path: str) -> Iterator[Finding]:
    """A pod's spec, whose types are right."""
    for field in ("hostNetwork", "hostPID", "hostIPC"):
        if pod.get(field, False):
            yield _finding(below(path, field), "true", "false")
    for index, volume in enumerate(pod.get("volumes", [])):
        for source in sorted(set(volume) - {"name"} - _VOLUMES):
            here = below(f"{path}.volumes[{index}]", source)
            yield _finding(here, source, f"one of {', '.join(sorted(_VOLUMES))}")
    whole = pod.get("securityContext", {})
    place = below(path, "securityContext")
    yield from _check_shared(whole, place)
    for index, sysctl in enumerate(whole.get("sysctls", [])):
        if sysctl["name"] not in _SYSCTLS:
            yield _finding(f"{place}.sysctls[{index}]", show(sysctl["name"]), "one of the safe ones")
    for here, container in containers_of(pod, path):
        own = container.get("securityContext", {})
        yield from _check_shared(own, below(here, "securityContext"))
        yield from _check_container(container, here)
        yield from _check_inherited(own, whole, below(here, "securityContext"))


def _check_shared(context: Mapping[str, Any], path: str) -> Iterator[Finding]:
    """What may stand in a pod's context and in a container's."""
    if context.get("windowsOptions", {}).get("hostProcess", False):
        yield _finding(f"{path}.windowsOptions.hostProcess", "true", "false")
    selinux = context.get("seLinuxOptions", {})
    if selinux.get("type", "") not in _SELINUX_TYPES:
        yield _finding(f"{path}.seLinuxOptions.type", show(selinux["type"]), "container_t or a type like it")
    for field in ("user", "role"):
        if selinux.get(field, ""):
            yield _finding(f"{path}.seLinuxOptions.{field}", show(selinux[field]), "nothing")
    if "appArmorProfile" in context and context["appArmorProfile"]["type"] not in _PROFILES:
        kind = context["appArmorProfile"]["type"]
        yield _finding(f"{path}.appArmorProfile.type", show(kind), " or ".join(_PROFILES))
    if context.get("runAsUser") == 0:
        yield _finding(f"{path}.runAsUser", "0", "a user other than root, such as 10001")
    if context.get("runAsNonRoot") is False:
        yield _finding(f"{path}.runAsNonRoot", "false", "true")
    if "seccompProfile" in context and context["seccompProfile"]["type"] not in _PROFILES:
        yield _finding(f"{path}.seccompProfile.type", show(context["seccompProfile"]["type"]), " or ".join(_PROFILES))


def _check_container(container: Mapping[str, Any], path: str) -> Iterator[Finding]:
    context = container.get("securityContext", {})
    here = below(path, "securityContext")
    if context.get("privileged", False):
        yield _finding(f"{here}.privileged", "true", "false")
    if context.get("allowPrivilegeEscalation") is not False:
        yield _finding(
            f"{here}.allowPrivilegeEscalation",
            _given(context.get("allowPrivilegeEscalation")),
            "false, set in each container",
        )
    capabilities = context.get("capabilities", {})
    if "ALL" not in capabilities.get("drop", []):
        yield _finding(f"{here}.capabilities.drop", show(capabilities.get("drop", [])), "[ALL], set in each container")
    added = [name for name in capabilities.get("add", []) if name != "NET_BIND_SERVICE"]
    if added:
        yield _finding(f"{here}.capabilities.add", ", ".join(added), "nothing, or NET_BIND_SERVICE")
    if context.get("procMount", "Default") not in ("", "Default"):
        yield _finding(f"{here}.procMount", show(context["procMount"]), "Default")
    if context.get("readOnlyRootFilesystem") is not True:
        found = _given(context.get("readOnlyRootFilesystem"))
        yield Finding(f"{here}.readOnlyRootFilesystem", found, "true", "hopline")
    for index, port in enumerate(container.get("ports", [])):
        if port.get("hostPort", 0):
            yield _finding(f"{path}.ports[{index}].hostPort", show(port["hostPort"]), "nothing")
    yield from _check_hosts(container, path)


def _check_hosts(container: Mapping[str, Any], path: str) -> Iterator[Finding]:
    """A probe or a hook that names a host makes the node call it."""
    hooks = {name: container[name] for name in ("livenessProbe", "readinessProbe", "startupProbe") if name in container}
    hooks |= {
        f"lifecycle.{name}": hook for name, hook in container.get("lifecycle", {}).items() if isinstance(hook, dict)
    }
    for name, hook in hooks.items():
        for action in ("httpGet", "tcpSocket"):
            if hook.get(action, {}).get("host", ""):
                yield _finding(f"{path}.{name}.{action}.host", show(hook[action]["host"]), "nothing: the pod itself")


def _check_inherited(own: Mapping[str, Any], whole: Mapping[str, Any], path: str) -> Iterator[Finding]:
    """What a container may say itself or take from its pod."""
    effective = dict(whole) | dict(own)
    if "runAsNonRoot" not in effective:
        yield _finding(f"{path}.runAsNonRoot", "nothing, here and in the pod", "true")
    if "seccompProfile" not in effective:
        yield _finding(f"{path}.seccompProfile", "nothing, here and in the pod", "type: RuntimeDefault")
    if "runAsUser" not in effective:
        expected = "a number other than 0: without one, a node cannot tell that the image's user is not root"
        yield Finding(f"{path}.runAsUser", "nothing, here and in the pod", expected, "hopline")


def _given(value: Any) -> str:
    return "nothing" if value is None else show(value)


def _finding(path: str, found: str, expected: str) -> Finding:
    return Finding(path, found, expected, "pod security")
