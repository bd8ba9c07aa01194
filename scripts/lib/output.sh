# shellcheck shell=bash
# What the scripts print: steps with their times, notes and errors. Sourced, not run.
# A terminal gets colour. A pipe gets plain lines.

if [ -t 1 ] && [ -z "${NO_COLOR:-}" ] && [ "${TERM:-dumb}" != dumb ]; then
    bold=$'\e[1m' red=$'\e[31m' green=$'\e[32m' plain=$'\e[0m'
else
    bold='' red='' green='' plain=''
fi

# The name of the running script, for error messages.
program=${program:-$0}
# The running step, for the message of a failure.
current=start
notes=()

say() { printf '\n%s==> %s%s\n' "$bold" "$*" "$plain"; }
note() { notes+=("$*"); printf 'note: %s\n' "$*"; }
die() { printf '\n%s%s: %s%s\n' "$red" "$program" "$*" "$plain" >&2; exit 1; }

# step NAME COMMAND...: runs the command and prints how long it took.
step() {
    current=$1
    shift
    say "$current"
    local from=$SECONDS
    "$@"
    printf -- '--- %s: %sok%s, %d s\n' "$current" "$green" "$plain" $((SECONDS - from))
}

# finish STATUS: the last lines of a run.
finish() {
    if (($1 != 0)); then
        printf '\n%sFAILED in "%s" after %d s (exit code %d)%s\n' "$red" "$current" "$SECONDS" "$1" "$plain" >&2
        return
    fi
    printf '\n%sAll passed in %d s.%s\n' "$green" "$SECONDS" "$plain"
    ((${#notes[@]} == 0)) || printf 'note: %s\n' "${notes[@]}"
}
