//! What can happen, who may hear of it, and how it lies in a ring.
//!
//! An event is a plain value of at most 56 bytes. It reads no clock: where the instant matters, it is one that the
//! publisher knew anyway. Where the server acts in batches, so does the event: it says how many.
//!
//! Invariants: every kind has one [`Scope`]; nothing public or federated names a ticket; no event holds a token, an
//! address, or anything else of a person; what is read from a ring is what was put in.

use admission::{Mode, OnStoreFailure, Policy};

use crate::{
    Scope, Zone,
    slot::{EVENT_WORDS, EventWords, Field, Packed, Words, aligned},
};

/// Defines the kinds. A line's head is `Kind, scope, events a publisher's ring holds`.
macro_rules! events {
    ($($(#[$doc:meta])* $name:ident, $scope:ident, $ring:literal {
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
            /// Its kind.
            #[must_use]
            pub fn kind(&self) -> Kind {
                match self { $(Self::$name(_) => Kind::$name,)* }
            }

            /// Reads events of one kind. Of words that were no such event it makes something, too.
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

        /// What an event is about: what is subscribed to.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(u8)]
        pub enum Kind {
            $($(#[$doc])* $name,)*
        }

        impl Kind {
            /// All kinds.
            pub const ALL: &'static [Self] = &[$(Self::$name,)*];

            /// Who may hear of it.
            #[must_use]
            pub const fn scope(self) -> Scope {
                match self { $(Self::$name => Scope::$scope,)* }
            }

            /// Its name: that of the event's type.
            #[must_use]
            pub const fn as_str(self) -> &'static str {
                match self { $(Self::$name => stringify!($name),)* }
            }

            /// How many events of this kind the ring of one publishing thread holds, unless the bus was made otherwise:
            /// so many does a subscriber that sleeps find again. A power of two.
            #[must_use]
            pub const fn ring_len(self) -> usize {
                match self { $(Self::$name => $ring,)* }
            }
        }
    };
}

events! {
    /// A new view of a zone is in use: ranks and waits may be other ones than before. About once a second for each
    /// zone in use.
    ViewShown, Public, 1024 {
        /// The zone.
        zone: Zone,
        /// Which life of its line.
        epoch: u32,
        /// When, on the store's clock, in milliseconds.
        at_ms: u64,
    }

    /// A zone was opened, closed, held, or given back to its windows.
    ModeChanged, Public, 256 {
        /// The zone.
        zone: Zone,
        /// Who enters from now on.
        mode: Mode,
    }

    /// Another policy of a zone is in force.
    PolicyChanged, Federated, 256 {
        /// The zone.
        zone: Zone,
        /// The policy, whole.
        policy: Policy,
    }

    /// What those who wait in a zone are told is another text.
    NoticeChanged, Federated, 256 {
        /// The zone.
        zone: Zone,
    }

    /// A zone is served that was not.
    ZoneAdded, Federated, 256 {
        /// The zone.
        zone: Zone,
        /// Its policy.
        policy: Policy,
    }

    /// A zone is not served any more.
    ZoneRemoved, Federated, 256 {
        /// The zone.
        zone: Zone,
    }

    /// Tickets were given out: `count` of them, from `first` on.
    Joined, Private, 4096 {
        /// The zone.
        zone: Zone,
        /// Which life of its line.
        epoch: u32,
        /// The first ticket's number.
        first: u64,
        /// How many tickets; at least 1.
        count: u32,
        /// How many of these entered at once.
        entered: u32,
        /// When, on the store's clock, in milliseconds.
        at_ms: u64,
    }

    /// Somebody entered.
    Entered, Private, 4096 {
        /// The zone.
        zone: Zone,
        /// How long the wait was, in milliseconds.
        waited_ms: u32,
        /// The wait told when the ticket was given out, in seconds; 0 where none was told.
        told_s: u32,
        /// When, on the store's clock, in milliseconds.
        at_ms: u64,
    }

    /// Tickets were evicted, for silence. Known to a server by what the store shows, so with a store that several
    /// servers share each of them tells of the same evictions.
    Evicted, Private, 1024 {
        /// The zone.
        zone: Zone,
        /// How many; at least 1.
        count: u32,
        /// When the store showed it, on its clock, in milliseconds.
        at_ms: u64,
    }

    /// Calls were refused.
    Refused, Private, 4096 {
        /// The zone asked for, where it is served.
        zone: Zone,
        /// Why.
        why: Why,
        /// How many; at least 1.
        count: u32,
    }

    /// Calls were refused by a limiter.
    Limited, Private, 4096 {
        /// The zone asked for, where it is served.
        zone: Zone,
        /// Which calls it limits.
        call: LimitedCall,
        /// How many; at least 1.
        count: u32,
        /// When the caller may try again, in seconds.
        retry_after_s: u32,
    }

    /// The totals of a zone, as the store showed them; see [`admission::Tally`]. About once a second for each zone in
    /// use.
    Tallied, Private, 1024 {
        /// The zone.
        zone: Zone,
        /// How many the policy in force lets in a minute.
        admit_per_minute: u32,
        /// Live tickets.
        waiting: u32,
        /// Those whose holders poll.
        present: u32,
        /// Tickets given out since the store began.
        joined: u64,
        /// Entries since the store began.
        entered: u64,
        /// Evictions since the store began.
        evicted: u64,
        /// Slots that fell free for a line since the store began.
        slots_offered: u64,
        /// Entries from the line since the store began.
        slots_used: u64,
    }

    /// A call to the store ended.
    StoreCalled, Private, 4096 {
        /// The zone.
        zone: Zone,
        /// Which call.
        call: StoreCall,
        /// How long it took, in microseconds.
        took_us: u32,
        /// How many tickets it was for.
        tickets: u32,
        /// Whether the store answered.
        ok: bool,
    }

    /// The store does not answer for a zone.
    StoreLost, Private, 256 {
        /// The zone.
        zone: Zone,
    }

    /// The store answers for a zone again.
    StoreBack, Private, 256 {
        /// The zone.
        zone: Zone,
        /// How long it was away, in milliseconds.
        away_ms: u64,
    }

    /// Somebody was let in without the store.
    AdmittedUnseen, Private, 1024 {
        /// The zone.
        zone: Zone,
        /// How often that happened here since the zone is served, this time included.
        total: u64,
    }

    /// The configuration was read again.
    Reloaded, Private, 256 {
        /// Whether it was taken.
        ok: bool,
    }

    /// A ticket's holder entered, with all that an audit asks for; once for each entry that a server has the store's
    /// word of. The ticket's name is zone, epoch, and number, as in
    /// the pass (`jti`).
    Admitted, Root, 4096 {
        /// The zone.
        zone: Zone,
        /// Which life of its line; 0 where the store was away and the policy lets people in without it.
        epoch: u32,
        /// The ticket's number.
        seq: u64,
        /// When, in seconds since 1970, as in the pass (`iat`).
        entered_unix_s: u64,
        /// When the store said so, on its clock, in milliseconds: later than the entry where its first word was lost.
        at_ms: u64,
        /// The policy in force.
        policy: Policy,
    }
}

const _: () = assert!(Kind::ALL.len() <= 64, "a set of kinds is a word");

/// Why a call was refused.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum Why {
    /// The zone is not served.
    UnknownZone,
    /// The token is forged, altered, or of another zone.
    BadToken,
    /// The place is no more.
    Gone,
    /// The zone takes nobody.
    Closed,
    /// The store does not answer.
    StoreAway,
    /// Too many calls wait for the store already.
    Busy,
}

impl Why {
    /// All reasons, with their names.
    pub const ALL: [(Self, &'static str); 6] = [
        (Self::UnknownZone, "unknown_zone"),
        (Self::BadToken, "bad_token"),
        (Self::Gone, "gone"),
        (Self::Closed, "closed"),
        (Self::StoreAway, "store_away"),
        (Self::Busy, "busy"),
    ];
}

/// Calls that a zone may limit.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum LimitedCall {
    /// Asking for a new place.
    Wait,
    /// Asking for the place one has, by `entry` or by `wait` with a token.
    Entry,
}

impl LimitedCall {
    /// Both, with their names.
    pub const ALL: [(Self, &'static str); 2] = [(Self::Wait, "wait"), (Self::Entry, "entry")];
}

/// A call of the store.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
#[repr(u8)]
pub enum StoreCall {
    /// A zone and its policy are put.
    Put,
    /// A zone is made known.
    Open,
    /// Tickets are taken.
    Join,
    /// Claims are decided.
    Enter,
    /// Time passes, polls are reported.
    Beat,
}

impl StoreCall {
    /// All calls, with their names.
    pub const ALL: [(Self, &'static str); 5] = [
        (Self::Put, "put"),
        (Self::Open, "open"),
        (Self::Join, "join"),
        (Self::Enter, "enter"),
        (Self::Beat, "beat"),
    ];
}

/// A set of kinds.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Default)]
pub struct Kinds(u64);

impl Kinds {
    /// These.
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

    /// All that `scope` may hear of.
    #[must_use]
    pub fn within(scope: Scope) -> Self {
        Self(Kind::ALL.iter().filter(|kind| kind.scope() <= scope).fold(0, |set, kind| set | kind.bit()))
    }

    /// Whether `kind` is one of them.
    #[must_use]
    pub const fn contains(self, kind: Kind) -> bool {
        self.0 & kind.bit() != 0
    }

    /// Each of them.
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

/// Words that stand for themselves in half a word.
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

/// What was put as the place in a list of all values; the first for what was not.
fn nth<T: Copy, const N: usize>(all: &[(T, &str); N], place: u32) -> T {
    all.get(place as usize).unwrap_or(&all[0]).0
}

halves! {
    bool: u32::from, |half| half != 0;
    Zone: Zone::index, Zone::from_index;
    Mode: |mode| mode as u32, |half| nth(&Mode::ALL, half);
    Why: |why| why as u32, |half| nth(&Why::ALL, half);
    LimitedCall: |call| call as u32, |half| nth(&LimitedCall::ALL, half);
    StoreCall: |call| call as u32, |half| nth(&StoreCall::ALL, half);
}

/// A policy's nine numbers in three words, within the ranges that [`Policy::check`] holds them to; greater ones become
/// the greatest.
impl Field for Policy {
    const HALVES: usize = 6;

    #[inline]
    fn put(self, words: &mut EventWords, at: usize) {
        let within = |value: u32, bits: u32| u64::from(value.min((1 << bits) - 1));
        let rates = within(self.admit_per_minute, 20) << 32 | within(self.polling_period_ms, 32 - 1);
        let rest = within(self.sub_windows, 8)
            | within(self.idle_timeout_s, 16) << 8
            | within(self.pass_ttl_s, 16) << 24
            | (self.mode as u64) << 40
            | (self.on_store_failure as u64) << 48;
        rates.put(words, at);
        rest.put(words, at + 2);
        let clients = within(self.waits_per_minute_per_client, 20)
            | within(self.entries_per_minute_per_client, 20) << 20;
        clients.put(words, at + 4);
    }

    #[inline]
    fn get(words: &impl Words, at: usize) -> Self {
        let (rates, rest, clients) = (u64::get(words, at), u64::get(words, at + 2), u64::get(words, at + 4));
        #[expect(clippy::cast_possible_truncation, reason = "masked")]
        let bits = |word: u64, from: u32, bits: u32| (word >> from & ((1 << bits) - 1)) as u32;
        Self {
            mode: nth(&Mode::ALL, bits(rest, 40, 8)),
            admit_per_minute: bits(rates, 32, 20),
            sub_windows: bits(rest, 0, 8),
            polling_period_ms: bits(rates, 0, 31),
            idle_timeout_s: bits(rest, 8, 16),
            pass_ttl_s: bits(rest, 24, 16),
            on_store_failure: nth(&OnStoreFailure::ALL, bits(rest, 48, 8)),
            waits_per_minute_per_client: bits(clients, 0, 20),
            entries_per_minute_per_client: bits(clients, 20, 20),
        }
    }
}
