# shellcheck shell=bash
# Runs test suites side by side, in lanes. Sourced, not run, after output.sh.
#
# The suites of one lane run one after another; lanes run at the same time. A suite's output is printed whole when the
# suite ends, so outputs never mix. Every suite runs, even if an earlier one failed. A suite that runs longer than
# `suite_limit` seconds is ended and fails, and so does not hide the results of the others.
#
# Suites that measure time must get a processor when they need one. `nice` does not give it to them: Linux weighs priorities
# within a session only, and a browser opens sessions of its own. So lanes that only compute are idle processes
# (`idle_lanes`), and lanes with browsers and many servers begin when the lanes that measure time have ended (`lane_after`).

suite_names=() suite_lanes=() suite_commands=()
# The lanes whose processes run while no other wants a processor.
idle_lanes=' '
# A lane, and the lanes that must have ended before it begins.
declare -A lane_after=()
# The suites that run: process id to index, and to the value of SECONDS at the start.
declare -A suites_running=() suites_since=()
# Twice what the longest suite takes beside all others on two cores.
suite_limit=2400

# suite LANE NAME COMMAND...: adds a suite.
suite() {
    suite_lanes+=("$1") suite_names+=("$2")
    shift 2
    suite_commands+=("$(printf '%q ' "$@")")
}

# lane_is_idle LANE: its processes run while no other wants a processor.
lane_is_idle() { idle_lanes+="$1 "; }

# lane_begins_after LANE LANE...: the first lane begins when the others have ended.
lane_begins_after() {
    lane_after[$1]=${*:2}
}

# start_suite INDEX: starts the suite in its own process group, so that stop_suites also ends the servers that it started.
start_suite() {
    local log=$suite_logs/$1
    set -m
    (
        trap - EXIT INT TERM
        set +em
        if [[ $idle_lanes == *" ${suite_lanes[$1]} "* ]]; then
            # Who may not become idle becomes as nice as possible.
            chrt --idle --pid 0 "$BASHPID" 2>/dev/null || renice --priority 19 --pid "$BASHPID" >/dev/null 2>&1 || true
        fi
        SECONDS=0
        (set -e; eval "${suite_commands[$1]}")
        status=$?
        # Its second line has the processor time of the children: user, then system. A pipe would have other children.
        times >"$log.times"
        echo "$SECONDS" >"$log.seconds"
        exit "$status"
    ) >"$log.txt" 2>&1 </dev/null &
    set +m
    suites_running[$!]=$1 suites_since[$!]=$SECONDS
    printf '    %s: started\n' "${suite_names[$1]}"
}

# start_next LANE: starts the lane's next suite, if there is one. Fails if there is none.
start_next() {
    local i
    for i in "${!suite_names[@]}"; do
        if [ "${suite_lanes[i]}" = "$1" ] && [ -z "${suite_started[i]-}" ]; then
            suite_started[i]=yes
            start_suite "$i"
            return
        fi
    done
    return 1
}

# start_lanes: starts the lanes that have not begun and wait for none.
start_lanes() {
    local lane before
    for lane in "${!lanes_waiting[@]}"; do
        for before in ${lane_after[$lane]-}; do
            [ -n "${lanes_ended[$before]-}" ] || continue 2
        done
        unset "lanes_waiting[$lane]"
        start_next "$lane" || true
    done
}

# end_suite INDEX STATUS: prints the output, and how the suite ended.
end_suite() {
    local log=$suite_logs/$1 seconds processor result="${green}ok${plain}"
    # `0m1.234s 0m0.567s` becomes a number of seconds.
    processor=$(awk 'NR == 2 { for (i = 1; i <= 2; i++) { split($i, t, /[ms]/); sum += 60 * t[1] + t[2] } printf "%d", sum + 0.5 }' "$log.times" 2>/dev/null || true)
    seconds=$(cat "$log.seconds" 2>/dev/null || echo '?')
    say "${suite_names[$1]}"
    cat "$log.txt"
    if (($2 != 0)); then
        result="${red}FAILED${plain} (exit code $2)"
        suites_failed+=("${suite_names[$1]}")
    fi
    printf -- '--- %s: %s, %s s (%s s of processor time)\n' "${suite_names[$1]}" "$result" "$seconds" "${processor:-?}"
}

# run_suites DIRECTORY: runs all suites that were added; their outputs stay in the directory. Fails if one failed.
run_suites() {
    suite_logs=$1
    suites_failed=() suite_started=()
    declare -gA lanes_waiting=() lanes_ended=()
    local lane before ended status index
    rm -rf "$suite_logs"
    mkdir -p "$suite_logs"
    for lane in "${suite_lanes[@]}"; do lanes_waiting[$lane]=yes; done
    for lane in "${!lane_after[@]}"; do
        for before in ${lane_after[$lane]}; do
            # A lane without suites has ended.
            [ -n "${lanes_waiting[$before]-}" ] || lanes_ended[$before]=yes
        done
    done
    start_lanes
    local tick=
    while ((${#suites_running[@]})); do
        [ -n "$tick" ] || { sleep 5 & tick=$!; }
        status=0
        wait -n -p ended "$tick" "${!suites_running[@]}" || status=$?
        if [ "$ended" = "$tick" ]; then
            tick=
            end_late_suites
            continue
        fi
        index=${suites_running[$ended]}
        unset "suites_running[$ended]"
        end_suite "$index" "$status"
        if ! start_next "${suite_lanes[$index]}"; then
            lanes_ended[${suite_lanes[$index]}]=yes
            start_lanes
        fi
    done
    [ -z "$tick" ] || kill "$tick" 2>/dev/null || true
    ((${#lanes_waiting[@]} == 0)) || die "these lanes wait for each other: ${!lanes_waiting[*]}"
    ((${#suites_failed[@]} == 0)) || {
        printf '\n%sfailed: %s%s\n' "$red" "$(printf '%s, ' "${suites_failed[@]}" | sed 's/, $//')" "$plain"
        return 1
    }
}
# end_late_suites: ends, by process group, what runs for longer than the limit. run_suites then sees that it failed.
end_late_suites() {
    local pid
    for pid in "${!suites_running[@]}"; do
        ((SECONDS - suites_since[$pid] > suite_limit)) || continue
        printf '\nended: it ran for more than %d s\n' "$suite_limit" >>"$suite_logs/${suites_running[$pid]}.txt"
        kill -TERM -- "-$pid" 2>/dev/null || true
    done
}

# stop_suites: ends what still runs, by process group, and prints what it said so far.
stop_suites() {
    local pid
    for pid in "${!suites_running[@]}"; do kill -TERM -- "-$pid" 2>/dev/null || true; done
    for pid in "${!suites_running[@]}"; do
        wait "$pid" 2>/dev/null || true
        say "${suite_names[${suites_running[$pid]}]}: stopped after $((SECONDS - suites_since[$pid])) s"
        tail -n 50 "$suite_logs/${suites_running[$pid]}.txt"
    done
    suites_running=()
}
