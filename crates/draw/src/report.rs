//! What a verification found: each check in words, what it cannot show, and the first fault.
//!
//! Invariants: a step is in the report only after it was checked. Each step, limit and fault is shown on one line, from left to
//! right, whatever the files contain.

use crate::{fault::Fault, spelling::shown};

/// The result of a verification.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Report {
    /// What was checked and is right, in order.
    pub steps: Vec<String>,
    /// What nobody can see from these files, or what was not checked.
    pub limits: Vec<String>,
    /// The first fault. After it nothing more was checked.
    pub fault: Option<Fault>,
}

impl Report {
    /// Whether everything that was checked is right.
    #[must_use]
    pub fn is_right(&self) -> bool {
        self.fault.is_none()
    }

    pub(crate) fn step(&mut self, step: impl Into<String>) {
        self.steps.push(shown(&step.into()));
    }

    pub(crate) fn limit(&mut self, limit: impl Into<String>) {
        self.limits.push(shown(&limit.into()));
    }
}

/// One line a step, a limit or a fault.
impl std::fmt::Display for Report {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        for step in &self.steps {
            writeln!(f, "ok: {step}")?;
        }
        if let Some(fault) = &self.fault {
            writeln!(f, "WRONG: {}", shown(&fault.to_string()))?;
        }
        for limit in &self.limits {
            writeln!(f, "note: {limit}")?;
        }
        Ok(())
    }
}
