# shellcheck shell=bash
# Makes the files of a release. Sourced, not run, after output.sh, downloads.sh and image.sh and with `target` set.
#
# Invariant: the bytes of a file depend on the sources, the tools and `release_date`. They do not depend on the directory, the user, the
# time, or the order in which the file system lists files. docs/how/release.md says what was tried.

# The processors, by the names that Rust and RPM use.
release_architectures=(x86_64 aarch64)
# What is compiled and packed on the way. The next release removes it, except what cargo keeps.
release_work=$target/release-work
# All files have this date, in seconds since 1970: that of the commit. SOURCE_DATE_EPOCH of the caller would give other bytes.
release_date=$(git log -1 --format=%ct 2>/dev/null || echo 0)

# The names of a processor in other worlds: Debian packages and images have the same.
debian_architecture() {
    case $1 in
        x86_64) echo amd64 ;;
        aarch64) echo arm64 ;;
        *) die "unknown processor $1" ;;
    esac
}

# A version before a release (1.2.0-rc.1) comes before it: both kinds of packages write this with a tilde.
package_version() { echo "${1//-/\~}"; }

# alone FILE: ends if another run holds this lock. The system gives it back when the run and its programs have ended.
alone() {
    local lock
    exec {lock}>"$1"
    flock --nonblock "$lock" || die "another run works in ${1%/*}; wait for its end"
}

# names_of_another_version VERSION: the files that name a version of the project, and not this one.
names_of_another_version() {
    local file line
    while read -r file line; do
        grep --quiet --line-regexp " *${line//./\\.}" "$file" || echo "$file"
    done <<FILES
deploy/helm/weir/Chart.yaml version: $1
deploy/helm/weir/Chart.yaml appVersion: $1
deploy/kubernetes/base/kustomization.yaml newTag: $1
docs/openapi-admin.json "version": "$1"
docs/openapi-public.json "version": "$1"
FILES
    awk -v wanted="version = \"$1\"" '/^name = / { ours = $0 == "name = \"weir\"" } ours && /^version = / { found = $0 == wanted } END { exit !found }' Cargo.lock || echo Cargo.lock
}

# The compilers. One C compiler for both processors, whose version and digest are pinned: the system's would differ from system to system.
need_compilers() {
    local architecture
    need python3 python3
    need readelf binutils
    python_packages "$tools/release" scripts/lib/release-requirements.txt
    for architecture in "${release_architectures[@]}"; do
        need "$architecture-linux-gnu-strip" "binutils-${architecture//_/-}-linux-gnu"
        [ -d "$(rustc --print sysroot)/lib/rustlib/$architecture-unknown-linux-musl/lib" ] && continue
        command -v rustup >/dev/null ||
            die "Rust's target $architecture-unknown-linux-musl is missing, and so is rustup; install Rust from https://rustup.rs"
        rustup target add "$architecture-unknown-linux-musl" ||
            die "Rust's target $architecture-unknown-linux-musl is missing and can't be had here; get it: rustup target add $architecture-unknown-linux-musl"
    done
}

# program_of ARCHITECTURE NAME: where build_program leaves it.
program_of() { echo "$release_work/programs/$1/$2"; }

# build_program ARCHITECTURE PROFILE NAME: compiles it as a static program. Each program is compiled alone, so that it has only the features that
# it asks for. The paths of this machine are cut out. Function names stay, for the backtrace of a panic: Zig's linker would remove them together
# with what only debuggers need, so strip removes that afterwards. The date is a constant: a program shows none, and with the commit's date
# cargo would compile C code again for each commit.
build_program() {
    local triple=$1-unknown-linux-musl profile=$2 name=$3 cargo_home=${CARGO_HOME:-$HOME/.cargo} built
    env --unset=CARGO_ENCODED_RUSTFLAGS "CARGO_PROFILE_${profile^^}_STRIP=none" \
        RUSTFLAGS="--remap-path-prefix=$PWD=. --remap-path-prefix=$cargo_home=cargo" \
        CFLAGS="-ffile-prefix-map=$PWD=. -ffile-prefix-map=$cargo_home=cargo" \
        SOURCE_DATE_EPOCH=0 CARGO_INCREMENTAL=0 CARGO_ZIGBUILD_ZIG_PATH="$tools/release/bin/python-zig" \
        ZIG_GLOBAL_CACHE_DIR="$target/zig" ZIG_LOCAL_CACHE_DIR="$target/zig" CARGO_ZIGBUILD_CACHE_DIR="$target/zig" \
        "$tools/release/bin/cargo-zigbuild" zigbuild --profile "$profile" --target "$triple" --locked --quiet --package "$name" --bin "$name"
    built=$target/$triple/$profile/$name
    # A dynamic program names its loader. Where it runs, there may be none.
    ! readelf --program-headers "$built" | grep -q INTERP || die "$built is not static"
    mkdir -p "$release_work/programs/$1"
    "$1-linux-gnu-strip" --strip-debug -o "$(program_of "$1" "$name")" "$built"
    echo "$triple: $name, $(stat --format=%s "$(program_of "$1" "$name")") bytes"
}

build_programs() {
    local architecture name
    for architecture in "${release_architectures[@]}"; do
        for name in weir loadgen; do build_program "$architecture" "$1" "$name"; done
    done
}

# write_notices: the licences of what is linked into the programs. Every archive and package has them.
write_notices() { python3 scripts/lib/components.py notices weir loadgen >"$release_work/THIRD-PARTY.txt"; }

# set_dates DIRECTORY: the date of the release for everything in it.
set_dates() { find "$1" -exec touch --no-dereference --date="@$release_date" {} +; }

# pack DIRECTORY FILE: a .tar.gz of a directory with its name.
pack() {
    tar --create --directory "${1%/*}" --sort=name --format=gnu --owner=0 --group=0 --numeric-owner --mtime="@$release_date" "${1##*/}" |
        gzip --no-name --best >"$2"
}

# write_archive ARCHITECTURE VERSION DIRECTORY: both programs as they are.
write_archive() {
    local tree=$release_work/weir-$2-$1-linux
    rm -rf "$tree"
    mkdir -p "$tree"
    install "$(program_of "$1" weir)" "$(program_of "$1" loadgen)" "$tree/"
    install -m 0644 LICENSE-APACHE LICENSE-MIT "$release_work/THIRD-PARTY.txt" deploy/weir/single.toml "$tree/"
    pack "$tree" "$3/${tree##*/}.tar.gz"
}

# stage_package ARCHITECTURE TREE: the files of a package, as they are installed. Both kinds of packages have the same.
stage_package() {
    local tree=$2 file
    rm -rf "$tree"
    install -D "$(program_of "$1" weir)" "$tree/usr/bin/weir"
    install -D -m 0644 deploy/weir/single.toml "$tree/etc/weir/weir.toml"
    install -d "$tree"/usr/lib/{systemd/system,sysusers.d,weir/redis} "$tree/usr/share/doc/weir"
    for file in deploy/systemd/*.service; do packaged "$file" "$tree/usr/lib/systemd/system/${file##*/}"; done
    packaged deploy/systemd/weir.sysusers "$tree/usr/lib/sysusers.d/weir.conf"
    packaged deploy/systemd/wait-ready "$tree/usr/lib/weir/wait-ready"
    install deploy/make-secrets "$tree/usr/lib/weir/"
    install deploy/redis/{make-cluster,save-replicas,start-node,with-password} "$tree/usr/lib/weir/redis/"
    install -m 0644 deploy/redis/{redis.conf,weir.acl} "$tree/usr/lib/weir/redis/"
    chmod 0755 "$tree/usr/lib/weir/wait-ready"
    install -m 0644 deploy/runbook.md deploy/systemd/60-weir.conf deploy/weir/{cluster,zones}.toml LICENSE-APACHE LICENSE-MIT \
        "$release_work/THIRD-PARTY.txt" "$tree/usr/share/doc/weir/"
    set_dates "$tree"
}

# packaged FILE TO: a file of deploy/systemd as a package has it: /usr/local is for what is copied by hand.
packaged() {
    sed '/^# Copy to /d; s|/usr/local/|/usr/|g' "$1" >"$2"
    chmod 0644 "$2"
}

# write_deb ARCHITECTURE VERSION TREE DIRECTORY: a Debian package of the files in TREE.
write_deb() {
    local tree=$release_work/deb architecture size script
    architecture=$(debian_architecture "$1")
    rm -rf "$tree"
    cp --recursive --preserve=mode,timestamps "$3" "$tree"
    size=$(find "$tree" -type f -printf '%s\n' | awk '{ kib += int(($1 + 1023) / 1024) } END { print kib }')
    install -d "$tree/DEBIAN"
    sed "s/@VERSION@/$(package_version "$2")/; s/@ARCHITECTURE@/$architecture/; s/@KIB@/$size/" deploy/packages/control >"$tree/DEBIAN/control"
    echo /etc/weir/weir.toml >"$tree/DEBIAN/conffiles"
    for script in after-install=postinst before-remove=prerm after-remove=postrm; do
        install "deploy/packages/${script%=*}" "$tree/DEBIAN/${script#*=}"
    done
    set_dates "$tree"
    # One thread: with several, xz cuts the data elsewhere.
    SOURCE_DATE_EPOCH=$release_date dpkg-deb --root-owner-group --threads-max=1 -Zxz --build "$tree" "$4/weir_$(package_version "$2")_$architecture.deb"
}

# write_rpm ARCHITECTURE VERSION TREE DIRECTORY: an RPM of the files in TREE.
write_rpm() {
    local build=$release_work/rpm
    rm -rf "$build"
    mkdir -p "$build"
    SOURCE_DATE_EPOCH=$release_date rpmbuild -bb --quiet --target "$1-linux" --define "_topdir $build" --define "_rpmdir $4" \
        --define '_rpmfilename %{NAME}-%{VERSION}-%{RELEASE}.%{ARCH}.rpm' --define "weir_version $(package_version "$2")" \
        --define "weir_tree $3" --define "weir_scripts $PWD/deploy/packages" deploy/packages/weir.spec
}

# write_image ARCHITECTURE VERSION DIRECTORY: the image of deploy/Containerfile with the compiled program, and with a list of authorities that is
# pinned: that of this machine may have authorities that are only trusted here.
write_image() {
    local stage=$release_work/image archive
    archive=$3/weir-$2-image-$(debian_architecture "$1").oci.tar
    stage_image "$stage" "$(program_of "$1" weir)" "$(authorities_of_release)"
    oci_image write deploy/Containerfile "$stage" "$1" "$release_date" "$archive"
}

authorities_of_release() { echo "$tools"/release/lib/python3*/site-packages/certifi/cacert.pem; }

# pinned NAME: the version of a package of release-requirements.txt.
pinned() { sed -n "s/^$1==\([^ ]*\).*/\1/p" scripts/lib/release-requirements.txt; }

# write_chart VERSION DIRECTORY: the Helm chart, packed by Helm.
write_chart() {
    local tree=$release_work/chart
    rm -rf "$tree"
    mkdir -p "$tree"
    cp --recursive deploy/helm/weir "$tree/weir"
    set_dates "$tree"
    SOURCE_DATE_EPOCH=$release_date helm package "$tree/weir" --destination "$tree" >/dev/null
    mv "$tree/weir-$1.tgz" "$2/weir-chart-$1.tgz"
}

# write_sboms ARCHITECTURE VERSION DIRECTORY: what each program is made of, and the image. Archives and packages hold these programs.
write_sboms() {
    local name sbom=(python3 scripts/lib/components.py sbom)
    for name in weir loadgen; do
        "${sbom[@]}" "$name" "$1" "$(program_of "$1" "$name")" "$release_date" >"$3/$name-$2-$1-linux.cdx.json"
    done
    "${sbom[@]}" weir "$1" "$(program_of "$1" weir)" "$release_date" "certifi=$(pinned certifi)" >"$3/weir-$2-image-$(debian_architecture "$1").cdx.json"
}

# release_notes VERSION: what the changelog says about it.
release_notes() {
    awk -v heading="## [$1] - " '/^## / { inside = index($0, heading) == 1; next } inside' CHANGELOG.md
}

# write_checksums DIRECTORY: SHA256SUMS of all files in it.
write_checksums() { (cd "$1" && find . -type f ! -name 'SHA256SUMS*' -printf '%P\n' | LC_ALL=C sort | xargs sha256sum >SHA256SUMS); }

# sign DIRECTORY VERSION KEY PUBLIC: signs SHA256SUMS, and with it all files. The signature is checked with the public key that the checkout has, so
# that no release is made with another one.
sign() {
    minisign -S -s "$3" -m "$1/SHA256SUMS" -c "signature of Weir's releases" -t "Weir $2" ||
        die "minisign did not sign with $3; the key that belongs to $4 is needed, and its password"
    minisign -V -q -p "$4" -m "$1/SHA256SUMS" ||
        die "$3 is not the key that belongs to $4; name that one in WEIR_RELEASE_KEY, or commit the public half of a new key before the tag"
}
