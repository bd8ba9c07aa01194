//! The visitors inside a zone, as far as this server knows them: who was active here since the last report, and who left.
//!
//! Activity is a bit that is set without a lock, once somebody of its page was active here. Invariants: an activity is reported by the
//! next report, or by a later one if that fails; it may be lost if it is the first one on its page for a while. A visit is one of this line:
//! an epoch that the line does not know marks nobody.

use std::{
    collections::HashMap,
    sync::{
        Arc, Mutex, PoisonError,
        atomic::{AtomicBool, Ordering},
    },
};

use admission::{PAGE_TICKETS, PAGE_WORDS, PagePolls, Words};
use arc_swap::ArcSwap;
use store::{LeftVisits, Line};

use super::{MAX_TICKETS_BEYOND_VIEW, Room, polls::Page};

/// A page that nobody was active in for so many reports is forgotten.
const QUIET_REPORTS: u32 = 60;

#[derive(Clone)]
struct Noted {
    page: Arc<Page>,
    /// The reports since somebody of the page was active.
    quiet: u32,
}

/// The visitors of one zone.
#[derive(Default)]
pub(super) struct Visitors {
    /// Who was active, by page.
    seen: ArcSwap<HashMap<u64, Noted>>,
    /// Held while pages are added or removed.
    changing: Mutex<()>,
    /// The tickets whose holders left lately, by page.
    left: ArcSwap<HashMap<u64, Arc<Words>>>,
    /// The line's earlier epochs, each with the number that its tickets are below.
    epochs: ArcSwap<Vec<(u32, u64)>>,
    /// Whether the last report was of a zone that counts the people inside.
    counted: AtomicBool,
}

impl Visitors {
    /// Notes that the visitor with this ticket was active.
    pub(super) fn note(&self, seq: u64) {
        let number = seq / PAGE_TICKETS as u64;
        if let Some(noted) = self.seen.load().get(&number) {
            noted.page.note(seq);
            return;
        }
        let _changing = self.changing.lock().unwrap_or_else(PoisonError::into_inner);
        let mut pages = HashMap::clone(&self.seen.load());
        let noted = pages.entry(number).or_insert_with(|| Noted { page: Arc::default(), quiet: 0 });
        noted.page.note(seq);
        self.seen.store(Arc::new(pages));
    }

    /// Notes that the store ended the visit of this ticket.
    pub(super) fn leave(&self, seq: u64) {
        let mut left = HashMap::clone(&self.left.load());
        set(&mut left, seq);
        self.left.store(Arc::new(left));
    }

    /// Whether the visitor with this ticket left lately.
    pub(super) fn has_left(&self, seq: u64) -> bool {
        let (page, word, bit) = place(seq);
        self.left.load().get(&page).is_some_and(|words| words[word] & bit != 0)
    }

    /// Whether a report is due: the zone counts the people inside, or did so until now.
    pub(super) fn is_due(&self, counts: bool) -> bool {
        self.counted.swap(counts, Ordering::Relaxed) || counts
    }

    /// Takes what was noted since the last report.
    pub(super) fn take(&self) -> Vec<PagePolls> {
        let _changing = self.changing.lock().unwrap_or_else(PoisonError::into_inner);
        let mut pages = HashMap::clone(&self.seen.load());
        let mut seen = Vec::new();
        for (number, noted) in &mut pages {
            noted.quiet += 1;
            if let Some(words) = noted.page.take() {
                noted.quiet = 0;
                seen.push(PagePolls { page: *number, words });
            }
        }
        // An activity that is noted in such a page at this very moment is lost. The visitor's next one is not.
        pages.retain(|_, noted| noted.quiet < QUIET_REPORTS);
        self.seen.store(Arc::new(pages));
        seen
    }

    /// Notes again what a failed report had taken.
    pub(super) fn give_back(&self, seen: &[PagePolls]) {
        let of_word = |first: u64, word: u64| {
            (0..64).filter(move |bit| word >> bit & 1 == 1).map(move |bit| first + bit)
        };
        for page in seen {
            let words = page.words.iter().zip((page.page * PAGE_TICKETS as u64..).step_by(64));
            words.flat_map(|(&word, first)| of_word(first, word)).for_each(|seq| self.note(seq));
        }
    }

    /// Takes in who left, as the store says. The lane makes one call at a time, so the store knows of all who left here.
    pub(super) fn set_left(&self, left: LeftVisits) {
        self.left.store(Arc::new(left.pages.into_iter().collect()));
        if **self.epochs.load() != left.epochs {
            self.epochs.store(Arc::new(left.epochs));
        }
    }
}

impl<L: Line> Room<L> {
    /// Whether a ticket is one of this line, as far as this server knows. Numbers may have been given out since the view in use was
    /// made.
    fn is_of_line(&self, epoch: u32, seq: u64) -> bool {
        let current = self.current.load();
        let view = &current.view;
        // A deal that was lost is made again, with the same numbers in another epoch.
        if view.drawn.has(seq) {
            return true;
        }
        if epoch == view.epoch {
            return seq < view.next + MAX_TICKETS_BEYOND_VIEW;
        }
        self.visitors.epochs.load().iter().any(|&(of, below)| of == epoch && seq < below)
    }

    /// Whether the visit of this ticket was left lately.
    pub(crate) fn has_left(&self, epoch: u32, seq: u64) -> bool {
        self.policy().max_active > 0 && self.visitors.has_left(seq) && self.is_of_line(epoch, seq)
    }

    /// Notes that the visitor with this ticket is active. A ticket of another line has somebody else's number.
    pub(crate) fn note_visit(&self, epoch: u32, seq: u64) {
        #[cfg(feature = "sabotage")]
        if admission::sabotage::on(admission::sabotage::Rule::Activity) {
            return;
        }
        if self.policy().max_active == 0 {
            return;
        }
        if self.is_of_line(epoch, seq) {
            self.visitors.note(seq);
        }
        // Where nobody waits, nothing else makes the lane report who is active, and hear who left.
        if self.is_unwatched() {
            self.order_renewal();
        }
    }
}

/// Sets the bit of a ticket.
fn set(pages: &mut HashMap<u64, Arc<Words>>, seq: u64) {
    let (page, word, bit) = place(seq);
    Arc::make_mut(pages.entry(page).or_insert_with(|| Arc::new([0; PAGE_WORDS])))[word] |= bit;
}

/// The page of a ticket, and its word and bit there.
fn place(seq: u64) -> (u64, usize, u64) {
    let within = seq % PAGE_TICKETS as u64;
    let word = (within / 64) as usize;
    (seq / PAGE_TICKETS as u64, word, 1 << (within % 64))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seqs(pages: &[PagePolls]) -> Vec<u64> {
        let mut seqs: Vec<u64> = (0..100_000)
            .filter(|&seq| {
                let (page, word, bit) = place(seq);
                pages.iter().any(|of| of.page == page && of.words[word] & bit != 0)
            })
            .collect();
        seqs.sort_unstable();
        seqs
    }

    #[test]
    fn what_a_failed_report_took_is_reported_again() {
        let visitors = Visitors::default();
        for seq in [5, 64, 9_000, 5] {
            visitors.note(seq);
        }
        let taken = visitors.take();
        assert_eq!(seqs(&taken), [5, 64, 9_000]);
        assert!(visitors.take().is_empty());
        visitors.give_back(&taken);
        visitors.note(6);
        assert_eq!(seqs(&visitors.take()), [5, 6, 64, 9_000]);
    }

    #[test]
    fn whoever_leaves_has_left_at_once_and_until_the_store_forgets_it() {
        let visitors = Visitors::default();
        visitors.leave(9_000);
        assert!(visitors.has_left(9_000) && !visitors.has_left(9_001));
        let mut words = [0; PAGE_WORDS];
        let (page, word, bit) = place(9_000);
        words[word] = bit;
        visitors.set_left(LeftVisits { pages: vec![(page, Arc::new(words))], epochs: Vec::new() });
        assert!(visitors.has_left(9_000));
        visitors.set_left(LeftVisits::default());
        assert!(!visitors.has_left(9_000));
    }

    #[test]
    fn a_quiet_page_is_forgotten() {
        let visitors = Visitors::default();
        visitors.note(5);
        for _ in 0..=QUIET_REPORTS {
            visitors.take();
        }
        assert!(visitors.seen.load().is_empty());
        visitors.note(5);
        assert_eq!(seqs(&visitors.take()), [5]);
    }
}
