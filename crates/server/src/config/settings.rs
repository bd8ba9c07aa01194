//! What a setting is, and the values that it is given.
//!
//! Invariant: a setting that is not in [`SETTINGS`] cannot be given anywhere. One that is can be given by flag, by variable
//! and in the file; secrets only by variable and in the file.

use std::fmt;

use clap::{Arg, ArgMatches};
use shown::value;

use super::ConfigFault;
pub(super) use table::SETTINGS;

#[cfg(test)]
mod reference;
mod table;

/// The kind of a setting's value.
#[derive(Clone, Copy, Debug)]
pub(super) enum Kind {
    Text,
    /// Lowest and highest value.
    Number(u32, u32),
    /// A number from 0 to 1, with at most six digits behind the point.
    Share,
    /// Several texts, separated by commas outside the file.
    List,
    /// A text that is never shown. It has no flag, because everybody on the machine can read a command line.
    Secret,
}

/// One setting.
#[derive(Debug)]
pub(super) struct Setting {
    /// The name in the file, with its table before a dot.
    pub(super) name: &'static str,
    pub(super) kind: Kind,
    value_name: &'static str,
    help: &'static str,
    default: Default,
}

/// What is in force where a setting is not given.
#[derive(Clone, Copy, Debug)]
enum Default {
    /// This value, as it would be given by flag.
    Value(&'static str),
    /// Something that depends on the machine or on other settings, in words.
    Described(&'static str),
    /// Not mentioned in the help.
    Unmentioned,
}

impl Setting {
    fn has_flag(&self) -> bool {
        !matches!(self.kind, Kind::Secret)
    }

    /// The default in words, if it is mentioned in the help.
    fn default_text(&self) -> Option<&'static str> {
        match self.default {
            Default::Value(text) | Default::Described(text) => Some(text),
            Default::Unmentioned => None,
        }
    }

    fn help_with_default(&self) -> String {
        let default = self.default_text().map(|text| format!(" [default: {text}]"));
        format!("{}{}", self.help, default.unwrap_or_default())
    }

    pub(super) fn flag(&self) -> String {
        self.name.replace(['.', '_'], "-")
    }

    pub(super) fn variable(&self) -> String {
        format!("WEIR_{}", self.name.replace('.', "_").to_uppercase())
    }
}

/// Where a value comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Origin {
    /// It was not given: it is a default.
    Default,
    Flag(String),
    Variable(String),
    /// File, line, field.
    File(String, usize, String),
}

impl fmt::Display for Origin {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Default => f.write_str("by default"),
            Self::Flag(name) => write!(f, "--{name}"),
            Self::Variable(name) => f.write_str(name),
            Self::File(file, line, field) if field.is_empty() => write!(f, "{file}:{line}"),
            Self::File(file, line, field) => write!(f, "{file}:{line}: {field}"),
        }
    }
}

impl Origin {
    pub(super) fn fault(&self, what: impl fmt::Display) -> ConfigFault {
        ConfigFault(format!("{self}: {what}"))
    }
}

/// A value.
#[derive(Clone, PartialEq, Eq)]
pub(super) enum Value {
    Text(String),
    Number(u32),
    /// In millionths.
    Share(u32),
    List(Vec<String>),
}

/// A value and its origin.
#[derive(Clone)]
pub(super) struct SettingValue {
    pub(super) value: Value,
    pub(super) origin: Origin,
}

impl fmt::Debug for SettingValue {
    /// Only the origin, because some values are secrets.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "given by {}", self.origin)
    }
}

impl Value {
    /// A text. Deployments that fill in variables leave them empty by mistake. No text may be empty, a password least of all.
    pub(super) fn of_text(text: &str, origin: &Origin) -> Result<Self, ConfigFault> {
        Ok(Self::Text(not_empty(text, origin)?.to_owned()))
    }

    /// A share of 1.
    #[expect(clippy::cast_possible_truncation, clippy::cast_sign_loss, reason = "it is from 0 to a million")]
    pub(super) fn of_share(text: &str, origin: &Origin) -> Result<Self, ConfigFault> {
        let share = text.parse::<f64>().ok().filter(|share| (0.0..=1.0).contains(share));
        let millionths = share.map(|share| share * 1e6).filter(|parts| (parts - parts.round()).abs() < 1e-6);
        let what = || {
            let text = value(text);
            format!("is {text}, and must be a number from 0 to 1 with at most six digits behind the point")
        };
        Ok(Self::Share(millionths.ok_or_else(|| origin.fault(what()))?.round() as u32))
    }
}

/// A text that is given, and so may not be empty.
pub(crate) fn not_empty<'a>(text: &'a str, origin: &Origin) -> Result<&'a str, ConfigFault> {
    if text.is_empty() { Err(origin.fault("is empty; set it, or take it away")) } else { Ok(text) }
}

impl Setting {
    /// Reads a value from the text of a flag or variable.
    pub(super) fn read(&self, text: &str, origin: Origin) -> Result<SettingValue, ConfigFault> {
        let value = match self.kind {
            Kind::Text | Kind::Secret => Value::of_text(text, &origin)?,
            Kind::List => {
                let parts = text.split(',').map(str::trim).filter(|part| !part.is_empty());
                let parts: Vec<_> = parts.map(str::to_owned).collect();
                not_empty(parts.first().map_or("", String::as_str), &origin)?;
                Value::List(parts)
            }
            Kind::Number(low, high) => {
                let number = text.trim().parse().ok().filter(|n| (low..=high).contains(n));
                let number = number.ok_or_else(|| origin.fault(out_of_range(value(text), low, high)))?;
                Value::Number(number)
            }
            Kind::Share => Value::of_share(text.trim(), &origin)?,
        };
        Ok(SettingValue { value, origin })
    }
}

pub(super) fn out_of_range(value: impl fmt::Display, low: u32, high: u32) -> String {
    format!("is {value}, and must be a whole number from {low} to {high}")
}

/// The default of a setting, as text, if it has a fixed one.
pub(super) fn default_of(name: &str) -> Option<&'static str> {
    let setting = SETTINGS.iter().find(|setting| setting.name == name)?;
    match setting.default {
        Default::Value(text) => Some(text),
        Default::Described(_) | Default::Unmentioned => None,
    }
}

/// The values of all settings that have a fixed default.
pub(super) fn defaults() -> impl Iterator<Item = (&'static str, SettingValue)> {
    SETTINGS.iter().filter_map(|setting| {
        let text = default_of(setting.name)?;
        Some((setting.name, setting.read(text, Origin::Default).expect("defaults are valid")))
    })
}

/// The arguments of all settings that have a flag, and of the file.
pub(super) fn arguments() -> Vec<Arg> {
    let mut flags = vec![
        Arg::new("config")
            .long("config")
            .value_name("FILE")
            .help("Settings and zones, TOML [env: WEIR_CONFIG]"),
    ];
    flags.extend(SETTINGS.iter().filter(|s| s.has_flag()).map(|s| {
        let help = format!("{} [env: {}]", s.help_with_default(), s.variable());
        Arg::new(s.name).long(s.flag()).value_name(s.value_name).help(help)
    }));
    flags
}

/// The values of variables and flags. Later ones override earlier ones.
pub(super) fn outside_the_file(
    args: &ArgMatches,
    variable: impl Fn(&str) -> Option<String>,
) -> Result<Vec<(&'static str, SettingValue)>, ConfigFault> {
    let mut given = Vec::new();
    for setting in SETTINGS {
        let name = setting.variable();
        if let Some(text) = variable(&name) {
            given.push((setting.name, setting.read(&text, Origin::Variable(name))?));
        }
        if setting.has_flag()
            && let Some(text) = args.get_one::<String>(setting.name)
        {
            given.push((setting.name, setting.read(text, Origin::Flag(setting.flag()))?));
        }
    }
    Ok(given)
}
