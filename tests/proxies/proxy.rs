//! The real proxies, with the recipes of `deploy/proxies` as they are, but for the addresses.

use std::{
    env, fs,
    fs::File,
    io::{self, Write as _},
    net::{Ipv4Addr, SocketAddr},
    path::{Path, PathBuf},
    process::{Child, Command, Stdio},
    sync::atomic::{AtomicU16, Ordering},
};

use rustix::process::{Pid, Signal, kill_process};
use tempfile::TempDir;

use crate::{client::Client, clock::eventually, weir::Weir};

/// The address from which the load balancer in front of the proxies sends.
pub(crate) const BALANCER: Ipv4Addr = Ipv4Addr::new(127, 0, 0, 10);

/// A kind of proxy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Kind {
    Caddy,
    Envoy,
    /// Envoy that asks over gRPC.
    EnvoyGrpc,
    /// The same, with what the recipe for the Gateway API of Kubernetes says.
    EnvoyInKubernetes,
    /// The same, open while Weir is away.
    EnvoyOpen,
    HaProxy,
    Nginx,
    /// nginx, open while Weir is away.
    NginxOpen,
    Traefik,
    /// Traefik with the middleware of the recipe for Kubernetes. It checks the same fields as those of a file.
    TraefikInKubernetes,
}

impl Kind {
    pub(crate) const ALL: [(Self, &'static str); 10] = [
        (Self::Caddy, "caddy"),
        (Self::Envoy, "envoy"),
        (Self::EnvoyGrpc, "envoy_grpc"),
        (Self::EnvoyInKubernetes, "envoy_in_kubernetes"),
        (Self::EnvoyOpen, "envoy_open"),
        (Self::HaProxy, "haproxy"),
        (Self::Nginx, "nginx"),
        (Self::NginxOpen, "nginx_open"),
        (Self::Traefik, "traefik"),
        (Self::TraefikInKubernetes, "traefik_in_kubernetes"),
    ];

    /// The program's name.
    fn program(self) -> &'static str {
        match self {
            Self::Caddy => "caddy",
            Self::Envoy | Self::EnvoyGrpc | Self::EnvoyInKubernetes | Self::EnvoyOpen => "envoy",
            Self::HaProxy => "haproxy",
            Self::Nginx | Self::NginxOpen => "nginx",
            Self::Traefik | Self::TraefikInKubernetes => "traefik",
        }
    }

    /// Whether the recipe sends only the headers that Weir reads.
    pub(crate) fn sends_few_headers(self) -> bool {
        matches!(self, Self::Envoy | Self::HaProxy | Self::Traefik | Self::TraefikInKubernetes)
    }

    /// The status of the page.
    pub(crate) fn page_status(self) -> u16 {
        if self == Self::Envoy { 429 } else { 503 }
    }

    /// Whether the recipe names the cookies that browsers get, those of one zone.
    pub(crate) fn names_cookies(self) -> bool {
        matches!(self, Self::Traefik | Self::TraefikInKubernetes)
    }

    /// Whether the recipe knows a load balancer in front of the proxy by its address.
    pub(crate) fn knows_balancers(self) -> bool {
        matches!(self, Self::Caddy | Self::HaProxy | Self::Nginx | Self::NginxOpen)
    }

    /// The requests a second that the site gets while Weir does not answer, if it gets any.
    pub(crate) fn limit_without_weir(self) -> Option<usize> {
        matches!(self, Self::EnvoyOpen | Self::NginxOpen).then_some(20)
    }

    /// The statuses that visitors get while Weir does not answer. Those that are open answer this above their limit.
    pub(crate) fn status_without_weir(self) -> u16 {
        match self {
            Self::Caddy => 502,
            Self::Envoy | Self::EnvoyGrpc | Self::EnvoyOpen | Self::HaProxy | Self::NginxOpen => 503,
            // The resource cannot name another one.
            Self::EnvoyInKubernetes => 403,
            Self::Nginx | Self::Traefik | Self::TraefikInKubernetes => 500,
        }
    }
}

/// A running proxy. It is killed when dropped, and its log is shown if the test failed.
pub(crate) struct Proxy {
    name: String,
    child: Child,
    dir: TempDir,
    pub(crate) at: SocketAddr,
}

impl Proxy {
    /// Starts a proxy in front of a site, with this Weir.
    pub(crate) fn start(kind: Kind, weir: &Weir, site: SocketAddr) -> Self {
        let (weir, grpc) = (weir.public, weir.grpc.expect("it listens"));
        let dir = tempfile::Builder::new().prefix("weir-proxy-").tempdir().expect("a temporary directory");
        let here = dir.path();
        let at = own_address();
        let recipe = |file: &str| {
            let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../deploy/proxies").join(file);
            let text = fs::read_to_string(&path).unwrap_or_else(|e| panic!("{}: {e}", path.display()));
            let text = text
                .replace("127.0.0.1:8080", &weir.to_string())
                .replace("127.0.0.1:3000", &site.to_string())
                .replace("\"127.0.0.1\", 8080", &format!("\"{}\", {}", weir.ip(), weir.port()))
                .replace("192.0.2.10", &BALANCER.to_string());
            let port = |of: SocketAddr| format!("address: 127.0.0.1, port_value: {}", of.port());
            text.replace("address: 127.0.0.1, port_value: 8080", &port(weir))
                .replace("address: 127.0.0.1, port_value: 8082", &port(grpc))
                .replace("address: 127.0.0.1, port_value: 3000", &port(site))
                .replace(
                    "address: 0.0.0.0, port_value: 8000",
                    &format!("address: {}, port_value: {}", at.ip(), at.port()),
                )
        };
        let write = |file: &str, text: String| {
            fs::write(here.join(file), text).expect("the temporary directory takes files");
            here.join(file)
        };
        let mut command = Command::new(program(kind));
        match kind {
            Kind::Caddy => {
                let text = recipe("Caddyfile")
                    .replace(":8000 {", &format!(":{} {{\n\tbind {}", at.port(), at.ip()))
                    .replace("\n:", "\nhttp://:");
                command.args(["run", "--adapter", "caddyfile", "--config"]).arg(write("Caddyfile", text));
                command.env("XDG_DATA_HOME", here).env("XDG_CONFIG_HOME", here);
            }
            Kind::Envoy | Kind::EnvoyGrpc | Kind::EnvoyInKubernetes | Kind::EnvoyOpen => {
                let text = match kind {
                    Kind::Envoy => recipe("envoy.yaml"),
                    Kind::EnvoyOpen => recipe("envoy-open.yaml"),
                    Kind::EnvoyInKubernetes => {
                        with_policy(&recipe("envoy-grpc.yaml"), &recipe("kubernetes-gateway.yaml"))
                    }
                    _ => recipe("envoy-grpc.yaml"),
                };
                command.args(["--disable-hot-restart", "--concurrency", "1", "-l", "warn", "-c"]);
                command.arg(write("envoy.yaml", text));
            }
            Kind::HaProxy => {
                write("haproxy.lua", recipe("haproxy.lua"));
                let text = recipe("haproxy.cfg").replace("bind :8000", &format!("bind {at}"));
                command.args(["-db", "-f"]).arg(write("haproxy.cfg", text));
            }
            Kind::Nginx | Kind::NginxOpen => {
                let file = if kind == Kind::Nginx { "nginx.conf" } else { "nginx-open.conf" };
                nginx(&mut command, here, at, &recipe(file));
            }
            Kind::Traefik | Kind::TraefikInKubernetes => {
                let of_file = recipe("traefik.yml");
                let text = match kind {
                    Kind::Traefik => of_file,
                    _ => with_middleware(&of_file, &recipe("kubernetes-traefik.yaml"), weir),
                };
                let dynamic = write("dynamic.yml", text);
                let text = format!(
                    "entryPoints: {{ site: {{ address: \"{at}\" }} }}\nproviders: {{ file: {{ filename: {} }} }}\n\
                     global: {{ checkNewVersion: false, sendAnonymousUsage: false }}\n",
                    dynamic.display()
                );
                command.arg(format!("--configFile={}", write("traefik.yml", text).display()));
            }
        }
        Self::run(format!("{kind:?}"), command, dir, at)
    }

    /// Starts a cache in front of a proxy. It keeps every reply for ten minutes that does not forbid it, also one with cookies.
    pub(crate) fn cache(of: SocketAddr) -> Self {
        let dir = tempfile::Builder::new().prefix("weir-cache-").tempdir().expect("a temporary directory");
        let (here, at, mut command) = (dir.path(), own_address(), Command::new(program(Kind::Nginx)));
        let text = format!(
            "events {{}}\nhttp {{ proxy_cache_path {}/kept keys_zone=kept:1m; server {{ listen 8000; location / {{ proxy_pass http://{of}; proxy_http_version 1.1; \
             proxy_set_header Host $http_host; proxy_cache kept; proxy_cache_key $request_uri; proxy_cache_valid any 10m; \
             proxy_ignore_headers Set-Cookie Vary; add_header X-Cache $upstream_cache_status always; }} }} }}\n",
            here.display()
        );
        nginx(&mut command, here, at, &text);
        Self::run("the cache".to_owned(), command, dir, at)
    }

    fn run(name: String, mut command: Command, dir: TempDir, at: SocketAddr) -> Self {
        let here = dir.path();
        let log = File::create(here.join("log")).expect("the temporary directory takes files");
        command.stdin(Stdio::null()).stdout(log.try_clone().expect("a file")).stderr(log).current_dir(here);
        let child = command.spawn().unwrap_or_else(|e| panic!("{command:?}: {e}"));
        let mut proxy = Self { name, child, dir, at };
        eventually("the proxy serves", || {
            assert!(proxy.child.try_wait().expect("our own child").is_none(), "{} ended", proxy.name);
            let mut client = Client::connect(at).ok()?;
            // A proxy that has not read its routes yet answers 404.
            client.send("GET /healthz HTTP/1.1\r\nHost: shop.example\r\n\r\n").ok()?;
            let reply = client.reply().ok()?;
            (reply.status == 200).then_some(())
        });
        proxy
    }

    fn log(&self) -> String {
        fs::read_to_string(self.dir.path().join("log")).unwrap_or_default()
    }
}

impl Drop for Proxy {
    fn drop(&mut self) {
        if let Some(pid) = i32::try_from(self.child.id()).ok().and_then(Pid::from_raw) {
            // It may have ended by itself.
            let _ = kill_process(pid, Signal::KILL);
        }
        let _ = self.child.wait();
        if std::thread::panicking() {
            drop(writeln!(io::stderr(), "--- the log of {}:\n{}---", self.name, self.log()));
        }
    }
}

/// Lets nginx run with this configuration, in its own directory and at its own address.
fn nginx(command: &mut Command, here: &Path, at: SocketAddr, text: &str) {
    let paths = ["client_body", "proxy", "fastcgi", "uwsgi", "scgi"];
    let paths: String = paths.map(|of| format!("{of}_temp_path {0}/{of}; ", here.display())).concat();
    let text = text
        .replace("http {", &format!("http {{ access_log off; {paths}"))
        .replace("listen 8000", &format!("listen {at}"));
    let text = format!("pid {0}/pid; error_log stderr warn;\n{text}", here.display());
    fs::write(here.join("nginx.conf"), text).expect("the temporary directory takes files");
    command.args(["-e", "stderr", "-g", "daemon off; master_process off;", "-p"]).arg(here);
    command.arg("-c").arg(here.join("nginx.conf"));
}

/// The configuration of a file, with the middleware of a resource of Kubernetes.
fn with_middleware(file: &str, resource: &str, weir: SocketAddr) -> String {
    let (_, rest) = resource.split_once("spec:\n  forwardAuth:\n").expect("the middleware is there");
    let (middleware, _) = rest.split_once("\n---").expect("the route follows");
    let middleware = middleware.replace("weir.weir.svc", &weir.to_string()).replace("\n    ", "\n        ");
    let (before, after) = file.split_once("      forwardAuth:\n").expect("a middleware");
    let (_, after) = after.split_once("\n  services:").expect("the app follows");
    format!("{before}      forwardAuth:\n    {middleware}\n  services:{after}")
}

/// The configuration of a file, with what a resource of Kubernetes says about the check. Envoy Gateway makes the filter of these
/// fields: it asks over gRPC, with all headers unless the resource lists some, and leaves the status of a failure as Envoy has it.
fn with_policy(file: &str, resource: &str) -> String {
    let (_, policy) = resource.split_once("  extAuth:\n").expect("the policy is there");
    let field = |name: &str| policy.lines().find_map(|line| line.trim().strip_prefix(name)).map(str::trim);
    assert!(
        field("grpc:").is_some() && field("headersToExtAuth:").is_none() && field("bodyToExtAuth:").is_none()
    );
    let port = field("port:").expect("the port of the service");
    assert!(resource.contains(&format!("name: grpc, port: {port}, ")), "the service has this port");
    let (fails_open, timeout) = (field("failOpen:").unwrap_or("false"), field("timeout:").unwrap_or("10s"));
    let text = file.replace("                      status_on_error: { code: ServiceUnavailable }\n", "");
    let text = text.replace("failure_mode_allow: false", &format!("failure_mode_allow: {fails_open}"));
    text.replace("cluster_name: weir }, timeout: 3s", &format!("cluster_name: weir }}, timeout: {timeout}"))
}

/// An address that no other process uses: proxies cannot say which port they were given. Each process has a part of the loopback
/// network for itself.
fn own_address() -> SocketAddr {
    static NEXT: AtomicU16 = AtomicU16::new(8_000);
    let [_, high, middle, low] = std::process::id().to_be_bytes();
    (Ipv4Addr::new(127, 64 | high & 63, middle, low), NEXT.fetch_add(1, Ordering::Relaxed)).into()
}

/// Where the program of a proxy is: named by a variable as in `CADDY=…`, otherwise in `PATH`.
fn program(kind: Kind) -> PathBuf {
    let name = kind.program();
    if let Some(path) = env::var_os(name.to_uppercase()) {
        return path.into();
    }
    let paths = env::var_os("PATH").unwrap_or_default();
    let found = env::split_paths(&paths).map(|dir| dir.join(name)).find(|path| path.is_file());
    found.unwrap_or_else(|| {
        panic!(
            "{name} is missing; scripts/test takes it from a package, or name it: {}=/path/to/{name}",
            name.to_uppercase()
        )
    })
}
