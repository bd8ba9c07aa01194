//! What Redis can suffer: what users see, what is told, and when it ends. One row for each trouble.
//!
//! Each row has its own Redis and two servers over it, one with each client library. The table in `docs/operate/redis.md` is this one.

use std::{
    fs,
    io::{Write as _, stderr},
    net::{Ipv4Addr, TcpListener, TcpStream},
    process::{Command, Output},
    thread::{self, ScopedJoinHandle},
    time::Instant,
};

use libtest_mimic::Trial;

use crate::{
    app::{Answer, body},
    clock::{eventually, now},
    redis::{Cluster, Options, Reply, Standalone, Wire},
    weir::{Setup, Weir, binary, without_variables, zone},
};

/// A Redis, and what has to live as long.
enum Store {
    Alone(Standalone),
    Cluster(Cluster),
    /// With a directory for its files.
    OnDisk(Standalone, tempfile::TempDir),
}

impl Store {
    fn url(&self) -> String {
        match self {
            Self::Alone(redis) | Self::OnDisk(redis, _) => redis.url().replace("://", "://weir:word@"),
            Self::Cluster(cluster) => cluster.url(),
        }
    }

    /// A server of the Redis that is no cluster.
    fn alone(&self) -> &Standalone {
        match self {
            Self::Alone(redis) | Self::OnDisk(redis, _) => redis,
            Self::Cluster(_) => panic!("a cluster"),
        }
    }

    fn cluster(&self) -> &Cluster {
        match self {
            Self::Cluster(cluster) => cluster,
            _ => panic!("no cluster"),
        }
    }

    /// Sends a command to the only server, which takes it.
    fn ok(&self, parts: &[&str]) {
        let reply = self.alone().command(parts);
        assert!(!matches!(reply, Reply::Error(_)), "{parts:?}: {reply:?}");
    }

    fn acl(&self, rules: &[&str]) {
        self.ok(&[&["ACL", "SETUSER", "weir"], rules].concat());
    }

    /// Closes the connections of Weir.
    fn disconnect(&self) {
        self.ok(&["CLIENT", "KILL", "USER", "weir"]);
    }
}

/// How a trouble is told.
enum Told {
    /// The zone is away for this kind of reason, in these words, and is back afterwards.
    Away { kind: &'static str, words: &'static str },
    /// Users notice nothing; the log has these words.
    Unnoticed(&'static str),
}

struct Row {
    name: &'static str,
    store: fn() -> Store,
    begin: fn(&Store),
    end: fn(&Store),
    told: Told,
}

const fn away(kind: &'static str, words: &'static str) -> Told {
    Told::Away { kind, words }
}

const ROWS: &[Row] = &[
    Row {
        name: "out_of_memory",
        store: || with(&[]),
        begin: |redis| redis.ok(&["CONFIG", "SET", "maxmemory", "1"]),
        end: |redis| redis.ok(&["CONFIG", "SET", "maxmemory", "0"]),
        told: away("out_of_memory", "OOM"),
    },
    Row {
        name: "no_replica_confirms",
        store: || with(&[]),
        begin: |redis| redis.ok(&["CONFIG", "SET", "min-replicas-to-write", "1"]),
        end: |redis| redis.ok(&["CONFIG", "SET", "min-replicas-to-write", "0"]),
        told: away("no_replica", "NOREPLICAS"),
    },
    Row {
        name: "the_primary_is_demoted",
        store: || with(&[]),
        begin: |redis| {
            // Nobody is there, so it stays as it is.
            let nobody = TcpListener::bind((Ipv4Addr::LOCALHOST, 0)).and_then(|at| at.local_addr());
            redis.ok(&["REPLICAOF", "127.0.0.1", &nobody.expect("a free port").port().to_string()]);
        },
        end: |redis| redis.ok(&["REPLICAOF", "NO", "ONE"]),
        told: away("read_only", "READONLY"),
    },
    Row {
        name: "a_slot_is_half_moved",
        store: || Store::Cluster(Cluster::start(2, 0)),
        begin: |redis| {
            let cluster = redis.cluster();
            let (slot, from) = (cluster.slot("Z"), cluster.primary_of(cluster.slot("Z")));
            let to = 1 - from;
            cluster.begin_move(slot, to);
            // One key of many is moved, and then nothing goes on.
            let port = cluster.port(to).to_string();
            let moved =
                cluster.command(from, &["MIGRATE", "127.0.0.1", &port, "weir:v1:{Z}:log", "0", "5000"]);
            assert!(!matches!(moved, Reply::Error(_)), "{moved:?}");
        },
        end: |redis| {
            let cluster = redis.cluster();
            let slot = cluster.slot("Z");
            let to = 1 - cluster.primary_of(slot);
            cluster.move_keys(slot, to);
            cluster.end_move(slot, to);
        },
        told: away("slot_moving", "TRYAGAIN"),
    },
    Row {
        name: "nobody_has_the_slot",
        store: || Store::Cluster(Cluster::start(1, 0)),
        begin: |redis| {
            let cluster = redis.cluster();
            cluster.command(0, &["CLUSTER", "DELSLOTS", &cluster.slot("Z").to_string()]);
        },
        end: |redis| {
            let cluster = redis.cluster();
            cluster.command(0, &["CLUSTER", "ADDSLOTS", &cluster.slot("Z").to_string()]);
        },
        told: away("no_slot", "slot"),
    },
    Row {
        name: "a_command_is_forbidden",
        store: || with(&[]),
        begin: |redis| redis.acl(&["-hset"]),
        end: |redis| redis.acl(&["+hset"]),
        // Before and since Redis 7.2, in other words.
        told: away("denied", "script"),
    },
    Row {
        name: "the_password_changes",
        store: || with(&[]),
        begin: |redis| {
            redis.acl(&["resetpass", ">other"]);
            redis.disconnect();
        },
        end: |redis| redis.acl(&["resetpass", ">word"]),
        told: away("denied", "WRONGPASS"),
    },
    Row {
        name: "redis_reads_its_data",
        store: || with(&["--enable-debug-command", "yes", "--loading-process-events-interval-bytes", "1024"]),
        begin: |redis| {
            redis.ok(&["DEBUG", "POPULATE", "1000", "filler", "100"]);
            redis.ok(&["CONFIG", "SET", "key-load-delay", "4000"]);
            let port = redis.alone().port();
            // It answers when it has read everything.
            thread::spawn(move || {
                Wire::connect(port).and_then(|mut wire| wire.command(&["DEBUG", "RELOAD"])).map(drop)
            });
        },
        end: |_| {},
        told: away("loading", "LOADING"),
    },
    Row {
        name: "the_disk_takes_nothing",
        store: || {
            let dir = tempfile::tempdir().expect("a temporary directory");
            let path = dir.path().to_str().expect("UTF-8").to_owned();
            let saves = ["--save", "3600 1000000", "--dir", &path, "--dbfilename", "dump.rdb"];
            let Store::Alone(redis) = with(&saves) else { unreachable!("it is no cluster") };
            Store::OnDisk(redis, dir)
        },
        begin: |redis| {
            let Store::OnDisk(_, dir) = redis else { unreachable!("started so") };
            // What is a directory cannot be replaced by a file.
            fs::create_dir_all(dir.path().join("dump.rdb/full")).expect("made");
            save(redis, "err");
        },
        end: |redis| {
            let Store::OnDisk(_, dir) = redis else { unreachable!("started so") };
            fs::remove_dir_all(dir.path().join("dump.rdb")).expect("removed");
            save(redis, "ok");
        },
        told: away("disk", "MISCONF"),
    },
    Row {
        name: "a_script_of_another_client_runs_for_ever",
        store: || with(&["--busy-reply-threshold", "100"]),
        begin: |redis| {
            let mut client =
                TcpStream::connect((Ipv4Addr::LOCALHOST, redis.alone().port())).expect("accepted");
            client.write_all(b"EVAL \"while true do end\" 0\r\n").expect("sent");
        },
        end: |redis| redis.ok(&["SCRIPT", "KILL"]),
        told: away("busy", "BUSY"),
    },
    Row {
        name: "redis_is_frozen",
        store: || with(&[]),
        begin: |redis| redis.alone().stop(),
        end: |redis| redis.alone().cont(),
        // What new connections find.
        told: away("no_answer", "though connections are accepted"),
    },
    Row {
        name: "a_key_of_the_zone_is_deleted",
        store: || with(&[]),
        begin: |redis| redis.ok(&["DEL", "weir:v1:{Z}:seg"]),
        end: |_| {},
        told: Told::Unnoticed("it is begun anew, with what is whole"),
    },
    Row {
        name: "everything_is_deleted",
        store: || with(&[]),
        begin: |redis| redis.ok(&["FLUSHALL"]),
        end: |_| {},
        told: Told::Unnoticed("older than what this server has seen; it is written back"),
    },
];

/// A Redis with these options, and with a user for Weir.
fn with(options: &[&str]) -> Store {
    let redis = Standalone::start_with(&Options::new().arg(options));
    let store = Store::Alone(redis);
    store.acl(&["on", ">word", "~*", "&*", "+@all"]);
    store
}

/// Saves, and waits until that ended as it should.
fn save(redis: &Store, status: &str) {
    redis.ok(&["BGSAVE"]);
    let field = |name| redis.alone().info("persistence", name);
    eventually("it has saved, or not", || {
        (field("rdb_bgsave_in_progress") == "0" && field("rdb_last_bgsave_status") == status).then_some(())
    });
}

/// A trial for each row.
pub(crate) fn all() -> Vec<Trial> {
    let trial = |row: &'static Row| {
        Trial::test(format!("troubles::{}", row.name), move || {
            judge(row);
            Ok(())
        })
    };
    let of_table = Trial::test("troubles::each_row_is_in_the_book", || {
        each_row_is_in_the_book();
        Ok(())
    });
    ROWS.iter().map(trial).chain([of_table]).collect()
}

/// A server, and somebody who waits there.
struct Watched {
    library: &'static str,
    weir: Weir,
    token: String,
}

impl Watched {
    fn start(store: &Store, library: &'static str) -> Self {
        let of_redis = format!("store = \"{}\"\nredis.client = \"{library}\"\n", store.url());
        let weir = Setup::new(&format!("{of_redis}{}", zone("Z", 60, "mode = \"hold\""))).start();
        let token = eventually("somebody waits", || {
            let reply = weir.post("/traffic/wait", &body("Z", None));
            (reply.status == 200).then(|| Answer::of(&reply).token)
        });
        Self { library, weir, token }
    }

    /// How the one who waits is answered: always with the place, and whether that is marked stale.
    fn is_stale(&self) -> bool {
        let reply = self.weir.post("/traffic/entry", &body("Z", Some(&self.token)));
        let answer = Answer::of(&reply);
        assert!(!answer.can_enter, "{}: {answer:?}", self.library);
        answer.waiting().stale
    }

    fn join(&self) -> u16 {
        let reply = self.weir.post("/traffic/wait", &body("Z", None));
        if reply.status != 200 {
            assert_eq!((reply.status, reply.problem().as_str()), (503, "store_away"), "{}", self.library);
            assert!(reply.header("retry-after").is_some(), "{}: {reply:?}", self.library);
        }
        reply.status
    }

    /// Says how long after the end of the trouble somebody joined.
    fn joins_again(&self, ended: Instant) -> String {
        eventually("people join again", || (self.join() == 200).then_some(()));
        format!("{} serves again after {} ms", self.library, (now() - ended).as_millis())
    }

    fn log_has(&self, words: &str) {
        let what = format!("the log of {} has: {words}", self.library);
        eventually(&what, || self.weir.log().contains(words).then_some(()));
    }
}

/// The admin API and the command line read the same record as `/readyz`: for as long as it does.
fn says_it_everywhere(weir: &Weir, kind: &str, words: &str, name: &str) {
    let asked = |args: &[&str]| {
        let mut command = Command::new(binary());
        command.args(args).arg(format!("--admin=http://{}", weir.admin));
        let Output { stdout, .. } = without_variables(&mut command).output().expect("the binary runs");
        String::from_utf8(stdout).expect("UTF-8")
    };
    eventually(&format!("{name} is told everywhere"), || {
        let zone = weir.admin_ask("GET", "/admin/v1/zones/Z", &[], None).json();
        let said = zone["now"]["away"]["why"].as_str().is_some_and(|why| why.contains(words));
        let has = |text: &str| text.contains("away") && text.contains(kind) && text.contains(words);
        let commands = [&["stats"][..], &["stats", "Z"], &["zones", "list"], &["zones", "show", "Z"]];
        let told = said && zone["now"]["away"]["cause"] == kind && zone["now"]["stale"] == true;
        // Some troubles end by themselves.
        let is_over = weir.log().contains("answers again");
        (is_over || told && commands.iter().all(|command| has(&asked(command)))).then_some(())
    });
}

fn joined<T>(handle: ScopedJoinHandle<'_, T>) -> T {
    handle.join().expect("somebody joins again")
}

fn judge(row: &Row) {
    let store = (row.store)();
    let both = ["fred", "redis-rs"].map(|library| Watched::start(&store, library));
    (row.begin)(&store);
    match row.told {
        Told::Unnoticed(words) => {
            // One server finds it first, and the other one finds it mended.
            eventually(words, || both.iter().any(|one| one.weir.log().contains(words)).then_some(()));
            for one in &both {
                eventually("people join", || (one.join() == 200).then_some(()));
                eventually("places are fresh", || (!one.is_stale()).then_some(()));
            }
        }
        Told::Away { kind, words } => {
            for Watched { library, weir, .. } in &both {
                let what = format!("{} is told by {library}: {kind}: … {words}", row.name);
                eventually(&what, || {
                    let ready = weir.admin_get("/readyz").text().to_owned();
                    let has_both = |line: &str| line.contains(&format!("{kind}: ")) && line.contains(words);
                    ready.lines().any(has_both).then_some(())
                });
                says_it_everywhere(weir, kind, words, row.name);
            }
            for one in &both {
                eventually("joins are refused, or it is over", || {
                    (one.join() == 503 || one.weir.log().contains("answers again")).then_some(())
                });
                one.is_stale();
                one.log_has("the zone is away, and nobody joins or enters by its store");
            }
            (row.end)(&store);
            let ended = now();
            for took in thread::scope(|scope| {
                both.each_ref().map(|one| scope.spawn(|| one.joins_again(ended))).map(joined)
            }) {
                drop(writeln!(stderr(), "{}: {took}", row.name));
            }
            for one in &both {
                one.log_has("the zone's store answers again");
                eventually("places are fresh", || (!one.is_stale()).then_some(()));
                eventually("ready", || (one.weir.admin_get("/readyz").status == 200).then_some(()));
            }
        }
    }
}

/// The page names each trouble beside the word by which Redis tells it.
fn each_row_is_in_the_book() {
    let page = concat!(env!("CARGO_MANIFEST_DIR"), "/../docs/operate/redis.md");
    let page = fs::read_to_string(page).expect("the book is there");
    for row in ROWS {
        let Told::Away { kind, words } = row.told else { continue };
        let line = page.lines().find(|line| line.starts_with(&format!("| `{kind}` |")));
        let line = line.unwrap_or_else(|| panic!("{kind} is not in the table"));
        let about = if words.chars().all(|c| c.is_ascii_uppercase()) { words } else { "" };
        assert!(line.contains(about), "{words} is not in: {line}");
    }
}
