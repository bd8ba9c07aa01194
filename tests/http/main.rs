//! HTTP against the running binary. Each test has its own server process, data directory and ports, and asserts only
//! what a client sees.

#[path = "../support/app.rs"]
mod app;
#[path = "../support/client.rs"]
mod client;
#[path = "../support/clock.rs"]
mod clock;
#[path = "../support/collector.rs"]
mod collector;
#[path = "../support/https.rs"]
mod https;
#[path = "../support/redis.rs"]
mod redis;
#[path = "../support/seed.rs"]
mod seed;
#[path = "../support/sse.rs"]
mod sse;
#[path = "../support/weir.rs"]
mod weir;

mod admin;
mod audit;
mod away;
mod browser;
mod check;
mod doctor;
mod drain;
mod draw;
mod edge;
mod errors;
mod events;
mod flood;
mod grpc;
mod keys;
mod kill;
mod life;
mod limits;
mod line;
mod metrics;
mod origins;
mod otlp;
mod pages;
mod passes;
mod print;
mod protected;
mod reload;
mod report;
mod restart;
mod routes;
mod rules;
mod startup;
mod stock;
mod store_logins;
mod stream;
mod tls;
mod troubles;

use libtest_mimic::{Arguments, Trial};
use rustix::process::{Resource, Rlimit, getrlimit, setrlimit};

/// These tests mostly wait for the server's clock, so more of them run at once than there are cores.
const AT_ONCE: usize = 10;

fn main() {
    let limit = getrlimit(Resource::Nofile);
    setrlimit(Resource::Nofile, Rlimit { current: limit.maximum, maximum: limit.maximum })
        .expect("a process may use all the open files it is granted");
    if flood::is_worker() {
        return flood::work();
    }
    let mut args = Arguments::from_args();
    if !args.list {
        weir::binary();
    }
    let alone = Arguments { test_threads: Some(1), ..args.clone() };
    args.test_threads.get_or_insert(AT_ONCE);
    let together = together().into_iter().chain(troubles::all()).collect();
    let conclusions = [libtest_mimic::run(&args, together), libtest_mimic::run(&alone, by_themselves())];
    conclusions.iter().for_each(libtest_mimic::Conclusion::exit_if_failed);
}

/// The trial of a test, named `module::test`.
macro_rules! trials {
    ($($module:ident::$test:ident),* $(,)?) => {
        vec![$(Trial::test(concat!(stringify!($module), "::", stringify!($test)), || {
            $module::$test();
            Ok(())
        })),*]
    };
}

/// The tests that run together, longest first.
fn together() -> Vec<Trial> {
    trials![
        life::full_life,
        events::a_zone_opens_at_its_instant,
        events::an_event_begins_and_ends_by_itself,
        events::a_restart_does_not_move_an_event,
        events::events_of_a_file,
        events::a_closed_zone_leads_to_the_page_of_its_event,
        events::the_preview_names_those_who_wait_beyond_the_end,
        events::an_event_has_its_own_page,
        events::servers_say_which_events_they_have_read,
        events::wrong_events_are_refused,
        passes::expiry_is_fixed_at_the_entry,
        line::moves_in_order_and_at_the_windows_speed,
        kill::places_and_caps_survive,
        line::silent_one_is_evicted_and_poller_is_not,
        browser::a_tab_follows_its_place_through_a_crash_and_enters,
        stream::a_stream_is_presence_and_its_end_is_silence,
        stream::who_does_not_read_is_cut_off,
        stream::opening_a_stream_counts_as_a_poll,
        stream::ranks_move_and_all_are_called_in,
        stream::a_stream_goes_on_at_another_server,
        edge::client_that_does_not_read_is_let_go,
        errors::every_code_is_met_and_documented,
        drain::accept_queue_is_served,
        limits::a_flood_from_one_address_takes_its_share_and_nobody_elses,
        limits::clients_are_told_apart_and_what_they_do,
        limits::a_full_line_refuses_newcomers_and_keeps_everybody,
        limits::who_never_claims_holds_nobody_up,
        limits::joins_are_counted_over_all_servers,
        limits::connections_of_a_client_are_capped,
        limits::streams_of_a_client_are_capped,
        limits::a_crowd_leaves_room_for_the_proxies,
        check::a_visitor_waits_enters_and_stays,
        check::places_inside_are_limited_and_freed,
        check::what_nobody_asked_for_takes_no_place,
        check::a_return_from_another_site_keeps_the_visit,
        check::a_browser_without_cookies_is_not_sent_round,
        check::a_page_without_a_place_takes_one,
        check::a_page_follows_the_routes,
        check::a_visitor_with_a_long_head_is_not_shut_out,
        check::one_client_does_not_fill_a_zone_with_visits_that_nobody_uses,
        check::one_client_does_not_fill_a_zone_with_requests_at_the_same_time,
        check::a_place_begins_one_visit,
        check::a_bound_place_begins_one_visit,
        check::a_place_in_line_is_given_up,
        check::forged_foreign_and_ended_visits_wait,
        check::routes_say_who_waits,
        check::restricted_paths_hold_in_every_spelling,
        check::every_zone_of_any_reading_is_asked,
        check::nginx_asks_for_a_status_and_then_for_the_page,
        check::envoy_sends_the_request_itself,
        check::a_form_is_not_lost_silently,
        check::a_page_asks_for_the_request_that_it_stands_for,
        check::places_and_visits_survive_a_crash,
        grpc::the_decision_is_that_of_http,
        grpc::a_yes_brings_the_visit,
        grpc::a_visitor_cannot_choose_an_address,
        grpc::only_trusted_proxies_are_answered,
        grpc::a_visitor_cannot_make_a_call_fail,
        grpc::bytes_that_are_no_text_get_a_no,
        grpc::the_listener_is_bounded,
        grpc::strangers_keep_no_proxy_out,
        grpc::it_is_encrypted_as_the_address_for_apps_is,
        routes::operators_set_them_before_those_of_the_file,
        routes::faults_name_the_route_and_its_field,
        routes::all_servers_of_a_store_have_them,
        routes::the_command_line_shows_and_sets_them,
        routes::bypass_tokens_open_what_they_name,
        rules::a_change_is_in_the_audit_chain,
        rules::who_is_let_past_is_counted,
        rules::everybody_may_read_it,
        rules::all_servers_of_a_store_publish_the_same,
        report::a_restart_in_a_later_minute_counts_nobody_twice,
        report::an_event_is_reported_after_a_kill,
        report::servers_of_a_store_count_together,
        stock::nothing_of_the_line_depends_on_it,
        stock::all_servers_of_a_store_tell_it,
        stock::people_are_told_what_is_left,
        stock::a_stream_says_what_is_left,
        stock::wrong_stocks_are_refused,
        stock::numbers_do_not_fill_the_log,
        stock::a_shop_sets_what_is_left,
        stock::it_survives_a_crash,
        stock::the_command_line_shows_and_sets_it,
        away::polls_are_answered_and_nobody_enters,
        away::a_zone_opens_after_the_time_of_the_setting,
        away::a_deletion_does_not_say_that_nobody_waits,
        away::a_pass_is_the_same_while_redis_is_away,
        away::whoever_left_elsewhere_gets_no_pass_while_redis_is_away,
        audit::every_pass_is_in_it_once,
        audit::a_killed_server_goes_on_with_it,
        audit::every_act_of_an_operator_is_in_it,
        audit::an_act_that_the_store_did_not_answer_is_in_it,
        audit::a_log_that_cannot_be_opened_ends_the_start,
        draw::a_record_and_receipts_are_verified,
        draw::the_order_of_a_pre_queue_is_drawn,
        draw::a_draw_that_is_made_late_is_said_to_wait_for_its_value,
        draw::a_draw_that_misses_its_event_is_not_decided,
        draw::nobody_has_a_rank_before_the_draw,
        draw::an_event_that_was_moved_is_not_frozen_at_its_old_start,
        draw::a_wiped_store_changes_no_draw,
        draw::a_failover_changes_no_draw,
        admin::changes_are_made_once_and_written_down,
        admin::roles_and_routes,
        admin::the_command_line_asks_the_server,
        admin::another_server_is_not_taken_for_an_admin_api,
        admin::a_deletion_names_the_routes_that_lead_to_the_zone,
        admin::a_deletion_says_how_many_wait_now,
        admin::statistics_are_of_what_happened,
        admin::a_drained_server_is_not_ready_and_can_come_back,
        admin::refused_tokens_are_in_the_log,
        admin::no_open_door_beyond_the_loopback,
        admin::the_last_token_is_withdrawn,
        admin::a_proxy_makes_nobody_admin,
        admin::strangers_keep_no_operator_out,
        admin::viewers_keep_no_admin_out,
        doctor::dangers_of_topologies_are_found,
        doctor::a_sound_store_has_no_problem,
        doctor::dangers_of_servers_are_found,
        doctor::dangers_of_the_machine_are_found,
        doctor::what_a_start_needs_is_there,
        doctor::servers_with_other_keys_are_found,
        doctor::zones_that_servers_call_away_are_found,
        doctor::a_far_store_is_named,
        doctor::wrong_clocks_are_found,
        doctor::a_store_that_does_not_work_is_a_problem,
        restart::a_rolling_restart_loses_nobody,
        restart::a_server_that_starts_on_an_emptied_store_sends_no_newcomer_away,
        origins::a_foreign_page_takes_and_leaves_no_place,
        life::token_in_wait_resumes,
        life::entry_is_idempotent,
        life::wait_is_idempotent_with_a_key,
        life::a_key_finds_its_place_where_nobody_joins,
        life::a_backup_is_safe_without_its_journal,
        line::told_wait_knows_the_windows,
        edge::slow_head_is_let_go,
        edge::idle_connection_is_closed,
        edge::oversized_requests,
        edge::chunked_bodies,
        edge::expect_continue,
        edge::pipelining_keeps_the_order,
        edge::ambiguous_requests_are_refused,
        edge::http_1_0,
        edge::head_and_get,
        edge::random_bytes_do_no_harm,
        edge::connection_cap_is_polite,
        edge::forwarded_for_is_believed_of_listed_proxies,
        tls::polls_and_streams_over_both_versions,
        tls::one_connection_holds_many_streams,
        tls::changed_files_come_into_force_and_lose_nobody,
        tls::a_bad_pair_keeps_the_one_in_force,
        tls::a_start_with_an_invalid_certificate_warns,
        tls::faults_end_the_start,
        tls::slow_clients_are_let_go,
        tls::a_client_that_takes_nothing_is_let_go,
        tls::pings_do_not_hold_replies,
        tls::connections_are_capped_before_the_handshake,
        tls::a_drain_finishes_requests_and_sends_away,
        tls::the_accept_queue_is_served,
        tls::a_long_head_is_refused_in_words,
        tls::plain_http_is_told_so,
        tls::versions_are_agreed_on,
        tls::oversized_and_ambiguous_requests,
        tls::many_resets_end_the_connection,
        tls::random_bytes_do_no_harm,
        stream::a_call_that_nobody_heard_is_heard_again,
        stream::a_drain_sends_streams_away,
        stream::a_zone_that_goes_ends_its_streams,
        stream::pages_of_listed_origins_may_call,
        stream::operators_hear_what_happens,
        stream::a_withdrawn_token_ends_its_stream,
        stream::a_slow_operator_is_told_what_it_lost,
        drain::requests_in_flight_finish,
        drain::deadline_ends_it,
        drain::second_signal_ends_it_at_once,
        reload::zones_come_go_and_change,
        reload::bad_file_changes_nothing,
        reload::a_reload_during_the_start_is_kept,
        reload::what_operators_changed_wins_until_the_file_is_edited,
        keys::a_rotation_in_three_steps_loses_nobody,
        keys::mistakes_in_a_rotation_are_refused_or_reported,
        store_logins::a_password_file_is_read_again,
        store_logins::wrong_logins_end_the_start,
        store_logins::a_register_that_goes_back_is_reported,
        startup::faults_exit_64_with_one_line,
        startup::the_log_may_be_json,
        startup::a_log_that_cannot_be_written_ends_nothing,
        startup::a_limit_of_file_sizes_is_a_full_disk,
        startup::check_config_and_version,
        startup::readable_secrets_are_complained_of,
        startup::settings_come_from_the_environment_too,
        startup::a_store_that_is_away_is_no_reason_not_to_start,
        startup::an_empty_file_is_applied_as_such,
        startup::without_a_file_nothing_differs_from_it,
        startup::one_server_a_directory,
        startup::one_server_a_port,
        startup::damaged_data_is_refused_by_name,
        startup::a_journal_without_its_mark_is_reported,
        startup::one_bad_zone_is_unavailable_alone,
        startup::secrets_stay_secret,
        startup::readable_keys_are_refused,
        print::curl_lines_work_as_pasted,
        print::output_that_cannot_be_written_is_a_failure,
        pages::pages_are_served_with_their_policy_and_cached,
        pages::a_notice_is_served,
        pages::templates_are_read_again,
        passes::es256_verifies,
        passes::ed_dsa_verifies,
        passes::rs256_verifies,
        passes::pass_outlives_a_restart,
        passes::keys_rotate,
        protected::a_pass_is_accepted_once_and_nothing_else_is,
        otlp::a_join_shows_its_way_to_the_store,
        otlp::a_join_shows_the_call_to_redis,
        otlp::nothing_private_is_sent,
        otlp::callers_cannot_force_traces,
        otlp::metrics_are_those_of_prometheus,
        otlp::a_collector_that_fails_is_named_once_and_harms_nothing,
        otlp::a_stop_sends_what_waits_and_is_bounded,
        metrics::promtool_is_silent_and_the_numbers_are_right,
        metrics::health_and_readiness,
    ]
}

/// The tests that need the machine for themselves.
fn by_themselves() -> Vec<Trial> {
    trials![flood::twenty_thousand_connections, stream::five_thousand_streams]
}
