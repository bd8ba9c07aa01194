"""Writes the dashboards: dashboards.py DIRECTORY.

The functions below hold what all panels have in common, so a panel needs only a title, a unit and queries. This script writes the
files in dashboards/. deploy/check compares them with its output, with Grafana's types, and with the live metrics.
"""

import json
import pathlib
import sys

PROMETHEUS = {"type": "prometheus", "uid": "prometheus"}
WIDTH = 24


def target(n: int, query: str, legend: str, *, table: bool = False) -> dict:
    asked = {"refId": chr(ord("A") + n), "expr": query, "legendFormat": legend, "datasource": PROMETHEUS}
    return asked | ({"format": "table", "instant": True} if table else {})


def field(unit: str, **more) -> dict:
    """The unit and colours of a value. Each of `steps` is a value and the colour from it on; below the first, it has the other colour."""
    defaults: dict = {"unit": unit}
    if steps := more.pop("steps", None):
        first = [{"color": "red" if steps[0][1] == "green" else "green", "value": None}]
        defaults["thresholds"] = {"mode": "absolute", "steps": first + [{"color": c, "value": v} for v, c in steps]}
    return defaults | more


def lines(title: str, unit: str, *queries: tuple[str, str], about: str = "", width: int = 12, **more) -> dict:
    """Values over time; `queries` are pairs of query and legend."""
    drawn = {"lineWidth": 1, "fillOpacity": 8, "showPoints": "never", "spanNulls": 30_000}
    return {
        "type": "timeseries",
        "title": title,
        "description": about,
        "datasource": PROMETHEUS,
        "gridPos": {"w": width, "h": 8},
        "targets": [target(n, query, legend) for n, (query, legend) in enumerate(queries)],
        "fieldConfig": {"defaults": field(unit, min=0, custom=drawn, **more), "overrides": []},
        "options": {
            "legend": {"displayMode": "list", "placement": "bottom", "showLegend": True, "calcs": []},
            "tooltip": {"mode": "multi", "sort": "desc"},
        },
    }


def number(title: str, unit: str, query: str, *, about: str = "", width: int = 4, **more) -> dict:
    """The current value."""
    return {
        "type": "stat",
        "title": title,
        "description": about,
        "datasource": PROMETHEUS,
        "gridPos": {"w": width, "h": 4},
        "targets": [target(0, query, "")],
        "fieldConfig": {"defaults": field(unit, **more), "overrides": []},
        "options": {
            "reduceOptions": {"values": False, "calcs": ["lastNotNull"], "fields": ""},
            "orientation": "auto",
            "textMode": "auto",
            "wideLayout": True,
            "colorMode": "value" if "steps" in more else "none",
            "graphMode": "area",
            "justifyMode": "auto",
            "showPercentChange": False,
            "percentChangeColorMode": "standard",
        },
    }


def table(title: str, key: str, columns: list[tuple[str, str, str]], *, about: str = "") -> dict:
    """A row for each value of the label `key`; `columns` are name, unit, query."""
    overrides = [
        {"matcher": {"id": "byName", "options": name}, "properties": [{"id": "unit", "value": unit}]}
        for name, unit, _ in columns
    ]
    names = {f"Value #{chr(ord('A') + n)}": name for n, (name, _, _) in enumerate(columns)} | {key: key.capitalize()}
    return {
        "type": "table",
        "title": title,
        "description": about,
        "datasource": PROMETHEUS,
        "gridPos": {"w": WIDTH, "h": 9},
        "targets": [target(n, query, "", table=True) for n, (_, _, query) in enumerate(columns)],
        "fieldConfig": {"defaults": {"custom": {"align": "auto", "filterable": True}}, "overrides": overrides},
        "options": {"showHeader": True, "cellHeight": "sm", "sortBy": [{"displayName": columns[0][0], "desc": True}]},
        "transformations": [
            {"id": "joinByField", "options": {"byField": key, "mode": "outer"}},
            {"id": "filterFieldsByName", "options": {"include": {"names": list(names)}}},
            {"id": "organize", "options": {"renameByName": names}},
        ],
    }


def row(title: str) -> dict:
    return {"type": "row", "title": title, "collapsed": False, "panels": [], "gridPos": {"w": WIDTH, "h": 1}}


def chosen(label: str, query: str) -> dict:
    """A choice of values of a label, by default all."""
    return {
        "type": "query",
        "name": label,
        "label": label.capitalize(),
        "datasource": PROMETHEUS,
        "query": {"query": f"label_values({query}, {label})", "refId": label},
        "refresh": 2,
        "sort": 1,
        "multi": True,
        "includeAll": True,
        "allValue": ".*",
        "current": {"text": "All", "value": "$__all"},
        "options": [],
    }


def dashboard(name: str, title: str, about: str, variables: list[dict], panels: list[dict]) -> dict:
    x = y = tallest = 0
    for n, panel in enumerate(panels, start=1):
        grid = panel["gridPos"]
        if x + grid["w"] > WIDTH:
            x, y, tallest = 0, y + tallest, 0
        panel["id"] = n
        panel["gridPos"] = {"x": x, "y": y, "w": grid["w"], "h": grid["h"]}
        x, tallest = x + grid["w"], max(tallest, grid["h"])
    links = {
        "type": "dashboards",
        "title": "Weir",
        "icon": "external link",
        "tooltip": "",
        "url": "",
        "tags": ["weir"],
        "asDropdown": False,
        "targetBlank": False,
        "includeVars": False,
        "keepTime": True,
    }
    firing = {
        "name": "Alerts",
        "enable": True,
        "hide": False,
        "iconColor": "red",
        "datasource": PROMETHEUS,
        "target": {"refId": "Alerts", "expr": 'ALERTS{alertstate="firing",severity=~"critical|warning"}'},
    }
    return {
        "uid": f"weir-{name}",
        "title": f"Weir: {title}",
        "description": about,
        "tags": ["weir"],
        "schemaVersion": 42,
        "version": 1,
        "editable": False,
        "graphTooltip": 1,
        "refresh": "5s",
        "time": {"from": "now-30m", "to": "now"},
        "timepicker": {},
        "timezone": "browser",
        "fiscalYearStartMonth": 0,
        "links": [links],
        "annotations": {"list": [firing]},
        "templating": {"list": variables},
        "panels": panels,
    }


def zones() -> dict:
    z = '{zone=~"$zone"}'
    return dashboard(
        "zones",
        "zones",
        "Lines, entries against what is allowed, waits.",
        [chosen("zone", "weir_zone_admit_per_minute")],
        [
            number("Waiting", "short", f"sum(zone:weir_present:max{z})"),
            number("Zones with a line", "short", f"count(zone:weir_present:max{z} > 0) or vector(0)"),
            number("Entered a minute", "short", f"sum(zone:weir_entered:per_minute{z})"),
            number("Came a minute", "short", f"sum(zone:weir_joined:per_minute{z})"),
            number(
                "Slots used, worst zone", "percentunit", f"min(zone:weir_slot_use:ratio5m{z})",
                steps=[(0.9, "green")], about="While people wait, 97 % is usual.",
            ),
            number(
                "Let in without the store", "short", f"sum(increase(weir_admitted_unseen_total{z}[1h]))",
                steps=[(1, "red")], about="In the last hour, uncapped.",
            ),
            table(
                "Zones",
                "zone",
                [
                    ("Waiting", "short", f"zone:weir_present:max{z}"),
                    ("Entered a minute", "short", f"zone:weir_entered:per_minute{z}"),
                    ("Allowed a minute", "short", f"zone:weir_admit_per_minute:max{z}"),
                    ("Came a minute", "short", f"zone:weir_joined:per_minute{z}"),
                    ("Slots used", "percentunit", f"zone:weir_slot_use:ratio5m{z}"),
                    ("Waited, p90", "s", f"zone:weir_wait_seconds:p90_10m{z}"),
                ],
            ),
            lines("Waiting", "short", (f"zone:weir_present:max{z}", "{{zone}}"), about="People who poll."),
            lines(
                "Entered a minute, and allowed", "short",
                (f"zone:weir_entered:per_minute{z}", "{{zone}}"),
                (f"zone:weir_admit_per_minute:max{z}", "{{zone}}: allowed"),
            ),
            lines("Came a minute", "short", (f"zone:weir_joined:per_minute{z}", "{{zone}}")),
            lines(
                "Left the line a minute", "short", (f"zone:weir_evicted:per_minute{z}", "{{zone}}"),
                about="Evicted because they stopped polling, or gave up their places.",
            ),
            lines(
                "Time in line of people who entered", "s",
                (f"zone:weir_wait_seconds:p50_10m{z}", "{{zone}}: half"),
                (f"zone:weir_wait_seconds:p90_10m{z}", "{{zone}}: nine in ten"),
            ),
            lines(
                "Actual wait divided by told wait", "none",
                (f"zone:weir_wait_error:p10_10m{z}", "{{zone}}: p10"),
                (f"zone:weir_wait_error:p90_10m{z}", "{{zone}}: p90"),
                about="1: people waited as long as told. Above 1: longer.",
            ),
            lines(
                "Told waits of the last hour: in range, and error", "percentunit",
                (f"zone:weir_told_in_range:ratio1h{z}", "{{zone}}: waits within the range told"),
                (f"zone:weir_told_error:ratio1h{z}", "{{zone}}: mean error as a share of the wait"),
                about="Nine of ten waits should be within the range that was told at the join.",
                max=1,
            ),
            lines("Share of slots used while a line waits", "percentunit", (f"zone:weir_slot_use:ratio5m{z}", "{{zone}}"), max=1),
            lines("Refused for asking too often", "reqps", (f"zone:weir_limited:per_second{z}", "{{zone}}")),
            lines("Refused because the line is full", "reqps", (f"zone:weir_full:per_second{z}", "{{zone}}")),
        ],
    )


def servers() -> dict:
    i = '{instance=~"$instance"}'
    job = '{job="weir",instance=~"$instance"}'
    return dashboard(
        "servers",
        "servers",
        "Requests, latency, connections, the store as servers see it, events.",
        [chosen("instance", "weir_build_info")],
        [
            number("Servers up", "short", 'sum(up{job="weir"})', steps=[(1, "green")]),
            number("Requests a second", "reqps", f"sum(instance_route_status:weir_requests:per_second{i})"),
            number("Connections", "short", f"sum(weir_connections_open{i})"),
            number("Streams", "short", f"sum(weir_streams_open{i})"),
            number("Stores up, worst server", "short", f"min(weir_store_cell_up{i})", steps=[(1, "green")]),
            number(
                "Accept queue overflows", "short", f"sum(increase(weir_kernel_listen_overflows_total{i}[1h]))",
                steps=[(1, "red")], about="In the last hour.",
            ),
            row("Requests"),
            lines("By route and status", "reqps", ("sum by (route, status) (instance_route_status:weir_requests:per_second" + i + ")", "{{route}} {{status}}")),
            lines(
                "p95", "s", (f"instance_route:weir_request_seconds:p95_5m{i}", "{{instance}} {{route}}"),
                about="A poll near the front is held for up to 150 ms on purpose.",
            ),
            lines("Errors of the server", "percentunit", (f"instance:weir_errors:ratio5m{i}", "{{instance}}")),
            lines("Calls for which the client limit was unknown", "reqps", (f"rate(weir_limits_unknown_total{i}[1m])", "{{instance}}")),
            row("Pace"),
            lines(
                "Polling period", "s", (f"weir_polling_period_seconds{i}", "{{instance}}"),
                about="The longest that a busy server told lately; 0 while it tells the period that is set.",
            ),
            lines("Busy, by cause", "short", (f"weir_busy{i}", "{{instance}} {{cause}}")),
            lines("Room for polls, a second", "reqps", (f"weir_poll_room_per_second{i}", "{{instance}}")),
            lines("Tasks run late by", "s", (f"weir_scheduler_lag_seconds{i}", "{{instance}}")),
            row("Connections"),
            lines("Open", "short", (f"weir_connections_open{i}", "{{instance}}"), (f"weir_connections_max{i}", "{{instance}}: at most")),
            lines(
                "Connections accepted and refused a second", "cps",
                (f"rate(weir_connections_accepted_total{i}[1m])", "{{instance}}"),
                (f"rate(weir_connections_refused_total{i}[1m])", "{{instance}}: refused"),
            ),
            lines(
                "Accept queue", "cps",
                (f"rate(weir_kernel_listen_overflows_total{i}[1m])", "{{instance}}: overflows"),
                (f"rate(weir_kernel_listen_drops_total{i}[1m])", "{{instance}}: drops"),
            ),
            lines("Streams", "short", (f"weir_streams_open{i}", "{{instance}}")),
            row("Store"),
            lines("Calls, p99", "s", (f"instance_call:weir_store_call_seconds:p99_5m{i}", "{{instance}} {{call}}")),
            lines("Calls that failed, a second", "ops", (f"sum by (instance, call) (rate(weir_store_calls_failed_total{i}[1m]))", "{{instance}} {{call}}")),
            lines(
                "Tickets a call", "short",
                (f"sum by (call) (rate(weir_store_call_tickets_sum{i}[1m])) / sum by (call) (rate(weir_store_call_tickets_count{i}[1m]))", "{{call}}"),
                about="The busier the server, the more people share one call.",
            ),
            lines("Age of the oldest view", "s", (f"max by (instance) (weir_zone_view_age_seconds{i})", "{{instance}}"), about="Views of idle zones are not renewed, so they get old."),
            row("Process"),
            lines("Processor", "short", (f"rate(process_cpu_seconds_total{job}[1m])", "{{instance}}"), about="1 is a core."),
            lines("Memory", "bytes", (f"process_resident_memory_bytes{job}", "{{instance}}")),
            lines("Open files", "short", (f"process_open_fds{job}", "{{instance}}"), (f"process_max_fds{job}", "{{instance}}: at most")),
            lines("Started", "dateTimeAsIso", (f"1000 * process_start_time_seconds{job}", "{{instance}}")),
            row("Events"),
            lines("Waiting for a subscriber", "short", (f"weir_events_waiting{i}", "{{instance}} {{subscriber}}")),
            lines(
                "Lost a second", "ops", (f"rate(weir_events_lost_total{i}[1m])", "{{instance}} {{subscriber}}"),
                (f"rate(weir_events_unheard_total{i}[1m])", "{{instance}}: unheard"),
            ),
            lines(
                "Messages between servers, a second", "ops",
                (f"rate(weir_fanout_sent_total{i}[1m])", "{{instance}}: sent"),
                (f"rate(weir_fanout_heard_total{i}[1m])", "{{instance}}: heard"),
                (f"rate(weir_fanout_dropped_total{i}[1m])", "{{instance}}: {{why}}"),
            ),
            lines("Messages of other servers arrive", "short", (f"weir_fanout_connected{i}", "{{instance}} {{cell}}"), max=1),
        ],
    )


def redis() -> dict:
    i = '{instance=~"$instance"}'
    return dashboard(
        "redis",
        "Redis",
        "The nodes that keep the lines.",
        [chosen("instance", "redis_up")],
        [
            number("Nodes up", "short", "sum(redis_up)", steps=[(6, "green")]),
            number("Primaries", "short", 'count(redis_instance_info{role="master"})'),
            number("Cluster whole", "short", "min(redis_cluster_state)", steps=[(1, "green")]),
            number("Slots served", "short", "min(redis_cluster_slots_ok)", steps=[(16_384, "green")]),
            number("Memory used, worst node", "percentunit", "max(redis_memory_used_bytes / (redis_memory_max_bytes > 0))", steps=[(0.8, "red")]),
            number(
                "Oldest save of a replica", "s", 'max(time() - redis_rdb_last_save_timestamp_seconds and on (instance) redis_instance_info{role="slave"})',
                steps=[(600, "red")],
            ),
            table(
                "Nodes",
                "instance",
                [
                    ("Up", "short", "redis_up"),
                    ("Replicas", "short", "redis_connected_slaves"),
                    ("Memory", "bytes", "redis_memory_used_bytes"),
                    ("Calls a second", "ops", "rate(redis_commands_processed_total[1m])"),
                    ("Main thread", "percentunit", "rate(redis_cpu_sys_main_thread_seconds_total[1m]) + rate(redis_cpu_user_main_thread_seconds_total[1m])"),
                ],
            ),
            lines(
                "Main thread", "percentunit",
                (f"rate(redis_cpu_sys_main_thread_seconds_total{i}[1m]) + rate(redis_cpu_user_main_thread_seconds_total{i}[1m])", "{{instance}}"),
                about="At 100 %, the node cannot serve more calls.", max=1,
            ),
            lines("Calls a second", "ops", (f"rate(redis_commands_processed_total{i}[1m])", "{{instance}}")),
            lines(
                "Mean time of a script", "s",
                (
                    'sum by (instance) (rate(redis_commands_duration_seconds_total{cmd="evalsha",instance=~"$instance"}[1m])) '
                    '/ sum by (instance) (rate(redis_commands_total{cmd="evalsha",instance=~"$instance"}[1m]))',
                    "{{instance}}",
                ),
            ),
            lines("Slow calls", "short", (f"redis_slowlog_length{i}", "{{instance}}"), about="In SLOWLOG: above 5 ms."),
            lines("Memory", "bytes", (f"redis_memory_used_bytes{i}", "{{instance}}"), (f"redis_memory_max_bytes{i}", "{{instance}}: at most")),
            lines("Connections", "short", (f"redis_connected_clients{i}", "{{instance}}")),
            lines(
                "Network", "Bps",
                (f"rate(redis_net_output_bytes_total{i}[1m])", "{{instance}}: out"),
                (f"rate(redis_net_input_bytes_total{i}[1m])", "{{instance}}: in"),
            ),
            lines(
                "Last fork, and last save", "s",
                (f"redis_latest_fork_seconds{i}", "{{instance}}: fork"),
                (f"redis_rdb_last_bgsave_duration_sec{i}", "{{instance}}: save"),
            ),
        ],
    )


def kernel() -> dict:
    i = 'instance=~"$instance"'
    disk = 'fstype!~"tmpfs|overlay|squashfs"'

    def rate(name: str) -> str:
        return f"rate({name}{{{i}}}[1m])"

    return dashboard(
        "kernel",
        "machines",
        "Processors, memory, disks, and what the kernel does with connections.",
        [chosen("instance", "node_load1")],
        [
            lines("Processors", "percentunit", (f'1 - avg by (instance) (rate(node_cpu_seconds_total{{mode="idle",{i}}}[1m]))', "{{instance}}"), max=1),
            lines("Load, a processor", "none", (f'node_load1{{{i}}} / on (instance) count by (instance) (node_cpu_seconds_total{{mode="idle",{i}}})', "{{instance}}")),
            lines("Memory available", "percentunit", (f"node_memory_MemAvailable_bytes{{{i}}} / node_memory_MemTotal_bytes{{{i}}}", "{{instance}}"), max=1),
            lines("Disk left", "percentunit", (f"node_filesystem_avail_bytes{{{disk},{i}}} / node_filesystem_size_bytes{{{disk},{i}}}", "{{instance}} {{mountpoint}}"), max=1),
            row("Connections"),
            lines("TCP sockets", "short", (f"node_netstat_Tcp_CurrEstab{{{i}}}", "{{instance}}: established"), (f"node_sockstat_TCP_tw{{{i}}}", "{{instance}}: time-wait")),
            lines("New connections a second", "cps", (rate("node_netstat_Tcp_PassiveOpens"), "{{instance}}: in"), (rate("node_netstat_Tcp_ActiveOpens"), "{{instance}}: out")),
            lines("Accept queue", "cps", (rate("node_netstat_TcpExt_ListenOverflows"), "{{instance}}: overflows"), (rate("node_netstat_TcpExt_ListenDrops"), "{{instance}}: drops")),
            lines("SYN cookies", "cps", (rate("node_netstat_TcpExt_SyncookiesSent"), "{{instance}}: sent"), (rate("node_netstat_TcpExt_SyncookiesFailed"), "{{instance}}: wrong ones")),
            lines("Segments sent again", "percentunit", (f"{rate('node_netstat_Tcp_RetransSegs')} / {rate('node_netstat_Tcp_OutSegs')}", "{{instance}}")),
            lines("Memory of TCP", "bytes", (f"node_sockstat_TCP_mem_bytes{{{i}}}", "{{instance}}")),
            lines("Connections tracked", "percentunit", (f"node_nf_conntrack_entries{{{i}}} / node_nf_conntrack_entries_limit{{{i}}}", "{{instance}}")),
            lines("Files open", "short", (f"node_filefd_allocated{{{i}}}", "{{instance}}")),
            row("Network and clock"),
            lines("Traffic", "Bps", (rate("node_network_receive_bytes_total"), "{{instance}} {{device}}: in"), (rate("node_network_transmit_bytes_total"), "{{instance}} {{device}}: out")),
            lines("Dropped packets", "pps", (rate("node_network_receive_drop_total"), "{{instance}} {{device}}"), (rate("node_softnet_dropped_total"), "{{instance}} cpu {{cpu}}: backlog")),
            lines("Clock synchronised", "none", (f"node_timex_sync_status{{{i}}}", "{{instance}}"), max=1),
        ],
    )


def main() -> None:
    directory = pathlib.Path(sys.argv[1])
    directory.mkdir(parents=True, exist_ok=True)
    for name, made in {"zones": zones(), "servers": servers(), "redis": redis(), "kernel": kernel()}.items():
        (directory / f"{name}.json").write_text(json.dumps(made, indent=1) + "\n")


main()
