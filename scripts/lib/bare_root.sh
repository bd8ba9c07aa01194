# shellcheck shell=bash
# A bare Debian 12 in a directory. Sourced, not run, after output.sh and downloads.sh. Only root can make one.

# Settings of this machine's apt that say how to download.
apt_options() {
    apt-config dump | sed -n 's/^\(Acquire::\(http\|https\|Retries\|Check-Valid-Until\|Check-Date\)\(::[^ ]*\)\? ".*"\);$/\1;/p' |
        while read -r option; do printf -- '--aptopt=%s\n' "${option%;}"; done
}

# make_bare_root DIRECTORY PACKAGES: the minimal system with these packages, which commas separate, and what they need.
make_bare_root() {
    local options
    need mmdebstrap mmdebstrap
    chmod 0755 "$1"
    mapfile -t options < <(apt_options)
    mmdebstrap --quiet --mode=root --variant=minbase --include="$2" "${options[@]}" bookworm "$1"
    # Its mounts are gone: whoever copies or removes the directory would copy or remove what is mounted.
    ! grep -q " $1/" /proc/mounts || die "mounts are left below $1: umount them, and then remove it"
    du -sh "$1"
}
