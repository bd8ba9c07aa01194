//! What a start needs: keys, addresses, directories and pages. Each is tried as a start tries it.
//!
//! Invariant: nothing is left behind. An address is bound for a moment, and nothing is accepted at it; a directory gets a file without a
//! name for a moment.

use std::{
    fs::{self, File, OpenOptions},
    io::{self, Write as _},
    net::{SocketAddr, TcpListener},
    os::unix::fs::OpenOptionsExt as _,
    path::Path,
    process,
};

use rustix::fs::{Access, OFlags, access, statvfs};

use super::{
    super::{contradictions, idle_routes, unknown_variables},
    report::{CONFIG, MACHINE, Report},
};
use crate::{
    config::Config,
    http::waiting_page::Pages,
    keys::{KeyFault, Keys},
    otlp::OtlpSettings,
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
    match Pages::read(&config.wait) {
        Ok(pages) => templates(config, &pages, report),
        Err(fault) => {
            report.problem(CONFIG, fault.to_string(), REFUSED, "correct it, or leave wait.templates_dir out");
        }
    }
    if let Some(Err(fault)) = config.otlp.as_ref().map(OtlpSettings::read_headers) {
        report.problem(
            CONFIG,
            fault.to_string(),
            REFUSED,
            "correct the file, or leave otlp.headers_file out",
        );
    }
    targets(config, report);
    for said in contradictions(config) {
        report.unknown(
            CONFIG,
            said,
            "the zone does not do what one of its fields says, or refuses people who ask when they are told to",
            "change one of the fields, or keep them if you mean both",
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

/// Whether this user can write to a directory, or make it.
pub(super) fn writable(place: &str, setting: &str, dir: &Path, why: &'static str, report: &mut Report) {
    let advice = "run the doctor as the server's user, and let that user write to it";
    let name = format!("{setting} {}", dir.display());
    match fs::metadata(dir) {
        Ok(about) if !about.is_dir() => {
            report.problem(place, format!("{name} is not a directory"), why, "name a directory");
        }
        Ok(_) => match try_to_write(dir) {
            Ok(()) => report.ok(place, format!("{name} can be written{}", free(dir)), why),
            Err(error) => {
                let found = format!("{name} cannot be written: {error}{}", free(dir));
                report.problem(place, found, why, advice_on(&error, advice));
            }
        },
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            // The start makes it, with all directories above it.
            let above = dir.ancestors().skip(1).find(|above| above.as_os_str().is_empty() || above.exists());
            let above = above.filter(|above| !above.as_os_str().is_empty()).unwrap_or(Path::new("."));
            let found = format!("{name} does not exist");
            match try_to_write(above) {
                Ok(()) => {
                    let advice = "nothing, if the server has never run here: it makes the directory";
                    report.unknown(place, format!("{found}{}", free(above)), why, advice);
                }
                Err(error) => {
                    let above_name = above.display();
                    let found =
                        format!("{found}, and cannot be made in {above_name}: {error}{}", free(above));
                    report.problem(place, found, why, advice_on(&error, advice));
                }
            }
        }
        Err(error) => report.problem(place, format!("{name}: {error}"), why, advice),
    }
}

/// How much a file system must take: a start writes less.
const PROBE_LEN: usize = 64 << 10;

/// Writes a file to a directory, syncs it and removes it. A right to write says nothing about room on the disk.
fn try_to_write(dir: &Path) -> io::Result<()> {
    access(dir, Access::WRITE_OK | Access::EXEC_OK)?;
    let write = |mut file: File| file.write_all(&[0; PROBE_LEN]).and_then(|()| file.sync_all());
    let mut options = OpenOptions::new();
    options.write(true).mode(0o600);
    let flags = i32::try_from(OFlags::TMPFILE.bits()).expect("a flag of open(2)");
    match options.clone().custom_flags(flags).open(dir) {
        // It has no name, so nothing is left behind, whatever happens.
        Ok(file) => write(file),
        // Not every file system has such files.
        Err(error) if is_unsupported(&error) => {
            let path = dir.join(format!(".weir-doctor-{}", process::id()));
            let written = options.create_new(true).open(&path).and_then(write);
            let removed = fs::remove_file(&path);
            written.and(removed)
        }
        Err(error) => Err(error),
    }
}

/// Whether a system or file system refuses files without a name.
fn is_unsupported(error: &io::Error) -> bool {
    use io::ErrorKind::{InvalidInput, IsADirectory, NotFound, Unsupported};
    matches!(error.kind(), InvalidInput | IsADirectory | NotFound | Unsupported)
}

/// What is free on the disk of a directory, to go on a line; nothing if the system does not say it.
fn free(dir: &Path) -> String {
    let Ok(about) = statvfs(dir) else { return String::new() };
    let mib = (u128::from(about.f_bavail) * u128::from(about.f_frsize)) >> 20;
    let size = if mib < 10 << 10 { format!("{mib} MiB") } else { format!("{} GiB", mib >> 10) };
    format!("; {size} free")
}

fn advice_on(error: &io::Error, otherwise: &'static str) -> &'static str {
    match error.kind() {
        io::ErrorKind::StorageFull | io::ErrorKind::QuotaExceeded => {
            "make room on its disk, or name a directory on another one"
        }
        io::ErrorKind::ReadOnlyFilesystem => "mount its file system for writing, or name another directory",
        _ => otherwise,
    }
}

/// Pages of zones that do not exist lead nowhere.
fn targets(config: &Config, report: &mut Report) {
    for zone in config.targets_without_zone() {
        let found =
            format!("a [[wait.target]] is for the zone {zone}, which the configuration does not have");
        let advice = match config.store {
            StoreSettings::Memory => "correct the name, unless operators make the zone later",
            StoreSettings::Redis(_) => "correct the name, unless the store has the zone (`weir zones list`)",
        };
        report.unknown(CONFIG, found, "nobody is forwarded by it as long as there is no such zone", advice);
    }
}

/// Templates of zones and events that do not exist are shown to nobody.
fn templates(config: &Config, pages: &Pages, report: &mut Report) {
    let why = "people see the page of the zone, or Weir's, as long as there is no such zone or event";
    let advice = match config.store {
        StoreSettings::Memory => "correct the file's name, unless operators made the zone or the event since",
        StoreSettings::Redis(_) => {
            "correct the file's name, unless the store has it (`weir zones show ZONE`)"
        }
    };
    for said in pages.unused(&config.zones) {
        report.unknown(CONFIG, format!("{said} in the configuration"), why, advice);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_is_tried_and_left_as_it_was() {
        let dir = tempfile::tempdir().expect("a directory");
        let before = fs::metadata(dir.path()).expect("it is there").modified().expect("a time");
        try_to_write(dir.path()).expect("it can be written");
        assert_eq!(fs::read_dir(dir.path()).expect("listed").count(), 0);
        let after = fs::metadata(dir.path()).expect("it is there").modified().expect("a time");
        assert_eq!(after, before, "the file has no name");
        assert!(free(dir.path()).ends_with("iB free"), "{}", free(dir.path()));
        assert!(try_to_write(Path::new("/proc/self")).is_err());
        let full = advice_on(&io::Error::from(io::ErrorKind::StorageFull), "else");
        assert!(full.contains("make room"), "{full}");
    }
}
