# shellcheck shell=bash
# Talks to a server that a check has started. Sourced, not run, after output.sh. The server writes to the files OUT and ERR.

# until_it_listens PID OUT ERR: sets `address`. Under an emulator, the start takes seconds.
until_it_listens() {
    address=
    for _ in {1..600}; do
        address=$(sed -n 's/^listening on //p' "$2")
        [ -z "$address" ] || return 0
        kill -0 "$1" 2>/dev/null || die "the server ended at its start: $(cat "$3")"
        read -rt 0.1 <> <(:) || true
    done
    die "the server prints no address: $(cat "$2" "$3")"
}

# ask PATH BODY: the reply of the server at `address`.
ask() { curl --silent --show-error --fail --max-time 10 --json "$2" "$address$1"; }

# take_a_place: joins the line of TEST_ZONE. Sets `token`.
take_a_place() {
    local reply
    reply=$(ask /traffic/wait '{"zoneId":"TEST_ZONE"}')
    echo "wait:  $reply"
    token=$(jq --exit-status --raw-output .token <<<"$reply")
}

# enter: polls with `token` until the person has a pass. Alone in the line, a person enters at the first or second poll.
enter() {
    local reply
    for _ in {1..50}; do
        reply=$(ask /traffic/entry "{\"zoneId\":\"TEST_ZONE\",\"token\":\"$token\"}")
        [ "$(jq .canEnter <<<"$reply")" != true ] || break
        read -rt 0.2 <> <(:) || true
    done
    echo "entry: ${reply:0:100}…"
    jq --exit-status '.canEnter and (.pass | length > 100)' <<<"$reply" >/dev/null || die "the person did not enter"
}
