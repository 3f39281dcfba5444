# Functions of the tests that install packages in a new Debian 12. Sourced after `here` (this folder),
# `name` (of the test), `made` (of the packages, if it is another) and `set -euo pipefail`.

top=$(dirname "$(dirname "$here")")
scratch=$top/build/package
made=${made:-$name}
packages=$top/build/$made
root=$scratch/chroot-$name
log=$scratch/test-$name.log

say() { printf 'tests/packages: %s\n' "$*" >&2; }
not_run() { say "not run: $*"; exit 77; }

# The packages that are tested have to be there, and built of what is in this checkout.
need_packages() {
    "$top/packaging/sources" --check "$packages" ||
        not_run "$packages has no packages of these sources: make $made"
}

# Makes the new Debian: `apt` and what it needs, and the packages that are named.
make_debian() {
    local IFS=,
    [[ $(id -u) = 0 ]] || not_run 'a chroot and network namespaces need root'
    command -v mmdebstrap >/dev/null || not_run 'mmdebstrap is not installed (tools/bootstrap deb installs it)'
    mkdir -p "$scratch"
    rm -rf "$root"
    local sources
    sources=$("$top/packaging/debian-sources") || not_run "this machine's apt has no Debian"
    say "making a Debian 12 (log in $log)"
    mmdebstrap --quiet --mode=root --variant=apt --include="ca-certificates${*:+,$*}" \
        --skip=check/empty bookworm "$root" - <<<"$sources" >"$log" 2>&1 ||
        { tail -n 15 "$log" >&2; not_run 'no Debian 12 could be had'; }
    cp /etc/resolv.conf "$root/etc/" 2>/dev/null || true
    # No daemon of the chroot's starts.
    printf '#!/bin/sh\nexit 101\n' >"$root/usr/sbin/policy-rc.d"
    chmod +x "$root/usr/sbin/policy-rc.d"
    mkdir -p "$root/srv/tests"
}

# The same packages with a later version: what apt takes for an upgrade.
later_version() {
    local deb version name
    mkdir -p "$root/srv/later"
    for deb in "$packages"/*.deb; do
        rm -rf "$scratch/later"
        dpkg-deb --raw-extract "$deb" "$scratch/later"
        version=$(dpkg-deb --field "$deb" Version)
        name=$(dpkg-deb --field "$deb" Package)
        sed -i "s/${version//./\\.}/$version+later/" "$scratch/later/DEBIAN/control"
        dpkg-deb -Znone --build "$scratch/later" "$root/srv/later/$name.deb" >/dev/null
    done
    rm -rf "$scratch/later"
}

# Runs a command in the chroot, with the machine's network.
inside() {
    unshare --mount --pid --fork --mount-proc="$root/proc" chroot "$root" /usr/bin/env -i \
        PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin LC_ALL=C.UTF-8 \
        DEBIAN_FRONTEND=noninteractive "$@"
}

# Runs a program of the chroot in a new network and without this environment. Settings of the whole
# machine stay as they are: `mn` would raise some limits.
trial() {
    # shellcheck disable=SC2016 # the inner shell expands it
    unshare --net --mount --pid --fork bash -euo pipefail -c '
        # mnexec makes the root private, which must be a mount for that.
        mount --bind "$1" "$1"
        mount -t proc proc "$1/proc"
        mount -t sysfs sysfs "$1/sys"
        mount --rbind /dev "$1/dev"
        mkdir -p -m 1777 "$1/run/lock"
        for folder in fs kernel vm; do
            mount --bind "$1/proc/sys/$folder" "$1/proc/sys/$folder"
            mount -o remount,ro,bind "$1/proc/sys/$folder"
        done
        root=$1; shift
        exec env -i PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin LC_ALL=C.UTF-8 \
            DEBIAN_FRONTEND=noninteractive chroot "$root" "$@"' trial "$root" "$@"
}

machine() { say "the machine: $(nproc) processors, load $(cut -d ' ' -f 1-3 /proc/loadavg)"; }
