//! What a start needs: keys, addresses, directories and pages. Each is tried as a start tries it.
//!
//! Invariant: nothing is made or changed. An address is bound for a moment, and nothing is accepted at it.

use std::{
    fs, io,
    net::{SocketAddr, TcpListener},
    path::Path,
};

use rustix::fs::{Access, access};

use super::{
    super::{contradictions, idle_routes, unknown_variables},
    report::{CONFIG, MACHINE, Report},
};
use crate::{
    config::Config,
    http::wait::Pages,
    keys::{KeyFault, Keys},
    stores::StoreSettings,
};

pub(super) const REFUSED: &str = "a server with it does not start";

/// Checks what else a start would find. `read` is what came of reading the keys.
pub(super) fn check(config: &Config, read: &Result<Keys, KeyFault>, report: &mut Report) {
    for name in unknown_variables() {
        let found = format!("{name} is not a setting of weir");
        let why = "the setting that was meant keeps its default";
        report.unknown(
            CONFIG,
            found,
            why,
            "correct the name, if a setting was meant; `weir serve --help` lists the variables",
        );
    }
    keys(read, report);
    let addresses = [
        ("listen", Some(config.listen)),
        ("admin_listen", Some(config.admin_listen)),
        ("gate_grpc_listen", config.gate_grpc_listen),
    ];
    for (setting, address) in addresses {
        if let Some(address) = address {
            listens(setting, address, report);
        }
    }
    if let Some(audit) = &config.audit {
        let why = "without its directory no audit log can be written, and a server does not start";
        writable(CONFIG, "audit.dir", &audit.dir, why, report);
    }
    if let Err(fault) = Pages::read(&config.wait) {
        report.problem(CONFIG, fault.to_string(), REFUSED, "correct it, or leave wait.templates_dir out");
    }
    targets(config, report);
    for said in contradictions(config) {
        report.unknown(
            CONFIG,
            said,
            "people who ask when they are told to are refused",
            "raise the limit, or keep it if no client is an app that polls",
        );
    }
    for said in idle_routes(config) {
        report.unknown(CONFIG, said, "what is behind the route is not protected", "correct the path");
    }
    if !config.routes.all().is_empty() {
        report.unknown(
            CONFIG,
            format!("{} routes: proxies ask this server about each request", config.routes.all().len()),
            "it answers within a second, whatever its store does; a proxy that waits for less takes that for a failure",
            "let the proxy wait for 3 s, as the recipes in deploy/proxies do",
        );
    }
}

fn keys(read: &Result<Keys, KeyFault>, report: &mut Report) {
    let why = "without its keys a server does not start; with other keys, users lose their places";
    match read {
        Ok(_) => report.ok(CONFIG, "the keys can be read", why),
        Err(KeyFault::NotMade(path)) => report.unknown(
            CONFIG,
            format!("there is no key {} yet", path.display()),
            why,
            "nothing, if the server has never run here: it makes the key; otherwise bring the file back",
        ),
        Err(fault) => report.problem(CONFIG, fault.to_string(), why, "correct it"),
    }
}

fn listens(setting: &str, address: SocketAddr, report: &mut Report) {
    let why = "a server whose address is taken, or may not be used, does not start";
    match TcpListener::bind(address) {
        Ok(_) => report.ok(MACHINE, format!("{setting} {address} is free"), why),
        Err(error) if error.kind() == io::ErrorKind::AddrInUse => report.unknown(
            MACHINE,
            format!("{setting} {address} is in use"),
            why,
            "nothing, if the server runs now; otherwise end the program that uses it (`ss -ltnp` shows it), or choose another address",
        ),
        Err(error) => report.problem(
            MACHINE,
            format!("{setting} {address}: {error}"),
            why,
            "use an address of this machine, and a port from 1024 on, or give the server CAP_NET_BIND_SERVICE (deploy/systemd/weir.service)",
        ),
    }
}

/// Whether this user may write to a directory, or make it.
pub(super) fn writable(place: &str, setting: &str, dir: &Path, why: &'static str, report: &mut Report) {
    let advice = "run the doctor as the server's user, and let that user write to it";
    let is_writable = |dir: &Path| access(dir, Access::WRITE_OK | Access::EXEC_OK).is_ok();
    match fs::metadata(dir) {
        Ok(about) if !about.is_dir() => {
            let found = format!("{setting} {} is not a directory", dir.display());
            report.problem(place, found, why, "name a directory");
        }
        Ok(_) => {
            let is = if is_writable(dir) { "is" } else { "cannot be written:" };
            report.judge(is_writable(dir), place, format!("{setting} {is} {}", dir.display()), why, advice);
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            // The start makes it, with all directories above it.
            let above = dir.ancestors().skip(1).find(|above| above.as_os_str().is_empty() || above.exists());
            let above = above.filter(|above| !above.as_os_str().is_empty()).unwrap_or(Path::new("."));
            let found = format!("{setting} {} does not exist", dir.display());
            if is_writable(above) {
                let advice = "nothing, if the server has never run here: it makes the directory";
                report.unknown(place, found, why, advice);
            } else {
                let found = format!("{found}, and cannot be made in {}", above.display());
                report.problem(place, found, why, advice);
            }
        }
        Err(error) => {
            report.problem(place, format!("{setting} {}: {error}", dir.display()), why, advice);
        }
    }
}

/// Pages of zones that do not exist lead nowhere.
fn targets(config: &Config, report: &mut Report) {
    let is_known = |zone: &str| config.zones.iter().any(|(id, _)| id.as_str() == zone);
    for zone in config.wait.targets.iter().filter_map(|target| target.zone()) {
        if is_known(zone.as_str()) {
            continue;
        }
        let found =
            format!("a [[wait.target]] is for the zone {zone}, which the configuration does not have");
        let advice = match config.store {
            StoreSettings::Memory => "correct the name, unless operators make the zone later",
            StoreSettings::Redis(_) => "correct the name, unless the store has the zone (`weir zones list`)",
        };
        report.unknown(CONFIG, found, "nobody is forwarded by it as long as there is no such zone", advice);
    }
}
