"""Starts the real program with the configuration of each typical installation: the files where the pod has them, its probes, a place at one
server that another knows, Prometheus' question, and the signal that ends a pod.

Invariants: only paths, ports and the address of Redis differ from the rendered configuration; everything listens on the loopback, at ports
of its own.
"""

import contextlib
import json
import os
import pathlib
import re
import shutil
import socket
import ssl
import subprocess
import sys
import tempfile
import threading
import time
import unittest
import urllib.error
import urllib.request
from collections.abc import Iterator

from rendering import ROOT, Release, merged, render
from refusals import GATEWAY

DEADLINE_S = 30
# The user and the group of the pod, if this runs as root, who may start programs as others.
IS_ROOT = os.geteuid() == 0
USER, GROUP = (65532, 65532) if IS_ROOT else (os.geteuid(), os.getegid())
ZONE = {"config": {"zone": [{"id": "SITE", "admit_per_minute": 600}]}}


def eventually(what: str, is_true) -> None:
    """Waits until the condition holds, for at most DEADLINE_S."""
    until, pause = time.monotonic() + DEADLINE_S, threading.Event()
    while not is_true():
        if time.monotonic() > until:
            raise AssertionError(f"not within {DEADLINE_S} s: {what}")
        pause.wait(0.02)


def ask(url: str, body: dict | None = None, host: str | None = None) -> tuple[int, str]:
    """The status and the text of a reply. Certificates are not checked here."""
    about = ssl.create_default_context()
    about.check_hostname, about.verify_mode = False, ssl.CERT_NONE
    headers = {"Content-Type": "application/json"} | ({"Host": host} if host else {})
    request = urllib.request.Request(url, json.dumps(body).encode() if body is not None else None, headers)
    try:
        with urllib.request.urlopen(request, timeout=DEADLINE_S, context=about) as reply:
            return reply.status, reply.read().decode()
    except urllib.error.HTTPError as fault:
        return fault.code, fault.read().decode()


class Server:
    """A running weir."""

    def __init__(self, directory: pathlib.Path, configuration: str, weir: pathlib.Path, whose: dict) -> None:
        directory.mkdir(exist_ok=True)
        file = directory / "weir.toml"
        file.write_text(configuration)
        self.log = directory / "log"
        with self.log.open("w") as log:
            environment = {name: value for name, value in os.environ.items() if not name.startswith("WEIR_")}
            arguments = [weir, "serve", "--config", file]
            self.process = subprocess.Popen(arguments, stdout=subprocess.PIPE, stderr=log, text=True, env=environment, **whose)
        self.was_stopped = False
        self.addresses: dict[str, str] = {}
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if found := re.match(r"(listening|admin|proxies ask over gRPC) on (\S+)", line):
                self.addresses[found[1].split()[0]] = found[2]
            if line.startswith("admin on"):
                break
        if "admin" not in self.addresses:
            self.process.wait(DEADLINE_S)
            raise AssertionError(self.log.read_text())

    def stop(self) -> int:
        """The signal of Kubernetes. Returns the exit code."""
        self.was_stopped = True
        self.process.terminate()
        assert self.process.stdout is not None
        self.process.stdout.close()
        return self.process.wait(DEADLINE_S)


@contextlib.contextmanager
def running(directory: pathlib.Path, configuration: str, weir: pathlib.Path | None = None) -> Iterator[Server]:
    """A server, which ends with the block. A copy of the program runs as the user of the pod."""
    whose = {"user": USER, "group": GROUP, "extra_groups": []} if weir and IS_ROOT else {}
    server = Server(directory, configuration, weir or pathlib.Path(os.environ["WEIR_BIN"]), whose)
    try:
        yield server
        if server.process.poll() is not None and not server.was_stopped:
            raise AssertionError(f"it ended by itself: {server.log.read_text()}")
    finally:
        if server.process.poll() is None:
            server.process.kill()
            server.process.wait(DEADLINE_S)
        if server.process.stdout:
            server.process.stdout.close()


@contextlib.contextmanager
def redis(directory: pathlib.Path, secrets: pathlib.Path, tls: bool) -> Iterator[int]:
    """A cluster of one node, with the users that make-secrets makes. Yields its port."""
    port = subprocess.check_output([sys.executable, ROOT / "deploy/checks/free_ports.py", "1", "10000"], text=True).strip()
    directory.mkdir()
    arguments = [os.environ.get("REDIS_SERVER", "redis-server"), str(secrets / "redis.conf"), "--bind", "127.0.0.1", "--save", ""]
    arguments += ["--cluster-enabled", "yes", "--dir", str(directory)]
    password = (secrets / "redis.password").read_text().strip()
    ask_it = [os.environ.get("REDIS_CLI", "redis-cli"), "-p", port, "--pass", password, "--no-auth-warning"]
    if tls:
        files = secrets / "redis-tls"
        arguments += ["--port", "0", "--tls-port", port, "--tls-cluster", "yes", "--tls-auth-clients", "no"]
        arguments += ["--tls-cert-file", files / "node.pem", "--tls-key-file", files / "node.key", "--tls-ca-cert-file", files / "ca.pem"]
        ask_it += ["--tls", "--cacert", str(files / "ca.pem")]
    else:
        arguments += ["--port", port]
    with (directory / "log").open("w") as log:
        process = subprocess.Popen(arguments, stdout=log, stderr=log)

    def says(*words: str) -> str:
        return subprocess.run([*ask_it, *words], capture_output=True, text=True, timeout=DEADLINE_S).stdout.strip()

    try:
        eventually(f"Redis answers: {directory}/log", lambda: says("PING") == "PONG" or process.poll() is not None)
        assert says("CLUSTER", "ADDSLOTSRANGE", "0", "16383") == "OK", (directory / "log").read_text()
        eventually("the cluster is whole", lambda: "cluster_state:ok" in says("CLUSTER", "INFO"))
        yield int(port)
    finally:
        process.kill()
        process.wait(DEADLINE_S)


# The Secrets that the typical installations name: their keys, and the files of make-secrets.
SECRETS = {
    "weir-keys": {"seal.key": "seal.key", "pass.pem": "pass.pem", "redis.password": "weir-redis.password"},
    "redis-of-weir": {"password": "weir-redis.password"},
    "redis-ca": {"ca.crt": "redis-tls/ca.pem"},
    "weir-tls": {"tls.crt": "tls.crt", "tls.key": "tls.key"},
}
# The ConfigMaps that the typical installations name: their keys, and the text of each.
CONFIG_MAPS = {"waiting-pages": {"shop-checkout": "ours", "logo.png": "PNG"}}


class Pod:
    """The directories of a pod, as the kubelet makes them from its volumes."""

    def __init__(self, release: Release, directory: pathlib.Path, secrets: pathlib.Path) -> None:
        self.release, self.directory = release, directory
        directory.mkdir()
        self.paths: dict[str, pathlib.Path] = {}
        volumes = {volume["name"]: volume for volume in release.pod["spec"]["volumes"]}
        for mount in release.container["volumeMounts"]:
            volume, place = volumes[mount["name"]], directory / mount["name"]
            if "secret" in volume:
                place.mkdir()
                for key, file in SECRETS[volume["secret"]["secretName"]].items():
                    to = place / key
                    to.write_bytes((secrets / file).read_bytes())
                    os.chown(to, -1, GROUP)
                    # A group may read keys only if root owns them.
                    to.chmod(volume["secret"]["defaultMode"] if IS_ROOT else 0o400)
            elif texts := CONFIG_MAPS.get(volume.get("configMap", {}).get("name")):
                place.mkdir()
                for item in volume["configMap"]["items"]:
                    (place / item["path"]).write_text(texts[item["key"]])
            elif "configMap" not in volume:
                place.mkdir()
                os.chown(place, -1, GROUP)
                place.chmod(0o2770)
            self.paths[mount["mountPath"]] = place

    def configuration(self, redis_port: int | None) -> str:
        text = self.release.toml
        for path, place in self.paths.items():
            text = text.replace(f'"{path}/', f'"{place}/').replace(f'"{path}"', f'"{place}"')
        text = re.sub(r'_?listen = "0\.0\.0\.0:\d+"', lambda found: re.sub(r"0\.0\.0\.0:\d+", "127.0.0.1:0", found[0]), text)
        if redis_port:
            text = re.sub(r'^store = "([a-z-]+)://.*"', rf'store = "\1://127.0.0.1:{redis_port}"', text, flags=re.MULTILINE)
        return text

    def mount_again(self, policy: str) -> None:
        """What the kubelet does to a volume when a pod starts: the group of the pod gets rights to all its files."""
        volume = self.paths["/var/lib/weir"]
        root = volume.stat()
        if policy == "OnRootMismatch" and root.st_gid == GROUP and root.st_mode & 0o2770 == 0o2770:
            return
        for file in volume.rglob("*"):
            os.chown(file, -1, GROUP)
            file.chmod(file.stat().st_mode | (0o2770 if file.is_dir() else 0o660))


class Serving(unittest.TestCase):
    @classmethod
    def setUpClass(cls) -> None:
        cls.enterClassContext(contextlib.chdir(cls.enterClassContext(tempfile.TemporaryDirectory())))
        cls.secrets = pathlib.Path.cwd() / "secrets"
        # Another user can enter this directory, and run the program from it.
        pathlib.Path.cwd().chmod(0o711)
        cls.addClassCleanup(os.umask, os.umask(0o022))
        cls.weir = pathlib.Path(shutil.copy(os.environ["WEIR_BIN"], pathlib.Path.cwd()))
        environment = os.environ | {"TLS": "yes"}
        subprocess.run([ROOT / "deploy/make-secrets", cls.secrets, "127.0.0.1:1"], env=environment, check=True, capture_output=True)
        made = ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2"]
        made += ["-subj", "/CN=weir", "-addext", "subjectAltName=DNS:weir.internal.example"]
        subprocess.run([*made, "-keyout", cls.secrets / "tls.key", "-out", cls.secrets / "tls.crt"], check=True, capture_output=True)

    def pod(self, release: Release) -> Pod:
        return Pod(release, pathlib.Path.cwd() / self.id().rpartition(".")[2], self.secrets)

    def probes_pass(self, release: Release, server: Server) -> None:
        for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
            path = release.container[probe]["httpGet"]["path"]
            # The kubelet and Prometheus ask by the pod's address.
            eventually(f"{path} is 200", lambda path=path: ask(server.addresses["admin"] + path, host="10.1.2.3:8081")[0] == 200)

    def stops(self, release: Release, server: Server) -> None:
        began = time.monotonic()
        self.assertEqual(server.stop(), 0, server.log.read_text())
        self.assertLess(time.monotonic() - began, release.pod["spec"]["terminationGracePeriodSeconds"])

    def test_one_server_keeps_its_places_and_keys_over_restarts(self) -> None:
        release = render(merged(ZONE, {"config": {"zone": [{"id": "SITE", "mode": "hold"}]}}), installation="single")
        pod = self.pod(release)
        policy = release.pod["spec"]["securityContext"]["fsGroupChangePolicy"]
        token, keys = "", []
        for _ in range(2):
            pod.mount_again(policy)
            with running(pod.directory, pod.configuration(None), self.weir) as server:
                self.probes_pass(release, server)
                status, text = ask(server.addresses["listening"] + "/.well-known/jwks.json")
                keys.append(json.loads(text))
                # A test's zone is not the one that has its own page, and the log says so.
                self.assertEqual(ask(server.addresses["listening"] + "/wait-assets/logo.png"), (200, "PNG"))
                self.assertIn("nobody sees shop:checkout.html", server.log.read_text())
                if token:
                    status, text = ask(server.addresses["listening"] + "/traffic/entry", {"zoneId": "SITE", "token": token})
                else:
                    status, text = ask(server.addresses["listening"] + "/traffic/wait", {"zoneId": "SITE"})
                self.assertEqual((status, json.loads(text)["waiting"]["rank"]), (200, 1), text)
                token = json.loads(text)["token"]
                self.stops(release, server)
        self.assertEqual(keys[0], keys[1])
        # Without the policy of the chart, the second start would fail.
        pod.mount_again("Always")
        with self.assertRaisesRegex(AssertionError, "other users may read or change this key"):
            with running(pod.directory, pod.configuration(None), self.weir):
                pass

    def test_several_servers_are_one_waiting_room(self) -> None:
        self.several("cluster", tls=False)

    def test_servers_behind_envoy_speak_tls(self) -> None:
        self.several("gateway", tls=True)

    def several(self, installation: str, tls: bool) -> None:
        release = render(merged(ZONE, {"config": {"zone": [{"id": "SITE", "mode": "hold"}], "route": None}}), installation=installation)
        pod = self.pod(release)
        with redis(pod.directory / "redis-server", self.secrets, tls) as port, contextlib.ExitStack() as stack:
            places = [pod.directory / "1", pod.directory / "2"]
            servers = [stack.enter_context(running(place, pod.configuration(port), self.weir)) for place in places]
            for server in servers:
                self.probes_pass(release, server)
                self.assertEqual(server.addresses["listening"].partition(":")[0], "https" if tls else "http")
            status, text = ask(servers[0].addresses["listening"] + "/traffic/wait", {"zoneId": "SITE"})
            self.assertEqual(status, 200, text)
            place = {"zoneId": "SITE", "token": json.loads(text)["token"]}
            status, text = ask(servers[1].addresses["listening"] + "/traffic/entry", place)
            self.assertEqual((status, json.loads(text)["waiting"]["rank"]), (200, 1), text)
            self.metrics_exist(servers[0])
            if tls:
                self.speaks_http2(servers[0].addresses["proxies"])
            for server in servers:
                self.stops(release, server)
                self.assertNotIn("ERROR", server.log.read_text())

    def metrics_exist(self, server: Server) -> None:
        """The HPA asks for these."""
        _, text = ask(server.addresses["admin"] + "/metrics", host="10.1.2.3:8081")
        every = {"autoscaling": {"enabled": True, "connections": 1, "pollingPeriodS": 1}}
        scaling = render(every, installation="cluster").one("HorizontalPodAutoscaler")["spec"]["metrics"]
        names = [metric["pods"]["metric"]["name"] for metric in scaling if metric["type"] == "Pods"]
        self.assertEqual(len(names), 2)
        for name in names:
            self.assertRegex(text, rf"(?m)^{name} \d", "an adapter serves one number of each pod")

    def speaks_http2(self, url: str) -> None:
        host, _, port = url.rpartition("/")[2].partition(":")
        about = ssl.create_default_context(cafile=self.secrets / "tls.crt")
        about.set_alpn_protocols(["h2"])
        # The name and the authority that the chart tells Envoy to check.
        name = render(installation="gateway").one("BackendTLSPolicy")["spec"]["validation"]["hostname"]
        with socket.create_connection((host, int(port)), DEADLINE_S) as plain, about.wrap_socket(plain, server_hostname=name) as secure:
            self.assertEqual(secure.selected_alpn_protocol(), "h2")

    def test_routes_are_accepted(self) -> None:
        """With the routes of the installation, and the recipe's plain address for gRPC."""
        release = render(merged(GATEWAY, {"config": {"route": [{"zone": "TEST_ZONE"}]}}))
        pod = self.pod(release)
        with running(pod.directory, pod.configuration(None), self.weir) as server:
            self.probes_pass(release, server)
            self.assertTrue(server.addresses["proxies"].startswith("http://"))
            self.stops(release, server)
