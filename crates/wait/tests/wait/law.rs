//! How people arrive and how long they wait before they leave.

/// Random numbers that follow from a seed (SplitMix64).
pub(crate) struct Dice(u64);

impl Dice {
    pub(crate) fn of(seed: u64) -> Self {
        Self(seed.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ 0x57E1_4A00)
    }

    pub(crate) fn bits(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }

    /// Above 0 and below 1.
    pub(crate) fn part(&mut self) -> f64 {
        ((self.bits() >> 12) as f64 + 0.5) / (1_u64 << 52) as f64
    }
}

/// How long people wait before they leave. Times are in units of the law's scale.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Patience {
    /// Each second the same share leaves (Palm).
    Exponential,
    /// Rates that fall (shape below 1, as measured in call centres by Brown et al., 2005) or rise.
    Weibull(f64),
    /// A share leaves exponentially, the others stay.
    TwoClass(f64),
    /// A share leaves at times that are spread evenly, as `loadgen` plays it.
    Even(f64),
}

/// A law of patience with its scale.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Law {
    pub(crate) patience: Patience,
    /// In seconds; infinite if nobody leaves.
    pub(crate) scale_s: f64,
    /// A share leaves at once that grows with the wait that was told: 1 - exp(-told / this), in seconds.
    pub(crate) balks_s: f64,
}

impl Law {
    /// The share that stays so long at least.
    pub(crate) fn stays(&self, s: f64) -> f64 {
        let x = s / self.scale_s;
        match self.patience {
            Patience::Exponential => (-x).exp(),
            Patience::Weibull(shape) => (-x.powf(shape)).exp(),
            Patience::TwoClass(share) => 1.0 - share + share * (-x).exp(),
            Patience::Even(share) => 1.0 - share * x.min(1.0),
        }
    }

    /// When somebody leaves who was told this wait, in seconds after the join.
    pub(crate) fn draw(&self, told_s: f64, dice: &mut Dice) -> f64 {
        let (balks, u, class) = (dice.part(), dice.part(), dice.part());
        if balks > (-told_s / self.balks_s).exp() {
            return 0.001;
        }
        let x = match self.patience {
            Patience::Exponential => -u.ln(),
            Patience::Weibull(shape) => (-u.ln()).powf(1.0 / shape),
            Patience::TwoClass(share) if class < share => -u.ln(),
            Patience::Even(share) if class < share => u,
            _ => f64::INFINITY,
        };
        x * self.scale_s
    }

    /// The law with the scale at which `share` of the people leaves who arrive so (in seconds), if `per_s` enter.
    pub(crate) fn scaled(self, share: f64, arrivals: &[f64], per_s: f64) -> Self {
        if share <= 0.0 {
            return Self { scale_s: f64::INFINITY, ..self };
        }
        let (mut low, mut high) = (0.01_f64, 1e7_f64);
        for _ in 0..40 {
            let middle = (low * high).sqrt();
            let law = Self { scale_s: middle, ..self };
            if law.share_that_leaves(arrivals, per_s) > share { low = middle } else { high = middle }
        }
        Self { scale_s: (low * high).sqrt(), ..self }
    }

    fn share_that_leaves(&self, arrivals: &[f64], per_s: f64) -> f64 {
        let (mut slot_s, mut stayed) = (0.0_f64, 0.0);
        let each = (arrivals.len() / 2_000).max(1);
        for &at_s in arrivals.iter().step_by(each) {
            let wait_s = (slot_s - at_s).max(0.0);
            let stays = self.stays(wait_s) * (-wait_s / self.balks_s).exp();
            stayed += stays;
            slot_s = slot_s.max(at_s) + stays * each as f64 / per_s;
        }
        1.0 - stayed / arrivals.iter().step_by(each).count() as f64
    }
}

/// How people arrive.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Arrivals {
    /// All within so many seconds.
    Burst(f64),
    /// A flash crowd: a linear rise, then an exponential decay, over so many seconds (Ari et al., 2003).
    Flash(f64),
    /// Evenly over so many seconds.
    Steady(f64),
}

impl Arrivals {
    /// The instants, in seconds and in order.
    pub(crate) fn draw(self, people: usize, dice: &mut Dice) -> Vec<f64> {
        let mut at = || {
            let u = dice.part();
            match self {
                Self::Burst(s) | Self::Steady(s) => u * s,
                Self::Flash(s) if u < 0.2 => s * 0.1 * (u / 0.2).sqrt(),
                Self::Flash(s) => s * (0.1 - 0.3 * ((u - 0.2) / 0.8 * 0.95).mul_add(-1.0, 1.0).ln()),
            }
        };
        let mut times: Vec<f64> = (0..people).map(|_| at()).collect();
        times.sort_by(f64::total_cmp);
        times
    }
}
