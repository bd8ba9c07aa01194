"""Writes deploy/helm/weir/values.schema.json: schema.py ROOT FILE

The settings of `config` come from the references of the book, which the program writes itself. So the chart knows each setting, with its
type and its range, and a new one needs no change here. Settings that the chart writes are left out.

Invariant: no value that reaches a manifest outside of a quoted text may have a character that means something in YAML.
"""

import json
import pathlib
import re
import sys

# The chart writes these from other values.
CHARTS = {
    "listen", "admin_listen", "gate_grpc_listen", "store", "data_dir", "tls.certificate", "tls.key", "redis.password_file", "redis.ca_file",
    "otlp.headers_file", "wait.templates_dir",
    *(f"{table}.{which}key_file" for table in ("seal", "pass") for which in ("", "next_", "previous_")),
}
# These need files or volumes that the chart does not provide, or would be secrets in a ConfigMap.
REFUSED = {
    "redis.password", "redis.sentinel_user", "redis.sentinel_password_file", "redis.certificate_file",
    "redis.key_file", "audit.dir", "audit.file_mb", "otlp.headers",
}
# The words of settings that the reference calls texts.
WORDS = {
    "log_format": ["text", "json"],
    "pass.algorithm": ["ES256", "EdDSA", "RS256"],
    "redis.client": ["fred", "redis-rs"],
    "redis.durability": ["async", "replicated"],
}


def a_text(pattern: str | None = None, **more: object) -> dict:
    return {"type": "string", **({"pattern": pattern} if pattern else {}), **more}


def a_number(low: int, high: int) -> dict:
    return {"type": "integer", "minimum": low, "maximum": high}


def a_list(items: dict, **more: object) -> dict:
    return {"type": "array", "items": items, **more}


def an_object(fields: dict, **more: object) -> dict:
    return {"type": "object", "additionalProperties": False, "properties": fields, **more}


def a_table(values: dict, **more: object) -> dict:
    return {"type": "object", "additionalProperties": values, **more}


# Texts inside the file are not empty.
TEXT = a_text(minLength=1)
NAME = a_text(r"^[a-z0-9]([-a-z0-9.]*[a-z0-9])?$", maxLength=253)
NAME_OR_NONE = a_text(r"^([a-z0-9]([-a-z0-9.]*[a-z0-9])?)?$", maxLength=253)
FILE = a_text(r"^[A-Za-z0-9_][-._A-Za-z0-9]*$", maxLength=253)
FILE_OR_NONE = a_text(r"^([A-Za-z0-9_][-._A-Za-z0-9]*)?$", maxLength=253)
TEMPLATE = a_text(r"^[A-Za-z0-9_:-][A-Za-z0-9_.:@-]*$", maxLength=255)
NAMESPACE = a_text(r"^[a-z0-9]([-a-z0-9]*[a-z0-9])?$", maxLength=63)
PORT = a_number(1, 65535)
SHA256 = a_text("^[0-9a-f]{64}$")
FLAG = {"type": "boolean"}
NOTICE = a_table(a_text(minLength=1, maxLength=500), maxProperties=8)
PEERS = a_list({"type": "object"})


def or_none(schema: dict) -> dict:
    """null takes back what other values say."""
    kind = {"enum": [*schema["enum"], None]} if "enum" in schema else {"type": [schema["type"], "null"]}
    return {**schema, **kind}


def rows(page: str) -> list[list[str]]:
    """The cells of all tables of a page, without the heads."""
    lines = [line for line in page.splitlines() if re.match(r"\| `", line)]
    return [[cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]] for line in lines]


def setting(name: str, value: str, what: str) -> dict:
    if name in WORDS:
        return {"enum": WORDS[name], "description": what}
    if value.startswith("list"):
        return a_list(TEXT, description=what)
    if value == "text":
        return {**TEXT, "description": what}
    if value == "share from 0 to 1":
        return {"type": "number", "minimum": 0, "maximum": 1, "description": what}
    if number := re.fullmatch(r"(\d+) to (\d+)", value):
        return {**a_number(int(number[1]), int(number[2])), "description": what}
    sys.exit(f"docs/reference/settings.md: the value of {name} is {value}, and schema.py does not know that")


def settings(page: str) -> dict:
    fields: dict = {}
    unknown = (CHARTS | REFUSED) - {row[0].strip("`") for row in rows(page)}
    if unknown:
        sys.exit(f"docs/reference/settings.md has no {', '.join(sorted(unknown))}: remove them from schema.py")
    for name, what, value, *_ in rows(page):
        name = name.strip("`")
        if name in CHARTS | REFUSED:
            continue
        table, _, field = name.rpartition(".")
        of = fields.setdefault(table, an_object({}))["properties"] if table else fields
        of[field] = setting(name, value, what)
    return fields


def policy(page: str) -> dict:
    fields = {}
    for name, unit, allowed, default, meaning in rows(page):
        name = name.strip("`")
        if number := re.fullmatch(r"([\d,]+) to ([\d,]+)", allowed):
            fields[name] = a_number(*(int(end.replace(",", "")) for end in number.groups()))
        elif allowed.startswith("an instant"):
            fields[name] = {**TEXT}
        else:
            fields[name] = {"enum": re.findall(r"`(\w+)`", allowed)}
        fields[name]["description"] = meaning
    return fields


def zones(page: str) -> dict:
    rules = policy(page)
    around = {"enum": ["usual", "hold", "closed"]}
    event = {
        "id": TEXT, "prequeue_from": TEXT, "begins": TEXT, "ends": TEXT, "before": around, "after": around,
        "before_page": TEXT, "after_page": TEXT,
        "admit_per_minute": rules["admit_per_minute"], "max_active": rules["max_active"], "notice": NOTICE,
        "order": {"enum": ["arrival", "draw"]}, "randomness": TEXT, "fallback": {"enum": ["wait", "arrival"]},
    }
    of_zone = {
        "id": a_text("^[A-Za-z0-9_.:-]{1,64}$"), **rules, "notice": NOTICE,
        "event": a_list(an_object(event, required=["id", "prequeue_from", "begins", "ends"]), maxItems=32),
    }
    return a_list(an_object(of_zone, required=["id"]), maxItems=4096)


def routes() -> dict:
    patterns = {"anyOf": [TEXT, a_list(TEXT)]}
    # A template refuses `secret`, with a sentence that says what to write instead.
    of_name = a_table({"anyOf": [TEXT, a_list(TEXT), an_object({"sha256": SHA256, "secret": {"type": "string"}})]})
    fields = {name: patterns for name in ("host", "path", "method", "address", "token")}
    fields |= {name: of_name for name in ("header", "cookie")}
    fields |= {name: FLAG for name in ("everything", "bind_address")}
    fields |= {name: {"const": True} for name in ("bypass", "deny")}
    return a_list(an_object({"name": TEXT, "zone": TEXT, **fields}), maxItems=1024)


def config(root: pathlib.Path) -> dict:
    pages = root / "docs/reference"
    fields = settings((pages / "settings.md").read_text())
    fields["zone"] = zones((pages / "policy.md").read_text())
    fields["route"] = routes()
    token = an_object(
        {"name": a_text("^[A-Za-z0-9_.@-]{1,64}$"), "role": {"enum": ["viewer", "shop", "operator", "admin"]}, "sha256": SHA256},
        required=["name", "role", "sha256"],
    )
    fields["admin_token"] = a_list(token)
    target = an_object({"zone": TEXT, "url": TEXT, "by": TEXT}, required=["zone", "url"])
    fields["wait"] = an_object({"target": a_list(target, maxItems=4096)})
    return an_object({name: or_none(field) for name, field in fields.items()})


def values(root: pathlib.Path) -> dict:
    secret = an_object({"name": NAME_OR_NONE, "key": FILE})
    file_names = {name: FILE for name in ("seal", "pass")}
    file_names |= {name: FILE_OR_NONE for name in ("nextSeal", "previousSeal", "nextPass", "previousPass")}
    return an_object(
        {
            "image": an_object(
                {
                    "repository": a_text("^[a-z0-9][a-z0-9._:/-]*$"),
                    "tag": a_text("^([A-Za-z0-9_][A-Za-z0-9_.-]{0,127})?$"),
                    "digest": a_text("^(sha256:[0-9a-f]{64})?$"),
                    "pullSecrets": a_list(NAME),
                }
            ),
            "replicas": a_number(1, 256),
            "store": a_text(r"^(memory|rediss?(-cluster|-sentinel)?://\S+)$"),
            "redis": an_object({"passwordSecret": secret, "caSecret": secret}),
            "otlp": an_object({"headersSecret": secret}),
            "keys": an_object({"existingSecret": NAME_OR_NONE, "create": FLAG, **file_names}),
            "tls": an_object(
                {
                    "secret": NAME_OR_NONE,
                    "issuer": an_object({"name": NAME_OR_NONE, "kind": {"enum": ["Issuer", "ClusterIssuer"]}}),
                    "dnsNames": a_list(a_text(r"^(\*\.)?[a-z0-9]([-a-z0-9.]*[a-z0-9])?$", maxLength=253)),
                }
            ),
            "templates": an_object({"configMap": NAME_OR_NONE, "files": a_table(TEMPLATE, propertyNames=FILE)}),
            "config": config(root),
            "persistence": an_object({"size": a_text("^[1-9][0-9]*(Mi|Gi|Ti)$"), "storageClass": NAME_OR_NONE}),
            "service": an_object({"type": {"enum": ["ClusterIP", "NodePort", "LoadBalancer"]}, "annotations": a_table({"type": "string"})}),
            "resources": {"type": "object"},
            "autoscaling": an_object(
                {
                    "enabled": FLAG, "minReplicas": a_number(1, 256), "maxReplicas": a_number(1, 256),
                    "cpuUtilization": a_number(1, 100), "connections": a_number(0, 1_000_000), "pollingPeriodS": a_number(0, 60),
                }
            ),
            "serviceMonitor": an_object({"enabled": FLAG, "labels": a_table({"type": "string"}), "intervalS": a_number(1, 3600)}),
            "networkPolicy": an_object(
                {"enabled": FLAG, "publicFrom": PEERS, "adminFrom": PEERS, "dnsTo": PEERS, "redisTo": PEERS, "redisPorts": a_list(PORT), "drand": FLAG}
            ),
            "gateway": an_object(
                {
                    "routes": a_list(an_object({"name": NAME, "namespace": NAMESPACE}, required=["name", "namespace"])),
                    "proxyNamespace": NAMESPACE,
                }
            ),
            # Helm adds it where this chart is a part of another one.
            "global": {"type": "object"},
        }
    )


def main() -> None:
    root, file = map(pathlib.Path, sys.argv[1:])
    schema = {"$schema": "https://json-schema.org/draft/2020-12/schema", "title": "The values of Weir's chart", **values(root)}
    file.write_text(json.dumps(schema, indent=1, ensure_ascii=False) + "\n")


main()
