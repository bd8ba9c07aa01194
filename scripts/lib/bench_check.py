"""The measurements of scripts/bench-check: bench_check.py ROUNDS SECONDS. WEIR_BIN names the server."""

import contextlib
import http.client
import json
import os
import re
import socket
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROUNDS, SECONDS = int(sys.argv[1]), int(sys.argv[2])
WEIR = os.environ["WEIR_BIN"]
RECIPES = Path("deploy/proxies")
PROXIES = ["caddy", "envoy", "nginx", "traefik"]
# People who wait and visitors: as many tokens and cookies, so that no cache of the processor holds all.
PEOPLE = 2_000
# Through a proxy, so many requests are under way at a time.
AT_ONCE = 8
WORK = Path(tempfile.mkdtemp(prefix="weir-bench-check-"))
TICK = os.sysconf("SC_CLK_TCK")

CONFIG = """
worker_threads = 1
idle_timeout_s = 3600
trusted_proxies = ["127.0.0.1"]

[[zone]]
id = "LINE"
admit_per_minute = 1
polling_period_ms = 60000
idle_timeout_s = 3600

[[zone]]
id = "SITE"
admit_per_minute = 600000
visit_ttl_s = 86400
visit_idle_s = 86400

[[zone]]
id = "LIMITED"
admit_per_minute = 600000
visit_ttl_s = 86400
visit_idle_s = 86400
max_active = 1000000

[[route]]
zone = "LIMITED"
host = "limited.example"

[[route]]
zone = "SITE"
"""

# Each request is one of a file's, in turn: method, path, header fields, body.
REQUESTS = """
local requests, at, bad = {}, 0, 0
function init(args)
    for line in io.lines(args[1]) do
        local method, path, headers, body = line:match("^(%S+) (%S+) ?([^|]*)|?(.*)$")
        local fields = {}
        for name, value in headers:gmatch("([^:;]+):([^;]+)") do fields[name] = value end
        requests[#requests + 1] = wrk.format(method, path, fields, body ~= "" and body or nil)
    end
end
function request()
    at = at % #requests + 1
    return requests[at]
end
function response(code)
    if code ~= 200 then
        bad = bad + 1
        if bad == 1 then io.stderr:write("bad reply: " .. code .. "\\n") end
    end
end
"""


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return probe.getsockname()[1]


def ask(port: int, method: str, path: str, headers: dict[str, str], body: str | None = None) -> tuple[int, http.client.HTTPMessage, str]:
    connection = http.client.HTTPConnection("127.0.0.1", port, timeout=10)
    connection.request(method, path, body, headers)
    reply = connection.getresponse()
    text = reply.read().decode()
    connection.close()
    return reply.status, reply.headers, text


class Programs(contextlib.ExitStack):
    """The programs that were started. They end with it."""

    def start(self, name: str, *command: str, env: dict[str, str] | None = None) -> subprocess.Popen:
        log = open(WORK / f"{name}.log", "wb")
        child = subprocess.Popen(
            ["taskset", "-c", "0", *command], stdout=log, stderr=log, env={**os.environ, **(env or {})}
        )
        self.callback(child.wait)
        self.callback(child.terminate)
        return child

    @staticmethod
    def until_it_answers(name: str, child: subprocess.Popen, port: int) -> None:
        for _ in range(200):
            if child.poll() is not None:
                break
            try:
                if ask(port, "GET", "/healthz", {})[0] == 200:
                    return
            except OSError:
                pass
            time.sleep(0.1)
        sys.exit(f"bench-check: {name} does not answer: {(WORK / f'{name}.log').read_text()[-2000:]}")


def cpu_s(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / TICK


def wrk(port: int, requests: Path, connections: int) -> dict[str, float]:
    """Requests per second, their number, and latencies in milliseconds."""
    done = subprocess.run(
        ["taskset", "-c", "1", "wrk", "-t1", f"-c{connections}", f"-d{SECONDS}s", "--latency", "-s", str(WORK / "requests.lua"),
         f"http://127.0.0.1:{port}", "--", str(requests)],
        capture_output=True, text=True, check=True,
    )
    if "bad reply" in done.stderr or "Socket errors" in done.stdout:
        sys.exit(f"bench-check: {done.stderr} {done.stdout}")
    def latency(share: str) -> float:
        number, unit = re.search(rf"{share}%\s+([\d.]+)(us|ms|s)", done.stdout).groups()
        return float(number) * {"us": 0.001, "ms": 1.0, "s": 1_000.0}[unit]
    count = int(re.search(r"(\d+) requests in", done.stdout)[1])
    return {"count": count, "per_s": count / SECONDS, "p50": latency("50"), "p99": latency("99")}


def medians(results: list[dict[str, float]]) -> dict[str, float]:
    return {key: statistics.median(result[key] for result in results) for key in results[0]}


def visit(port: int, host: str) -> str:
    forwarded = {"X-Forwarded-Method": "GET", "X-Forwarded-Uri": "/", "X-Forwarded-Host": host, "X-Forwarded-For": "203.0.113.7"}
    status, headers, text = ask(port, "GET", "/gate/check", forwarded)
    if status != 200:
        sys.exit(f"bench-check: a visitor is not let in: {status} {text}")
    return headers["Set-Cookie"].split(";")[0]


def config_of(proxy: str, with_check: bool, port: int, weir: int, app: int) -> list[str]:
    """The proxy's command, with its recipe or with the same proxy without Weir."""
    recipe = RECIPES / {"caddy": "Caddyfile", "envoy": "envoy.yaml", "nginx": "nginx.conf", "traefik": "traefik.yml"}[proxy]
    text = recipe.read_text().replace("127.0.0.1:8080", f"127.0.0.1:{weir}").replace("127.0.0.1:3000", f"127.0.0.1:{app}")
    text = text.replace("address: 127.0.0.1, port_value: 8080", f"address: 127.0.0.1, port_value: {weir}")
    text = text.replace("address: 127.0.0.1, port_value: 3000", f"address: 127.0.0.1, port_value: {app}")
    text = text.replace("port_value: 8000", f"port_value: {port}").replace("listen 8000", f"listen 127.0.0.1:{port}")
    text = text.replace(":8000 {", f":{port} {{").replace("\n:", "\nhttp://:").replace("shop.example", "127.0.0.1")
    if not with_check:
        text = {
            "caddy": lambda: f"{{\n\tadmin off\n}}\nhttp://:{port} {{\n\treverse_proxy 127.0.0.1:{app}\n}}\n",
            "envoy": lambda: re.sub(r" {18}- name: envoy.filters.http.ext_authz.*?(?= {18}- name: envoy.filters.http.router)", "", text, flags=re.S),
            "nginx": lambda: re.sub(r"\n *(auth_request|auth_request_set|error_page|add_header|proxy_set_header Weir-Cookie) [^;]*;", "", text),
            "traefik": lambda: text.replace("      middlewares: [weir]\n", ""),
        }[proxy]()
        if text == recipe.read_text():
            sys.exit(f"bench-check: {recipe} has no check to leave out")
    here = WORK / f"{proxy}-{'with' if with_check else 'without'}"
    here.mkdir(exist_ok=True)
    if proxy == "nginx":
        temporary = "".join(f"{of}_temp_path {here}/{of}; " for of in ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"])
        text = f"pid {here}/pid; error_log stderr warn;\n" + text.replace("http {", f"http {{ access_log off; {temporary}")
    (here / recipe.name).write_text(text)
    if proxy == "caddy":
        return ["caddy", "run", "--adapter", "caddyfile", "--config", str(here / recipe.name)]
    if proxy == "envoy":
        return ["envoy", "--disable-hot-restart", "--concurrency", "1", "-l", "warn", "-c", str(here / recipe.name)]
    if proxy == "nginx":
        return ["nginx", "-e", "stderr", "-g", "daemon off; master_process off;", "-p", str(here), "-c", str(here / recipe.name)]
    (here / "static.yml").write_text(
        f'entryPoints: {{ site: {{ address: "127.0.0.1:{port}" }} }}\n'
        f"providers: {{ file: {{ filename: {here / recipe.name} }} }}\n"
        "global: { checkNewVersion: false, sendAnonymousUsage: false }\n"
    )
    return ["traefik", f"--configFile={here / 'static.yml'}"]


def main() -> None:
    (WORK / "requests.lua").write_text(REQUESTS)
    (WORK / "weir.toml").write_text(CONFIG)
    with Programs() as programs:
        weir_port, admin_port, app_port = free_port(), free_port(), free_port()
        weir = programs.start(
            "weir", WEIR, "--config", str(WORK / "weir.toml"), "--store", "memory", "--data-dir", str(WORK / "data"),
            "--listen", f"127.0.0.1:{weir_port}", "--admin-listen", f"127.0.0.1:{admin_port}",
        )
        programs.until_it_answers("weir", weir, weir_port)
        files = {}
        cookies = {host: [visit(weir_port, host) for _ in range(PEOPLE)] for host in ["site.example", "limited.example"]}
        for host, of_host in cookies.items():
            files[host] = WORK / f"{host}.requests"
            files[host].write_text("".join(
                f"GET /gate/check X-Forwarded-Method:GET;X-Forwarded-Uri:/shop?x=1;X-Forwarded-Host:{host};"
                f"X-Forwarded-For:203.0.113.7;Accept:text/html;Cookie:{cookie}\n" for cookie in of_host
            ))
        files["poll"] = WORK / "poll.requests"
        tokens = []
        for _ in range(PEOPLE + 300):
            status, _, text = ask(weir_port, "POST", "/traffic/wait", {"Content-Type": "application/json"}, '{"zoneId":"LINE"}')
            tokens.append(json.loads(text).get("token"))
        files["poll"].write_text("".join(
            f"POST /traffic/entry Content-Type:application/json|{json.dumps({'zoneId': 'LINE', 'token': token})}\n" for token in tokens[300:]
        ))
        costs = {name: [] for name in ["poll", "site.example", "limited.example"]}
        for round_ in range(ROUNDS):
            print(f"==> checks and polls, round {round_ + 1} of {ROUNDS}", file=sys.stderr)
            for name, of in costs.items():
                before = cpu_s(weir.pid)
                count = wrk(weir_port, files[name], 64)["count"]
                of.append((cpu_s(weir.pid) - before) / count * 1e6)
        poll, site, limited = (statistics.median(of) for of in costs.values())
        print(f"\ncommand: scripts/bench-check {ROUNDS} {SECONDS}; {subprocess.run([WEIR, '--version'], capture_output=True, text=True).stdout.strip()}")
        print("\n| processor time of | us | of a poll |\n|---|---|---|")
        for name, cost in [("a poll", poll), ("a check during a visit", site), ("the same, people inside are counted", limited)]:
            print(f"| {name} | {cost:.2f} | {cost / poll:.2f} |")

        # The app: a constant reply.
        (WORK / "app").mkdir()
        temporary = "".join(f"{of}_temp_path {WORK}/app/{of}; " for of in ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"])
        (WORK / "app.conf").write_text(
            f"pid {WORK}/app/pid; error_log stderr warn; events {{}}\nhttp {{ access_log off; keepalive_requests 100000000; {temporary}"
            f"server {{ listen 127.0.0.1:{app_port}; location / {{ return 200 'the shop'; }} }} }}\n"
        )
        app = programs.start("app", "nginx", "-e", "stderr", "-g", "daemon off; master_process off;", "-p", str(WORK / "app"), "-c", str(WORK / "app.conf"))
        programs.until_it_answers("app", app, app_port)
        page = WORK / "page.requests"
        page.write_text("".join(f"GET /shop?x=1 Accept:text/html;Cookie:{cookie}\n" for cookie in cookies["site.example"]))
        print(f"\n| proxy | requests/s | with the check | p50 ms | with the check | p99 ms | with the check |\n|---|---|---|---|---|---|---|")
        for proxy in PROXIES:
            results = {True: [], False: []}
            with Programs() as of_proxy:
                ports = {}
                for with_check in [False, True]:
                    ports[with_check] = free_port()
                    name = f"{proxy}-{'with' if with_check else 'without'}"
                    home = {"XDG_DATA_HOME": str(WORK), "XDG_CONFIG_HOME": str(WORK)}
                    child = of_proxy.start(name, *config_of(proxy, with_check, ports[with_check], weir_port, app_port), env=home)
                    of_proxy.until_it_answers(name, child, ports[with_check])
                for round_ in range(ROUNDS):
                    print(f"==> {proxy}, round {round_ + 1} of {ROUNDS}", file=sys.stderr)
                    for with_check in [False, True]:
                        results[with_check].append(wrk(ports[with_check], page, AT_ONCE))
            without, with_ = medians(results[False]), medians(results[True])
            row = [f"{of[key]:{form}}" for key, form in [("per_s", ".0f"), ("p50", ".2f"), ("p99", ".2f")] for of in (without, with_)]
            print(f"| {proxy} | {' | '.join(row)} |", flush=True)


if __name__ == "__main__":
    main()
