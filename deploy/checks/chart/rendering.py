"""Renders the chart with the real Helm, without a cluster.

Invariant: a fault of Helm is an exception with its last line, so a check that expects a refusal sees the sentence that people see.
"""

import functools
import json
import pathlib
import subprocess
import tomllib
from dataclasses import dataclass, field

import yaml

ROOT = pathlib.Path(__file__).resolve().parents[3]
CHART = ROOT / "deploy/helm/weir"
INSTALLATIONS = ROOT / "deploy/helm/installations"
GOLDEN = ROOT / "deploy/helm/golden"
# PyYAML has the fast one where it was built with libyaml.
LOADER = getattr(yaml, "CSafeLoader", yaml.SafeLoader)


class Refused(Exception):
    """Helm refused the values. The text is what it printed."""


@dataclass
class Release:
    """What the chart makes of values."""

    text: str
    parts: list[dict] = field(init=False)

    def __post_init__(self) -> None:
        self.parts = [part for part in yaml.load_all(self.text, LOADER) if part]

    def all(self, kind: str) -> list[dict]:
        return [part for part in self.parts if part["kind"] == kind]

    def one(self, kind: str) -> dict:
        (part,) = self.all(kind)
        return part

    @property
    def servers(self) -> dict:
        """The Deployment or the StatefulSet."""
        (part,) = self.all("Deployment") + self.all("StatefulSet")
        return part

    @property
    def pod(self) -> dict:
        return self.servers["spec"]["template"]

    @property
    def container(self) -> dict:
        (container,) = self.pod["spec"]["containers"]
        return container

    @property
    def toml(self) -> str:
        return self.one("ConfigMap")["data"]["weir.toml"]

    @property
    def configuration(self) -> dict:
        return tomllib.loads(self.toml)


def helm(*arguments: str, values: dict | None = None) -> str:
    """Runs Helm. `values` are merged last; null removes a default."""
    command, text = ["helm", *arguments], None
    if values is not None:
        command += ["--values", "-"]
        # Helm reads YAML, which takes these two unescaped as no text, or as the end of a line.
        text = json.dumps(values, ensure_ascii=False).replace("\x7f", "\\u007f").replace("\u2028", "\\u2028")
    run = subprocess.run(command, input=text, capture_output=True, text=True, timeout=60)
    if run.returncode != 0:
        raise Refused(run.stderr.strip())
    return run.stdout


def render(values: dict | None = None, name: str = "weir", namespace: str = "weir", installation: str | None = None) -> Release:
    """A release with the values of a typical installation, if one is named, and with `values`."""
    return rendered(json.dumps(values or {}), name, namespace, installation)


@functools.cache
def rendered(values: str, name: str, namespace: str, installation: str | None) -> Release:
    """Checks ask for the same release again and again. None changes it."""
    files = ["--values", str(INSTALLATIONS / f"{installation}.yaml")] if installation else []
    return Release(helm("template", name, str(CHART), "--namespace", namespace, *files, values=json.loads(values)))


def merged(*parts: dict) -> dict:
    """Values over values, as Helm merges them."""
    result: dict = {}
    for part in parts:
        for key, value in part.items():
            both = isinstance(value, dict) and isinstance(result.get(key), dict)
            result[key] = merged(result[key], value) if both else value
    return result


# The least values of servers that share a Redis.
SHARED = {"store": "redis://redis.redis.svc:6379", "keys": {"existingSecret": "weir-keys"}}
