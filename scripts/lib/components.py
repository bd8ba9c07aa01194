#!/usr/bin/env python3
"""What a program of Weir is made of.

  components.py sbom NAME PROCESSOR FILE DATE [NAME=VERSION…]   the components of the program FILE, as CycloneDX 1.6 in JSON
  components.py notices NAME…                                   the licences of all components of the programs, with their texts

NAME is weir or loadgen, DATE is in seconds since 1970, and NAME=VERSION are data that are shipped with the program.

Invariants: the answer follows from Cargo.lock, the sources and the arguments, whenever it is made. cargo says which crates are linked into the
program (`required`); crates that only run while it is compiled are `excluded`. A crate without a licence is an error.
"""
import functools
import hashlib
import json
import pathlib
import subprocess
import sys
import time
import tomllib
import uuid

TRIPLE = "{}-unknown-linux-musl"
NOTICES = ("LICENSE*", "LICENCE*", "COPYING*", "COPYRIGHT*", "NOTICE*", "UNLICENSE*", "license*")
# The longest text of a licence that is read, in bytes.
LONGEST = 200_000


def fail(what):
    sys.exit(f"components.py: {what}")


def cargo(*arguments):
    return subprocess.run(["cargo", *arguments, "--locked"], check=True, capture_output=True, text=True).stdout


@functools.cache
def metadata(triple):
    return json.loads(cargo("metadata", "--format-version", "1", "--filter-platform", triple))


def crates(name, triple, edges):
    """The crates of a program as (name, version), by the kinds of dependencies that are followed."""
    tree = cargo("tree", "--package", name, "--target", triple, "--edges", edges, "--prefix", "none", "--format", "{p}")
    return {(words[0], words[1].removeprefix("v")) for line in tree.splitlines() if len(words := line.split()) >= 2}


def checksums():
    """The SHA-256 of each crate of the registry, by name and version."""
    packages = tomllib.loads(pathlib.Path("Cargo.lock").read_text())["package"]
    return {(package["name"], package["version"]): package["checksum"] for package in packages if "checksum" in package}


def expression(package):
    # Old manifests write a slash for "or".
    written = package["license"] or fail(f"{package['name']} {package['version']} names no licence")
    return " ".join(written.replace("/", " OR ").split())


def component(package, checksum, scope):
    name, version = package["name"], package["version"]
    of = {
        "type": "library",
        "bom-ref": f"pkg:cargo/{name}@{version}",
        "name": name,
        "version": version,
        "scope": scope,
        "licenses": [{"expression": expression(package)}],
    }
    if checksum:
        # Crates of this project are in no registry.
        of |= {"purl": of["bom-ref"], "hashes": [{"alg": "SHA-256", "content": checksum}]}
    if package["description"]:
        of["description"] = " ".join(package["description"].split())
    return of


def tools():
    """Libraries that cargo does not list: the standard library, and the C library of ziglang."""
    rust = subprocess.run(["rustc", "--version"], check=True, capture_output=True, text=True).stdout.split()[1]
    pinned = pathlib.Path(__file__).with_name("release-requirements.txt").read_text()
    zig = next(line.split("==")[1].split()[0] for line in pinned.splitlines() if line.startswith("ziglang=="))
    return [
        {"type": "library", "bom-ref": f"rust-std@{rust}", "name": "rust-std", "version": rust, "scope": "required",
         "licenses": [{"expression": "Apache-2.0 OR MIT"}], "description": "The standard library of Rust"},
        {"type": "library", "bom-ref": f"musl@ziglang-{zig}", "name": "musl", "version": f"ziglang-{zig}", "scope": "required",
         "licenses": [{"expression": "MIT"}], "description": "The C library musl, as this version of ziglang has it"},
    ]


def sbom(name, processor, file, date, *data):
    triple = TRIPLE.format(processor)
    whole = crates(name, triple, "normal,build")
    linked = crates(name, triple, "normal,no-proc-macro")
    sums = checksums()
    packages = {package["id"]: package for package in metadata(triple)["packages"]}
    ids = {of: id for id, package in packages.items() if (of := (package["name"], package["version"])) in whole}
    if missing := whole - ids.keys():
        fail(f"cargo metadata does not know {sorted(missing)}")
    root = ids[next(of for of in whole if of[0] == name)]
    components, edges = [], {}
    for of, id in ids.items():
        if id != root:
            components.append(component(packages[id], sums.get(of), "required" if of in linked else "excluded"))
    for node in metadata(triple)["resolve"]["nodes"]:
        if node["id"] in ids.values():
            # Dependencies of tests are of another kind.
            used = [dep["pkg"] for dep in node["deps"] if dep["pkg"] in ids.values() and any(kind["kind"] != "dev" for kind in dep["dep_kinds"])]
            edges[reference(packages[node["id"]])] = sorted(reference(packages[id]) for id in used)
    for one in data:
        of, version = one.split("=", 1)
        components.append({"type": "data", "bom-ref": f"pkg:pypi/{of}@{version}", "purl": f"pkg:pypi/{of}@{version}", "name": of, "version": version})
    components += tools()
    content = hashlib.sha256(pathlib.Path(file).read_bytes()).hexdigest()
    document = {
        "bomFormat": "CycloneDX",
        "specVersion": "1.6",
        "version": 1,
        "metadata": {
            "timestamp": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(int(date))),
            "component": {
                "type": "application",
                "bom-ref": reference(packages[root]),
                "name": name,
                "version": packages[root]["version"],
                "description": packages[root]["description"],
                "licenses": [{"expression": expression(packages[root])}],
                "hashes": [{"alg": "SHA-256", "content": content}],
                "properties": [{"name": "target", "value": triple}],
            },
        },
        "components": sorted(components, key=lambda of: of["bom-ref"]),
        "dependencies": [{"ref": ref, "dependsOn": edges[ref]} for ref in sorted(edges)],
    }
    # The number of the document follows from what it says.
    document["serialNumber"] = uuid.uuid5(uuid.NAMESPACE_URL, json.dumps(document, sort_keys=True)).urn
    json.dump(document, sys.stdout, indent=1, sort_keys=True)
    print()


def reference(package):
    return f"pkg:cargo/{package['name']}@{package['version']}"


def texts(package):
    """The texts of a crate's licences, by name of the file. A crate may have the code of others in directories below."""
    found = {}
    folder = pathlib.Path(package["manifest_path"]).parent
    for pattern in NOTICES:
        for path in [*folder.glob(pattern), *folder.glob(f"*/{pattern}")]:
            if path.is_file() and path.stat().st_size <= LONGEST:
                found[path.relative_to(folder).as_posix()] = path.read_text(errors="replace").strip()
    return dict(sorted(found.items()))


def notices(*names):
    """One text for both processors: the crates of either."""
    parts, seen = [], {}
    packages = {}
    for triple in map(TRIPLE.format, ("x86_64", "aarch64")):
        linked = set().union(*(crates(name, triple, "normal,no-proc-macro") for name in names))
        packages |= {of: package for package in metadata(triple)["packages"] if (of := (package["name"], package["version"])) in linked and package["source"]}
    for (name, version), package in sorted(packages.items()):
        lines = [f"{name} {version}: {expression(package)}"]
        for file, text in texts(package).items():
            digest = hashlib.sha256(" ".join(text.split()).encode()).digest()
            if digest in seen:
                lines.append(f"{file}: the same text as {seen[digest]}")
            else:
                seen[digest] = f"{file} of {name} {version}"
                lines.append(f"{file}:\n\n{text}\n")
        parts.append("\n".join(lines))
    for of in tools():
        parts.append(f"{of['name']} {of['version']}: {of['licenses'][0]['expression']}")
    rule = "\n\n" + "=" * 80 + "\n\n"
    print(f"The programs contain these components. Their licences ask for this notice.{rule}{rule.join(parts)}")


COMMANDS = {"sbom": (sbom, 4), "notices": (notices, 1)}
command, least = COMMANDS.get(sys.argv[1] if len(sys.argv) > 1 else "", (None, 0))
if command is None or len(sys.argv) < 2 + least:
    fail(__doc__)
command(*sys.argv[2:])
