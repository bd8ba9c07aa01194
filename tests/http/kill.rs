//! The server is killed again and again under load, as by a power cut. Clients only have to repeat calls.

use std::{
    net::SocketAddr,
    sync::{
        Mutex,
        atomic::{AtomicBool, Ordering},
    },
    thread,
    time::Duration,
};

use crate::{
    app::{self, App, Between, most_within},
    audit,
    clock::{eventually, now, obey_polling_period},
    passes::JwkSet,
    seed::Random,
    weir::{Setup, zone},
};

const KILLS: usize = 9;
const CROWDS: usize = 4;
const CROWD: usize = 60;

/// No place is lost (a status other than 200 fails in [`App::step`]), nobody enters twice or with another user's
/// pass, and no client can observe more entries than either window allows.
pub(crate) fn places_and_caps_survive() {
    let mut random = Random::seeded("kill::places_and_caps_survive");
    let config = |mode: &str| {
        zone("Z", 300, &format!("mode = \"{mode}\"\npolling_period_ms = 500"))
            + &zone("TIGHT", 20, "polling_period_ms = 500")
    };
    let setup = Setup::new(&config("hold"));
    let log = setup.dir().join("audit");
    let mut weir = setup.arg("--audit-dir").arg(&log).start();
    let address = Mutex::new(weir.public);
    let over = AtomicBool::new(false);
    let load = |zone: &'static str| {
        let address = || -> SocketAddr { *address.lock().expect("no holder panics") };
        let mut apps: Vec<App> = (0..CROWD).map(|_| App::new(zone)).collect();
        app::run(&mut apps, address, |_| over.load(Ordering::Relaxed), Duration::from_secs(300));
        apps
    };
    let crowds: Vec<Vec<App>> = thread::scope(|scope| {
        let zones = ["Z"; CROWDS - 1].into_iter().chain(["TIGHT"]);
        let crowds: Vec<_> = zones.map(|zone| scope.spawn(move || load(zone))).collect();
        // If one crowd fails, the others end too, so that the scope can end.
        let finished = || crowds.iter().any(thread::ScopedJoinHandle::is_finished);
        for kill in 0..KILLS {
            // A line forms first and lasts through two kills; then it moves through seven.
            if kill == 2 {
                weir.setup().write_config(&config("auto"));
            }
            let lives_for = Duration::from_millis(500 + random.bits() % 2_000);
            let until = now() + lives_for;
            obey_polling_period(until);
            if finished() {
                break;
            }
            weir.kill_and_restart();
            *address.lock().expect("no holder panics") = weir.public;
        }
        obey_polling_period(now() + Duration::from_secs(3));
        over.store(true, Ordering::Relaxed);
        crowds.into_iter().map(|crowd| crowd.join().expect("a crowd saw a fault")).collect()
    });

    let broken: usize = crowds.iter().flatten().map(|app| app.broken).sum();
    assert!(broken > 0, "no kill interrupted a call");
    // The audit log is valid, whatever was being written at each kill.
    let (code, said) = audit::verify(&[&log]);
    assert_eq!(code, Some(0), "{said}");
    assert!(said.matches("did not stop in order").count() >= KILLS / 2, "{said}");
    let keys = JwkSet::of(&weir);
    for (zone, per_minute, crowds) in
        [("Z", 300, &crowds[..CROWDS - 1]), ("TIGHT", 20, &crowds[CROWDS - 1..])]
    {
        let apps: Vec<&App> = crowds.iter().flatten().collect();
        assert!(apps.iter().all(|app| app.joined.is_some()), "somebody never got a place");
        let entered: Vec<Between> = apps.iter().filter_map(|app| app.entered).collect();
        let minute = most_within(Duration::from_secs(60), &entered);
        assert!(minute <= per_minute, "{zone}: {minute} entered in a minute");
        // The burst of TIGHT came before its line; zone Z had a line from the start.
        let sub = most_within(Duration::from_secs(6), &entered);
        assert!(zone == "TIGHT" || sub <= 30, "{zone}: {sub} entered in a sub-window");
        assert!(entered.len() >= 20, "{zone}: {} entered", entered.len());
        let mut jtis: Vec<String> =
            apps.iter().filter_map(|app| app.pass()).map(|pass| keys.verify(pass).jti).collect();
        let passes = jtis.len();
        jtis.sort_unstable();
        jtis.dedup();
        assert_eq!(jtis.len(), passes, "{zone}: two holders have the same entry");
    }
    // Everybody who waits still has the place, and everybody who entered still has the pass.
    for mut app in crowds.into_iter().flatten() {
        eventually("an answer after the last restart", || app.step(weir.public).map(|_| ()));
    }
}
