//! Operators' changes to the zones of the configuration file: `zones.json` in the data directory.
//!
//! A change counts for as long as the file's entry is the one that was changed. Editing the file's entry later makes the
//! file count again. Invariants: the file on disk is always whole, from before or after a change; a file that cannot be
//! read is refused by name, and never taken for empty.

use std::{
    collections::{BTreeMap, BTreeSet},
    fmt,
    fs::{self, File, OpenOptions},
    io::{self, Read as _, Write as _},
    os::unix::fs::OpenOptionsExt as _,
    path::{Path, PathBuf},
};

use admission::{Definition, FIELDS, Field, FieldKind, Notice, Policy, SECOND_FIELDS, Schedule, ZoneId};
use serde::{
    Deserialize, Deserializer,
    de::{Error as _, MapAccess, Visitor},
};

use super::{definition_json, event_json::EventJson};

/// The name in the data directory.
const NAME: &str = "zones.json";

/// The version of the file format.
const VERSION: u32 = 1;

/// The largest file: the most zones, with the longest notices.
const MAX_LEN: u64 = 256 << 20;

/// Why the overrides cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum OverridesFault {
    /// The system refuses.
    #[error("{}: {doing}: {why}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The operation.
        doing: &'static str,
        /// The system's error.
        why: io::Error,
    },
    /// The file is damaged.
    #[error(
        "{}: {what}; restore it from a copy, or move it away: then the zones are those of the configuration",
        path.display()
    )]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What is wrong.
        what: String,
    },
}

/// One override.
#[derive(Clone, Debug, PartialEq)]
struct Changed {
    /// The file's entry when the change was made.
    file: Option<Definition>,
    /// The definition since; none for a zone that is deleted.
    now: Option<Definition>,
}

/// A zone whose override no longer counts, because the file's entry has changed.
#[derive(Clone, Debug, PartialEq)]
pub(super) struct Dropped {
    pub(super) zone: ZoneId,
    /// What the override made of it; none for a zone that it deleted.
    pub(super) was: Option<Definition>,
}

/// The file's zones, and the overrides.
#[derive(Clone, Debug)]
pub(super) struct Overrides {
    dir: PathBuf,
    file: BTreeMap<ZoneId, Definition>,
    changes: BTreeMap<ZoneId, Changed>,
}

impl Overrides {
    /// Reads the overrides of the zones of `file`. Also returns those that no longer count.
    ///
    /// # Errors
    /// An [`OverridesFault`] if the file exists and cannot be read.
    pub(super) fn read(
        dir: &Path,
        file: Vec<(ZoneId, Definition)>,
    ) -> Result<(Self, Vec<Dropped>), OverridesFault> {
        let path = dir.join(NAME);
        let io = |doing| {
            let path = path.clone();
            move |why| OverridesFault::Io { path, doing, why }
        };
        let changes = match File::open(&path) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => BTreeMap::new(),
            Err(e) => return Err(io("open")(e)),
            Ok(open) => {
                let mut text = String::new();
                open.take(MAX_LEN).read_to_string(&mut text).map_err(io("read"))?;
                parse(&text).map_err(|what| OverridesFault::Damaged { path, what })?
            }
        };
        Ok(Self { dir: dir.to_owned(), file: BTreeMap::new(), changes }.with_file(file))
    }

    /// The same over the zones of `file` as they are now, and the overrides that no longer count.
    pub(super) fn with_file(&self, file: Vec<(ZoneId, Definition)>) -> (Self, Vec<Dropped>) {
        let file: BTreeMap<_, _> = file.into_iter().collect();
        let mut dropped = Vec::new();
        let mut changes = self.changes.clone();
        changes.retain(|zone, changed| {
            let counts = file.get(zone) == changed.file.as_ref();
            if !counts {
                dropped.push(Dropped { zone: zone.clone(), was: changed.now.clone() });
            }
            counts
        });
        (Self { dir: self.dir.clone(), file, changes }, dropped)
    }

    /// The same with one zone defined anew, or deleted where `now` is none.
    pub(super) fn with(&self, zone: &ZoneId, now: Option<Definition>) -> Self {
        let mut next = self.clone();
        let file = self.file.get(zone).cloned();
        if now == file {
            next.changes.remove(zone);
        } else {
            next.changes.insert(zone.clone(), Changed { file, now });
        }
        next
    }

    /// The definition of a zone.
    pub(super) fn get(&self, zone: &ZoneId) -> Option<&Definition> {
        match self.changes.get(zone) {
            Some(changed) => changed.now.as_ref(),
            None => self.file.get(zone),
        }
    }

    /// The definitions of all zones, in the order of their names.
    pub(super) fn zones(&self) -> Vec<(ZoneId, Definition)> {
        let mut zones = self.file.clone();
        for (zone, changed) in &self.changes {
            match &changed.now {
                Some(now) => drop(zones.insert(zone.clone(), now.clone())),
                None => drop(zones.remove(zone)),
            }
        }
        zones.into_iter().collect()
    }

    /// The number of overrides, including deleted zones.
    pub(super) fn kept(&self) -> usize {
        self.changes.len()
    }

    /// Writes the overrides beside the file in use, whole and synced, so that little is left that may fail. Blocks.
    ///
    /// # Errors
    /// The system's error. Nothing is changed then.
    pub(super) fn stage(&self) -> Result<Staged, OverridesFault> {
        Staged::write(&self.dir, NAME, &self.text())
    }

    /// The data directory.
    pub(super) fn dir(&self) -> &Path {
        &self.dir
    }

    fn text(&self) -> String {
        let value = |definition: &Option<Definition>| {
            let text = definition.as_ref().map(definition_json);
            text.map_or(serde_json::Value::Null, |text| {
                serde_json::from_str(&text).expect("it is written as JSON")
            })
        };
        let zones = self.changes.iter().map(|(zone, changed)| {
            serde_json::json!({
                "zone": zone.as_str(), "file": value(&changed.file), "now": value(&changed.now),
            })
        });
        let zones: Vec<_> = zones.collect();
        let all = serde_json::json!({ "version": VERSION, "zones": zones });
        format!("{}\n", serde_json::to_string_pretty(&all).expect("texts and numbers are JSON"))
    }
}

/// A file that is written, and not in use yet.
#[derive(Debug)]
pub(super) struct Staged {
    unfinished: PathBuf,
    path: PathBuf,
    dir: PathBuf,
    used: bool,
}

impl Staged {
    /// Writes a file of the data directory beside the one in use. Blocks.
    ///
    /// # Errors
    /// The system's error. Nothing is changed then.
    pub(super) fn write(dir: &Path, name: &str, text: &str) -> Result<Self, OverridesFault> {
        let path = dir.join(name);
        let unfinished = path.with_extension("json.unfinished");
        let staged = Self { unfinished, path, dir: dir.to_owned(), used: false };
        let written = (|| {
            let mut options = OpenOptions::new();
            options.write(true).create(true).truncate(true).mode(0o600);
            let mut file = options.open(&staged.unfinished)?;
            file.write_all(text.as_bytes())?;
            file.sync_all()
        })();
        written
            .map_err(|why| OverridesFault::Io { path: staged.unfinished.clone(), doing: "write", why })
            .map(|()| staged)
    }

    /// Takes the file into use. Blocks.
    ///
    /// # Errors
    /// The system's error. The file that was in use stays in use.
    pub(super) fn commit(mut self) -> Result<(), OverridesFault> {
        fs::rename(&self.unfinished, &self.path).map_err(|why| OverridesFault::Io {
            path: self.path.clone(),
            doing: "rename to it",
            why,
        })?;
        self.used = true;
        // The file is in use even if this fails. A loss of power may bring back the previous file.
        if let Err(why) = File::open(&self.dir).and_then(|dir| dir.sync_all()) {
            tracing::error!(file = %self.path.display(), %why, "the directory cannot be synced");
        }
        Ok(())
    }
}

impl Drop for Staged {
    fn drop(&mut self) {
        if !self.used {
            // If this fails, the next change overwrites the file.
            let _ = fs::remove_file(&self.unfinished);
        }
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Whole {
    version: u32,
    zones: Vec<OfZone>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct OfZone {
    zone: String,
    file: Option<Defined>,
    now: Option<Defined>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Defined {
    policy: WrittenPolicy,
    notice: BTreeMap<String, String>,
    #[serde(default)]
    events: Vec<EventJson>,
}

impl Defined {
    fn definition(&self) -> Result<Definition, String> {
        let policy = self.policy.0.clone()?;
        let notice = Notice::new(&self.notice).map_err(|e| e.to_string())?;
        let event = |json: &EventJson| json.event().map_err(|fault| format!("event {}: {fault}", json.id));
        let events = self.events.iter().map(event).collect::<Result<_, _>>()?;
        let schedule = Schedule::new(events, &policy).map_err(|e| e.to_string())?;
        Ok(Definition { policy, notice, schedule })
    }
}

/// A policy of the file, or the value that is wrong. No field may be there twice. The first [`SECOND_FIELDS`] must be there,
/// because a missing one would silently get its default. An older server wrote the file if a later field is missing.
struct WrittenPolicy(Result<Policy, String>);

impl<'de> Deserialize<'de> for WrittenPolicy {
    fn deserialize<D: Deserializer<'de>>(file: D) -> Result<Self, D::Error> {
        file.deserialize_map(PolicyVisitor).map(Self)
    }
}

struct PolicyVisitor;

impl<'de> Visitor<'de> for PolicyVisitor {
    type Value = Result<Policy, String>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("the fields of a policy")
    }

    fn visit_map<M: MapAccess<'de>>(self, mut map: M) -> Result<Self::Value, M::Error> {
        let (mut policy, mut wrong, mut seen) = (Policy::default(), None, BTreeSet::new());
        while let Some(name) = map.next_key::<String>()? {
            let field =
                Field::named(&name).ok_or_else(|| M::Error::custom(format!("unknown field `{name}`")))?;
            if !seen.insert(field.name) {
                return Err(M::Error::duplicate_field(field.name));
            }
            let (is_set, written) = match field.kind {
                FieldKind::Number { .. } => {
                    let number = map.next_value()?;
                    (field.set(&mut policy, number), number.to_string())
                }
                FieldKind::Word { .. } => {
                    let word = map.next_value::<String>()?;
                    (field.set_text(&mut policy, &word).is_ok(), word)
                }
                FieldKind::Instant => {
                    let text = map.next_value::<Option<String>>()?.unwrap_or_else(|| "none".to_owned());
                    (field.set_text(&mut policy, &text).is_ok(), text)
                }
            };
            if !is_set {
                wrong.get_or_insert(format!("`{written}` is no {name}"));
            }
        }
        if let Some(missing) = FIELDS[..SECOND_FIELDS].iter().find(|field| !seen.contains(field.name)) {
            return Err(M::Error::missing_field(missing.name));
        }
        Ok(match wrong {
            Some(wrong) => Err(wrong),
            None => policy.check().map_err(|e| e.to_string()),
        })
    }
}

fn parse(text: &str) -> Result<BTreeMap<ZoneId, Changed>, String> {
    let whole: Whole = serde_json::from_str(text).map_err(|e| e.to_string())?;
    if whole.version != VERSION {
        return Err(format!("is of version {}, and this server reads {VERSION}", whole.version));
    }
    let changed = |of: OfZone| {
        let in_zone = |what: String| format!("zone {}: {what}", of.zone);
        let definition = |defined: &Option<Defined>| {
            defined.as_ref().map(Defined::definition).transpose().map_err(in_zone)
        };
        let (file, now) = (definition(&of.file)?, definition(&of.now)?);
        Ok((ZoneId::parse(&of.zone).map_err(|e| in_zone(e.to_string()))?, Changed { file, now }))
    };
    whole.zones.into_iter().map(changed).collect()
}
