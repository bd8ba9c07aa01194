"""The typical installations: what the chart makes of each is committed (deploy/helm/golden), fits the schemas of the oldest, a middle and
the newest version of Kubernetes, and is the same as the plain manifests and the recipe for Envoy Gateway.

Invariant: a file of deploy/helm/golden is exactly what the pinned Helm prints.
"""

import difflib
import json
import os
import pathlib
import re
import subprocess
import sys
import tempfile
import tomllib
import unittest

import schemas
import yaml
from rendering import CHART, GOLDEN, INSTALLATIONS, ROOT, SHARED, Release, helm, merged, render

VERSIONS = ["1.30.0", "1.34.0", "1.37.0"]
WRITE = "deploy/check chart --write"


def installations() -> list[str]:
    return sorted(file.stem for file in INSTALLATIONS.glob("*.yaml"))


def write() -> None:
    GOLDEN.mkdir(exist_ok=True)
    for name in installations():
        (GOLDEN / f"{name}.yaml").write_text(render(installation=name).text)


class Golden(unittest.TestCase):
    def test_each_installation_is_as_committed(self) -> None:
        self.assertEqual([file.stem for file in sorted(GOLDEN.iterdir())], installations())
        for name in installations():
            is_now, was = render(installation=name).text, (GOLDEN / f"{name}.yaml").read_text()
            lines = difflib.unified_diff(was.splitlines(), is_now.splitlines(), f"golden/{name}.yaml", "now", lineterm="")
            self.assertEqual(is_now, was, "\n".join([f"if that is meant, run {WRITE}", *lines]))

    def test_the_schema_of_the_values_is_as_its_program_writes_it(self) -> None:
        with tempfile.TemporaryDirectory() as directory:
            made = pathlib.Path(directory) / "schema.json"
            subprocess.run([sys.executable, ROOT / "deploy/helm/schema.py", ROOT, made], check=True)
            self.assertEqual(made.read_text(), (CHART / "values.schema.json").read_text(), f"run {WRITE}")

    def test_helm_lints_the_chart_with_the_values_of_each_installation(self) -> None:
        helm("lint", str(CHART), "--strict")
        for name in installations():
            helm("lint", str(CHART), "--strict", "--values", str(INSTALLATIONS / f"{name}.yaml"))

    def test_the_version_is_that_of_the_project(self) -> None:
        chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
        version = tomllib.loads((ROOT / "Cargo.toml").read_text())["workspace"]["package"]["version"]
        self.assertEqual([chart["version"], chart["appVersion"]], [version, version])

    def test_no_installation_trusts_a_whole_network(self) -> None:
        for name in installations():
            for network in render(installation=name).configuration["trusted_proxies"]:
                self.assertGreaterEqual(int(network.partition("/")[2] or 32), 24, f"{name} trusts {network}")


class Schemas(unittest.TestCase):
    def setUp(self) -> None:
        self.directory = tempfile.TemporaryDirectory()
        self.addCleanup(self.directory.cleanup)
        self.locations = schemas.write(
            VERSIONS, pathlib.Path(os.environ["HELM_TOOLS"]) / "schemas", pathlib.Path(self.directory.name)
        )

    def faults(self, text: str, version: str) -> str:
        """What kubeconform says of the manifests; nothing if they are valid."""
        command = ["kubeconform", "-strict", "-output", "json", "-kubernetes-version", version]
        for location in self.locations:
            command += ["-schema-location", location]
        run = subprocess.run(command, input=text, capture_output=True, text=True, timeout=60)
        found = json.loads(run.stdout)["resources"] if run.stdout else [{"msg": run.stderr}]
        return "" if run.returncode == 0 else "\n".join(f"{part.get('kind')} {part.get('name')}: {part['msg']}" for part in found)

    def test_each_installation_is_valid_in_each_version(self) -> None:
        everything = {
            **SHARED,
            "autoscaling": {"enabled": True, "connections": 20000, "pollingPeriodS": 5},
            "service": {"type": "NodePort", "annotations": {"a": "yes"}},
            "image": {"digest": "sha256:" + "0" * 64, "pullSecrets": ["registry"]},
            "config": {"fanout": "nats://nats.nats.svc:4222"},
        }
        texts = [(GOLDEN / f"{name}.yaml").read_text() for name in installations()]
        texts += [
            render(everything).text,
            render({"persistence": {"storageClass": "fast"}}, "1e3", "0x1f").text,
            (ROOT / "deploy/proxies/kubernetes-gateway.yaml").read_text(),
        ]
        for version in VERSIONS:
            self.assertEqual(self.faults("\n---\n".join(texts), version), "", version)

    def test_unknown_fields_and_wrong_types_are_found(self) -> None:
        text = render(installation="gateway").text
        for was, becomes in [
            ("maxUnavailable: 1", "maxUnavailible: 1"),
            ("failOpen: false", "failOpen: sometimes"),
            ("rotationPolicy: Always", "rotation: Always"),
            ("interval: 15s", "interval: 15"),
            ("policyTypes:", "types:"),
        ]:
            self.assertIn(was, text)
            self.assertNotEqual(self.faults(text.replace(was, becomes), VERSIONS[-1]), "", becomes)


def bare(part: dict) -> dict:
    """A manifest without what differs on purpose: labels of the release, and the annotation that restarts pods."""
    ours = re.compile(r"^(helm\.sh/|app\.kubernetes\.io/(instance|version|managed-by|component|part-of)$|weir/)")

    def walk(value: object) -> object:
        if isinstance(value, list):
            return [walk(item) for item in value]
        if isinstance(value, dict):
            return {key: walk(item) for key, item in value.items() if not ours.match(key)}
        return value

    made = walk(part)
    assert isinstance(made, dict)
    made["metadata"].pop("namespace", None)
    if not made["metadata"].get("labels", {}).keys() - {"app.kubernetes.io/name"}:
        made["metadata"].pop("labels", None)
    return made


class Agreement(unittest.TestCase):
    def test_the_cluster_is_the_same_as_the_plain_manifests(self) -> None:
        base = ROOT / "deploy/kubernetes/base"
        kustomization = yaml.safe_load((base / "kustomization.yaml").read_text())
        parts = [part for name in kustomization["resources"] for part in yaml.safe_load_all((base / name).read_text())]
        plain = {(part["kind"], part["metadata"]["name"]): bare(part) for part in parts if part["kind"] != "Namespace"}
        (image,) = kustomization["images"]
        (container,) = plain["Deployment", "weir"]["spec"]["template"]["spec"]["containers"]
        container["image"] = f"{image['newName']}:{image['newTag']}"

        release = render(installation="cluster")
        charts = {(part["kind"], part["metadata"]["name"]): bare(part) for part in release.parts}
        del charts["ConfigMap", "weir-config"]
        for service in (charts["Service", "weir"], charts["Service", "weir-admin"]):
            # The default, which the plain manifest leaves out.
            if service["spec"].get("type") == "ClusterIP":
                del service["spec"]["type"]
        self.assertEqual(charts.keys(), plain.keys())
        for key, part in plain.items():
            self.assertEqual(charts[key], part, key)
        configuration = release.configuration
        # The plain configuration leaves it out, with a comment.
        self.assertEqual(configuration.pop("trusted_proxies"), [])
        self.assertEqual(configuration, tomllib.loads((base / "weir.toml").read_text()))

    def test_the_gateway_is_the_same_as_the_recipe(self) -> None:
        recipe = list(yaml.safe_load_all((ROOT / "deploy/proxies/kubernetes-gateway.yaml").read_text()))
        gateway = {"routes": [{"name": "site", "namespace": "default"}]}
        release = render({"gateway": gateway, "config": {"trusted_proxies": ["10.42.7.0/24"]}})
        for kind in ("SecurityPolicy", "ReferenceGrant"):
            (of_recipe,) = (part for part in recipe if part["kind"] == kind)
            self.assertEqual(release.one(kind)["spec"], of_recipe["spec"], kind)
        (of_recipe,) = (part for part in recipe if part["kind"] == "Service")
        (of_chart,) = (part for part in release.all("Service") if part["metadata"]["name"] == "weir-grpc")
        self.assertEqual(of_chart["spec"]["ports"], of_recipe["spec"]["ports"])

    def test_all_settings_of_the_schema_are_accepted_by_the_program(self) -> None:
        """Each number at both ends of its range; each list and table with an entry."""
        fields = json.loads((CHART / "values.schema.json").read_text())["properties"]["config"]["properties"]
        # What depends on other settings, or is more than a text.
        texts = {
            "admin_hosts": ["weir.ops.example"], "trusted_proxies": ["10.42.7.0/24"], "cors_origins": ["https://shop.example"],
            "limit": {"carrier_nats": ["100.64.0.0/10"]}, "fanout": "none", "log": "info",
            "otlp": {"endpoint": "http://collector.monitoring.svc:4318"},
            "route": [{"name": "site", "zone": "SITE", "cookie": {"x": "*"}, "header": {"x-a": {"sha256": "0" * 64}}, "everything": True}],
            "wait": {"target": [{"zone": "SITE", "url": "https://shop.example/"}]},
        }  # fmt: skip

        def at(end: str, schema: dict) -> object:
            if "properties" in schema:
                return {name: value for name, field in schema["properties"].items() if (value := at(end, field)) is not None}
            return schema.get(end, schema["enum"][0] if "enum" in schema else None)

        for end in ("minimum", "maximum"):
            config = {name: at(end, field) for name, field in fields.items() if at(end, field)}
            # More files than this machine lets a process open, and a period that others bound.
            config.pop("max_connections", None)
            config["idle_timeout_s"] = 3600
            zone = {name: value for name, field in fields["zone"]["items"]["properties"].items() if (value := at(end, field)) is not None}
            zone |= {"polling_period_ms": 3000, "idle_timeout_s": 3600, "entries_per_minute_per_client": 600, "notice": {"en": "Soon."}}
            zone["opens_at"] = "2026-12-01T09:00[Europe/Berlin]"
            config = merged(config, texts, {"zone": [{**zone, "id": "SITE"}]})
            accepted(self, render({**SHARED, "config": config}))


def accepted(test: unittest.TestCase, release: Release) -> str:
    """Asks the program whether it accepts the configuration. Returns what it prints."""
    with tempfile.NamedTemporaryFile("w", suffix=".toml") as file:
        file.write(release.toml)
        file.flush()
        run = subprocess.run([os.environ["WEIR_BIN"], "check-config", file.name], capture_output=True, text=True, timeout=60)
    test.assertEqual(run.returncode, 0, run.stderr + release.toml)
    return run.stdout
