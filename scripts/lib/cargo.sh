# shellcheck shell=bash
# What scripts/test does with cargo: checks, builds, and finding the test programs. Sourced, not run, after output.sh and
# with `target` set.

export CARGO_TARGET_DIR=$target
# Everything is compiled once, so data for incremental compilation would only cost time.
export CARGO_INCREMENTAL=0

# Everything with tests, the programs that they start, and the benchmarks. One selection and one set of features, so that each crate is compiled
# once: the programs under test could break rules, too, if somebody told them. Those of the image are built without that.
tested=(--workspace --exclude weir-fuzz --features "weir-tests/sabotage,weir-simulations/sabotage" --locked --quiet)

check_format() { cargo fmt --all --check; }

# Clippy compiles as rustc does and lints what it compiles. So the crates are built and linted at once, and not read twice. The fuzz targets
# are linted where they are built: their library is compiled from C++.
linted=(env "RUSTC_WORKSPACE_WRAPPER=$(rustc --print sysroot)/bin/clippy-driver" CLIPPY_ARGS=-Dwarnings__CLIPPY_HACKERY__)

# Lints each script as Redis gets it: the store names its parts. What one script has no use for, another has: 211, 231 and 311 are
# about that.
check_scripts() {
    local name parts
    local lint=(luacheck --quiet --std lua51 --globals redis KEYS ARGV struct --no-max-comment-line-length --max-line-length 130)
    # shellcheck disable=SC2086 # the parts are several files
    while read -r name parts; do
        (cd lua && cat $parts) | "${lint[@]}" --ignore 211 231 311 --filename "$name" -
    done < <(sed -n 's/^    [A-Z]*, "\([a-z]*\)", \(".*"\)$/\1 \2/p' crates/store/src/redis/scripts.rs | tr -d '",')
    "${lint[@]}" lua/limit.lua
}

# The rules must not need an operating system. A target without one proves it.
check_wasm() {
    local wasm=wasm32-unknown-unknown
    if ! [ -d "$(rustc --print sysroot)/lib/rustlib/$wasm/lib" ]; then
        command -v rustup >/dev/null || { note "the rules were not checked for $wasm: the target is missing, and so is rustup"; return; }
        rustup target add "$wasm"
    fi
    cargo check --package admission --package wait --target "$wasm" --locked --quiet
    cargo check --package limiter --no-default-features --target "$wasm" --locked --quiet
}

check_dependencies() {
    check_advisories
    if cargo deny --version >/dev/null 2>&1; then
        # Not the advisories: cargo-deny fails where it cannot fetch them.
        cargo deny --all-features check bans licenses sources
        return
    fi
    note "cargo-deny is not installed: licences were checked; bans and sources were not"
    local allowed
    allowed=$(sed -n '/^allow = \[/,/^\]/s/^ *"\(.*\)",$/\1/p' deny.toml | jq --raw-input --slurp 'split("\n") | map(select(. != ""))')
    # An expression with brackets must have all its parts allowed. That is stricter than the expression.
    cargo metadata --format-version 1 --locked | jq --exit-status --raw-output --argjson allowed "$allowed" '
        def fits: (. // "none stated") | gsub(" */ *"; " OR ")
            | if test("[(]") then [gsub("[()]"; "") | splits(" OR | AND ")] | all(IN($allowed[]))
              else [splits(" OR ")] | any([splits(" AND ")] | all(IN($allowed[]))) end;
        [.packages[] | select(.license | fits | not) | "\(.name) \(.version): \(.license)"]
        | if . == [] then "all licences are allowed" else "not allowed:", .[], halt_error(1) end'
}

# Fails for a known vulnerability. Where RustSec's database cannot be reached, it says so and goes on.
check_advisories() {
    local said line
    scripts/check-advisories --self-test
    said=$(scripts/check-advisories) || { echo "$said"; return 1; }
    while read -r line; do
        case $line in
            note:*) note "${line#note: }" ;;
            *) echo "$line" ;;
        esac
    done <<<"$said"
}

# Builds and lints the tests, the weir and the loadgen that they start, and the benchmarks. Lists the test programs: directory of the
# package, kind, name, path of the program.
build_tests() {
    "${linted[@]}" cargo test "${tested[@]}" --all-targets --no-run --message-format=json-render-diagnostics >"$target/tests.json"
    jq --raw-output 'select(.reason == "compiler-artifact" and .profile.test and .executable != null and (.target.kind[0] | IN("bench", "example") | not))
        | [(.manifest_path | rtrimstr("/Cargo.toml")), .target.kind[0], .target.name, .executable] | @tsv' \
        "$target/tests.json" >"$target/tests.tsv"
    echo "$(wc -l <"$target/tests.tsv") test programs"
}

# test_program NAME ARGUMENTS...: runs a program of tests/ or tests/simulations/, in its package's directory, as cargo does.
test_program() {
    local directory path
    IFS=$'\t' read -r directory path < <(awk -F '\t' -v name="$1" '$1 ~ "/tests(/simulations)?$" && $3 == name { print $1 "\t" $4 }' \
        "$target/tests.tsv") || die "there is no test program $1"
    shift
    cd "$directory"
    CARGO_MANIFEST_DIR=$PWD "$path" "$@"
}

# simulations COUNT: makes that many runs of the simulation and checks them against the promises.
simulations() {
    WEIR_SIM_SEEDS=$1 test_program simulation every_promise_holds_for_every_seed
}

# tests_of CONDITION: runs the test programs whose package's directory meets the condition, an expression of awk. Like cargo, it
# runs a test in the directory of its package.
tests_of() {
    local directory kind name path ran=0 failed=0
    while IFS=$'\t' read -r directory kind name path; do
        ran=$((ran + 1))
        printf '\n%s, %s %s\n' "${directory##*/}" "$kind" "$name"
        (cd "$directory" && CARGO_MANIFEST_DIR=$directory "$path" --quiet) || failed=1
    done < <(awk -F '\t' "$1" "$target/tests.tsv")
    ((ran > 0)) || die "no test program meets $1"
    return "$failed"
}

# The verifiers of passes, but that for Spring. That of Rust is built already.
verifiers() {
    PASSES_AXUM=$(awk -F '\t' '$1 ~ "/clients/passes/axum$" { print $4 }' "$target/tests.tsv") clients/passes/run go python node axum
}

# The tests inside the crates, and their documentation with its examples.
unit_tests() {
    local failed=0
    tests_of '$1 !~ "/(tests|tests/simulations|loadgen|clients/passes/axum)$"' || failed=1
    printf '\nthe documentation, and its examples\n'
    RUSTDOC=$PWD/scripts/lib/rustdoc "${linted[@]}" cargo test "${tested[@]}" --doc || failed=1
    return "$failed"
}

# These run apart from the tests of the other crates. They compare latencies with known delays, so they must not wait for a
# processor.
loadgen_tests() { tests_of '$1 ~ "/loadgen$"'; }

# The flags are those of cargo-fuzz, without the address sanitizer, which needs a nightly compiler. This code is safe Rust:
# the fuzzer looks for panics. Only this workspace's crates get the flags. Of the other crates, most are compiled already.
build_fuzzers() {
    cargo clippy --package weir-fuzz --locked --quiet -- -D warnings
    RUSTC_WORKSPACE_WRAPPER=$PWD/fuzz/watched cargo build --workspace --exclude weir-benches --locked --quiet \
        --bin token --bin request --bin config --bin draw ||
        die "the fuzz targets don't build; they need a C++ compiler and the pinned Rust"
}

# Runs the fuzz targets side by side: each has one thread. The tests replay the seeds too, without a fuzzer.
fuzz() {
    local name running=() failed=0
    for name in token request config draw; do
        fuzz_one "$name" 10 &
        running+=($!)
    done
    for name in "${running[@]}"; do wait "$name" || failed=1; done
    return "$failed"
}

# fuzz_one NAME SECONDS
fuzz_one() {
    local name=$1 corpus=$target/fuzz/corpus/$1 found=$target/fuzz/found/$1
    mkdir -p "$corpus" "$found"
    "$target/debug/$name" -seed="$WEIR_SEED" -max_total_time="$2" -timeout=5 -max_len=8192 -print_final_stats=1 \
        -artifact_prefix="$found/" "$corpus" "fuzz/seeds/$name" 2>"$target/fuzz/$name.log" || {
        tail -n 40 "$target/fuzz/$name.log"
        die "fuzzing $name found a fault: see $found; put the file into fuzz/seeds/$name with the fix"
    }
    # Without the flags the fuzzer measures no coverage. Only this line of its log shows that.
    grep -q 'INFO: Loaded .* modules' "$target/fuzz/$name.log" || die "$name was not compiled with the fuzzer's flags"
    echo "$name, $2 s: $(grep -E 'number_of_executed_units|new_units_added' "$target/fuzz/$name.log" | tr -s '\n' ' ')"
}
