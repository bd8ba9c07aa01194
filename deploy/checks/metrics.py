"""Every metric in a rule or a dashboard, with every label that selects it, is reported by servers and exporters:
metrics.py DEPLOY FILE... (the files are replies of /metrics)
"""

import json
import pathlib
import re
import sys

import promql_parser
import yaml

# Metrics that Prometheus makes.
OWN = {"up": {"job", "instance"}, "ALERTS": {"alertname", "alertstate", "severity"}}
# Labels that Prometheus adds to every metric.
ADDED = {"job", "instance", "__name__"}
SAMPLE = re.compile(r"([a-zA-Z_:][a-zA-Z0-9_:]*)(?:\{(.*)\})? ")
LABEL = re.compile(r'([a-zA-Z_][a-zA-Z0-9_]*)="')


def answered(files: list[str]) -> dict[str, set[str]]:
    """The labels of each metric."""
    found: dict[str, set[str]] = {}
    for file in files:
        for line in pathlib.Path(file).read_text().splitlines():
            if not line.startswith("#") and (sample := SAMPLE.match(line)):
                found.setdefault(sample[1], set()).update(LABEL.findall(sample[2] or ""))
    return found


def selectors(query: str):
    """The vector selectors of a query."""
    found = []

    def see(node) -> bool:
        if isinstance(node, promql_parser.MatrixSelector):
            found.append(node.vector_selector)
        elif isinstance(node, promql_parser.VectorSelector):
            found.append(node)
        return True

    promql_parser.walk(promql_parser.parse(query), see)
    return found


def rules(deploy: pathlib.Path):
    for file in sorted((deploy / "prometheus/rules").glob("*.yml")):
        for group in yaml.safe_load(file.read_text())["groups"]:
            for rule in group["rules"]:
                yield file.name, rule


def queries(deploy: pathlib.Path):
    """The place of each query, and the query with values for Grafana's variables."""
    for name, rule in rules(deploy):
        yield f"{name}: {rule.get('record') or rule.get('alert')}", rule["expr"]
    for file in sorted((deploy / "grafana/dashboards").glob("*.json")):
        dashboard = json.loads(file.read_text())
        for variable in dashboard["templating"]["list"]:
            inner = re.fullmatch(r"label_values\((.*), (\w+)\)", variable["query"]["query"])
            yield f"{file.name}: ${variable['name']}", f'{inner[1]}{{{inner[2]}=~".*"}}'
        for note in dashboard["annotations"]["list"]:
            yield f"{file.name}: {note['name']}", note["target"]["expr"]
        for panel in dashboard["panels"]:
            for target in panel.get("targets", []):
                yield f"{file.name}: {panel['title']}", re.sub(r"\$\w+", "x", target["expr"])


def main() -> None:
    deploy, files = pathlib.Path(sys.argv[1]), sys.argv[2:]
    there, faults, used = answered(files), [], set()
    # The name of a recorded series begins with its labels.
    there |= {rule["record"]: set(rule["record"].split(":")[0].split("_")) for _, rule in rules(deploy) if "record" in rule}
    count = 0
    for where, query in queries(deploy):
        count += 1
        for selector in selectors(query):
            name = selector.name
            used.add(name)
            if name not in there and name not in OWN:
                faults.append(f"{where}: no server or exporter reports {name}")
                continue
            labels = OWN.get(name, set()) | there.get(name, set()) | ADDED
            for matcher in selector.matchers.matchers:
                if matcher.name not in labels:
                    faults.append(f"{where}: {name} has no label {matcher.name}; it has {', '.join(sorted(labels))}")
    # A metric that no rule or dashboard uses is not a fault, but it is printed.
    silent = sorted(name for name in there if name.startswith("weir_") and name not in used and not name.endswith(("_sum", "_count", "_bucket")))
    if faults:
        sys.exit("\n".join(faults))
    print(f"{count} queries name {len(used)} metrics, and all are there; shown nowhere: {', '.join(silent) or 'none'}")


main()
