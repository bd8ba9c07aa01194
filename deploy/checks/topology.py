"""Checks of the compose files, the manifests and the image that no schema makes: topology.py ROOT

The image's context contains all that the build reads. Named files exist. Images have a version; Grafana's is the one whose types the
dashboards are checked against, and the build's Rust is the project's. All ways to run the cluster start Redis by the same script.
No configuration trusts a whole network as proxies, and Weir's servers are not the default user of Redis.
"""

import ipaddress
import json
import pathlib
import re
import sys
import tomllib

import yaml


def main() -> None:
    root = pathlib.Path(sys.argv[1])
    deploy = root / "deploy"
    faults = []

    versions = {}
    for file in sorted((deploy / "compose").glob("*.yaml")):
        compose = yaml.safe_load(file.read_text())
        environment = {}
        for line in (deploy / "compose").glob("*.env"):
            environment |= dict(pair.split("=", 1) for pair in line.read_text().split())
        for name, service in compose["services"].items():
            image = service["image"]
            where = f"{file.name}: {name}"
            if not image.startswith("${"):
                repository, _, tag = image.rpartition(":")
                if not re.fullmatch(r"v?\d+\.\d+\.\d+", tag):
                    faults.append(f"{where}: {image} has no version")
                versions[repository.rpartition("/")[2]] = tag
            for key, value in {"read_only": True, "cap_drop": ["ALL"], "network_mode": "host"}.items():
                if service.get(key) != value:
                    faults.append(f"{where}: {key} is not {value}")
            for volume in service.get("volumes", []):
                source = re.sub(r"\$\{(\w+)[^}]*\}", lambda v: environment[v[1]], volume.split(":")[0] if not volume.startswith("$") else volume[: volume.index("}") + 1])
                if source.startswith("..") and not (file.parent / source).exists():
                    faults.append(f"{where}: {source} does not exist")
            known = compose.get("secrets", {})
            for secret in service.get("secrets", []):
                secret = secret if isinstance(secret, str) else secret["source"]
                if secret not in known:
                    faults.append(f"{where}: no secret {secret}")
            if name.startswith("redis-") and name != "redis-exporter" and service["command"][0] != "/deploy/start-node":
                faults.append(f"{where}: does not start by redis/start-node")
        for name, secret in compose.get("secrets", {}).items():
            if f"make {name} " not in (deploy / "make-secrets").read_text():
                faults.append(f"{file.name}: make-secrets makes no {name}")
    types = json.loads((deploy / "checks/grafana/package.json").read_text())["devDependencies"]["@grafana/schema"]
    if versions.get("grafana") != types:
        faults.append(f"compose runs Grafana {versions.get('grafana')}, and the dashboards are checked for {types}")
    if "redis/start-node" not in (deploy / "local-cluster").read_text():
        faults.append("local-cluster does not start nodes by redis/start-node")

    # A trusted proxy may claim any client's address. More than 256 addresses are not the proxies of one site.
    for file in [*sorted((deploy / "weir").glob("*.toml")), deploy / "kubernetes/base/weir.toml"]:
        text = file.read_text()
        given = tomllib.loads(text).get("trusted_proxies", [])
        given += re.findall(r'"([^"]+)"', " ".join(re.findall(r"^# trusted_proxies = \[(.*?)\]", text, re.MULTILINE)))
        for network in map(ipaddress.ip_network, given):
            if network.num_addresses > 256:
                faults.append(f"{file.relative_to(root)} trusts {network}, {network.num_addresses} addresses, as proxies")
        if "[redis]" in text and tomllib.loads(text)["redis"].get("user") != "weir":
            faults.append(f"{file.relative_to(root)}: Weir is not the user `weir` of redis/weir.acl")

    containerfile = (deploy / "Containerfile").read_text()
    rust = re.search(r'channel = "(.*)"', (root / "rust-toolchain.toml").read_text())[1]
    if f"rust:{rust}-" not in containerfile:
        faults.append(f"the Containerfile does not build with Rust {rust}")

    let_in = {line[1:].split("/")[0] for line in (deploy / "Containerfile.dockerignore").read_text().split() if line.startswith("!")}
    members = re.search(r"^members = \[(.*?)\]", (root / "Cargo.toml").read_text(), re.MULTILINE | re.DOTALL)[1]
    read = {member.split("/")[0] for member in re.findall(r'"(.*?)"', members)}
    for source in (root / "crates").rglob("*.rs"):
        for path in re.findall(r'include_(?:str|bytes)!\(\s*(?:concat!\(\s*)?"([^"]+)"', source.read_text()):
            read.add((source.parent / path).resolve().relative_to(root.resolve()).parts[0])
    for missing in sorted(read - let_in):
        faults.append(f"Containerfile.dockerignore excludes {missing}, which the build reads")

    base = deploy / "kubernetes/base"
    named = set(yaml.safe_load((base / "kustomization.yaml").read_text())["resources"])
    there = {file.name for file in base.glob("*.yaml")} - {"kustomization.yaml"}
    if named != there:
        faults.append(f"kustomization.yaml and the directory differ in {', '.join(sorted(named ^ there))}")
    parts = {}
    for name in named:
        for part in yaml.safe_load_all((base / name).read_text()):
            parts.setdefault(part["kind"], []).append(part)
    (deployment,) = parts["Deployment"]
    pod = deployment["spec"]["template"]
    labels = pod["metadata"]["labels"]
    for kind, path in {"Service": ["selector"], "PodDisruptionBudget": ["selector", "matchLabels"], "NetworkPolicy": ["podSelector", "matchLabels"]}.items():
        for part in parts[kind]:
            chosen = part["spec"]
            for step in path:
                chosen = chosen[step]
            if not chosen.items() <= labels.items():
                faults.append(f"{kind} {part['metadata']['name']} selects other pods than the Deployment makes")
    drain = int(re.search(r"^drain_deadline_s = (\d+)", (base / "weir.toml").read_text(), re.MULTILINE)[1])
    (container,) = pod["spec"]["containers"]
    before = container["lifecycle"]["preStop"]["sleep"]["seconds"]
    if pod["spec"]["terminationGracePeriodSeconds"] <= before + drain:
        faults.append(f"a pod that ends has less time than {before} s and the drain's {drain} s")
    ports = {port["name"]: port["containerPort"] for port in container["ports"]}
    for setting, port in {"listen": "public", "admin_listen": "admin"}.items():
        if f'{setting} = "0.0.0.0:{ports[port]}"' not in (base / "weir.toml").read_text().splitlines():
            faults.append(f"weir.toml listens elsewhere than at the pod's port {port}")

    if faults:
        sys.exit("\n".join(faults))
    print(f"images {', '.join(f'{name} {tag}' for name, tag in sorted(versions.items()))}; {len(named)} manifests")


main()
