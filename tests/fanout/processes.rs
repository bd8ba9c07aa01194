//! Fan-out between whole processes: two servers and `weir zones apply`.

use std::{fs, process::Command};

use crate::{
    clock::eventually,
    nats::Nats,
    redis::Standalone,
    weir::{Setup, binary, zone},
};

#[test]
fn what_an_operator_applies_two_servers_hear() {
    let (redis, nats) = (Standalone::start(), Nats::start_with(&["--user", "weir", "--pass", "s3cret"]));
    let fanout = nats.url().replace("://", "://weir:s3cret@");
    let start = || Setup::zone(60, "").arg("--store").arg(redis.url()).arg("--fanout").arg(&fanout).start();
    let servers = [start(), start()];
    let shows = |line: &str| {
        for weir in &servers {
            eventually(line, || weir.admin_get("/metrics").text().lines().any(|l| l == line).then_some(()));
        }
    };
    shows("weir_fanout_connected{cell=\"redis\"} 1");

    let file = servers[0].setup().dir().join("closed.toml");
    fs::write(&file, zone("Z", 60, "mode = \"closed\"")).expect("a temporary directory");
    let mut apply = Command::new(binary());
    apply.args(["zones", "apply", "--store", &redis.url(), "--fanout", &fanout]).arg(&file);
    let output = apply.output().expect("the binary starts");
    let said = [output.stdout, output.stderr].concat();
    let said = String::from_utf8_lossy(&said);
    assert!(output.status.success() && said.contains("mode auto -> closed"), "{said}");
    shows("weir_fanout_heard_total{cell=\"redis\"} 1");
    for weir in &servers {
        eventually("the zone is closed", || {
            let reply = weir.post("/traffic/wait", r#"{"zoneId":"Z"}"#);
            reply.text().contains("zone_closed").then_some(())
        });
        let told = [weir.stdout(), weir.log(), said.clone().into_owned()].concat();
        assert!(!told.contains("s3cret") && told.contains("nats://weir:***@127.0.0.1:"), "{told}");
        assert!(
            !told.contains("async_nats"),
            "what it says of itself for each lost message is not logged: {told}"
        );
    }
}
