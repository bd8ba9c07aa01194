"""Names of releases: long ones, odd ones, and several releases in one namespace.

Invariants: all names and labels are such that Kubernetes accepts them; two releases share no object; no selector chooses pods of another
release.
"""

import itertools
import unittest

from pods import TLS
from refusals import GATEWAY
from rendering import SHARED, Release, merged, render

# Helm allows 53 characters, dots, and digits at the beginning.
LONG = "a" * 52
NAMES = ["weir", "a", "a-weir", "weir-weir", "1e3", "007", "true", "a.b", "a-b", LONG + "a", LONG + "b", "a" * 46, "a" * 45]
NAMES += [("a-" * 27)[:53], ("a." * 27)[:53]]

SHARED_AND_MORE = merged(SHARED, GATEWAY, TLS, {"autoscaling": {"enabled": True}, "serviceMonitor": {"enabled": True}})


def selectors(release: Release) -> list[dict]:
    """The labels by which parts choose pods."""
    found = [service["spec"]["selector"] for service in release.all("Service")]
    found += [part["spec"]["selector"]["matchLabels"] for part in [release.servers, *release.all("PodDisruptionBudget")]]
    found += [policy["spec"]["podSelector"]["matchLabels"] for policy in release.all("NetworkPolicy")]
    spread = release.pod["spec"].get("topologySpreadConstraints", [])
    return found + [constraint["labelSelector"]["matchLabels"] for constraint in spread]


class Names(unittest.TestCase):
    def setUp(self) -> None:
        self.releases = [(name, render(values, name, "1e3")) for name in NAMES for values in ({}, SHARED_AND_MORE)]

    def test_kubernetes_accepts_them(self) -> None:
        for name, release in self.releases:
            for part in release.parts:
                about = part["metadata"]
                # The strictest: a Service is the name of a host. A policy in another namespace begins with its own.
                self.assertRegex(about["name"].removeprefix("1e3."), "^[a-z]([-a-z0-9]{0,61}[a-z0-9])?$", name)
                self.assertIsInstance(about["namespace"], str)
                for value in about["labels"].values():
                    self.assertIsInstance(value, str, name)
                    self.assertRegex(value, r"^([A-Za-z0-9]([-A-Za-z0-9_.]*[A-Za-z0-9])?)?$", name)
                    self.assertLessEqual(len(value), 63, name)
            if release.servers["kind"] == "StatefulSet":
                # Its pods get a label with the name and a digest of ten characters.
                self.assertLessEqual(len(release.servers["metadata"]["name"]) + 11, 63, name)

    def test_long_tags_make_labels(self) -> None:
        for tag in ("a" * 62 + "-b", "_x", "1e3", "0.1.0"):
            label = render({"image": {"tag": tag}}).servers["metadata"]["labels"]["app.kubernetes.io/version"]
            self.assertRegex(label, "^[A-Za-z0-9]([-A-Za-z0-9_.]{0,61}[A-Za-z0-9])?$")
            self.assertIn(label, tag)

    def test_two_releases_of_one_namespace_share_nothing(self) -> None:
        for (one, its), (other, others) in itertools.combinations(self.releases, 2):
            if one == other:
                continue
            first = {(part["kind"], part["metadata"]["namespace"], part["metadata"]["name"]) for part in its.parts}
            second = {(part["kind"], part["metadata"]["namespace"], part["metadata"]["name"]) for part in others.parts}
            self.assertEqual(first & second, set(), f"{one} and {other}")
            for selector in selectors(its):
                self.assertFalse(selector.items() <= others.pod["metadata"]["labels"].items(), f"{one} and {other}")

    def test_each_selector_chooses_its_own_pods(self) -> None:
        for name, release in self.releases:
            chosen = selectors(release)
            self.assertGreaterEqual(len(chosen), 4, name)
            for selector in chosen:
                self.assertLessEqual(selector.items(), release.pod["metadata"]["labels"].items(), name)

    def test_releases_of_two_namespaces_may_have_routes_in_one(self) -> None:
        releases = [("weir", "one"), ("weir", "two"), ("weir", "default"), ("b-c", "a"), ("c", "a-b")]
        names = [render(GATEWAY, name, namespace).one("SecurityPolicy")["metadata"]["name"] for name, namespace in releases]
        self.assertEqual(len(set(names)), len(releases), names)

    def test_parts_name_each_other_rightly(self) -> None:
        for name, release in self.releases:
            services = {service["metadata"]["name"] for service in release.all("Service")}
            for policy in release.all("SecurityPolicy"):
                (backend,) = policy["spec"]["extAuth"]["grpc"]["backendRefs"]
                self.assertIn(backend["name"], services, name)
            for policy in release.all("BackendTLSPolicy"):
                self.assertIn(policy["spec"]["targetRefs"][0]["name"], services, name)
            configs = [volume["configMap"]["name"] for volume in release.pod["spec"]["volumes"] if "configMap" in volume]
            self.assertEqual(configs, [release.one("ConfigMap")["metadata"]["name"]], name)
            self.assertEqual(release.pod["spec"]["serviceAccountName"], release.one("ServiceAccount")["metadata"]["name"], name)
