"""Checks the Teams part of Alertmanager's configuration, and writes the rest, for an amtool that is too old to know that part:
alertmanager.py FILE >REST
"""

import pathlib
import sys

import yaml

# The fields of Alertmanager 0.28 to 0.34.
KNOWN = {"send_resolved", "http_config", "webhook_url", "webhook_url_file", "title", "summary", "text"}


def main() -> None:
    config = yaml.safe_load(pathlib.Path(sys.argv[1]).read_text())
    count = 0
    for receiver in config["receivers"]:
        for teams in receiver.pop("msteamsv2_configs", []):
            count += 1
            if unknown := teams.keys() - KNOWN:
                sys.exit(f"receiver {receiver['name']}: msteamsv2 has no {', '.join(sorted(unknown))}")
            if ("webhook_url" in teams) or "webhook_url_file" not in teams:
                sys.exit(f"receiver {receiver['name']}: the webhook of Teams is a secret, and comes from a file")
    if not count:
        sys.exit("no receiver sends to Teams")
    yaml.safe_dump(config, sys.stdout)


main()
