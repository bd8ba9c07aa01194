# shellcheck shell=bash
# Builds the container image. Sourced, not run, after output.sh and downloads.sh and with `target` set.

# This directory replaces the first stage of deploy/Containerfile. Its directory `image` holds the files of the image.
image_stage=$target/image/stage
image_files=$image_stage/image
image_archive=$target/image/weir.oci.tar
image_date=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct 2>/dev/null || echo 0)}

# choose_static_target: sets `static_target` and `static_flags`.
choose_static_target() {
    local machine
    machine=$(uname -m)
    static_target=$machine-unknown-linux-musl static_flags=
    if [ -d "$(rustc --print sysroot)/lib/rustlib/$static_target/lib" ] ||
        { command -v rustup >/dev/null && rustup target add "$static_target"; }; then
        need musl-gcc musl-tools
        return
    fi
    static_target=$machine-unknown-linux-gnu static_flags="-C target-feature=+crt-static"
    note "Rust's target $machine-unknown-linux-musl can't be had here: the image has a binary that is linked statically with glibc, whose resolver of host names is not complete in a static binary"
}

# stage_image STAGE PROGRAM AUTHORITIES: what the first stage of the Containerfile leaves for the last one.
stage_image() {
    local files=$1/image
    rm -rf "$files"
    install -D "$2" "$files/usr/local/bin/weir"
    install -d -m 0700 "$files/var/lib/weir"
    # For TLS to Redis without `ca_file`, and to NATS.
    install -D -m 0644 "$3" "$files/etc/ssl/certs/ca-certificates.crt"
}

# build_static_weir PROFILE: compiles weir into $image_files.
build_static_weir() {
    local static_target static_flags directory=$1
    choose_static_target
    [ "$directory" != dev ] || directory=debug
    RUSTFLAGS="${static_flags:+$static_flags }--remap-path-prefix=$PWD=. --remap-path-prefix=${CARGO_HOME:-$HOME/.cargo}=cargo" \
        CFLAGS="-ffile-prefix-map=$PWD=. -ffile-prefix-map=${CARGO_HOME:-$HOME/.cargo}=cargo" SOURCE_DATE_EPOCH=$image_date \
        CARGO_INCREMENTAL=0 cargo build --profile "$1" --target "$static_target" --locked --quiet --package weir --bin weir
    stage_image "$image_stage" "$target/$static_target/$directory/weir" /etc/ssl/certs/ca-certificates.crt
    # Function names stay, for the backtrace of a panic.
    strip --strip-debug "$image_files/usr/local/bin/weir"
    # A dynamic binary names its loader. The image has none.
    ! readelf --program-headers "$image_files/usr/local/bin/weir" | grep -q INTERP || die "the binary is not static"
    ls -l "$image_files/usr/local/bin/weir"
}

# oci_image COMMAND ARGUMENTS...: writes, unpacks or describes an image; see its head.
oci_image() { python3 scripts/lib/oci_image.py "$@"; }

# assemble_image ARCHIVE: the last stage of the Containerfile, with $image_files in place of its first stage. Prints the digest.
assemble_image() { oci_image write deploy/Containerfile "$image_stage" "$(uname -m)" "$image_date" "$1"; }

# build_image: writes the archive, and prints its digest.
build_image() {
    local digest
    need python3 python3
    digest=$(assemble_image "$image_archive")
    echo "$digest  $image_archive"
}

# in_storage STORAGE ARGUMENTS...: buildah with its images in that directory.
in_storage() {
    local storage=$1
    shift
    as_root buildah --root "$storage/images" --runroot "$storage/run" --storage-driver vfs "$@"
}

# may_mount: whether this machine lets root mount and make namespaces, as buildah must. Containers usually do not.
may_mount() { is_root_here && as_root unshare --mount sh -c 'mount --bind / / && umount /' 2>/dev/null; }

# is_root_here: whether as_root works without a question.
is_root_here() { [ "$(id -u)" = 0 ] || { command -v sudo >/dev/null && sudo --non-interactive true 2>/dev/null; }; }
