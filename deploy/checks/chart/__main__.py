"""Checks the Helm chart: deploy/check chart [--write | NAME...]

--write writes values.schema.json and the golden files again. A name selects tests, as in `Refusals`.
Needs helm and kubeconform in PATH, HELM_TOOLS (the directory of the downloaded schemas; scripts/lib/downloads.sh makes it), WEIR_BIN,
redis-server, redis-cli, openssl, and the Python packages of deploy/checks/requirements.txt. `deploy/check` provides them.
"""

import subprocess
import sys
import unittest

import installations
import names
import pods
import refusals
import serving
import upgrades
from rendering import CHART, ROOT


def main() -> None:
    words = sys.argv[1:]
    if words == ["--write"]:
        subprocess.run([sys.executable, ROOT / "deploy/helm/schema.py", ROOT, CHART / "values.schema.json"], check=True)
        installations.write()
        return
    modules = [installations, names, pods, refusals, serving, upgrades]
    loader = unittest.TestLoader()
    loader.testNamePatterns = [f"*{word}*" for word in words] or None
    suite = unittest.TestSuite(loader.loadTestsFromModule(module) for module in modules)
    result = unittest.TextTestRunner(verbosity=1).run(suite)
    sys.exit(not result.wasSuccessful() or result.testsRun == 0)


main()
