# shellcheck shell=bash
# Builds a page that is bundled by esbuild. Sourced, not run, after output.sh and downloads.sh, with `target` set.

# build_page FOLDER [--check]: builds FOLDER (sources, exact versions, lock file) to FOLDER/dist, which is committed. Works in
# a copy under the target directory, so nothing but FOLDER/dist changes here. With --check it only compares.
build_page() {
    local page=$1 check=${2-} copy=$target/$1
    mkdir -p "$copy"
    rm -rf "$copy/src" "$copy/dist"
    cp -R "$page/src" "$page/build.mjs" "$page/package.json" "$copy/"
    # The packages are installed again only when the lock file changes.
    if ! cmp -s "$page/package-lock.json" "$copy/package-lock.json" || ! [ -e "$copy/installed" ]; then
        rm -f "$copy/installed"
        cp "$page/package-lock.json" "$copy/"
        npm ci --prefix "$copy" --ignore-scripts --no-audit --no-fund --loglevel=error \
            || die "npm ci failed: is the registry reachable? Does $page/package-lock.json match $page/package.json?"
        touch "$copy/installed"
    fi
    node "$copy/build.mjs" "$copy/dist"

    if [ "$check" ]; then
        diff -rq "$page/dist" "$copy/dist" >&2 \
            || die "$page/dist does not match $page/: run $program, and commit $page/dist"
        echo "$page/dist matches $page/"
    else
        rm -rf "$page/dist"
        cp -R "$copy/dist" "$page/dist"
    fi
    find "$page/dist" -type f -exec wc -c {} +
}
