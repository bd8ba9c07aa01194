"""What a platform engineer asks before an installation: what happens at an upgrade, at the drain of a node, when the crowd comes, and when
the network allows only what the policy names.

Invariant: each check holds for every typical installation, and for the values that change it.
"""

import unittest

import yaml
from installations import installations
from rendering import CHART, SHARED, Release, merged, render
from refusals import GATEWAY

NATS = {"config": {"fanout": "nats://nats.nats.svc:4222"}}
TLS = {"tls": {"secret": "a", "dnsNames": ["weir.example"]}}


def varied() -> dict[str, Release]:
    """Every typical installation, and others that switch something on or off."""
    releases = {name: render(installation=name) for name in installations()}
    releases["the defaults"] = render()
    releases["one server with Redis"] = render(SHARED)
    releases["long drain"] = render(merged(SHARED, {"config": {"drain_deadline_s": 600}}))
    releases["no drain deadline"] = render(merged(SHARED, {"config": {"drain_deadline_s": None}}))
    releases["embedded store, gateway, TLS"] = render(merged(GATEWAY, TLS))
    releases["next keys"] = render(merged(SHARED, {"keys": {"nextSeal": "seal-2.key", "previousPass": "pass-0.pem"}}))
    return releases


class Upgrades(unittest.TestCase):
    def test_a_pod_that_ends_has_time_for_its_drain(self) -> None:
        for name, release in varied().items():
            pause = release.container.get("lifecycle", {}).get("preStop", {}).get("sleep", {}).get("seconds", 0)
            drain = release.configuration.get("drain_deadline_s", 20)
            self.assertGreaterEqual(release.pod["spec"]["terminationGracePeriodSeconds"], pause + drain + 10, name)
            # Several servers wait for the load balancers. One alone only would be away for longer.
            self.assertEqual(pause > 0, release.servers["kind"] == "Deployment", name)

    def test_no_server_goes_before_another_is_ready(self) -> None:
        strategy = render(SHARED).one("Deployment")["spec"]["strategy"]
        self.assertEqual(strategy["rollingUpdate"], {"maxSurge": 1, "maxUnavailable": 0})
        probes = render(SHARED).container
        self.assertEqual(probes["startupProbe"]["httpGet"]["path"], "/readyz")
        self.assertEqual(probes["readinessProbe"]["httpGet"]["path"], "/healthz")

    def test_two_servers_never_write_one_volume(self) -> None:
        release = render()
        volumes = [volume.get("persistentVolumeClaim") for volume in release.pod["spec"]["volumes"]]
        claims = [volume["claimName"] for volume in volumes if volume]
        self.assertEqual(claims, [release.one("PersistentVolumeClaim")["metadata"]["name"]])
        # A Deployment would start the new pod while the old one still runs.
        self.assertEqual(release.servers["kind"], "StatefulSet")
        governing = [service for service in release.all("Service") if service["spec"].get("clusterIP") == "None"]
        self.assertEqual([service["metadata"]["name"] for service in governing], [release.servers["spec"]["serviceName"]])

    def test_the_volume_outlives_the_release(self) -> None:
        kept = render().one("PersistentVolumeClaim")["metadata"]["annotations"]
        self.assertEqual(kept["helm.sh/resource-policy"], "keep")

    def test_only_a_changed_configuration_or_image_restarts_pods(self) -> None:
        was = render(SHARED).pod
        self.assertEqual(render(merged(SHARED, {"replicas": 5, "service": {"type": "NodePort"}})).pod, was)
        self.assertNotEqual(render(merged(SHARED, {"config": {"log": "debug"}})).pod, was)
        other_image = render(merged(SHARED, {"image": {"tag": "0.1.1"}})).pod
        self.assertEqual(other_image["metadata"], was["metadata"])
        self.assertNotEqual(other_image["spec"], was["spec"])


    def test_fields_that_kubernetes_does_not_let_change_stay(self) -> None:
        for kind in ("Deployment", "StatefulSet"):
            fixed = set()
            for name, release in varied().items():
                if release.servers["kind"] == kind:
                    free = ("replicas", "template", "strategy", "revisionHistoryLimit")
                    fixed.add(str({key: value for key, value in release.servers["spec"].items() if key not in free}))
            self.assertEqual(len(fixed), 1, fixed)

    def test_the_pod_needs_no_rights(self) -> None:
        """What Kubernetes calls restricted."""
        for name, release in varied().items():
            pod, container = release.pod["spec"], release.container
            self.assertTrue(pod["securityContext"]["runAsNonRoot"], name)
            self.assertEqual(pod["securityContext"]["seccompProfile"], {"type": "RuntimeDefault"}, name)
            self.assertEqual(container["securityContext"]["capabilities"], {"drop": ["ALL"]}, name)
            self.assertFalse(container["securityContext"]["allowPrivilegeEscalation"], name)
            self.assertTrue(container["securityContext"]["readOnlyRootFilesystem"], name)
            self.assertFalse(pod["automountServiceAccountToken"], name)
            kinds = {kind for volume in pod["volumes"] for kind in volume if kind != "name"}
            self.assertLessEqual(kinds, {"configMap", "secret", "emptyDir", "persistentVolumeClaim"}, name)


class Budget(unittest.TestCase):
    def test_no_budget_keeps_a_node_from_being_drained(self) -> None:
        for name, release in varied().items():
            budgets = release.all("PodDisruptionBudget")
            self.assertEqual(len(budgets), release.servers["kind"] == "Deployment", name)
            for budget in budgets:
                self.assertNotIn("minAvailable", budget["spec"], name)
                self.assertEqual(budget["spec"]["maxUnavailable"], 1, name)


class Scaling(unittest.TestCase):
    def test_an_upgrade_does_not_undo_the_scaling(self) -> None:
        release = render(merged(SHARED, {"autoscaling": {"enabled": True}, "replicas": 7}))
        self.assertNotIn("replicas", release.servers["spec"])
        target = release.one("HorizontalPodAutoscaler")["spec"]["scaleTargetRef"]
        self.assertEqual((target["kind"], target["name"]), (release.servers["kind"], release.servers["metadata"]["name"]))
        self.assertEqual(render(merged(SHARED, {"replicas": 7})).servers["spec"]["replicas"], 7)

    def test_it_scales_on_what_is_asked(self) -> None:
        def metrics(**autoscaling: int) -> dict:
            release = render(merged(SHARED, {"autoscaling": {"enabled": True, **autoscaling}}))
            found = release.one("HorizontalPodAutoscaler")["spec"]["metrics"]
            return {
                (metric.get("resource") or metric["pods"]["metric"])["name"]: (metric.get("resource") or metric["pods"])["target"]
                for metric in found
            }

        self.assertEqual(metrics(), {"cpu": {"type": "Utilization", "averageUtilization": 50}})
        both = metrics(connections=20000, pollingPeriodS=6)
        self.assertEqual(both["weir_connections_open"], {"type": "AverageValue", "averageValue": "20000"})
        self.assertEqual(both["weir_polling_period_seconds"], {"type": "AverageValue", "averageValue": "6"})

    def test_the_processor_time_that_it_measures_is_requested(self) -> None:
        self.assertIn("cpu", render(installation="cluster").container["resources"]["requests"])


class Network(unittest.TestCase):
    def egress(self, values: dict) -> dict[int, list[dict]]:
        """The peers by port; no peers means everywhere."""
        policy = render(values).one("NetworkPolicy")["spec"]
        self.assertEqual(policy["policyTypes"], ["Ingress", "Egress"])
        return {port["port"]: rule.get("to", []) for rule in policy["egress"] for port in rule["ports"]}

    def test_dns_is_reachable_over_udp_and_tcp(self) -> None:
        for name, release in varied().items():
            first = release.one("NetworkPolicy")["spec"]["egress"][0]["ports"]
            self.assertEqual({port["protocol"] for port in first if port["port"] == 53}, {"UDP", "TCP"}, name)

    def test_each_port_of_redis_is_reachable(self) -> None:
        def ports(store: str, **policy: object) -> set[int]:
            return set(self.egress(merged(SHARED, {"store": store, "networkPolicy": policy}))) - {53}

        self.assertEqual(ports("redis://redis.redis.svc:6379"), {6379})
        self.assertEqual(ports("rediss-cluster://a.example:7001,10.0.0.7:7002,[fd00::6379]:7003,b.example:7001"), {7001, 7002, 7003})
        self.assertEqual(ports("redis://redis.redis.svc:6379/0"), {6379})
        self.assertEqual(ports("redis-sentinel://s:26379?service=a:1,b:2", redisPorts=[26379, 6379]), {26379, 6379})
        self.assertEqual(set(self.egress({})), {53}, "the embedded store needs no Redis")

    def test_relays_of_drand_are_reachable_where_an_event_needs_them(self) -> None:
        def ports(**more: object) -> set[int]:
            times = {"prequeue_from": "2031-12-01T08:30:00Z", "begins": "2031-12-01T09:00:00Z", "ends": "2031-12-01T12:00:00Z"}
            event = {"id": "sale", **times, **more}
            return set(self.egress({"config": {"zone": [{"id": "Z", "event": [event]}]}}))

        self.assertEqual(ports(order="draw"), {53, 443})
        self.assertEqual(ports(order="draw", randomness="drand"), {53, 443})
        self.assertEqual(ports(order="draw", randomness="stated: six dice"), {53})
        self.assertEqual(ports(), {53})
        self.assertEqual(set(self.egress({"networkPolicy": {"drand": True}})), {53, 443}, "events that are made later")

    def test_redis_may_be_anywhere_until_peers_are_named(self) -> None:
        self.assertEqual(self.egress(SHARED)[6379], [])
        peers = [{"ipBlock": {"cidr": "10.0.0.0/28"}}]
        self.assertEqual(self.egress(merged(SHARED, {"networkPolicy": {"redisTo": peers}}))[6379], peers)

    def test_nats_is_reachable_if_it_is_used(self) -> None:
        self.assertIn(4222, self.egress(merged(SHARED, NATS)))
        self.assertNotIn(4222, self.egress(SHARED))

    def test_a_collector_is_reachable_and_its_headers_are_in_a_secret(self) -> None:
        of_config = {"config": {"otlp": {"endpoint": "http://collector.monitoring.svc:4318/base", "sample": 0.00005}}}
        values = merged(SHARED, of_config, {"otlp": {"headersSecret": {"name": "collector"}}})
        self.assertIn(4318, self.egress(values))
        self.assertNotIn(4318, self.egress(SHARED))
        release = render(values)
        otlp = release.configuration["otlp"]
        self.assertEqual(otlp["sample"], 0.00005)
        self.assertEqual(otlp["headers_file"], "/etc/weir/otlp/headers")
        mounted = {mount["name"]: mount["mountPath"] for mount in release.container["volumeMounts"]}
        self.assertEqual(mounted["otlp"], "/etc/weir/otlp")
        secrets = [volume["secret"] for volume in release.pod["spec"]["volumes"] if volume["name"] == "otlp"]
        self.assertEqual([(secret["secretName"], secret["items"][0]["key"]) for secret in secrets], [("collector", "headers")])
        whole = {"config": {"otlp": {"sample": 1}}}
        self.assertEqual(render(merged(values, whole)).configuration["otlp"]["sample"], 1)

    def test_each_port_of_the_pod_has_its_rule(self) -> None:
        for name, release in varied().items():
            rules = release.one("NetworkPolicy")["spec"]["ingress"]
            ports = [port["port"] for rule in rules for port in rule["ports"]]
            self.assertEqual(sorted(ports), sorted(port["name"] for port in release.container["ports"]), name)
            # Only the address for apps is for everybody.
            self.assertFalse([rule for rule in rules if "from" not in rule and rule["ports"] != [{"port": "public"}]], name)

    def test_it_can_be_left_out(self) -> None:
        self.assertEqual(render({"networkPolicy": {"enabled": False}}).all("NetworkPolicy"), [])


class Files(unittest.TestCase):
    def test_each_file_that_the_configuration_names_is_mounted(self) -> None:
        def paths(part: object) -> list[str]:
            if isinstance(part, dict):
                return [path for value in part.values() for path in paths(value)]
            return [part] if isinstance(part, str) and part.startswith("/") else []

        for name, release in varied().items():
            volumes = {volume["name"]: volume for volume in release.pod["spec"]["volumes"]}
            mounts = {mount["mountPath"]: volumes[mount["name"]] for mount in release.container["volumeMounts"]}
            self.assertEqual(len(mounts), len(volumes), name)
            for path in paths(release.configuration):
                directory, _, file = path.rpartition("/")
                volume = mounts.get(path) or mounts[directory]
                items = volume.get("secret", {}).get("items")
                self.assertIn(file, [item["path"] for item in items] if items else [file], name)

    def test_templates_are_a_directory(self) -> None:
        def mounted(**templates: object) -> dict:
            target = [{"zone": "TEST_ZONE", "url": "https://shop.example/"}]
            release = render({"templates": templates, "config": {"wait": {"target": target}}})
            (mount,) = (mount for mount in release.container["volumeMounts"] if mount["name"] == "templates")
            self.assertNotIn("subPath", mount)
            self.assertEqual(release.configuration["wait"], {"templates_dir": mount["mountPath"], "target": target})
            (volume,) = (volume for volume in release.pod["spec"]["volumes"] if volume["name"] == "templates")
            return volume["configMap"]

        # A key of a ConfigMap cannot have the name of an event's page.
        files = {"sale": "shop:checkout@spring-sale.html", "logo.png": "logo.png"}
        items = [{"key": key, "path": path} for key, path in sorted(files.items())]
        self.assertEqual(mounted(configMap="pages", files=files), {"name": "pages", "items": items})
        self.assertEqual(mounted(configMap="pages"), {"name": "pages"})
        self.assertNotIn("wait", render().configuration)

    def test_secrets_are_files_that_weir_accepts(self) -> None:
        for name, release in varied().items():
            self.assertNotIn("env", release.container, name)
            self.assertEqual(release.pod["spec"]["securityContext"]["fsGroup"], 65532, name)
            for volume in release.pod["spec"]["volumes"]:
                if "secret" in volume:
                    # 0440: root owns the file, and the group of the server may read it.
                    self.assertEqual(volume["secret"]["defaultMode"], 0o440, name)

    def test_a_renewed_certificate_arrives(self) -> None:
        (mount,) = (mount for mount in render(TLS).container["volumeMounts"] if mount["name"] == "tls")
        self.assertNotIn("subPath", mount)

    def test_the_keys_of_a_change_are_named(self) -> None:
        configuration = varied()["next keys"].configuration
        self.assertEqual(configuration["seal"], {"key_file": "/etc/weir/keys/seal.key", "next_key_file": "/etc/weir/keys/seal-2.key"})
        self.assertEqual(configuration["pass"], {"key_file": "/etc/weir/keys/pass.pem", "previous_key_file": "/etc/weir/keys/pass-0.pem"})


class Addresses(unittest.TestCase):
    def test_the_image_is_the_one_of_the_values(self) -> None:
        version = yaml.safe_load((CHART / "Chart.yaml").read_text())["appVersion"]
        self.assertEqual(render().container["image"], f"registry.example/weir:{version}")
        ours = {"repository": "registry.ours:5000/weir", "tag": "0.1.1", "digest": "sha256:" + "a" * 64, "pullSecrets": ["ours"]}
        release = render({"image": ours})
        self.assertEqual(release.container["image"], "registry.ours:5000/weir:0.1.1@sha256:" + "a" * 64)
        self.assertEqual(release.pod["spec"]["imagePullSecrets"], [{"name": "ours"}])

    def test_services_lead_to_ports_of_the_pod(self) -> None:
        for name, release in varied().items():
            ports = {port["name"]: port["containerPort"] for port in release.container["ports"]}
            for service in release.all("Service"):
                for port in service["spec"]["ports"]:
                    self.assertIn(port["targetPort"], ports, name)
            listeners = {"public": "listen", "admin": "admin_listen", "grpc": "gate_grpc_listen"}
            for port, number in ports.items():
                self.assertEqual(release.configuration[listeners[port]], f"0.0.0.0:{number}", name)
            for probe in ("startupProbe", "readinessProbe", "livenessProbe"):
                self.assertEqual(release.container[probe]["httpGet"]["port"], "admin", name)

    def test_the_port_says_whether_there_is_tls(self) -> None:
        self.assertEqual(render().all("Service")[0]["spec"]["ports"][0]["port"], 80)
        release = render(merged(GATEWAY, TLS))
        self.assertEqual(release.all("Service")[0]["spec"]["ports"][0]["port"], 443)
        # Envoy takes this word for HTTP/2 without TLS.
        self.assertNotIn("appProtocol", release.all("Service")[2]["spec"]["ports"][0])
        self.assertEqual(release.one("BackendTLSPolicy")["spec"]["validation"]["hostname"], "weir.example")

    def test_prometheus_scrapes_each_pod_once(self) -> None:
        release = render({"serviceMonitor": {"enabled": True}})
        self.assertNotIn("prometheus.io/scrape", release.pod["metadata"]["annotations"])
        self.assertEqual(render().pod["metadata"]["annotations"]["prometheus.io/scrape"], "true")
        monitor = release.one("ServiceMonitor")["spec"]
        chosen = [
            service for service in release.all("Service")
            if monitor["selector"]["matchLabels"].items() <= service["metadata"]["labels"].items()
        ]  # fmt: skip
        self.assertEqual([service["metadata"]["name"] for service in chosen], ["weir-admin"])
        self.assertEqual(monitor["endpoints"][0]["port"], chosen[0]["spec"]["ports"][0]["name"])

    def test_load_balancers_keep_the_clients_addresses(self) -> None:
        for kind in ("LoadBalancer", "NodePort"):
            service = render({"service": {"type": kind}}).all("Service")[0]["spec"]
            self.assertEqual((service["type"], service["externalTrafficPolicy"]), (kind, "Local"))
        self.assertNotIn("externalTrafficPolicy", render().all("Service")[0]["spec"])

    def test_routes_of_several_namespaces_have_a_policy_and_a_grant_each(self) -> None:
        routes = [{"name": "a", "namespace": "weir"}, {"name": "b", "namespace": "one"}, {"name": "c", "namespace": "two"}]
        release = render(merged(GATEWAY, {"gateway": {"routes": routes}}))
        policies = {policy["metadata"]["namespace"]: policy["spec"] for policy in release.all("SecurityPolicy")}
        targets = {place: [target["name"] for target in policy["targetRefs"]] for place, policy in policies.items()}
        self.assertEqual(targets, {"weir": ["a"], "one": ["b"], "two": ["c"]})
        self.assertEqual([peer["namespace"] for peer in release.one("ReferenceGrant")["spec"]["from"]], ["one", "two"])
        own = render(merged(GATEWAY, {"gateway": {"routes": [{"name": "a", "namespace": "weir"}]}}))
        self.assertEqual(own.all("ReferenceGrant"), [])
