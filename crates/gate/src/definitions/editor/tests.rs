//! The editor over a file: overrides are kept, and count until the file is edited.

use std::{
    fs,
    path::PathBuf,
    sync::atomic::{AtomicUsize, Ordering::Relaxed},
};

use admission::{Mode, Notice, Policy, Schedule, SealKey, Seals};
use events::{Bus, Event, Kind, Kinds, Scope, StoreCall};
use store::Embedded;
use tempfile::TempDir;
use tokio::task::JoinSet;

use super::*;
use crate::{definitions::EventJson, reply::Refusal};

fn zone(name: &str) -> ZoneId {
    ZoneId::parse(name).expect("a name")
}

fn holding(admit_per_minute: u32) -> Definition {
    Policy { mode: Mode::Hold, admit_per_minute, ..Policy::default() }.into()
}

fn saying(text: &str) -> Definition {
    Definition { notice: Notice::new([("en", text), ("ko", text)]).expect("a notice"), ..holding(60) }
}

type File = Vec<(ZoneId, Definition)>;

fn file<const N: usize>(zones: [(&str, Definition); N]) -> File {
    zones.map(|(name, definition)| (zone(name), definition)).to_vec()
}

fn author() -> Author {
    Author { name: "ada".to_owned(), role: "admin".to_owned(), from: None }
}

/// A server's data directory, and the editor of the server that runs on it.
struct Site {
    dir: TempDir,
    bus: Arc<Bus>,
    editor: Option<Arc<ZoneEditor<Embedded>>>,
    /// How many changes were reported.
    reported: Arc<AtomicUsize>,
}

impl Site {
    fn new() -> Self {
        let (dir, bus) = (tempfile::tempdir().expect("a directory"), Bus::new().expect("a thread"));
        Self { dir, bus: Arc::new(bus), editor: None, reported: Arc::default() }
    }

    async fn try_start(&mut self, file: File) -> Result<(), DefineError> {
        self.editor = None;
        let store = loop {
            // The lanes of the previous gate end by themselves, and then its store is closed.
            match Embedded::open(self.dir.path()) {
                Ok(store) => break store,
                Err(_) => tokio::task::yield_now().await,
            }
        };
        let seals = Seals::only(SealKey { id: 1, secret: [1; 32] });
        let gate = Arc::new(Gate::new(Arc::new(store), seals, Arc::clone(&self.bus)));
        let reported = Arc::clone(&self.reported);
        let count: Box<OnChange> = Box::new(move |_, _, _| {
            reported.fetch_add(1, Relaxed);
        });
        let editor = ZoneEditor::over_file(gate, self.dir.path(), file, count).await?;
        self.editor = Some(Arc::new(editor));
        Ok(())
    }

    async fn start(&mut self, file: File) {
        self.try_start(file).await.expect("starts");
    }

    fn editor(&self) -> &Arc<ZoneEditor<Embedded>> {
        self.editor.as_ref().expect("it was started")
    }

    async fn define(
        &self,
        name: &str,
        expected: Expected,
        new: Option<Definition>,
    ) -> Result<DefinitionChange, DefineError> {
        self.editor().define(author(), &zone(name), expected, new).await
    }

    /// What is defined, and holds it against what is in force.
    fn zones(&self) -> File {
        let (listed, gate) = (self.editor().list(), &self.editor().gate);
        for (zone, definition) in &listed {
            assert_eq!(gate.policy(zone.as_str()), Some(definition.policy), "{zone}");
            assert_eq!(gate.notice(zone.as_str()).as_deref(), Some(&definition.notice), "{zone}");
            assert_eq!(self.editor().get(zone.as_str()).as_ref(), Some(definition));
        }
        listed
    }

    fn path(&self) -> PathBuf {
        self.dir.path().join("zones.json")
    }

    fn files(&self) -> Vec<String> {
        let entries = fs::read_dir(self.dir.path()).expect("listed");
        let name = |entry: std::io::Result<fs::DirEntry>| {
            entry.expect("an entry").file_name().into_string().expect("a name")
        };
        let mut names: Vec<_> = entries.map(name).filter(|name| name.starts_with("zones")).collect();
        names.sort_unstable();
        names
    }
}

#[tokio::test]
async fn what_is_changed_is_in_force_and_kept_over_a_restart_and_a_reload() {
    let mut site = Site::new();
    let written = file([("A", holding(60)), ("B", holding(60)), ("C", holding(60))]);
    site.start(written.clone()).await;
    assert_eq!(site.zones(), written);
    assert_eq!(site.files(), [""; 0], "nothing is kept where nothing was changed");

    let tag = Expected::Tag(holding(60).etag());
    let changed = site.define("A", tag.clone(), Some(saying("Back at noon.\nOr later."))).await;
    let after = saying("Back at noon.\nOr later.");
    assert_eq!(changed, Ok(DefinitionChange { before: Some(holding(60)), after: Some(after.clone()) }));
    assert!(timeout(IN_FORCE_TIMEOUT, site.editor().changed()).await.is_ok(), "a change is notified");
    assert_eq!(
        site.define("B", tag, None).await,
        Ok(DefinitionChange { before: Some(holding(60)), after: None })
    );
    let made = site.define("NEW", Expected::Absent, Some(holding(7))).await;
    assert_eq!(made, Ok(DefinitionChange { before: None, after: Some(holding(7)) }));
    let now = file([("A", after), ("C", holding(60)), ("NEW", holding(7))]);
    assert_eq!(site.zones(), now);
    assert_eq!(site.editor().gate.join("B").await, Err(Refusal::UnknownZone));

    for _ in 0..2 {
        site.editor().reload(written.clone()).await.expect("read again");
        assert_eq!(site.zones(), now);
        site.start(written.clone()).await;
        assert_eq!(site.zones(), now);
    }
    assert_eq!(site.files(), ["zones.json"], "nothing unfinished is left");
}

#[tokio::test]
async fn a_change_to_what_is_there_already_is_none() {
    let mut site = Site::new();
    site.start(file([("A", holding(60))])).await;
    let same = site.define("A", Expected::Any, Some(holding(60))).await;
    assert_eq!(same, Ok(DefinitionChange { before: Some(holding(60)), after: Some(holding(60)) }));
    assert_eq!(site.reported.load(Relaxed), 0);
    assert_eq!(site.files(), [""; 0], "the file still counts");
    site.editor().reload(file([("A", holding(61))])).await.expect("read again");
    assert_eq!(site.zones(), file([("A", holding(61))]));

    for _ in 0..2 {
        site.define("A", Expected::Any, Some(saying("a"))).await.expect("changed");
    }
    assert_eq!(site.reported.load(Relaxed), 1);
}

#[tokio::test]
async fn a_file_that_is_edited_later_wins_again_and_for_good() {
    for restart in [false, true] {
        let mut site = Site::new();
        let written = file([("A", holding(60)), ("B", holding(60)), ("C", holding(60)), ("D", holding(60))]);
        site.start(written.clone()).await;
        site.define("A", Expected::Any, Some(saying("a"))).await.expect("changed");
        site.define("B", Expected::Any, None).await.expect("deleted");
        site.define("C", Expected::Any, Some(saying("c"))).await.expect("changed");
        site.define("D", Expected::Any, Some(saying("d"))).await.expect("changed");
        site.define("E", Expected::Absent, Some(saying("e"))).await.expect("made");

        // A and B are other ones, D is gone, E is new; nobody touched C.
        let edited =
            file([("A", saying("file")), ("B", holding(61)), ("C", holding(60)), ("E", holding(62))]);
        let now = file([("A", saying("file")), ("B", holding(61)), ("C", saying("c")), ("E", holding(62))]);
        for next in [&edited, &edited] {
            if restart {
                site.start(next.clone()).await;
            } else {
                site.editor().reload(next.clone()).await.expect("read again");
            }
            assert_eq!(site.zones(), now, "restart: {restart}");
        }
        // What was dropped does not come back with the file of before.
        site.start(written).await;
        let now = file([("A", holding(60)), ("B", holding(60)), ("C", saying("c")), ("D", holding(60))]);
        assert_eq!(site.zones(), now, "restart: {restart}");
    }
}

#[tokio::test]
async fn a_change_that_is_undone_is_the_files_again() {
    let mut site = Site::new();
    site.start(file([("A", holding(60))])).await;
    let before = site.define("A", Expected::Any, Some(saying("a"))).await.expect("changed").before;
    site.define("A", Expected::Tag(saying("a").etag()), before).await.expect("undone");
    site.define("B", Expected::Absent, Some(holding(1))).await.expect("made");
    site.define("B", Expected::Any, None).await.expect("deleted");
    site.start(file([("A", holding(61)), ("B", holding(2))])).await;
    assert_eq!(site.zones(), file([("A", holding(61)), ("B", holding(2))]));
}

#[tokio::test]
async fn of_changes_that_expect_the_same_one_succeeds() {
    let mut site = Site::new();
    site.start(file([("A", holding(60))])).await;
    for round in 1..=20 {
        let tag = Expected::Tag(site.editor().get("A").expect("served").etag());
        let (one, other) = tokio::join!(
            site.define("A", tag.clone(), Some(holding(100 + round))),
            site.define("A", tag, Some(holding(200 + round)))
        );
        let now = site.editor().get("A").expect("served");
        match (one, other) {
            (Ok(made), Err(DefineError::Conflict(found))) | (Err(DefineError::Conflict(found)), Ok(made)) => {
                assert_eq!((made.after.as_ref(), &found), (Some(&now), &now));
            }
            both => panic!("{both:?}"),
        }
    }
    let exists = site.define("A", Expected::Absent, Some(holding(1))).await;
    assert!(matches!(exists, Err(DefineError::Exists(_))), "{exists:?}");
    for (expected, new) in [
        (Expected::Any, Some(holding(1))),
        (Expected::Any, None),
        (Expected::Absent, None),
        (Expected::Tag(holding(1).etag()), Some(holding(1))),
    ] {
        assert_eq!(site.define("NONE", expected, new).await, Err(DefineError::UnknownZone));
    }
}

#[tokio::test]
async fn a_notice_disturbs_no_line() {
    let mut site = Site::new();
    site.start(file([("A", holding(60))])).await;
    site.editor().gate.join("A").await.expect("a place");
    let mut calls = site.bus.subscribe("test", Scope::Root, Kinds::of(&[Kind::StoreCalled])).expect("room");
    site.define("A", Expected::Any, Some(saying("a"))).await.expect("changed");
    while let Some(batch) = calls.try_next() {
        let beat =
            |event: &Event| matches!(event, Event::StoreCalled(called) if called.call == StoreCall::Beat);
        assert!(batch.events.iter().all(beat), "{:?}", batch.events);
    }
    let told = || {
        [Kind::PolicyChanged, Kind::NoticeChanged, Kind::DefinitionChanged]
            .map(|kind| site.bus.published(kind))
    };
    assert_eq!(told(), [0, 1, 1]);
    site.define("A", Expected::Any, Some(saying("a"))).await.expect("the same");
    assert_eq!(told(), [0, 1, 1]);
    // An event that comes later changes nothing that is in force.
    site.define("A", Expected::Any, Some(planned())).await.expect("changed");
    assert_eq!(told(), [0, 1, 2]);
}

/// A zone with an event that comes later.
fn planned() -> Definition {
    let event: EventJson = serde_json::from_value(serde_json::json!({
        "id": "sale", "prequeue_from": "2099-12-01T08:00:00Z", "begins": "2099-12-01T09:00:00Z", "ends": "2099-12-01T12:00:00Z",
    }))
    .expect("an event's fields");
    let schedule = Schedule::new(vec![event.event().expect("an event")], &Policy::default());
    Definition { schedule: schedule.expect("a schedule"), ..saying("a") }
}

#[tokio::test]
async fn a_disk_that_fails_leaves_everything_as_it_was() {
    let mut site = Site::new();
    let written = file([("A", holding(60))]);
    site.start(written.clone()).await;
    site.define("A", Expected::Any, Some(saying("a"))).await.expect("changed");
    let (before, text) = (site.zones(), fs::read(site.path()).expect("kept"));
    let refuse = async |site: &Site| {
        for (name, expected, new) in [
            ("A", Expected::Any, Some(saying("b"))),
            ("A", Expected::Any, None),
            ("NEW", Expected::Absent, Some(holding(1))),
        ] {
            let refused = site.define(name, expected, new).await;
            assert!(
                matches!(&refused, Err(DefineError::Disk(why)) if why.contains("zones.json")),
                "{refused:?}"
            );
            assert_eq!(site.zones(), before);
            assert_eq!(site.editor().gate.join("NEW").await, Err(Refusal::UnknownZone));
        }
        let edited = site.editor().reload(file([("A", holding(61))])).await;
        assert!(matches!(edited, Err(DefineError::Disk(_))), "{edited:?}");
        assert_eq!(site.zones()[0].0, zone("A"));
    };
    // It can't be written.
    let unfinished = site.path().with_extension("json.unfinished");
    fs::create_dir(&unfinished).expect("made");
    refuse(&site).await;
    assert_eq!(site.zones(), before);
    fs::remove_dir(&unfinished).expect("removed");
    assert_eq!(fs::read(site.path()).expect("kept"), text);
    site.start(written).await;
    assert_eq!(site.zones(), before);

    // It can't be taken into use.
    fs::remove_file(site.path()).expect("removed");
    fs::create_dir_all(site.path().join("full")).expect("made");
    let refused = site.define("A", Expected::Any, Some(holding(9))).await;
    assert!(matches!(refused, Err(DefineError::Disk(_))), "{refused:?}");
    let refused = site.define("NEW", Expected::Absent, Some(holding(9))).await;
    assert!(matches!(refused, Err(DefineError::Disk(_))), "{refused:?}");
    assert_eq!(site.zones(), before);
    assert_eq!(site.files(), ["zones.json"], "nothing unfinished is left");
}

/// The text of a file without one field of the policies.
fn without(text: &str, field: &str) -> String {
    let mut all: serde_json::Value = serde_json::from_str(text).expect("JSON");
    for definition in ["file", "now"] {
        let policy = all["zones"][0][definition]["policy"].as_object_mut().expect("a policy");
        policy.remove(field).expect("a field");
    }
    all.to_string()
}

const ZONES_JSON: &str = r#"{
  "version": 1,
  "zones": [
    {
      "file": {
        "notice": {},
        "policy": {
          "admit_per_minute": 60,
          "entries_per_minute_per_client": 0,
          "idle_timeout_s": 60,
          "max_active": 0,
          "max_waiting": 50000000,
          "mode": "hold",
          "on_store_failure": "closed",
          "opens_at": null,
          "pass_ttl_s": 300,
          "polling_period_max_ms": 20000,
          "polling_period_ms": 3000,
          "sub_windows": 10,
          "visit_idle_s": 900,
          "visit_ttl_s": 3600,
          "waits_per_minute_per_client": 0
        }
      },
      "now": {
        "notice": {
          "en": "a",
          "ko": "a"
        },
        "policy": {
          "admit_per_minute": 60,
          "entries_per_minute_per_client": 0,
          "idle_timeout_s": 60,
          "max_active": 0,
          "max_waiting": 50000000,
          "mode": "hold",
          "on_store_failure": "closed",
          "opens_at": null,
          "pass_ttl_s": 300,
          "polling_period_max_ms": 20000,
          "polling_period_ms": 3000,
          "sub_windows": 10,
          "visit_idle_s": 900,
          "visit_ttl_s": 3600,
          "waits_per_minute_per_client": 0
        }
      },
      "zone": "A"
    },
    {
      "file": null,
      "now": {
        "notice": {},
        "policy": {
          "admit_per_minute": 61,
          "entries_per_minute_per_client": 0,
          "idle_timeout_s": 60,
          "max_active": 0,
          "max_waiting": 50000000,
          "mode": "hold",
          "on_store_failure": "closed",
          "opens_at": null,
          "pass_ttl_s": 300,
          "polling_period_max_ms": 20000,
          "polling_period_ms": 3000,
          "sub_windows": 10,
          "visit_idle_s": 900,
          "visit_ttl_s": 3600,
          "waits_per_minute_per_client": 0
        }
      },
      "zone": "B"
    }
  ]
}
"#;

/// Servers of other versions read the file.
#[tokio::test]
async fn the_file_does_not_change_between_versions() {
    let mut site = Site::new();
    site.start(file([("A", holding(60))])).await;
    site.define("A", Expected::Any, Some(saying("a"))).await.expect("changed");
    site.define("B", Expected::Absent, Some(holding(61))).await.expect("made");
    assert_eq!(fs::read_to_string(site.path()).expect("kept"), ZONES_JSON);
}

#[tokio::test]
async fn what_cannot_be_read_ends_the_start_by_name() {
    let mut site = Site::new();
    site.start(file([("A", holding(60))])).await;
    site.define("A", Expected::Any, Some(saying("a"))).await.expect("changed");
    let text = fs::read_to_string(site.path()).expect("kept");
    for (bad, told) in [
        (String::new(), "EOF"),
        (text[..text.len() / 2].to_owned(), "EOF"),
        (text.replace("\"version\": 1", "\"version\": 2"), "version 2"),
        (text.replace("\"hold\"", "\"held\""), "zone A: `held` is no mode"),
        (text.replace("\"admit_per_minute\": 60", "\"admit_per_minute\": 0"), "admit_per_minute is 0"),
        (text.replace("\"ko\"", "\"KO\""), "`KO` is not a language"),
        (text.replace("\"A\"", "\"a zone\""), "a zone's id is"),
        (text.replace("\"now\"", "\"then\""), "unknown field `then`"),
        (text.replace("\"pass_ttl_s\"", "\"pass_ttl_ms\""), "unknown field `pass_ttl_ms`"),
        (without(&text, "admit_per_minute"), "missing field `admit_per_minute`"),
        (without(&text, "entries_per_minute_per_client"), "missing field `entries_per_minute_per_client`"),
        (without(&text, "mode"), "missing field `mode`"),
        (text.replace("\"pass_ttl_s\"", "\"sub_windows\""), "duplicate field `sub_windows`"),
        (
            text.replace("\"open\"", "\"half\"").replace("\"closed\"", "\"half\""),
            "`half` is no on_store_failure",
        ),
        (text.replace("\"sub_windows\": 10", "\"sub_windows\": \"10\""), "expected u32"),
        (text.replace("\"sub_windows\": 10", "\"sub_windows\": -1"), "expected u32"),
        (text.replace("\"hold\"", "1"), "expected a string"),
    ] {
        assert_ne!(bad, text);
        fs::write(site.path(), bad).expect("written");
        let refused = site.try_start(file([("A", holding(60))])).await.expect_err("refused").to_string();
        assert!(refused.contains("zones.json") && refused.contains(told), "{told}: {refused}");
    }
    fs::write(site.path(), text).expect("written");
    site.start(file([("A", holding(60))])).await;
    assert_eq!(site.zones(), file([("A", saying("a"))]));
}

#[tokio::test]
async fn an_event_that_cannot_be_read_ends_the_start_by_name() {
    let mut site = Site::new();
    site.start(file([("A", holding(60))])).await;
    site.define("A", Expected::Any, Some(planned())).await.expect("changed");
    let text = fs::read_to_string(site.path()).expect("kept");
    fs::write(site.path(), text.replace("2099-12-01T09:00:00Z", "tomorrow")).expect("written");
    let refused = site.try_start(file([("A", holding(60))])).await.expect_err("refused").to_string();
    assert!(refused.contains("zone A: event sale: begins: \"tomorrow\" is not an instant"), "{refused}");
}

/// A view that was asked for before a change, and arrives after it, is not used.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_older_view_takes_a_change_back() {
    // Changes at one gate wait for each other, and for the store's rests.
    let mut sites = JoinSet::new();
    for _ in 0..8 {
        sites.spawn(async {
            let mut site = Site::new();
            site.start(file([("A", holding(60))])).await;
            let gate = Arc::clone(&site.editor().gate);
            for rate in 1..=1_250 {
                // The lane asks for a view while the change is made.
                gate.doubt(|_| true);
                for _ in 0..rate % 7 {
                    tokio::task::yield_now().await;
                }
                gate.serve_zone(&zone("A"), Some(&holding(rate))).await.expect("the store takes it");
                for _ in 0..20 {
                    assert_eq!(gate.policy("A").map(|policy| policy.admit_per_minute), Some(rate));
                    tokio::task::yield_now().await;
                }
            }
        });
    }
    sites.join_all().await;
}

#[tokio::test]
async fn routes_are_kept_over_a_restart_and_changed_only_if_as_expected() {
    use store::RoutesDefined;
    let mut site = Site::new();
    site.start(file([("A", holding(60))])).await;
    let [first, second] = ["[1]", "[2]"].map(Arc::<str>::from);
    assert_eq!(site.editor().routes(), None);
    let set = async |site: &Site, expected: Option<&Arc<str>>, new: &Arc<str>| {
        site.editor().set_routes(expected.cloned(), Arc::clone(new)).await.expect("a disk")
    };
    assert_eq!(set(&site, Some(&first), &second).await, RoutesDefined::Otherwise(None));
    assert_eq!(set(&site, None, &first).await, RoutesDefined::Done);
    assert_eq!(set(&site, None, &second).await, RoutesDefined::Otherwise(Some(Arc::clone(&first))));
    assert_eq!(site.editor().routes().as_ref(), Some(&first));
    site.start(file([("A", holding(60))])).await;
    assert_eq!(site.editor().routes().as_ref(), Some(&first));
    assert_eq!(set(&site, Some(&first), &second).await, RoutesDefined::Done);

    // A file that cannot be read is not taken for none.
    let path = site.dir.path().join("routes.json");
    fs::remove_file(&path).expect("removed");
    fs::create_dir(&path).expect("made");
    let refused = site.try_start(file([("A", holding(60))])).await.expect_err("it is a directory");
    assert!(matches!(&refused, DefineError::Disk(why) if why.contains("routes.json")), "{refused}");
}
