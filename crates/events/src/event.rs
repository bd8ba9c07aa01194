//! The kinds of events, their scopes, and their layout in a ring.
//!
//! An event is a plain value of at most 56 bytes. Publishing reads no clock: an instant in an event is one that the
//! publisher knew anyway. If the server acts in batches, the event says how many.
//!
//! Invariants: each kind has one [`Scope`]. No public or federated event names a ticket. No event holds a token, an address
//! or other personal data. An event read from a ring equals the published one.

use admission::{FIELDS, FIELDS_LEN, Mode, Policy};

use crate::{
    Scope, ZoneNumber,
    slot::{EVENT_WORDS, EventWords, Field, Words, aligned},
};

/// An event that knows its kind and its bytes. Sealed: only this crate defines kinds.
pub trait Packed: Copy {
    /// The event's kind.
    const KIND: Kind;
    /// The event's length, in half words.
    #[doc(hidden)]
    const HALVES: usize;
    /// Writes the event.
    #[doc(hidden)]
    fn pack(self, words: &mut EventWords);
    /// Reads an event that `pack` wrote. Any other words give an arbitrary event.
    #[doc(hidden)]
    fn unpack(words: &impl Words) -> Self;
}

/// The name of a kind for clients: that of its type, or the one given.
macro_rules! kind_name {
    ($name:ident) => {
        stringify!($name)
    };
    ($name:ident, $public:literal) => {
        $public
    };
}

/// Defines the kinds. Each starts with its name, its scope, and the events that a publisher's ring holds. `Kind as "Name"`
/// keeps the name that clients read where the Rust name differs.
macro_rules! events {
    ($($(#[$doc:meta])* $name:ident $(as $public:literal)?, $scope:ident, $ring:tt {
        $($(#[$field_doc:meta])* $field:ident: $type:ty,)*
    })*) => {
        $(
            $(#[$doc])*
            #[derive(Clone, Copy, Debug, PartialEq)]
            pub struct $name {
                $($(#[$field_doc])* pub $field: $type,)*
            }

            impl Packed for $name {
                const KIND: Kind = Kind::$name;
                const HALVES: usize = {
                    let halves = 0;
                    $(let halves = aligned(halves, <$type as Field>::HALVES) + <$type as Field>::HALVES;)*
                    assert!(halves <= 2 * EVENT_WORDS, "an event fits its slot");
                    halves
                };

                #[inline]
                fn pack(self, words: &mut EventWords) {
                    let at = 0;
                    $(
                        let from = aligned(at, <$type as Field>::HALVES);
                        self.$field.put(words, from);
                        let at = from + <$type as Field>::HALVES;
                    )*
                    debug_assert_eq!(at, Self::HALVES);
                }

                #[inline]
                fn unpack(words: &impl Words) -> Self {
                    let at = 0;
                    $(
                        let from = aligned(at, <$type as Field>::HALVES);
                        let $field = <$type as Field>::get(words, from);
                        let at = from + <$type as Field>::HALVES;
                    )*
                    debug_assert_eq!(at, Self::HALVES);
                    Self { $($field,)* }
                }
            }

            impl From<$name> for Event {
                fn from(event: $name) -> Self {
                    Self::$name(event)
                }
            }
        )*

        /// Any event.
        #[derive(Clone, Copy, Debug, PartialEq)]
        pub enum Event {
            $($(#[$doc])* $name($name),)*
        }

        impl Event {
            /// The event's kind.
            #[must_use]
            pub fn kind(&self) -> Kind {
                match self { $(Self::$name(_) => Kind::$name,)* }
            }

            /// Reads events of one kind. Words that are not such an event give an arbitrary event.
            #[inline]
            pub(crate) fn unpack<'a, W: Words + 'a>(
                kind: Kind,
                slots: impl Iterator<Item = &'a W>,
                into: &mut Vec<Self>,
            ) {
                match kind {
                    $(Kind::$name => into.extend(slots.map(|slot| Self::$name($name::unpack(slot)))),)*
                }
            }
        }

        /// The kind of an event. Subscriptions name kinds.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(u8)]
        pub enum Kind {
            $($(#[$doc])* $name,)*
        }

        impl Kind {
            /// All kinds.
            pub const ALL: &'static [Self] = &[$(Self::$name,)*];

            /// The scope that may receive the kind.
            #[must_use]
            pub const fn scope(self) -> Scope {
                match self { $(Self::$name => Scope::$scope,)* }
            }

            /// The name for clients: that of the event's type, unless another one is given.
            #[must_use]
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$name => kind_name!($name $(, $public)?),)* }
            }

            /// The default length of a publishing thread's ring for this kind, in events; a power of two. A sleeping
            /// subscriber can take that many events when it wakes up.
            #[must_use]
            pub const fn ring_len(self) -> usize {
                match self { $(Self::$name => $ring,)* }
            }
        }
    };
}

/// The ring of a kind that a thread may publish for each zone at once, as at a start or a reload: a server has up to 4,096 zones.
const OF_ZONES: usize = 8192;

events! {
    /// A new view of a zone is in use, so ranks and waits may have changed. About once a second for each zone in use.
    ViewShown, Public, OF_ZONES {
        /// The zone.
        zone: ZoneNumber,
        /// The line's epoch.
        epoch: u32,
        /// The instant, in milliseconds on the store's clock.
        at_ms: u64,
    }

    /// The mode of a zone changed.
    ModeChanged, Public, OF_ZONES {
        /// The zone.
        zone: ZoneNumber,
        /// The new mode.
        mode: Mode,
    }

    /// A zone's policy changed.
    PolicyChanged, Federated, OF_ZONES {
        /// The zone.
        zone: ZoneNumber,
        /// The whole new policy.
        policy: Policy,
    }

    /// A zone's notice changed.
    NoticeChanged, Federated, OF_ZONES {
        /// The zone.
        zone: ZoneNumber,
    }

    /// A zone is defined in another way: its own policy, its notice or its events. Its policy in force may be as before.
    DefinitionChanged, Federated, OF_ZONES {
        /// The zone.
        zone: ZoneNumber,
    }

    /// A zone is served from now on.
    ZoneAdded, Federated, OF_ZONES {
        /// The zone.
        zone: ZoneNumber,
        /// Its policy.
        policy: Policy,
    }

    /// A zone is not served any more.
    ZoneRemoved, Federated, OF_ZONES {
        /// The zone.
        zone: ZoneNumber,
    }

    /// Tickets were issued: `count` of them, from `first` on.
    Joined, Private, 4096 {
        /// The zone.
        zone: ZoneNumber,
        /// The line's epoch.
        epoch: u32,
        /// The number of the first ticket.
        first: u64,
        /// The number of tickets; at least 1.
        count: u32,
        /// The number of these that entered at once.
        entered: u32,
        /// The instant, in milliseconds on the store's clock.
        at_ms: u64,
    }

    /// A ticket's holder entered.
    Entered, Private, 4096 {
        /// The zone.
        zone: ZoneNumber,
        /// The wait, in milliseconds.
        waited_ms: u32,
        /// The wait told when the ticket was issued, in seconds; 0 if none was told.
        told_s: u32,
        /// The ends of the range that was told with it, in seconds; both 0 if no range is known.
        told_low_s: u32,
        /// The later end.
        told_high_s: u32,
        /// The instant, in milliseconds on the store's clock.
        at_ms: u64,
    }

    /// Tickets were evicted: their holders were silent, or gave up their places. A server learns this from the store's snapshots, so each server of a shared store
    /// publishes the same evictions.
    Evicted, Private, OF_ZONES {
        /// The zone.
        zone: ZoneNumber,
        /// The number of tickets; at least 1.
        count: u32,
        /// The instant of the snapshot, in milliseconds on the store's clock.
        at_ms: u64,
    }

    /// Calls were refused.
    Refused, Private, 4096 {
        /// The requested zone; [`ZoneNumber::NONE`] if it is not served.
        zone: ZoneNumber,
        /// The reason.
        why: RefusalReason,
        /// The number of calls; at least 1.
        count: u32,
    }

    /// Calls were refused by a limiter.
    Limited, Private, 4096 {
        /// The requested zone; [`ZoneNumber::NONE`] if it is not served.
        zone: ZoneNumber,
        /// The limited call.
        call: LimitedCall,
        /// The number of calls; at least 1.
        count: u32,
        /// When the client may try again, in seconds.
        retry_after_s: u32,
    }

    /// The totals of a zone as in the store's snapshot; see [`admission::Tally`]. About once a second for each zone in use.
    Tallied, Private, OF_ZONES {
        /// The zone.
        zone: ZoneNumber,
        /// The entries per minute that the policy allows.
        admit_per_minute: u32,
        /// Live tickets.
        waiting: u32,
        /// Live tickets whose holders poll.
        present: u32,
        /// Tickets issued since the store started.
        joined: u64,
        /// Entries since the store started.
        entered: u64,
        /// Evictions since the store started, as in [`admission::Tally`].
        evicted: u64,
        /// Slots offered to a line since the store started.
        slots_offered: u64,
        /// Entries from the line since the store started.
        slots_used: u64,
    }

    /// A call to the store ended.
    StoreCalled, Private, 4096 {
        /// The zone.
        zone: ZoneNumber,
        /// The call.
        call: StoreCall,
        /// The call's duration, in microseconds.
        took_us: u32,
        /// The number of tickets in the call.
        tickets: u32,
        /// Whether the store answered.
        ok: bool,
    }

    /// The store does not answer for a zone any more.
    StoreLost, Private, OF_ZONES {
        /// The zone.
        zone: ZoneNumber,
    }

    /// The store answers for a zone again.
    StoreBack, Private, OF_ZONES {
        /// The zone.
        zone: ZoneNumber,
        /// How long the store did not answer, in milliseconds.
        away_ms: u64,
    }

    /// A person was admitted without the store.
    AdmittedWithoutStore as "AdmittedUnseen", Private, 1024 {
        /// The zone.
        zone: ZoneNumber,
        /// The number of such admissions by this server since it serves the zone, including this one.
        total: u64,
    }

    /// The configuration was read again.
    Reloaded, Private, 256 {
        /// Whether the new configuration was accepted.
        ok: bool,
    }

    /// A ticket's holder entered, with everything that an audit needs. Published once for each entry that this server
    /// learns from the store. Zone, epoch and number name the ticket, as in the pass (`jti`).
    Admitted, Root, 4096 {
        /// The zone.
        zone: ZoneNumber,
        /// The line's epoch; 0 if the zone admitted without the store.
        epoch: u32,
        /// The ticket and its instants.
        entry: AdmittedEntry,
        /// The policy in force.
        policy: Policy,
    }
}

const _: () = assert!(Kind::ALL.len() <= 64, "a set of kinds fits a word");

/// Why a call was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum RefusalReason {
    /// The zone is not served.
    UnknownZone,
    /// The token is forged, altered, or of another zone.
    BadToken,
    /// The ticket was evicted, or entered too long ago.
    Gone,
    /// The zone is closed.
    Closed,
    /// The store does not answer.
    StoreAway,
    /// Too many calls wait for the store already.
    Busy,
    /// The line takes no more people.
    Full,
}

impl RefusalReason {
    /// All reasons with their names.
    pub const ALL: [(Self, &'static str); 7] = [
        (Self::UnknownZone, "unknown_zone"),
        (Self::BadToken, "bad_token"),
        (Self::Gone, "gone"),
        (Self::Closed, "closed"),
        (Self::StoreAway, "store_away"),
        (Self::Busy, "busy"),
        (Self::Full, "full"),
    ];
}

/// A call that a zone may limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum LimitedCall {
    /// A request for a new ticket, by `wait`.
    Join,
    /// A poll for an existing ticket, by `entry` or by `wait` with a token.
    Poll,
}

impl LimitedCall {
    /// Both calls with their names in metrics and in streams of events.
    pub const ALL: [(Self, &'static str); 2] = [(Self::Join, "wait"), (Self::Poll, "entry")];
}

/// A call to the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum StoreCall {
    /// Sets a zone and its policy.
    Put,
    /// Opens a known zone.
    Open,
    /// Issues tickets.
    Join,
    /// Decides claims.
    Enter,
    /// Reports polls and lets time pass.
    Beat,
    /// Reports who is active inside.
    Visits,
    /// Lets holders leave.
    Leave,
    /// Binds an entry to an address.
    Bind,
    /// Says that this server stops.
    Retire,
    /// Finds the tickets of earlier joins by their keys.
    Find,
}

impl StoreCall {
    /// All calls with their names.
    pub const ALL: [(Self, &'static str); 10] = [
        (Self::Put, "put"),
        (Self::Open, "open"),
        (Self::Join, "join"),
        (Self::Enter, "enter"),
        (Self::Beat, "beat"),
        (Self::Visits, "visits"),
        (Self::Leave, "leave"),
        (Self::Bind, "bind"),
        (Self::Retire, "retire"),
        (Self::Find, "find"),
    ];
}

/// A set of kinds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Kinds(u64);

impl Kinds {
    /// The set of these kinds.
    #[must_use]
    pub const fn of(kinds: &[Kind]) -> Self {
        let mut set = 0;
        let mut rest = kinds;
        while let [kind, others @ ..] = rest {
            set |= kind.bit();
            rest = others;
        }
        Self(set)
    }

    /// All kinds that a subscriber with this right may receive.
    #[must_use]
    pub fn within(scope: Scope) -> Self {
        Self(Kind::ALL.iter().filter(|kind| kind.scope() <= scope).fold(0, |set, kind| set | kind.bit()))
    }

    /// Whether the set contains `kind`.
    #[must_use]
    pub const fn contains(self, kind: Kind) -> bool {
        self.0 & kind.bit() != 0
    }

    /// The kinds of the set.
    pub fn iter(self) -> impl Iterator<Item = Kind> {
        Kind::ALL.iter().copied().filter(move |kind| self.contains(*kind))
    }

    pub(crate) const fn bits(self) -> u64 {
        self.0
    }
}

impl Kind {
    pub(crate) const fn bit(self) -> u64 {
        1 << self as u8
    }
}

/// Implements [`Field`] for types that fit half a word.
macro_rules! halves {
    ($($type:ty: $to:expr, $from:expr;)*) => {$(
        impl Field for $type {
            const HALVES: usize = 1;
            #[inline]
            fn put(self, words: &mut EventWords, at: usize) {
                let to: fn(Self) -> u32 = $to;
                to(self).put(words, at);
            }
            #[inline]
            fn get(words: &impl Words, at: usize) -> Self {
                let from: fn(u32) -> Self = $from;
                from(u32::get(words, at))
            }
        }
    )*};
}

/// The value at `index` in a list of all values; the first one if there is no such index.
fn nth<T: Copy, const N: usize>(all: &[(T, &str); N], index: u32) -> T {
    all.get(index as usize).unwrap_or(&all[0]).0
}

halves! {
    bool: u32::from, |half| half != 0;
    ZoneNumber: ZoneNumber::index, ZoneNumber::from_index;
    Mode: |mode| mode as u32, |half| nth(&Mode::ALL, half);
    RefusalReason: |why| why as u32, |half| nth(&RefusalReason::ALL, half);
    LimitedCall: |call| call as u32, |half| nth(&LimitedCall::ALL, half);
    StoreCall: |call| call as u32, |half| nth(&StoreCall::ALL, half);
}

/// The entry of a ticket. Larger numbers than a field has bits for become the largest that fits.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct AdmittedEntry {
    /// The ticket's number. 48 bits.
    pub seq: u64,
    /// The instant of the entry, in seconds since 1970, as in the pass (`iat`). 32 bits.
    pub entered_unix_s: u64,
    /// The instant of the store's answer, in milliseconds on its clock. Later than the entry if the first answer was lost. 48 bits.
    pub at_ms: u64,
}

/// Two words: each has one of the long numbers, and a half of the seconds.
impl Field for AdmittedEntry {
    const HALVES: usize = 4;

    #[inline]
    fn put(self, words: &mut EventWords, at: usize) {
        let unix_s = self.entered_unix_s.min(u32::MAX.into());
        let long = |number: u64| number.min((1 << 48) - 1);
        (long(self.seq) | unix_s >> 16 << 48).put(words, at);
        (long(self.at_ms) | unix_s << 48).put(words, at + 2);
    }

    #[inline]
    fn get(words: &impl Words, at: usize) -> Self {
        let (first, second) = (u64::get(words, at), u64::get(words, at + 2));
        let long = |word: u64| word & ((1 << 48) - 1);
        Self { seq: long(first), entered_unix_s: first >> 48 << 16 | second >> 48, at_ms: long(second) }
    }
}

/// Where a field of a policy is.
#[derive(Clone, Copy)]
struct Bits {
    word: usize,
    /// The first bit.
    from: u32,
    /// The largest number that fits.
    most: u32,
}

/// The layout of a policy, by field. A field does not cross the end of a word; the longest fields are placed first, each in the
/// first word with room, so that few bits are left over. The layout is computed by the compiler, which can then unroll the loops below.
/// Computed in `put`, a policy took 55 ns to pack instead of 13 ns.
const POLICY_LAYOUT: [Bits; FIELDS_LEN] = {
    let mut layout = [Bits { word: 0, from: 0, most: 0 }; FIELDS_LEN];
    let mut used = [0; FIELDS_LEN];
    let mut bits = u32::BITS;
    while bits > 0 {
        let mut field = 0;
        while field < FIELDS_LEN {
            if FIELDS[field].bits() == bits {
                let mut word = 0;
                while used[word] + bits > u64::BITS {
                    word += 1;
                }
                layout[field] = Bits { word, from: used[word], most: u32::MAX >> (u32::BITS - bits) };
                used[word] += bits;
            }
            field += 1;
        }
        bits -= 1;
    }
    layout
};

const POLICY_WORDS: usize = {
    let (mut words, mut field) = (0, 0);
    while field < FIELDS_LEN {
        if POLICY_LAYOUT[field].word >= words {
            words = POLICY_LAYOUT[field].word + 1;
        }
        field += 1;
    }
    words
};

/// A policy's fields in as many bits as their ranges need. Larger numbers become the largest that fits. The compiler
/// refuses a table whose fields do not fit the events: then a slot needs more words.
impl Field for Policy {
    const HALVES: usize = 2 * POLICY_WORDS;

    #[inline]
    fn put(self, words: &mut EventWords, at: usize) {
        let mut packed = [0_u64; POLICY_WORDS];
        for (field, bits) in FIELDS.iter().zip(POLICY_LAYOUT) {
            packed[bits.word] |= u64::from(field.number(&self).min(bits.most)) << bits.from;
        }
        for (index, word) in packed.into_iter().enumerate() {
            word.put(words, at + 2 * index);
        }
    }

    #[inline]
    fn get(words: &impl Words, at: usize) -> Self {
        let packed: [u64; POLICY_WORDS] = std::array::from_fn(|index| u64::get(words, at + 2 * index));
        let mut policy = Self::default();
        for (field, bits) in FIELDS.iter().zip(POLICY_LAYOUT) {
            #[expect(clippy::cast_possible_truncation, reason = "the mask removes the rest")]
            let number = (packed[bits.word] >> bits.from) as u32 & bits.most;
            // The words of a slot that is overwritten meanwhile may hold a number of no word. Then the field keeps its default.
            field.set(&mut policy, number);
        }
        policy
    }
}
