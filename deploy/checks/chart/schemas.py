"""JSON schemas for kubeconform, from two sources: the Python package kubernetes-validate has those of Kubernetes, and the definitions of
other projects' resources (CustomResourceDefinition) have theirs.

Invariants: a schema refers to no other file, so nothing is read from the network; a field that no schema lists is refused.
"""

import copy
import json
import pathlib

import kubernetes_validate
import yaml
from rendering import LOADER

# What the chart and the recipes make.
KINDS = [
    "configmap-v1", "deployment-apps-v1", "horizontalpodautoscaler-autoscaling-v2", "networkpolicy-networking-v1",
    "persistentvolumeclaim-v1", "poddisruptionbudget-policy-v1", "service-v1", "serviceaccount-v1", "statefulset-apps-v1",
]  # fmt: skip
DEFINITIONS = "#/$defs/"


def references(part: object, found: set[str]) -> object:
    """Makes references point into the same file, and collects their names."""
    if isinstance(part, list):
        return [references(item, found) for item in part]
    if not isinstance(part, dict):
        return part
    made = {}
    for key, value in part.items():
        if key == "$ref" and isinstance(value, str):
            _, _, name = value.partition(DEFINITIONS)
            found.add(name)
            made[key] = DEFINITIONS + name
        else:
            made[key] = references(value, found)
    return made


def of_kubernetes(version: str, to: pathlib.Path) -> None:
    source = pathlib.Path(kubernetes_validate.__file__).parent / f"kubernetes-json-schema/v{version}-local-strict"
    definitions = json.loads((source / "_definitions.json").read_text())["$defs"]
    to.mkdir(parents=True)
    for kind in KINDS:
        schema = json.loads((source / f"{kind}.json").read_text())
        # With it, references would be addresses of the network.
        schema.pop("$id", None)
        waiting: set[str] = set()
        schema = references(schema, waiting)
        used: dict[str, object] = {}
        while waiting:
            name = waiting.pop()
            more: set[str] = set()
            used[name] = references(definitions[name], more)
            waiting |= more - used.keys()
        schema["$defs"] = used
        (to / f"{kind}.json").write_text(json.dumps(schema))


def closed(part: dict) -> dict:
    """Refuses fields that the schema does not list, as the API server does with strict validation."""
    part = copy.copy(part)
    if part.pop("x-kubernetes-int-or-string", False):
        part.pop("type", None)
        part["anyOf"] = [{"type": "string"}, {"type": "integer"}]
    if "properties" in part:
        part["properties"] = {name: closed(field) for name, field in part["properties"].items()}
        if not part.get("x-kubernetes-preserve-unknown-fields"):
            part["additionalProperties"] = False
    elif isinstance(part.get("additionalProperties"), dict):
        part["additionalProperties"] = closed(part["additionalProperties"])
    if "items" in part:
        part["items"] = closed(part["items"])
    return part


def of_definition(file: pathlib.Path, to: pathlib.Path) -> None:
    definition = yaml.load(file.read_text(), LOADER)
    group, kind = definition["spec"]["group"], definition["spec"]["names"]["kind"].lower()
    (to / group).mkdir(parents=True, exist_ok=True)
    for version in definition["spec"]["versions"]:
        schema = closed(version["schema"]["openAPIV3Schema"])
        schema["properties"]["metadata"] = {"type": "object"}
        (to / group / f"{kind}_{version['name']}.json").write_text(json.dumps(schema))


def write(versions: list[str], definitions: pathlib.Path, to: pathlib.Path) -> list[str]:
    """Writes all schemas. Returns the locations for kubeconform."""
    for version in versions:
        of_kubernetes(version, to / f"v{version}")
    for file in sorted(definitions.glob("*.yaml")):
        of_definition(file, to / "others")
    return [
        f"{to}/{{{{.NormalizedKubernetesVersion}}}}/{{{{.ResourceKind}}}}{{{{.KindSuffix}}}}.json",
        f"{to}/others/{{{{.Group}}}}/{{{{.ResourceKind}}}}_{{{{.ResourceAPIVersion}}}}.json",
    ]
