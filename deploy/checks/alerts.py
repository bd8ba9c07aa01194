"""Each alert has a test and a section in the runbook, and links to it; no section is without an alert: alerts.py DEPLOY"""

import pathlib
import re
import sys

import yaml


def main() -> None:
    deploy = pathlib.Path(sys.argv[1])
    rules = yaml.safe_load((deploy / "prometheus/rules/alerts.yml").read_text())
    alerts = {rule["alert"]: rule for group in rules["groups"] for rule in group["rules"]}
    # The alerts that a test expects to fire. All others must stay quiet.
    tests = yaml.safe_load((deploy / "prometheus/tests/alerts.yml").read_text())
    fired = {
        name
        for test in tests["tests"]
        for asked in test.get("promql_expr_test", [])
        for sample in asked["exp_samples"]
        for name in re.findall(r'alertname="(\w+)"', sample["labels"])
    }
    pages = set(re.findall(r"^### (\w+)$", (deploy / "runbook.md").read_text(), re.MULTILINE))
    faults = [f"{name} fires in no test" for name in alerts.keys() - fired]
    faults += [f"{name} has no section `### {name}` in runbook.md" for name in alerts.keys() - pages]
    faults += [f"runbook.md has a section {name}, but there is no such alert" for name in pages - alerts.keys()]
    for name, rule in alerts.items():
        if rule["labels"].get("severity") not in ("critical", "warning", "info"):
            faults.append(f"{name} has no severity that is routed")
        if rule["annotations"].get("runbook_url") != "{{ $externalLabels.runbook }}#" + name.lower():
            faults.append(f"{name} does not link to its section")
        for annotation in ("summary", "description"):
            if not rule["annotations"].get(annotation):
                faults.append(f"{name} has no {annotation}")
    if faults:
        sys.exit("\n".join(faults))
    print(f"{len(alerts)} alerts: each fires in a test, and has its section in the runbook")


main()
