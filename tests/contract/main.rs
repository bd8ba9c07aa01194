//! The behaviour of every store: one set of tests runs over each back end, in real time.
//!
//! A new back end is one line in `main`. Tests over one Redis share its servers and use different zones. Tests that harm
//! the Redis, or read all of its zones, start their own servers.
// The futures of a call through a client are nested deeper than the compiler's default limit.
#![recursion_limit = "256"]

mod acl;
mod backend;
mod behaviour;
#[path = "../support/clock.rs"]
#[allow(dead_code, reason = "shared with other tests")]
mod clock;
#[path = "../support/drawn.rs"]
mod drawn;
mod learned;
mod parts;
#[path = "../support/redis.rs"]
mod redis;
mod register;
mod servers;
mod shared;
mod stock;
#[path = "../support/trial.rs"]
mod trial;

use std::sync::{
    Arc, LazyLock,
    atomic::{AtomicU32, Ordering},
};

use admission::ZoneId;
use backend::{Backend, Files, InRedis, Servers};
use libtest_mimic::{Arguments, Trial};
use store::redis::address::{Library, Topology};
use trial::trial;

/// The client libraries.
const LIBRARIES: [Library; 2] = [Library::Fred, Library::RedisRs];

/// How many tests run at once. They mostly wait, so it is more than the number of cores.
const AT_ONCE: usize = 8;

/// Servers that start when the first test needs them.
type Lazy = Arc<LazyLock<Servers>>;

fn main() {
    let mut args = Arguments::from_args();
    args.test_threads.get_or_insert(AT_ONCE);
    // Held here so that they are dropped with the run; statics are never dropped.
    let one: Lazy = Arc::new(LazyLock::new(|| Servers::start(Topology::Standalone)));
    let three: Lazy = Arc::new(LazyLock::new(|| Servers::start(Topology::Cluster)));
    let mut trials = behaviours("embedded", Files::new);
    for library in LIBRARIES {
        let in_redis = |servers: &Lazy, max_segments| {
            let servers = Arc::clone(servers);
            move || InRedis { servers: Arc::clone(&servers), library, max_segments }
        };
        trials.extend(behaviours(&format!("redis::{library:?}"), in_redis(&one, None)));
        trials.extend(behaviours(&format!("redis_by_single_segments::{library:?}"), in_redis(&one, Some(1))));
        trials.extend(behaviours(&format!("cluster::{library:?}"), in_redis(&three, None)));
        trials.extend(shared_behaviours(&format!("redis::{library:?}"), in_redis(&one, None)));
        trials.extend(shared_behaviours(&format!("cluster::{library:?}"), in_redis(&three, None)));
        // Each library once, and each topology once.
        trials.extend(match library {
            Library::Fred => learned_behaviours("cluster::Fred", in_redis(&three, None)),
            Library::RedisRs => learned_behaviours("redis::RedisRs", in_redis(&one, None)),
        });
        trials.extend(parts(&format!("redis::{library:?}"), in_redis(&one, None)));
        trials.extend(of_the_register(&format!("redis::{library:?}"), in_redis(&one, None)));
        trials.extend(replicated_behaviours(&format!("redis::{library:?}"), in_redis(&one, None)));
        for (of, servers) in [("redis", &one), ("cluster", &three)] {
            let servers = Arc::clone(servers);
            let name = format!("{of}::{library:?}::acl::least_rights_are_enough_and_no_more");
            trials.push(trial(name, move || async move {
                acl::least_rights_are_enough_and_no_more(&servers, library).await;
            }));
        }
    }
    let conclusion = libtest_mimic::run(&args, trials);
    drop((one, three));
    conclusion.exit();
}

/// A zone that no other test uses.
fn zone() -> ZoneId {
    static USED: AtomicU32 = AtomicU32::new(0);
    ZoneId::parse(&format!("ZONE-{}", USED.fetch_add(1, Ordering::Relaxed))).expect("a name")
}

/// Makes a trial of each test of a module, over the back end that `start` makes.
macro_rules! trials {
    ($of:ident, $start:ident, $module:ident: $($test:ident),* $(,)?) => {
        vec![$({
            let start = $start.clone();
            trial(format!("{}::{}", $of, stringify!($test)), move || async move {
                $module::$test(&start(), &zone()).await;
            })
        }),*]
    };
}

/// The longest tests first.
fn behaviours<B: Backend>(of: &str, start: impl Fn() -> B + Clone + Send + 'static) -> Vec<Trial> {
    trials![
        of, start, behaviour:
        passes_keep_their_life_when_the_policy_changes,
        the_silent_leave_and_who_is_marked_stays,
        who_never_claims_loses_the_slot_and_keeps_the_place,
        claims_are_granted_in_order_as_slots_fall_free,
        places_are_counted_over_segments_ends,
        base_moves_past_a_segment_and_entries_are_told_again,
        minutes_slots_are_given_at_once_and_the_next_one_waits,
        a_join_is_repeated_with_its_key,
        newcomers_enter_directly_only_where_nobody_waits,
        a_zone_opens_at_its_instant,
        a_line_is_dealt_anew_by_a_draw,
        minutes_are_merged_and_kept,
        a_minute_has_a_limit,
        repeated_claims_give_the_same_entry,
        foreign_and_unknown_tickets_are_gone,
        hold_and_closed_let_nobody_in_and_open_everybody,
        policy_changes_keep_places_and_entries,
        full_batches_are_answered_in_the_claims_order,
        new_store_object_finds_everything,
        whoever_leaves_makes_room_for_the_next,
        whoever_leaves_the_line_has_no_place,
        an_entry_is_bound_to_one_address,
        zones_that_were_not_opened_are_unknown,
    ]
}

fn shared_behaviours(of: &str, start: impl Fn() -> InRedis + Clone + Send + 'static) -> Vec<Trial> {
    let mut trials = trials![
        of, start, shared:
        frozen_redis_is_away_in_time_and_comes_back,
        register_lists_zones_in_order_and_is_put_again_when_lost,
        two_servers_have_one_line,
        a_join_is_repeated_at_another_server,
        entry_learnt_from_a_repeated_claim_survives_a_lost_state,
        each_server_knows_who_entered_by_others,
        a_visit_that_ended_does_not_come_back,
        lines_that_began_without_each_other_lose_nobody,
        people_inside_are_counted_after_a_loss,
        tickets_that_no_server_remembers_keep_their_places,
        tickets_of_a_long_line_prove_their_places,
        the_view_knows_the_tickets_of_a_line_that_was_lost,
        freed_segment_keeps_its_longest_life,
        who_asks_a_server_that_is_cut_off_keeps_the_place,
        nobody_is_spared_for_a_server_that_retired,
        visits_count_for_an_idle_time_that_was_made_longer,
        a_server_that_nobody_asked_knows_nothing_of_a_lost_state,
        a_full_segment_in_which_nobody_waits_is_freed,
        visits_far_from_the_line_end,
        nobody_entered_by_what_is_presumed,
        a_server_that_is_gone_is_not_waited_for_anew,
        slots_count_as_taken_though_the_first_call_is_refused,
        a_server_says_what_it_remembers_before_it_asks,
        state_of_the_first_version_is_read,
        state_of_a_later_version_is_left_alone,
        policy_put_by_one_is_in_the_others_view,
        zone_that_is_kept_keeps_its_policy_when_opened,
    ];
    trials.extend(trials![of, start, register: what_is_not_as_expected_is_not_changed]);
    trials
}

/// They take 20 times the processor time of the others.
fn learned_behaviours(of: &str, start: impl Fn() -> InRedis + Clone + Send + 'static) -> Vec<Trial> {
    trials![
        of, start, learned:
        what_one_server_learnt_another_one_knows,
        what_was_learnt_is_written_again_where_it_was_lost,
    ]
}

fn parts(of: &str, start: impl Fn() -> InRedis + Clone + Send + 'static) -> Vec<Trial> {
    trials![of, start, parts:
        each_key_may_vanish_alone,
        each_key_may_get_a_value_of_another_type,
        each_key_may_be_spoiled,
        each_key_may_go_back,
        people_inside_are_counted_once_after_a_mend,
        a_count_that_goes_back_follows_the_bits,
    ]
}

fn of_the_register(of: &str, start: impl Fn() -> InRedis + Clone + Send + 'static) -> Vec<Trial> {
    let mut trials = trials![
        of, start, register:
        register_that_is_lost_comes_back_whole,
        who_knows_a_later_change_writes_it_back,
        a_change_of_a_register_that_knew_less_counts_alone,
        register_of_before_is_read_and_written,
        register_of_a_later_version_is_left_alone,
        lives_of_one_minute_are_told_apart,
        a_spoiled_entry_is_written_back,
        equal_revisions_of_different_pasts_are_found,
        of_changes_that_expect_the_same_one_is_made,
        deleted_zone_is_not_brought_back_by_opening_it,
        new_zone_admits_people_at_once_whoever_opens_it_first,
        a_state_is_created_as_new_only_with_a_mark,
        a_zone_whose_state_cannot_be_created_is_not_defined,
        change_that_is_sent_again_is_made_once,
        draw_that_has_begun_is_not_moved,
        routes_are_changed_once_and_come_back_with_the_zones,
    ];
    trials.extend(trials![of, start, servers: servers_hear_of_each_other_until_they_are_silent]);
    trials.extend(trials![
        of, start, stock:
        of_changes_of_stock_one_is_made,
        lost_stock_is_written_back,
        the_number_of_stocks_is_limited,
    ]);
    trials
}

fn replicated_behaviours(of: &str, start: impl Fn() -> InRedis + Clone + Send + 'static) -> Vec<Trial> {
    trials![
        of, start, shared:
        decisions_without_a_replica_are_not_answered,
        decisions_that_a_replica_confirmed_are_answered,
    ]
}
