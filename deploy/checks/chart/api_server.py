"""The least of a Kubernetes API server that Helm needs for install, upgrade, rollback and uninstall: discovery, and objects in memory.

It checks nothing, runs no pods, and knows no defaults. So it proves what Helm writes and keeps, and nothing about the manifests.

Invariant: an object is stored as it was sent, by its path.
"""

import base64
import json
import pathlib
import threading
import uuid
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from urllib.parse import parse_qs, urlsplit

import yaml

# By group and version: kind and plural.
RESOURCES = {
    "v1": {
        "Namespace": "namespaces", "Secret": "secrets", "ConfigMap": "configmaps", "Service": "services",
        "ServiceAccount": "serviceaccounts", "PersistentVolumeClaim": "persistentvolumeclaims",
    },
    "apps/v1": {"Deployment": "deployments", "StatefulSet": "statefulsets"},
    "autoscaling/v2": {"HorizontalPodAutoscaler": "horizontalpodautoscalers"},
    "networking.k8s.io/v1": {"NetworkPolicy": "networkpolicies"},
    "policy/v1": {"PodDisruptionBudget": "poddisruptionbudgets"},
}  # fmt: skip
MAX_BODY = 4 << 20
PROTOBUF_MAGIC = b"k8s\0"


def fields(text: bytes) -> list[tuple[int, bytes]]:
    """The fields of a message in protobuf. Helm's own objects have texts, tables and messages only, and numbers that do not matter."""

    def number(at: int) -> tuple[int, int]:
        value = shift = 0
        while True:
            byte = text[at]
            value, at, shift = value | (byte & 0x7F) << shift, at + 1, shift + 7
            if byte < 0x80:
                return value, at

    found, at = [], 0
    while at < len(text):
        key, at = number(at)
        length, at = number(at)
        if key & 7 == 2:
            found.append((key >> 3, text[at : at + length]))
            at += length
        elif key & 7:
            raise ValueError(f"a field of the wire type {key & 7}")
    return found


def a_table(entries: list[bytes]) -> dict[str, bytes]:
    pairs = [dict(fields(entry)) for entry in entries]
    return {pair[1].decode(): pair.get(2, b"") for pair in pairs}


def of_protobuf(text: bytes) -> dict:
    """A Secret, which is what Helm keeps its releases in. Its client sends these in protobuf, and reads JSON."""
    secret = fields(dict(fields(text.removeprefix(PROTOBUF_MAGIC)))[2])
    about = fields(dict(secret)[1])
    labels = a_table([value for field, value in about if field == 11])
    data = a_table([value for field, value in secret if field == 2])
    return {
        "apiVersion": "v1",
        "kind": "Secret",
        "metadata": {"name": dict(about)[1].decode(), "labels": {name: value.decode() for name, value in labels.items()}},
        "data": {name: base64.b64encode(value).decode() for name, value in data.items()},
        "type": dict(secret)[3].decode(),
    }


def merge(onto: dict, patch: dict) -> dict:
    made = dict(onto)
    for key, value in patch.items():
        if value is None:
            made.pop(key, None)
        else:
            made[key] = merge(made.get(key) or {}, value) if isinstance(value, dict) else value
    return made


class Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    # A reply is one packet: two would wait for each other's confirmation.
    wbufsize = -1
    disable_nagle_algorithm = True
    server: "ApiServer"

    def log_message(self, format: str, *arguments: object) -> None:
        pass

    def reply(self, status: int, body: dict) -> None:
        text = json.dumps(body).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(text)))
        self.end_headers()
        self.wfile.write(text)

    def no(self, status: int, reason: str) -> None:
        about = {"reason": reason, "message": f"{reason}: {self.path}", "code": status}
        self.reply(status, {"kind": "Status", "apiVersion": "v1", "status": "Failure", **about})

    def sent(self) -> bytes:
        return self.rfile.read(min(int(self.headers.get("Content-Length") or 0), MAX_BODY))

    def body(self) -> dict:
        text = self.sent()
        return of_protobuf(text) if text.startswith(PROTOBUF_MAGIC) else yaml.safe_load(text) or {}

    def discovery(self, path: str) -> dict | None:
        groups = [name for name in RESOURCES if "/" in name]
        if path == "/version":
            return {"major": "1", "minor": "37", "gitVersion": "v1.37.0"}
        if path == "/api":
            return {"kind": "APIVersions", "versions": ["v1"]}
        if path == "/apis":
            versions = [{"groupVersion": name, "version": name.rpartition("/")[2]} for name in groups]
            pairs = [(name.partition("/")[0], version) for name, version in zip(groups, versions)]
            named = [{"name": name, "versions": [version], "preferredVersion": version} for name, version in pairs]
            return {"kind": "APIGroupList", "apiVersion": "v1", "groups": named}
        name = path.removeprefix("/apis/").removeprefix("/api/")
        if name not in RESOURCES:
            return None
        kinds = RESOURCES[name].items()
        verbs = ["create", "delete", "get", "list", "patch", "update"]
        resources = [
            {"name": plural, "singularName": kind.lower(), "namespaced": kind != "Namespace", "kind": kind, "verbs": verbs}
            for kind, plural in kinds
        ]
        return {"kind": "APIResourceList", "apiVersion": "v1", "groupVersion": name, "resources": resources}

    def do_GET(self) -> None:
        address = urlsplit(self.path)
        if (found := self.discovery(address.path)) is not None:
            return self.reply(200, found)
        with self.server.lock:
            objects = self.server.objects
            if address.path in objects:
                return self.reply(200, objects[address.path])
            if address.path.endswith("/secrets"):
                wanted = [pair.split("=", 1) for pair in parse_qs(address.query).get("labelSelector", [""])[0].split(",") if "=" in pair]
                items = [
                    part for path, part in objects.items()
                    if path.startswith(address.path + "/")
                    and all(part["metadata"].get("labels", {}).get(key) == value.lstrip("=") for key, value in wanted)
                ]  # fmt: skip
                return self.reply(200, {"kind": "SecretList", "apiVersion": "v1", "metadata": {}, "items": items})
        return self.no(404, "NotFound")

    def store(self, path: str, made: dict) -> None:
        about = made.setdefault("metadata", {})
        about.setdefault("uid", str(uuid.uuid4()))
        about["resourceVersion"] = str(self.server.count())
        self.server.objects[path] = made

    def do_POST(self) -> None:
        path, made = urlsplit(self.path).path, self.body()
        path = f"{path}/{made['metadata']['name']}"
        with self.server.lock:
            if path in self.server.objects:
                return self.no(409, "AlreadyExists")
            self.store(path, made)
        return self.reply(201, made)

    def do_PUT(self) -> None:
        path, made = urlsplit(self.path).path, self.body()
        with self.server.lock:
            self.store(path, made)
        return self.reply(200, made)

    def do_PATCH(self) -> None:
        path, patch = urlsplit(self.path).path, self.body()
        with self.server.lock:
            was = self.server.objects.get(path)
            applied = "apply-patch" in self.headers["Content-Type"]
            if was is None and not applied:
                return self.no(404, "NotFound")
            self.store(path, patch if applied else merge(was or {}, patch))
            return self.reply(200 if was else 201, self.server.objects[path])

    def do_DELETE(self) -> None:
        self.sent()
        with self.server.lock:
            was = self.server.objects.pop(urlsplit(self.path).path, None)
        return self.reply(200, {"kind": "Status", "apiVersion": "v1", "status": "Success"}) if was else self.no(404, "NotFound")


class ApiServer(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), Handler)
        self.objects: dict[str, dict] = {"/api/v1/namespaces/weir": {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "weir"}}}
        self.lock = threading.Lock()
        self.version = 0
        self.thread = threading.Thread(target=self.serve_forever, daemon=True)
        self.thread.start()

    def count(self) -> int:
        self.version += 1
        return self.version

    def write_kubeconfig(self, file: pathlib.Path) -> None:
        cluster = {"name": "c", "cluster": {"server": f"http://127.0.0.1:{self.server_port}"}}
        context = {"name": "c", "context": {"cluster": "c", "user": "u"}}
        parts = {"clusters": [cluster], "contexts": [context], "users": [{"name": "u", "user": {}}], "current-context": "c"}
        file.write_text(json.dumps({"apiVersion": "v1", "kind": "Config", **parts}))
        file.chmod(0o600)

    def stop(self) -> None:
        self.shutdown()
        self.thread.join()
        self.server_close()
