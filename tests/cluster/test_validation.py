"""What is wrong with a manifest is found, with the place, what is there and what belongs there."""

from __future__ import annotations

import copy
import re
from collections.abc import Callable
from typing import Any

import pytest

from hopline.cluster import JobSpec, check_document, render_pytorchjob, to_yaml, validate_manifest
from hopline.errors import DataError

Make = Callable[..., JobSpec]
NOTHING = object()

MASTER = "spec.pytorchReplicaSpecs.Master"
WORKER = "spec.pytorchReplicaSpecs.Worker"
POD = f"{MASTER}.template.spec"
CONTAINER = f"{POD}.containers[0]"


def edited(document: Any, path: str, value: Any) -> Any:
    """The document with something else at a path; NOTHING takes away what is there."""
    document = copy.deepcopy(document)
    *steps, last = [int(step) if step.isdigit() else step for step in re.findall(r"[^.\[\]]+", path)]
    here = document
    for step in steps:
        here = here.setdefault(step, {}) if isinstance(here, dict) else here[step]
    if value is NOTHING:
        del here[last]
    elif isinstance(here, list) and last == len(here):
        here.append(value)
    else:
        here[last] = value
    return document


def found(document: Any) -> list[str]:
    return [str(finding) for finding in check_document(document).findings]


SECURITY = [
    (f"{POD}.hostNetwork", True, "spec.hostNetwork: found true, expected false"),
    (f"{POD}.hostPID", True, "spec.hostPID: found true, expected false"),
    (f"{POD}.hostIPC", True, "spec.hostIPC: found true, expected false"),
    (
        f"{POD}.volumes[2]",
        {"name": "h", "hostPath": {"path": "/"}},
        "volumes[2].hostPath: found hostPath, expected one of",
    ),
    (
        f"{POD}.volumes[2]",
        {"name": "h", "nfs": {"path": "/", "server": "s"}},
        "volumes[2].nfs: found nfs, expected one of",
    ),
    (
        f"{POD}.securityContext.runAsNonRoot",
        NOTHING,
        "containers[0].securityContext.runAsNonRoot: found nothing, here and",
    ),
    (f"{POD}.securityContext.runAsNonRoot", False, "spec.securityContext.runAsNonRoot: found false, expected true"),
    (f"{CONTAINER}.securityContext.runAsNonRoot", False, "securityContext.runAsNonRoot: found false, expected true"),
    (f"{POD}.securityContext.runAsUser", 0, "spec.securityContext.runAsUser: found 0, expected a user other than root"),
    (f"{POD}.securityContext.seccompProfile", NOTHING, "seccompProfile: found nothing, here and in the pod"),
    (f"{POD}.securityContext.seccompProfile.type", "Unconfined", 'found "Unconfined", expected RuntimeDefault or'),
    (
        f"{POD}.securityContext.seLinuxOptions",
        {"type": "spc_t"},
        'seLinuxOptions.type: found "spc_t", expected container_t',
    ),
    (f"{POD}.securityContext.seLinuxOptions", {"role": "r"}, 'seLinuxOptions.role: found "r", expected nothing'),
    (f"{POD}.securityContext.appArmorProfile", {"type": "Unconfined"}, "appArmorProfile.type: found"),
    (f"{POD}.securityContext.windowsOptions", {"hostProcess": True}, "windowsOptions.hostProcess: found true"),
    (f"{POD}.securityContext.sysctls", [{"name": "kernel.msgmax", "value": "1"}], 'sysctls[0]: found "kernel.msgmax"'),
    (f"{CONTAINER}.securityContext.privileged", True, "privileged: found true, expected false"),
    (
        f"{CONTAINER}.securityContext.allowPrivilegeEscalation",
        NOTHING,
        "allowPrivilegeEscalation: found nothing, expected",
    ),
    (
        f"{CONTAINER}.securityContext.allowPrivilegeEscalation",
        True,
        "allowPrivilegeEscalation: found true, expected false",
    ),
    (f"{CONTAINER}.securityContext.capabilities", NOTHING, "capabilities.drop: found an empty list, expected [ALL]"),
    (
        f"{CONTAINER}.securityContext.capabilities.drop",
        ["KILL"],
        "capabilities.drop: found a list of 1, expected [ALL]",
    ),
    (
        f"{CONTAINER}.securityContext.capabilities.add",
        ["SYS_ADMIN"],
        "capabilities.add: found SYS_ADMIN, expected nothing",
    ),
    (f"{CONTAINER}.securityContext.procMount", "Unmasked", 'procMount: found "Unmasked", expected Default'),
    (f"{CONTAINER}.ports", [{"containerPort": 80, "hostPort": 80}], "ports[0].hostPort: found 80, expected nothing"),
    (
        f"{CONTAINER}.livenessProbe",
        {"httpGet": {"port": 80, "host": "169.254.169.254"}},
        'livenessProbe.httpGet.host: found "169.254.169.254", expected nothing',
    ),
]

OPERATOR = [
    ("metadata.name", "3b", "metadata.name: found \"3b\", expected 1 to 63 of a-z, 0-9 and '-', a letter first"),
    ("metadata.name", "a.b", 'metadata.name: found "a.b", expected'),
    ("metadata.name", "a" * 60, "metadata.name: found 60 characters, expected 54 at most: a pod is called"),
    (f"{MASTER}.replicas", 2, "Master.replicas: found 2, expected 1"),
    (f"{MASTER}.replicas", NOTHING, "Master.replicas: found nothing, expected 1"),
    ("spec.pytorchReplicaSpecs", {}, "spec.pytorchReplicaSpecs: found no replicas, expected a Master, or Workers"),
    (
        "spec.pytorchReplicaSpecs.Chief",
        {"replicas": 1},
        "pytorchReplicaSpecs.Chief: found this role, expected Master or",
    ),
    (f"{CONTAINER}.name", "main", 'containers: found "main", expected one named pytorch'),
    (f"{MASTER}.restartPolicy", "Sometimes", 'Master.restartPolicy: found "Sometimes", expected Always or OnFailure'),
    ("spec.runPolicy.cleanPodPolicy", "Some", 'cleanPodPolicy: found "Some", expected None or Running or All'),
    ("spec.runPolicy.managedBy", "me", 'managedBy: found "me", expected kubeflow.org/training-operator or'),
    ("spec.runPolicy.ttlSecondsAfterFinished", -1, "ttlSecondsAfterFinished: found -1, expected 0 or more"),
    ("spec.nprocPerNode", "many", 'spec.nprocPerNode: found "many", expected a string: auto, cpu, gpu'),
    (
        "spec.elasticPolicy",
        {"minReplicas": 1, "maxReplicas": 2},
        "pytorchReplicaSpecs.Worker: found nothing, expected Workers",
    ),
    (f"{POD}.restartPolicy", "Never", 'template.spec.restartPolicy: found "Never", expected nothing'),
    ("spec", NOTHING, "spec: found nothing, expected the job"),
]

KUBERNETES = [
    (f"{CONTAINER}.image", NOTHING, "containers[0].image: found nothing, expected the image that the container runs"),
    ("apiVersion", "kubeflow.org/v2", 'apiVersion: found "kubeflow.org/v2", expected kubeflow.org/v1 for PyTorchJob'),
    ("metadata.labels.x", "a b", 'metadata.labels.x: found "a b", expected at most 63 letters'),
    ("metadata.namespace", "A", 'metadata.namespace: found "A", expected 1 to 63'),
    (f"{CONTAINER}.imagePullPolicy", "Maybe", 'imagePullPolicy: found "Maybe", expected Always, IfNotPresent or Never'),
    (
        f"{CONTAINER}.volumeMounts[2]",
        {"name": "x", "mountPath": "/x"},
        'volumeMounts[2].name: found "x", expected a volume',
    ),
    (f"{CONTAINER}.volumeMounts[0].mountPath", "tmp", 'mountPath: found "tmp", expected an absolute path'),
    (f"{CONTAINER}.resources.requests.cpu", "8", 'resources.requests.cpu: found "8", expected at most the limit 4'),
    (f"{CONTAINER}.resources.limits.memory", "-1", 'resources.limits.memory: found "-1", expected 0 or more'),
    (f"{CONTAINER}.ports", [{"containerPort": 0}], "ports[0].containerPort: found 0, expected 1 to 65535"),
    (
        f"{CONTAINER}.env[4]",
        {"name": "A", "value": "b", "valueFrom": {"fieldRef": {"fieldPath": "x"}}},
        "value and valueFrom",
    ),
    (f"{CONTAINER}.env[4]", {"name": "A", "valueFrom": {}}, "env[4].valueFrom: found 0 sources, expected exactly one"),
    (f"{CONTAINER}.env[4]", {"name": "A=B", "value": "b"}, "a name without '='"),
    (f"{POD}.volumes[0]", {"name": "tmp", "emptyDir": {}, "secret": {"secretName": "s"}}, "found emptyDir and secret"),
    (f"{POD}.volumes[0].emptyDir.medium", "Disk", 'emptyDir.medium: found "Disk", expected Memory'),
    (f"{POD}.tolerations", [{"operator": "Exists", "value": "x"}], 'tolerations[0].value: found "x", expected nothing'),
    (f"{POD}.tolerations", [{"value": "x"}], "found Equal without a key, expected a key, or operator Exists"),
    (
        f"{POD}.tolerations",
        [{"key": "k", "tolerationSeconds": 3}],
        "tolerations[0].effect: found null, expected NoExecute",
    ),
    (f"{POD}.nodeSelector", {"a b": "c"}, 'nodeSelector: found "a b", expected a label'),
    (f"{POD}.containers", [], "containers: found an empty list, expected at least one container"),
    (f"{POD}.initContainers", [{"name": "pytorch", "image": "a:1"}], 'containers[0].name: found "pytorch" as in'),
    (f"{POD}.terminationGracePeriodSeconds", -1, "found a negative number, expected 0 or more seconds"),
]

OURS = [
    (
        f"{MASTER}.restartPolicy",
        "ExitCode",
        'restartPolicy: found "ExitCode", expected OnFailure, which backoffLimit bounds',
    ),
    (f"{MASTER}.restartPolicy", NOTHING, "restartPolicy: found nothing, expected OnFailure"),
    (
        "spec.runPolicy.backoffLimit",
        NOTHING,
        "backoffLimit: found nothing, expected a number: without one, OnFailure never",
    ),
    (f"{POD}.automountServiceAccountToken", NOTHING, "automountServiceAccountToken: found nothing, expected false"),
    (
        f"{CONTAINER}.securityContext.readOnlyRootFilesystem",
        False,
        "readOnlyRootFilesystem: found false, expected true",
    ),
    (
        f"{POD}.securityContext.runAsUser",
        NOTHING,
        "runAsUser: found nothing, here and in the pod, expected a number other",
    ),
    (f"{CONTAINER}.resources", NOTHING, "resources.requests.ephemeral-storage: found nothing, expected how much"),
    (
        f"{CONTAINER}.resources.limits.memory",
        NOTHING,
        "resources.limits.memory: found nothing, expected how much memory",
    ),
    (f"{CONTAINER}.image", "hopline/train", 'image: found "hopline/train", expected an image with a tag'),
    (f"{CONTAINER}.image", "registry:5000/train", 'image: found "registry:5000/train", expected an image with a tag'),
    (
        f"{CONTAINER}.image",
        "train:latest",
        'image: found "train:latest", expected an image with a tag other than latest',
    ),
    (
        f"{CONTAINER}.env[4]",
        {"name": "DB_PASSWORD", "value": "x"},
        "env[4].value: found what looks like a secret in DB_PASS",
    ),
    (
        f"{CONTAINER}.env[0].value",
        "/root",
        'env[0].value: found "/root", expected a folder in a writable emptyDir (/tmp',
    ),
    (f"{CONTAINER}.volumeMounts[0]", NOTHING, "volumeMounts: found no writable /tmp, expected an emptyDir there"),
    (
        f"{CONTAINER}.volumeMounts[1]",
        NOTHING,
        "volumeMounts: found no memory at /dev/shm, expected an emptyDir of medium",
    ),
    (f"{POD}.volumes[1].emptyDir.sizeLimit", NOTHING, "volumes: found no sizeLimit of shared-memory, expected one"),
]


@pytest.mark.parametrize(
    ("path", "value", "expected", "rule"),
    [
        *((*case, "pod security") for case in SECURITY),
        *((*case, "operator") for case in OPERATOR),
        *((*case, "kubernetes") for case in KUBERNETES),
        *((*case, "hopline") for case in OURS),
    ],
)
def test_each_rule_has_a_finding(spec: Make, path: str, value: Any, expected: str, rule: str) -> None:
    document = render_pytorchjob(spec())
    assert found(document) == []
    messages = found(edited(document, path, value))
    assert any(expected in message and message.endswith(f"[{rule}]") for message in messages), messages


@pytest.mark.parametrize(
    ("path", "value", "expected"),
    [
        (
            "spec.elasticPolicy.rdzvBackend",
            "gloo",
            'rdzvBackend: found "gloo", expected c10d or etcd or etcd-v2 [operator]',
        ),
        ("spec.elasticPolicy.maxRestarts", -1, "maxRestarts: found -1, expected 0 or more"),
        ("spec.elasticPolicy.minReplicas", 0, "minReplicas: found 0, expected 1 or more"),
        ("spec.elasticPolicy.minReplicas", 9, "minReplicas: found 9, expected at most maxReplicas 4"),
        (
            "spec.elasticPolicy.minReplicas",
            NOTHING,
            "minReplicas: found nothing, expected minReplicas and maxReplicas, or",
        ),
        ("spec.elasticPolicy.nProcPerNode", 1, "nProcPerNode: found this field beside spec.nprocPerNode, expected one"),
        (f"{WORKER}.replicas", 9, "Worker.replicas: found 9, expected 1 to 4, as in spec.elasticPolicy [hopline]"),
        (f"{WORKER}.replicas", 0, "Worker.replicas: found 0, expected 1 or more [operator]"),
        (f"{WORKER}.template.spec.containers[0].env", [], "env: found TORCH_DISABLE_SHARE_RDZV_TCP_STORE not set to 1"),
        (
            "spec.nprocPerNode",
            "8",
            'env: found PET_NPROC_PER_NODE "1", expected "8": the operator tells it to jobs with a',
        ),
        ("spec.elasticPolicy", NOTHING, "pytorchReplicaSpecs: found Workers alone, expected a Master too"),
    ],
)
def test_rules_of_elastic_jobs(spec: Make, path: str, value: Any, expected: str) -> None:
    document = render_pytorchjob(spec("cluster.elastic={min_nodes: 1, max_nodes: 4}"))
    assert found(document) == []
    messages = found(edited(document, path, value))
    assert any(expected in message for message in messages), messages


def test_graphics_processors_are_asked_for_and_given_alike(spec: Make) -> None:
    document = render_pytorchjob(spec("cluster.resources.gpus=2", "training.parallelism=ddp"))
    container = document["spec"]["pytorchReplicaSpecs"]["Master"]["template"]["spec"]["containers"][0]
    container["resources"]["limits"]["nvidia.com/gpu"] = "4"
    assert any("as much as the limit 4: nvidia.com/gpu is not shared" in message for message in found(document))
    del container["resources"]["limits"]["nvidia.com/gpu"]
    assert any("found nothing, expected as much as the request 2" in message for message in found(document))


def test_names_of_pods_of_many_workers_fit(spec: Make) -> None:
    document = render_pytorchjob(spec("cluster.nodes=3", "training.parallelism=ddp"))
    assert found(edited(document, "metadata.name", "a" * 54)) == []
    assert "53 at most" in found(edited(edited(document, "metadata.name", "a" * 54), f"{WORKER}.replicas", 11))[0]


def test_a_number_for_a_string_is_told(spec: Make) -> None:
    document = edited(render_pytorchjob(spec()), "spec.nprocPerNode", 8)
    assert found(document) == ["spec.nprocPerNode: found 8, expected a string [schema]"]


def test_a_misspelt_field_is_named_with_its_neighbour(spec: Make) -> None:
    document = render_pytorchjob(spec())
    document["spec"]["runPolicy"]["backofLimit"] = 3
    assert found(document) == [
        "spec.runPolicy.backofLimit: found this field, expected a field of RunPolicy; did you mean backoffLimit? [schema]"
    ]


OBJECTS = [
    ("v1", "Secret", {"stringData": {"a": "b"}}, "stringData: found values of a secret in a file"),
    ("v1", "ConfigMap", {"data": {"a": "AKIAABCDEFGHIJKLMNOP"}}, "data.a: found what looks like a secret"),
    ("v1", "ConfigMap", {"metadata": {}}, "metadata.name: found nothing, expected a name"),
    ("v1", "ConfigMap", {"metadata": {"name": "kfp-launcher"}, "data": {"providers": "- x"}}, "that is no mapping of"),
    (
        "v1",
        "ConfigMap",
        {"metadata": {"name": "kfp-launcher"}, "data": {"providers": "s3: {default: {credentials: {fromEnv: false}}}"}},
        "secretRef.secretName: found nothing, expected it, or fromEnv: true",
    ),
    ("v1", "Pod", {}, "spec: found nothing, expected the pod"),
    ("batch/v1", "Job", {}, "spec: found nothing, expected the job"),
    (
        "batch/v1",
        "Job",
        {"spec": {"template": {"spec": {"containers": [{"name": "a", "image": "a:1"}]}}}},
        'restartPolicy: found "Always", expected OnFailure or Never',
    ),
    ("batch/v1", "CronJob", {"spec": {"schedule": "0 0 3 * * *", "jobTemplate": {}}}, "spec.schedule: found"),
    ("rbac.authorization.k8s.io/v1", "Role", {"rules": [{"verbs": ["*"], "resources": ["pods"]}]}, 'verbs: found "*"'),
    (
        "rbac.authorization.k8s.io/v1",
        "Role",
        {"rules": [{"apiGroups": [""], "verbs": ["get"], "resources": ["secrets"]}]},
        "rules[0].resourceNames: found nothing",
    ),
    ("rbac.authorization.k8s.io/v1", "Role", {"rules": [{"verbs": ["get"]}]}, "rules[0].resources: found nothing"),
    (
        "rbac.authorization.k8s.io/v1",
        "RoleBinding",
        {"roleRef": {"kind": "Role", "name": "r"}, "subjects": [{"kind": "ServiceAccount", "name": "s"}]},
        "subjects[0].namespace: found nothing",
    ),
    (
        "networking.k8s.io/v1",
        "NetworkPolicy",
        {"spec": {"podSelector": {}, "egress": [{"to": [{"ipBlock": {"cidr": "10.0.0.0/40"}}]}]}},
        'spec.egress[0].to[0].ipBlock.cidr: found "10.0.0.0/40"',
    ),
    (
        "networking.k8s.io/v1",
        "NetworkPolicy",
        {"spec": {"podSelector": {}, "ingress": [{"ports": [{"port": 99999}]}]}},
        "spec.ingress[0].ports[0].port: found 99999, expected 1 to 65535",
    ),
    (
        "kustomize.config.k8s.io/v1beta1",
        "Kustomization",
        {"secretGenerator": [{"literals": ["a=b"]}]},
        "secretGenerator[0].literals: found values of a secret",
    ),
    ("kustomize.config.k8s.io/v1beta1", "Kustomization", {"patches": [{}]}, "patches[0]: found neither patch nor path"),
]


@pytest.mark.parametrize(("version", "kind", "content", "expected"), OBJECTS)
def test_rules_of_other_objects(version: str, kind: str, content: dict[str, Any], expected: str) -> None:
    document = {"apiVersion": version, "kind": kind, "metadata": {"name": "x"}, **content}
    messages = found(document)
    assert any(expected in message for message in messages), messages


def test_documents_of_a_file_are_checked_one_by_one(spec: Make) -> None:
    text = to_yaml(
        render_pytorchjob(spec()),
        {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "a"}, "data": {"x": 1}},
        {"apiVersion": "example.com/v1", "kind": "Thing", "metadata": {"name": "b"}},
        ["no mapping"],
        {"kind": "ConfigMap"},
    )
    checked = validate_manifest(text, source="f")
    assert [(c.index, c.kind, c.status) for c in checked] == [
        (1, "PyTorchJob", "OK"),
        (2, "ConfigMap", "FAIL"),
        (3, "Thing", "NOT CHECKED"),
        (4, "", "FAIL"),
        (5, "ConfigMap", "FAIL"),
    ]
    assert str(checked[1].findings[0]) == "data.x: found 1, expected a string [schema]"
    assert (
        str(checked[4].findings[0]) == "apiVersion: found nothing, expected a string; it has to be given [kubernetes]"
    )


def test_what_kubectl_prints_is_read(spec: Make) -> None:
    """A List of live objects, with what the cluster has added to them."""
    job = render_pytorchjob(spec())
    job["metadata"] |= {"uid": "u", "generation": 1, "creationTimestamp": "2026-01-31T12:00:00Z", "managedFields": []}
    job["status"] = {
        "conditions": [{"type": "Created", "status": "True"}],
        "replicaStatuses": {"Master": {"active": 1}},
    }
    text = to_yaml({"apiVersion": "v1", "kind": "List", "items": [job, job]})
    assert [(c.index, c.status) for c in validate_manifest(text, source="f")] == [(1, "OK"), (2, "OK")]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("", "f: no document in it"),
        ("a: [", "f, line 1:"),
        ("a: 1\na: 2\n", "f, line 2: key 'a' is given twice"),
        ("a: &a [*a]\n", "f, line 1: found unconstructable recursive node"),
        ("a: !!python/object/apply:os.getcwd []\n", "f, line 1: could not determine a constructor"),
        ("? [a]\n: b\n", "f, line 1: a key is no text"),
        ("\x00", "f: not YAML"),
        (
            "a0: &a0 x\n" + "".join(f"a{i}: &a{i} [*a{i - 1}, *a{i - 1}, *a{i - 1}]\n" for i in range(1, 40)),
            "f: its aliases expand to more than 1000000 values",
        ),
    ],
)
def test_what_cannot_be_read_is_one_line(text: str, expected: str) -> None:
    with pytest.raises(DataError) as caught:
        validate_manifest(text, source="f")
    assert expected in str(caught.value)
    assert "\n" not in str(caught.value)


def test_text_is_read_as_kubectl_reads_it() -> None:
    text = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: a, annotations: {at: 2026-01-31}}\ndata: {1: '2', y: x}\n"
    assert validate_manifest(text, source="f")[0].status == "OK"
