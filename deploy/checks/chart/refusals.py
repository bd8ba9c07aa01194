"""Values that make no sense are refused, each with a sentence that says what to do. Odd texts, names and numbers arrive unchanged.

Invariant: no secret is in a refusal or in a ConfigMap.
"""

import unittest

from installations import accepted
from rendering import CHART, SHARED, Refused, helm, merged, render

PROXIES = {"config": {"trusted_proxies": ["10.42.7.0/24"]}}
GATEWAY = {**PROXIES, "gateway": {"routes": [{"name": "site", "namespace": "default"}]}}


def a_zone(**fields: object) -> dict:
    return {"config": {"zone": [{"id": "SITE", **fields}]}}


def a_route(**fields: object) -> dict:
    return merged(PROXIES, {"config": {"route": [{"name": "staff", **fields}]}})


class Refusals(unittest.TestCase):
    def refused(self, says: str, *values: dict) -> None:
        with self.assertRaises(Refused) as fault:
            print(render(merged(*values)).text)
        text = str(fault.exception)
        self.assertIn(says, text)
        self.assertNotIn("hunter2", text)

    def test_what_makes_no_sense_together(self) -> None:
        self.refused("replicas is 2, and the embedded store belongs to one server", {"replicas": 2})
        self.refused("autoscaling.enabled is true, and the embedded store belongs to one server", {"autoscaling": {"enabled": True}})
        self.refused("there are no keys, and servers that share a Redis need the same ones", {"store": SHARED["store"]})
        self.refused("keys.create and keys.existingSecret are both set", SHARED, {"keys": {"create": True}})
        self.refused("there are settings of Redis, and store is memory", {"config": {"redis": {"user": "weir"}}})
        self.refused("there are settings of Redis, and store is memory", {"redis": {"passwordSecret": {"name": "a"}}})
        self.refused("config.zone is empty, and the embedded store needs a zone", {"config": {"zone": []}})
        self.refused("autoscaling.minReplicas is above", SHARED, {"autoscaling": {"enabled": True, "minReplicas": 9, "maxReplicas": 8}})
        no_request = {"resources": {"requests": {"cpu": None}}}
        self.refused("resources.requests.cpu is not set", SHARED, {"autoscaling": {"enabled": True}}, no_request)
        self.refused("tls.secret and tls.issuer are both set", {"tls": {"secret": "a", "issuer": {"name": "b"}, "dnsNames": ["c"]}})
        self.refused("tls.issuer is set, and tls.dnsNames is empty", {"tls": {"issuer": {"name": "b"}}})

    def test_addresses(self) -> None:
        for store in ("redis://a", "redis://a:6379/1", "redis-cluster://a:1,b", "redis-sentinel://a:1", "redis://a:1?service=b"):
            self.refused("store is not the address of a Redis", SHARED, {"store": store})
        self.refused("/store", SHARED, {"store": "redis-ring://a:1"})
        for store in ("redis://a:1", "redis://[::1]:1/0", "rediss-cluster://a:1,b:2"):
            accepted(self, render(merged(SHARED, {"store": store})))
        sentinels = {"store": "rediss-sentinel://a:1,b:2?service=c", "networkPolicy": {"redisPorts": [1]}}
        accepted(self, render(merged(SHARED, sentinels)))
        for fanout in ("nats", "nats://a", "nats://a:1/b", "http://a:1"):
            self.refused("config.fanout must be redis, none, or nats://HOST:PORT", SHARED, {"config": {"fanout": fanout}})
        for fanout in ("redis", "none", "tls://a:1", "nats://a:1,b:2"):
            accepted(self, render(merged(SHARED, {"config": {"fanout": fanout}})))

    def test_collectors(self) -> None:
        for endpoint in ("http://a", "a:4318", "http://weir:hunter2@a:4318", "http://a:4318?key=hunter2"):
            self.refused("config.otlp.endpoint is not the address of a collector", {"config": {"otlp": {"endpoint": endpoint}}})
        self.refused("and no collector", {"config": {"otlp": {"sample": 0.1}}})
        self.refused("and no collector", {"otlp": {"headersSecret": {"name": "a"}}})
        self.refused("/config/otlp/sample", {"config": {"otlp": {"endpoint": "http://a:4318", "sample": 1.5}}})
        self.refused("headers", {"config": {"otlp": {"endpoint": "http://a:4318", "headers": "key=hunter2"}}})
        accepted(self, render({"config": {"otlp": {"endpoint": "https://a:443/base", "max_traces_per_s": 10}}}))

    def test_templates(self) -> None:
        self.refused("name the ConfigMap that has them", {"templates": {"files": {"a": "SITE.html"}}})
        self.refused("/templates/files/a", {"templates": {"configMap": "pages", "files": {"a": "../SITE.html"}}})
        self.refused("/templates/configMap", {"templates": {"configMap": "Pages"}})
        self.refused("additional properties 'templates_dir' not allowed", {"config": {"wait": {"templates_dir": "/tmp"}}})

    def test_proxies(self) -> None:
        self.refused("config.route is for proxies, and config.trusted_proxies lists none", {"config": {"route": [{"deny": True}]}})
        self.refused("Weir answers only proxies in config.trusted_proxies", GATEWAY, {"config": {"trusted_proxies": []}})
        self.refused("tls.dnsNames is empty", GATEWAY, {"tls": {"secret": "a"}})
        self.refused("it is a wildcard: put a full name first", GATEWAY, {"tls": {"secret": "a", "dnsNames": ["*.shop.example"]}})
        sentinels = merged(SHARED, {"store": "redis-sentinel://sentinel.redis.svc:26379?service=weir"})
        self.refused("networkPolicy.redisPorts", sentinels)
        render(merged(sentinels, {"networkPolicy": {"redisPorts": [26379, 6379]}}))

    def test_secrets_in_the_configmap(self) -> None:
        self.refused("put the user into config.redis.user", SHARED, {"store": "redis://weir:hunter2@redis.redis.svc:6379"})
        self.refused("config.fanout has a login", SHARED, {"config": {"fanout": "nats://weir:hunter2@nats.nats.svc:4222"}})
        for kind in ("header", "cookie"):
            says = f"config.route[0].{kind}.x-staff has a secret, which everybody could read in the ConfigMap: write sha256"
            self.refused(says, a_route(bypass=True, **{kind: {"x-staff": {"secret": "hunter2 hunter2 h"}}}))
        self.refused("additional properties 'password' not allowed", SHARED, {"config": {"redis": {"password": "hunter2"}}})

    def test_keys_without_a_cluster(self) -> None:
        made = {"store": SHARED["store"], "keys": {"create": True}}
        self.refused("keys.create asks the cluster whether the keys exist, and there is no answer", made)
        # Argo CD renders in this way: it knows what the cluster serves, and cannot ask for objects.
        with self.assertRaisesRegex(Refused, "keys.create asks the cluster whether the keys exist"):
            helm("template", "weir", str(CHART), "--api-versions", "apiregistration.k8s.io/v1", "--kube-version", "1.37.0", values=made)
        same = {"redis": {"passwordSecret": {"name": "weir-keys"}}}
        self.refused("redis.passwordSecret is the Secret that keys.create makes", made, same)

    def test_the_schema(self) -> None:
        self.refused("/config/zone/0/admit_per_minute", a_zone(admit_per_minute=-1))
        self.refused("/config/zone/0/admit_per_minute", a_zone(admit_per_minute=0))
        self.refused("/config/zone/0/admit_per_minute", a_zone(admit_per_minute=1.5))
        self.refused("/config/zone/0/admit_per_minute", a_zone(admit_per_minute="600"))
        self.refused("/config/zone/0/mode", a_zone(mode="ajar"))
        self.refused("additional properties 'admit_per_second' not allowed", a_zone(admit_per_second=1))
        self.refused("/config/zone/0", {"config": {"zone": [{"admit_per_minute": 1}]}})
        self.refused("additional properties 'replicaCount' not allowed", {"replicaCount": 3})
        self.refused("additional properties 'data_dir' not allowed", {"config": {"data_dir": "/tmp"}})
        self.refused("additional properties 'listen' not allowed", {"config": {"listen": "0.0.0.0:80"}})
        self.refused("/replicas", SHARED, {"replicas": 0})
        self.refused("/store", {"store": "mysql://a:1"})
        self.refused("/store", {"store": ""})
        self.refused("/image/repository", {"image": {"repository": 'a"\nb: c'}})
        self.refused("/keys/seal", SHARED, {"keys": {"seal": "../seal.key"}})
        self.refused("/config/log_format", {"config": {"log_format": "xml"}})
        self.refused("/config/drain_deadline_s", {"config": {"drain_deadline_s": 601}})
        self.refused("/config/admin_token/0/role", {"config": {"admin_token": [{"name": "a", "role": "king", "sha256": "0" * 64}]}})
        self.refused("/config/admin_token/0/sha256", {"config": {"admin_token": [{"name": "a", "role": "viewer", "sha256": "0" * 63}]}})
        self.refused("/autoscaling/cpuUtilization", {"autoscaling": {"cpuUtilization": 0}})
        self.refused("/gateway/routes/0", {"gateway": {"routes": [{"name": "site"}]}})
        self.refused("/service/type", {"service": {"type": "ExternalName"}})


class Texts(unittest.TestCase):
    ODD = 'a "quoted" \'text\'\nlisten = "0.0.0.0:1"\n[tls]\\ {{ .Values }} \u2028 \x7f \t # ''' + "'''\"\"\" ${HOME} 쇼핑 🎟"

    def test_odd_texts_arrive_unchanged(self) -> None:
        zone = {"id": "SITE", "notice": {"en": self.ODD, "pt-br": "---\n...\n"}}
        config = {
            "trusted_proxies": ["10.42.7.0/24"],
            "zone": [zone],
            "route": [{"name": "odd # 'name' \"", "zone": "SITE", "header": {"x.y z": ["a\"b", "*"]}, "cookie": {"=": "\\"}}],
            "pass": {"issuer": "https://id.example/\"\n"},
        }
        release = render({"config": config})
        is_now = release.configuration
        for key, value in config.items():
            self.assertEqual(is_now[key], value)
        # Nothing of them became a setting.
        self.assertEqual(is_now["listen"], "0.0.0.0:8080")
        self.assertNotIn("tls", is_now)

    def test_texts_of_people_are_accepted_by_the_program(self) -> None:
        notice = {"en": self.ODD.replace("\x7f", "").replace("\t", ""), "ko": "정오에 예매를 시작합니다."}
        accepted(self, render({"config": {"zone": [{"id": "SITE", "notice": notice}]}}))

    def test_large_numbers_are_whole(self) -> None:
        zone = {"id": "SITE", "max_waiting": 100_000_000, "max_active": 10_000_000, "admit_per_minute": 600_000}
        (of_file,) = render({"config": {"zone": [zone]}}).configuration["zone"]
        # 1e8 and 100000000 are equal, and only one of them is a whole number of TOML.
        self.assertEqual({name: str(value) for name, value in of_file.items()}, {name: str(value) for name, value in zone.items()})
        targets = {"enabled": True, "connections": 1_000_000}
        metrics = render({**SHARED, "autoscaling": targets}).one("HorizontalPodAutoscaler")["spec"]["metrics"]
        self.assertEqual(metrics[1]["pods"]["target"]["averageValue"], "1000000")

    def test_annotations_and_labels_stay_texts(self) -> None:
        odd = {"a.example/b": "yes", "c": "1e3", "d": 'q"\n{{ x }}'}
        release = render({"service": {"annotations": odd}, "serviceMonitor": {"enabled": True, "labels": {"release": "007"}}})
        self.assertEqual(release.all("Service")[0]["metadata"]["annotations"], odd)
        self.assertEqual(release.one("ServiceMonitor")["metadata"]["labels"]["release"], "007")
