//! A formula for what Redis does in a second: `a + b * beats + c * beats * people + d * newcomers`.
//!
//! Beats are those of all servers in a second: one for each server, or a little less if beats take long. It is fitted by
//! least squares of the relative errors.

/// How many constants the formula has.
pub(crate) const CONSTANTS: usize = 4;

/// What the formula knows of a row.
#[derive(Clone, Copy)]
pub(crate) struct Known {
    /// Beats a second, of all servers.
    pub(crate) beats: f64,
    /// People in line.
    pub(crate) people: f64,
    /// People who come, and enter, in a second.
    pub(crate) newcomers: f64,
}

impl Known {
    fn parts(self) -> [f64; CONSTANTS] {
        [1.0, self.beats, self.beats * self.people, self.newcomers]
    }
}

/// The formula's constants.
#[derive(Clone, Copy)]
pub(crate) struct Formula(pub(crate) [f64; CONSTANTS]);

impl Formula {
    /// Fits the formula to rows and their values, which are positive. `None` if the rows do not determine all constants.
    pub(crate) fn fit(rows: &[(Known, f64)]) -> Option<Self> {
        // The normal equations. Parts and values are scaled, so that they are of one size.
        let most = rows.iter().map(|(_, value)| *value).fold(0.0, f64::max);
        let mut scale = [0.0_f64; CONSTANTS];
        for (known, _) in rows {
            for (scale, part) in scale.iter_mut().zip(known.parts()) {
                *scale = scale.max(part);
            }
        }
        let mut equations = [[0.0; CONSTANTS + 1]; CONSTANTS];
        for (known, value) in rows {
            let parts: [f64; CONSTANTS] =
                std::array::from_fn(|i| known.parts()[i] / scale[i] * (most / value));
            for (equation, part) in equations.iter_mut().zip(parts) {
                for (sum, other) in equation.iter_mut().zip(parts.into_iter().chain([1.0])) {
                    *sum += part * other;
                }
            }
        }
        let solved = solve(equations)?;
        Some(Self(std::array::from_fn(|i| solved[i] * most / scale[i])))
    }

    /// The value for a row.
    pub(crate) fn of(&self, known: Known) -> f64 {
        self.0.iter().zip(known.parts()).map(|(constant, part)| constant * part).sum()
    }
}

/// Solves linear equations by elimination, the largest pivot first. Each row ends with its right side.
fn solve(mut rows: [[f64; CONSTANTS + 1]; CONSTANTS]) -> Option<[f64; CONSTANTS]> {
    for at in 0..CONSTANTS {
        let pivot = (at..CONSTANTS).max_by(|&a, &b| rows[a][at].abs().total_cmp(&rows[b][at].abs()))?;
        rows.swap(at, pivot);
        let own = rows[at];
        if !own[at].is_normal() || own[at].abs() < 1e-12 {
            return None;
        }
        for (other, row) in rows.iter_mut().enumerate() {
            if other != at {
                let times = row[at] / own[at];
                row.iter_mut().zip(own).for_each(|(value, own)| *value -= times * own);
            }
        }
    }
    Some(std::array::from_fn(|i| rows[i][CONSTANTS] / rows[i][i]))
}
