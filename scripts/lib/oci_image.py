#!/usr/bin/env python3
"""Writes, unpacks and describes an OCI image. It needs no rights and no container engine.

  oci_image.py write CONTAINERFILE STAGE PROCESSOR DATE ARCHIVE
                                          the last stage of the Containerfile, as an archive of an OCI layout. STAGE is a directory that
                                          holds the files of the stage `build`, PROCESSOR is x86_64 or aarch64. Prints the digest.
  oci_image.py unpack ARCHIVE DIRECTORY   the root file system: DIRECTORY/root, and the configuration: DIRECTORY/config.json
  oci_image.py describe ARCHIVE           the configuration and all files, as JSON that can be compared

Invariants: the same files and the same date give the same bytes, whatever the time and the order of the files are. An instruction
that this script does not know is an error. Each blob that is read has the digest and the size that its descriptor names.
"""
import gzip
import hashlib
import io
import json
import pathlib
import re
import shlex
import sys
import tarfile
import time

MANIFEST = "application/vnd.oci.image.manifest.v1+json"
CONFIG = "application/vnd.oci.image.config.v1+json"
LAYER = "application/vnd.oci.image.layer.v1.tar+gzip"
NAME = "org.opencontainers.image.ref.name"
ARCHITECTURES = {"x86_64": "amd64", "aarch64": "arm64"}
# What an image says about the program. Other fields of the configuration are of the tool that wrote it.
FIELDS = ("User", "ExposedPorts", "Env", "Entrypoint", "Cmd", "StopSignal", "Volumes", "WorkingDir", "Healthcheck")


def fail(what):
    sys.exit(f"oci_image.py: {what}")


def last_stage(containerfile):
    """The instructions of the last stage."""
    lines = re.sub(r"\\\n", " ", pathlib.Path(containerfile).read_text())
    lines = [line.strip() for line in lines.splitlines() if line.strip() and not line.strip().startswith("#")]
    words = [line.split(None, 1) for line in lines]
    first = max(at for at, (name, _) in enumerate(words) if name.upper() == "FROM")
    if words[first][1] != "scratch":
        fail(f"{containerfile}: the last stage is not FROM scratch")
    return [(name.upper(), rest) for name, rest in words[first + 1 :]]


def entries(stage, source, target, owner):
    """The files of COPY, by their names in the image: (path on disk, owner)."""
    source = pathlib.Path(stage) / source.lstrip("/")
    if not source.is_dir():
        fail(f"COPY of {source}: only directories are supported")
    found = {}
    target = target.strip("/")
    for path in [source, *source.rglob("*")]:
        if not (path.is_dir() or path.is_file()) or path.is_symlink():
            fail(f"{path} is neither a file nor a directory")
        name = "/".join(part for part in (target, path.relative_to(source).as_posix()) if part not in ("", "."))
        found[name] = (path, owner)
    return found


def read_instructions(containerfile, stage):
    # Every builder gives this path to an image from scratch.
    config, files = {"Env": ["PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"]}, {}
    for name, rest in last_stage(containerfile):
        if name == "COPY":
            words = shlex.split(rest)
            options = dict(word[2:].split("=", 1) for word in words if word.startswith("--"))
            paths = [word for word in words if not word.startswith("--")]
            owner = options.pop("chown", "0:0")
            if options != {"from": "build"} or len(paths) != 2 or not re.fullmatch(r"\d+:\d+", owner):
                fail(f"COPY {rest}: only `COPY --from=build [--chown=UID:GID] FROM TO` is supported")
            files |= entries(stage, *paths, tuple(map(int, owner.split(":"))))
        elif name == "ENV":
            config["Env"].extend(shlex.split(rest))
        elif name == "EXPOSE":
            config.setdefault("ExposedPorts", {}).update({f"{port}/tcp": {} for port in rest.split()})
        elif name in ("ENTRYPOINT", "CMD"):
            config[name.capitalize()] = json.loads(rest)
        elif name in ("USER", "STOPSIGNAL"):
            config["User" if name == "USER" else "StopSignal"] = rest
        else:
            fail(f"{containerfile}: the last stage has an instruction that is not supported: {name} {rest}")
    return config, files


def layer(files, date):
    out = io.BytesIO()
    with tarfile.open(fileobj=out, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for name in sorted(files):
            path, (uid, gid) = files[name]
            info = tarfile.TarInfo(name)
            info.mode, info.mtime, info.uid, info.gid = path.stat().st_mode & 0o7777, date, uid, gid
            if path.is_dir():
                info.type = tarfile.DIRTYPE
                tar.addfile(info)
            else:
                content = path.read_bytes()
                info.size = len(content)
                tar.addfile(info, io.BytesIO(content))
    return out.getvalue()


def write(containerfile, stage, processor, date, archive):
    config, files = read_instructions(containerfile, stage)
    date = int(date)
    created = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(date))
    plain = layer(files, date)
    blobs = {}

    def blob(media_type, content):
        digest = hashlib.sha256(content).hexdigest()
        blobs[f"blobs/sha256/{digest}"] = content
        return {"mediaType": media_type, "digest": f"sha256:{digest}", "size": len(content)}

    def document(value):
        return json.dumps(value, sort_keys=True, separators=(",", ":")).encode()

    packed = blob(LAYER, gzip.compress(plain, compresslevel=9, mtime=0))
    described = {
        "architecture": ARCHITECTURES.get(processor) or fail(f"unknown processor {processor}"),
        "os": "linux",
        "created": created,
        "config": config,
        "rootfs": {"type": "layers", "diff_ids": ["sha256:" + hashlib.sha256(plain).hexdigest()]},
        "history": [{"created": created, "created_by": "deploy/Containerfile, by scripts/build-image"}],
    }
    manifest = {"schemaVersion": 2, "mediaType": MANIFEST, "config": blob(CONFIG, document(described)), "layers": [packed]}
    top = blob(MANIFEST, document(manifest)) | {"annotations": {NAME: "weir"}}
    blobs["index.json"] = document({"schemaVersion": 2, "manifests": [top]})
    blobs["oci-layout"] = document({"imageLayoutVersion": "1.0.0"})
    with tarfile.open(archive, mode="w", format=tarfile.PAX_FORMAT) as tar:
        for name in sorted(blobs):
            info = tarfile.TarInfo(name)
            info.mode, info.mtime, info.size = 0o644, date, len(blobs[name])
            tar.addfile(info, io.BytesIO(blobs[name]))
    print(top["digest"])


def read(archive):
    """The configuration, and the layers as open tar files."""
    with tarfile.open(archive) as tar:
        content = {name.removeprefix("./"): tar.extractfile(name).read() for name in tar.getnames() if tar.getmember(name).isfile()}
    if json.loads(content["oci-layout"])["imageLayoutVersion"] != "1.0.0":
        fail(f"{archive}: another version of the layout")

    def blob(descriptor):
        algorithm, digest = descriptor["digest"].split(":")
        found = content[f"blobs/{algorithm}/{digest}"]
        if hashlib.new(algorithm, found).hexdigest() != digest or len(found) != descriptor["size"]:
            fail(f"{archive}: the blob {digest} has another digest or size")
        return found

    (top,) = json.loads(content["index.json"])["manifests"]
    manifest = json.loads(blob(top))
    described = json.loads(blob(manifest["config"]))
    layers = []
    for descriptor, expected in zip(manifest["layers"], described["rootfs"]["diff_ids"], strict=True):
        plain = blob(descriptor)
        if descriptor["mediaType"].endswith("+gzip"):
            plain = gzip.decompress(plain)
        if "sha256:" + hashlib.sha256(plain).hexdigest() != expected:
            fail(f"{archive}: a layer has not the content that the configuration names")
        layers.append(tarfile.open(fileobj=io.BytesIO(plain)))
    return described, layers


def unpack(archive, directory):
    described, layers = read(archive)
    root = pathlib.Path(directory) / "root"
    root.mkdir(parents=True)
    for tar in layers:
        for member in tar:
            if not (member.isdir() or member.isfile()) or ".." in pathlib.PurePath(member.name).parts:
                fail(f"{archive}: {member.name} is neither a file nor a directory of the image")
        # Newer versions of Python would leave out owners and modes.
        tar.extraction_filter = lambda member, _: member
        tar.extractall(root, numeric_owner=True)
    (pathlib.Path(directory) / "config.json").write_text(json.dumps(described))


def describe(archive):
    described, layers = read(archive)
    files = {}
    for tar in layers:
        for member in tar:
            content = tar.extractfile(member).read() if member.isfile() else b""
            files[member.name.strip("/")] = {
                "type": "file" if member.isfile() else "directory" if member.isdir() else member.type.decode(),
                "mode": oct(member.mode & 0o7777),
                "owner": f"{member.uid}:{member.gid}",
                "date": int(member.mtime),
                "sha256": hashlib.sha256(content).hexdigest(),
            }
    config = {name: described["config"][name] for name in FIELDS if described["config"].get(name)}
    whole = {"architecture": described["architecture"], "os": described["os"], "config": config, "files": files}
    json.dump(whole, sys.stdout, indent=1, sort_keys=True)
    print()


COMMANDS = {"write": (write, 5), "unpack": (unpack, 2), "describe": (describe, 1)}
command, count = COMMANDS.get(sys.argv[1] if len(sys.argv) > 1 else "", (None, 0))
if command is None or len(sys.argv) != 2 + count:
    fail(__doc__)
command(*sys.argv[2:])
