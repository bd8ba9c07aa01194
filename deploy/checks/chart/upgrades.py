"""Installs, upgrades, rolls back and uninstalls by the real Helm, over an API server that only remembers objects.

Invariants: the keys and the volume of an installation are the same until somebody deletes them; no upgrade ends servers that run.
"""

import base64
import copy
import json
import pathlib
import tempfile
import unittest

from api_server import ApiServer
from rendering import CHART, SHARED, Refused, helm, merged
from serving import ask, running

KEYS = "/api/v1/namespaces/weir/secrets/weir-keys"
MADE = {"store": SHARED["store"], "keys": {"create": True}}


class Installations(unittest.TestCase):
    def setUp(self) -> None:
        self.api = ApiServer()
        self.addCleanup(self.api.stop)
        directory = tempfile.TemporaryDirectory()
        self.addCleanup(directory.cleanup)
        self.directory = pathlib.Path(directory.name)
        self.api.write_kubeconfig(self.directory / "kubeconfig")

    def helm(self, *arguments: str, values: dict | None = None) -> None:
        helm(*arguments, "--namespace", "weir", "--kubeconfig", str(self.directory / "kubeconfig"), values=values)

    def install(self, values: dict = MADE, name: str = "weir") -> None:
        self.helm("install", name, str(CHART), "--disable-openapi-validation", values=values)

    def upgrade(self, values: dict = MADE) -> None:
        self.helm("upgrade", "weir", str(CHART), "--disable-openapi-validation", values=values)

    def keys(self) -> dict[str, str]:
        return copy.deepcopy(self.api.objects[KEYS]["data"])

    def test_the_keys_are_made_once(self) -> None:
        self.install()
        made = self.keys()
        self.assertEqual(made.keys(), {"seal.key", "pass.pem"})
        self.upgrade()
        self.assertEqual(self.keys(), made)
        self.upgrade(merged(MADE, {"replicas": 5, "config": {"log": "debug"}}))
        self.assertEqual(self.api.objects["/apis/apps/v1/namespaces/weir/deployments/weir"]["spec"]["replicas"], 5)
        self.assertEqual(self.keys(), made)
        self.helm("rollback", "weir", "1")
        self.assertEqual(self.keys(), made)
        # Those who wait keep their places, also if somebody deletes the release and installs it again.
        self.helm("uninstall", "weir")
        self.assertNotIn("/apis/apps/v1/namespaces/weir/deployments/weir", self.api.objects)
        self.assertEqual(self.keys(), made)
        self.install()
        self.assertEqual(self.keys(), made)

    def test_keys_that_were_added_stay(self) -> None:
        self.install()
        self.api.objects[KEYS]["data"]["seal-2.key"] = base64.b64encode(b"0" * 64).decode()
        added = self.keys()
        self.upgrade(merged(MADE, {"keys": {"nextSeal": "seal-2.key"}}))
        self.assertEqual(self.keys(), added)

    def test_a_namespace_that_helm_is_to_create_is_refused(self) -> None:
        del self.api.objects["/api/v1/namespaces/weir"]
        with self.assertRaisesRegex(Refused, "in a namespace that exists .kubectl create namespace weir."):
            self.helm("install", "weir", str(CHART), "--create-namespace", "--disable-openapi-validation", values=MADE)
        self.assertNotIn(KEYS, self.api.objects)

    def test_the_volume_of_the_embedded_store_stays(self) -> None:
        claim = "/api/v1/namespaces/weir/persistentvolumeclaims/weir-data"
        self.install({})
        self.upgrade({"persistence": {"size": "2Gi"}})
        self.assertEqual(self.api.objects[claim]["spec"]["resources"]["requests"]["storage"], "2Gi")
        self.helm("uninstall", "weir")
        self.assertNotIn("/apis/apps/v1/namespaces/weir/statefulsets/weir", self.api.objects)
        self.assertIn(claim, self.api.objects)
        self.install({})

    def test_autoscaling_does_not_end_the_servers_that_run(self) -> None:
        deployment = "/apis/apps/v1/namespaces/weir/deployments/weir"

        def owned_by(manager: str) -> None:
            # The API server notes who set a field, and this one does not. These are the notes of version 1.36.
            entry = {"manager": manager, "operation": "Apply", "fieldsType": "FieldsV1", "fieldsV1": {"f:spec": {"f:replicas": {}}}}
            other = {"manager": "helm", "operation": "Apply", "fieldsType": "FieldsV1", "fieldsV1": {"f:spec": {"f:template": {}}}}
            self.api.objects[deployment]["metadata"]["managedFields"] = [entry, other]

        several = merged(MADE, {"replicas": 5})
        scaled = merged(several, {"autoscaling": {"enabled": True}})
        self.install(several)
        owned_by("helm")
        with self.assertRaisesRegex(Refused, "kubectl -n weir scale deployment weir --replicas=6"):
            self.upgrade(scaled)
        owned_by("kubectl")
        self.upgrade(scaled)
        self.assertNotIn("replicas", self.api.objects[deployment]["spec"])

        self.upgrade(MADE)
        owned_by("helm")
        # There is one server, and one will be left.
        self.upgrade(scaled)

    def test_lost_keys_are_not_replaced(self) -> None:
        self.install()
        lost = self.api.objects.pop(KEYS)
        with self.assertRaisesRegex(Refused, "the Secret weir-keys does not exist, and new keys would cost everybody who waits the place"):
            self.upgrade()
        self.assertNotIn(KEYS, self.api.objects)
        del lost["data"]["seal.key"]
        self.api.objects[KEYS] = lost
        with self.assertRaisesRegex(Refused, "the Secret weir-keys lacks seal.key or pass.pem"):
            self.upgrade()

    def test_two_installations_have_different_keys(self) -> None:
        self.install()
        self.install(name="other")
        others = self.api.objects["/api/v1/namespaces/weir/secrets/other-weir-keys"]["data"]
        for name, value in self.keys().items():
            self.assertNotEqual(others[name], value)

    def test_the_program_accepts_the_keys(self) -> None:
        self.install()
        configuration = 'listen = "127.0.0.1:0"\nadmin_listen = "127.0.0.1:0"\nzone = [{ id = "SITE" }]\n'
        configuration += f'data_dir = "{self.directory}/data"\n'
        for name, value in self.keys().items():
            file = self.directory / name
            file.write_bytes(base64.b64decode(value))
            file.chmod(0o600)
            configuration += f'{name.partition(".")[0]}.key_file = "{file}"\n'
        with running(self.directory, configuration) as server:
            status, text = ask(server.addresses["listening"] + "/traffic/wait", {"zoneId": "SITE"})
            self.assertEqual((status, json.loads(text)["canEnter"]), (200, True), text)
            algorithms = [key["alg"] for key in json.loads(ask(server.addresses["listening"] + "/.well-known/jwks.json")[1])["keys"]]
            self.assertEqual(algorithms, ["ES256"])

    def test_keys_are_in_no_other_object(self) -> None:
        self.install()
        values = [base64.b64decode(value).decode().strip() for value in self.keys().values()]
        for path, part in self.api.objects.items():
            # Helm keeps the manifests of each release in a Secret of its own, as it does for every chart.
            if path != KEYS and not path.rpartition("/")[2].startswith("sh.helm.release."):
                for value in values:
                    self.assertNotIn(value, str(part), path)
