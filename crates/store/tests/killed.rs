//! Processes that are killed at any moment, and disks that become full.
//!
//! The test starts itself as a child process that uses a store and prints the answers. Each printed answer must still hold
//! after the kill.

use std::{
    collections::{BTreeMap, HashMap, HashSet, VecDeque},
    env, fs,
    hash::{BuildHasher as _, RandomState},
    io::{BufRead as _, BufReader, Write as _},
    path::Path,
    process::{Child, Command, ExitCode, Stdio},
    sync::Arc,
    time::Duration,
};

use admission::{Claim, Entry, Joined, Mode, Policy, Verdict, ZoneId};
use libtest_mimic::{Arguments, Trial};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};
use store::{Embedded, JournalError, Line as _, Store as _, StoreError};

const ROLE: &str = "STORE_TEST_ROLE";
const CAP: u32 = 600;

fn main() -> ExitCode {
    if let Ok(role) = env::var(ROLE) {
        child(&role, Path::new(&env::args().next_back().expect("the directory")));
        return ExitCode::SUCCESS;
    }
    let tests = vec![
        Trial::test("kills_under_load_lose_nothing", || {
            kills_under_load_lose_nothing();
            Ok(())
        }),
        Trial::test("kills_of_the_first_start_leave_no_damage", || {
            kills_of_the_first_start_leave_no_damage();
            Ok(())
        }),
        Trial::test("a_second_process_is_refused", || {
            a_second_process_is_refused();
            Ok(())
        }),
        Trial::test("a_full_disk_refuses_and_comes_back", || {
            a_full_disk_refuses_and_comes_back();
            Ok(())
        }),
    ];
    libtest_mimic::run(&Arguments::from_args(), tests).exit_code()
}

fn policy(mode: Mode) -> Policy {
    Policy { mode, admit_per_minute: CAP, idle_timeout_s: 3_600, pass_ttl_s: 3_600, ..Policy::default() }
}

fn zones() -> [(ZoneId, Policy); 2] {
    [("AUTO", Mode::Auto), ("OPEN", Mode::Open)]
        .map(|(name, mode)| (ZoneId::parse(name).expect("a name"), policy(mode)))
}

fn runtime() -> tokio::runtime::Runtime {
    tokio::runtime::Builder::new_multi_thread().worker_threads(2).enable_time().build().expect("a runtime")
}

async fn opened(dir: &Path) -> Arc<Embedded> {
    let store = Arc::new(Embedded::open(dir).expect("opens"));
    for (id, policy) in zones() {
        store.line(&id).put(policy).await.expect("put");
    }
    store
}

// The child.

fn child(role: &str, dir: &Path) {
    match role {
        "load" => runtime().block_on(load(dir)),
        "hold" => {
            let _store = Embedded::open(dir).expect("opens");
            say("open");
            // Until the parent ends or kills this process.
            let _ = std::io::stdin().read_line(&mut String::new());
        }
        "full" => runtime().block_on(full(dir)),
        other => panic!("no role {other}"),
    }
}

/// Prints one line in one write. A kill may cut it, and a cut line has no line end.
fn say(line: &str) {
    let mut out = std::io::stdout().lock();
    out.write_all(format!("{line}\n").as_bytes()).and_then(|()| out.flush()).expect("the parent reads");
}

fn say_joined(id: &ZoneId, joined: &Joined) {
    say(&format!("join {id} {} {} {} {}", joined.epoch, joined.first, joined.verdicts.len(), joined.at_ms));
    for (seq, verdict) in (joined.first..).zip(&joined.verdicts) {
        say_entered(id, seq, verdict);
    }
}

fn say_entered(id: &ZoneId, seq: u64, verdict: &Verdict) {
    if let Verdict::Entered(Entry { at_ms, unix_s, life_s }) = verdict {
        say(&format!("enter {id} {seq} {at_ms} {unix_s} {life_s}"));
    }
}

async fn load(dir: &Path) {
    let store = opened(dir).await;
    let users = (0..6).map(|user| {
        let (id, _) = zones()[user % 2].clone();
        let store = Arc::clone(&store);
        tokio::spawn(async move {
            let mut waiting = VecDeque::new();
            for round in 0_u32.. {
                let joined = store.line(&id).join(1 + round % 7).await.expect("joins");
                say_joined(&id, &joined);
                waiting.extend((joined.first..).take(joined.verdicts.len()));
                let claims: Vec<_> = waiting
                    .drain(..waiting.len().min(10))
                    .map(|seq| Claim { epoch: joined.epoch, seq })
                    .collect();
                let decided = store.line(&id).enter(claims.clone()).await.expect("asks");
                for (claim, verdict) in claims.iter().zip(&decided.verdicts) {
                    assert!(*verdict != Verdict::Gone, "ticket {} of {id} is gone", claim.seq);
                    say_entered(&id, claim.seq, verdict);
                }
                store.line(&id).beat(Vec::new(), 0).await.expect("beats");
            }
        })
    });
    for user in users.collect::<Vec<_>>() {
        user.await.expect("goes on for ever");
    }
}

/// Simulates a full disk for a while, by a limit on the size of files.
async fn full(dir: &Path) {
    let store = opened(dir).await;
    let [_, (id, _)] = zones();
    let limit = getrlimit(Resource::Fsize);
    let size = fs::metadata(dir.join("weir.redb")).expect("is there").len();
    setrlimit(Resource::Fsize, Rlimit { current: Some(size), ..limit }).expect("limits");
    let mut next = 0;
    let refused = loop {
        match store.line(&id).join(1_024).await {
            Ok(joined) => {
                assert!(joined.first >= next, "given out twice");
                next = joined.first + 1_024;
                say_joined(&id, &joined);
            }
            Err(error) => break error,
        }
        assert!(next < 10_000_000, "it never got full");
    };
    let StoreError::Away(why) = &refused else { panic!("{refused}") };
    assert!(why.contains("can't") && why.contains("weir.redb"), "{why}");
    setrlimit(Resource::Fsize, limit).expect("lifts the limit");
    let back = async {
        loop {
            match store.line(&id).join(1).await {
                Ok(joined) => break joined,
                Err(StoreError::Away(_)) => tokio::time::sleep(Duration::from_millis(10)).await,
                Err(error) => panic!("{error}"),
            }
        }
    };
    let joined = tokio::time::timeout(Duration::from_secs(30), back).await.expect("comes back");
    assert!(joined.first >= next, "given out twice");
    say_joined(&id, &joined);
}

// The parent.

fn command(role: &str, dir: &Path) -> Command {
    // A shell ignores the signal for writes beyond the limit, so they fail and do not kill. The child inherits this.
    let mut command = Command::new("sh");
    command
        .args(["-c", "trap '' XFSZ; exec \"$0\" \"$1\""])
        .arg(env::current_exe().expect("this test"))
        .arg(dir);
    command.env(ROLE, role).stdin(Stdio::piped()).stdout(Stdio::piped());
    command
}

fn spawn(role: &str, dir: &Path) -> Child {
    command(role, dir).spawn().expect("starts")
}

/// The answers that children printed.
#[derive(Default)]
struct Answers {
    epochs: HashMap<String, u32>,
    given: HashMap<String, HashSet<u64>>,
    entered: HashMap<String, BTreeMap<u64, Entry>>,
    last_ms: u64,
}

impl Answers {
    fn take(&mut self, line: &str) {
        let words: Vec<_> = line.split(' ').collect();
        let number = |at: usize| words[at].parse::<u64>().expect("a number");
        let zone = words[1].to_owned();
        if words[0] == "join" {
            let epoch = u32::try_from(number(2)).expect("an epoch");
            assert_eq!(*self.epochs.entry(zone.clone()).or_insert(epoch), epoch, "the line lost its life");
            let given = self.given.entry(zone).or_default();
            for seq in number(3)..number(3) + number(4) {
                assert!(given.insert(seq), "ticket {seq} was given out twice");
            }
            self.last_ms = self.last_ms.max(number(5));
        } else {
            let life_s = u32::try_from(number(5)).expect("a life");
            let entry = Entry { at_ms: number(3), unix_s: number(4), life_s };
            let first = *self.entered.entry(zone).or_default().entry(number(2)).or_insert(entry);
            assert_eq!(first, entry, "ticket {} entered twice", words[2]);
        }
    }

    /// Reads up to `lines` lines, or to the end. A cut line does not count.
    fn read(&mut self, from: &mut impl std::io::BufRead, lines: u64) {
        let mut line = String::new();
        for _ in 0..lines {
            line.clear();
            if from.read_line(&mut line).expect("reads") == 0 || !line.ends_with('\n') {
                return;
            }
            self.take(line.trim_end());
        }
    }

    /// Asks the store about all tickets.
    async fn check(&mut self, dir: &Path) {
        let store = opened(dir).await;
        for (id, _) in zones() {
            let Some(&epoch) = self.epochs.get(id.as_str()) else {
                continue;
            };
            let mut given: Vec<_> = self.given[id.as_str()].iter().copied().collect();
            given.sort_unstable();
            for some in given.chunks(1_024) {
                let claims = some.iter().map(|&seq| Claim { epoch, seq }).collect();
                let decided = store.line(&id).enter(claims).await.expect("asks");
                assert!(decided.at_ms >= self.last_ms, "the clock went back");
                for (&seq, verdict) in some.iter().zip(&decided.verdicts) {
                    match verdict {
                        Verdict::Entered(Entry { at_ms, unix_s, life_s }) => {
                            self.take(&format!("enter {id} {seq} {at_ms} {unix_s} {life_s}"));
                        }
                        Verdict::Waiting(_) => {
                            let entered = self.entered.get(id.as_str());
                            assert!(
                                !entered.is_some_and(|entered| entered.contains_key(&seq)),
                                "{seq} lost its entry"
                            );
                        }
                        Verdict::Gone => panic!("ticket {seq} of {id} lost its place"),
                    }
                }
            }
            let next = store.line(&id).join(1).await.expect("joins");
            not_given_before(&given, &next);
        }
        let entered = self.entered.entry("AUTO".into()).or_default();
        let mut at_ms: Vec<_> = entered.values().map(|entry| entry.at_ms).collect();
        at_ms.sort_unstable();
        let cap = CAP as usize;
        let tight = at_ms.windows(cap + 1).find(|some| some[cap] - some[0] < 60_000);
        assert!(tight.is_none(), "more than {cap} entered within a minute: {tight:?}");
    }
}

fn not_given_before(given: &[u64], next: &Joined) {
    assert!(given.last().is_none_or(|&last| last < next.first), "ticket {} was given out before", next.first);
}

fn kills_under_load_lose_nothing() {
    let seed = env::var("WEIR_SEED").map_or_else(
        |_| RandomState::new().hash_one("seed"),
        |seed| seed.parse().expect("a seed is a number"),
    );
    let said = std::io::stderr().write_all(format!("WEIR_SEED={seed}\n").as_bytes());
    said.expect("standard error is there");
    let dir = tempfile::tempdir().expect("a directory");
    let mut answers = Answers::default();
    let mut dice = seed | 1;
    for _ in 0..8 {
        dice = dice.wrapping_mul(0x5851_F42D_4C95_7F2D).wrapping_add(0x1405_7B7E_F767_814F);
        let mut child = spawn("load", dir.path());
        let mut out = BufReader::new(child.stdout.take().expect("piped"));
        // Sometimes before it has printed anything.
        answers.read(&mut out, (dice >> 33) % 4 * ((dice >> 40) % 300));
        child.kill().expect("kills");
        child.wait().expect("ends");
        answers.read(&mut out, u64::MAX);
    }
    // The last child is never killed before it has printed something.
    let mut child = spawn("load", dir.path());
    let mut out = BufReader::new(child.stdout.take().expect("piped"));
    answers.read(&mut out, 50);
    child.kill().expect("kills");
    child.wait().expect("ends");
    answers.read(&mut out, u64::MAX);
    runtime().block_on(answers.check(dir.path()));
}

fn kills_of_the_first_start_leave_no_damage() {
    for file in ["weir.mark", "weir.redb.new", "weir.redb"] {
        for _ in 0..4 {
            let dir = tempfile::tempdir().expect("a directory");
            let mut child = spawn("hold", dir.path());
            // As soon as the file exists. A `.new` may be gone before it is seen; then the start has got further.
            while !dir.path().join(file).exists() && !dir.path().join("weir.redb").exists() {
                assert!(child.try_wait().expect("asks").is_none(), "it ended early");
                std::hint::spin_loop();
            }
            child.kill().expect("kills");
            child.wait().expect("ends");
            drop(Embedded::open(dir.path()).expect("starts after the kill"));
            assert!(!dir.path().join("weir.redb.new").exists());
        }
    }
    // Moments that a kill rarely hits: a start that was cut short while it created the first file.
    for len in [0, 100, 4_096, 100_000] {
        let dir = tempfile::tempdir().expect("a directory");
        fs::write(dir.path().join("weir.mark"), "").expect("writes");
        fs::write(dir.path().join("weir.redb.new"), vec![0xA5; len]).expect("writes");
        drop(Embedded::open(dir.path()).expect("starts after the kill"));
    }
}

fn a_second_process_is_refused() {
    let dir = tempfile::tempdir().expect("a directory");
    let mut child = spawn("hold", dir.path());
    let mut line = String::new();
    BufReader::new(child.stdout.take().expect("piped")).read_line(&mut line).expect("reads");
    assert_eq!(line, "open\n");
    let refused = Embedded::open(dir.path()).map(drop).expect_err("is in use");
    assert!(matches!(refused, JournalError::InUse { .. }), "{refused}");
    child.kill().expect("kills");
    child.wait().expect("ends");
    drop(Embedded::open(dir.path()).expect("a kill frees it"));
}

fn a_full_disk_refuses_and_comes_back() {
    let dir = tempfile::tempdir().expect("a directory");
    let output = command("full", dir.path()).stderr(Stdio::piped()).output().expect("runs");
    assert!(output.status.success(), "{}: {}", output.status, String::from_utf8_lossy(&output.stderr));
    let mut answers = Answers::default();
    answers.read(&mut output.stdout.as_slice(), u64::MAX);
    assert!(answers.given["OPEN"].len() > 1);
    runtime().block_on(answers.check(dir.path()));
}
