# shellcheck shell=bash
# Shared by the scripts beside it: packages, builds, jobs. Sourced, not run.
#
#   tconv_setup PURPOSE...   installs what PURPOSE (build test lint analyse sanitize bench disks fuzz interop arm64
#                            parallel slurm) lacks, or exits 6
#   tconv_build NAME         configures and builds build/NAME; returns 1 after showing why it failed
#   tconv_slot               waits until fewer background jobs run than there are cores
#
# Nothing here writes to stdout or reads stdin.

tconv_root=$(CDPATH='' cd -- "$(dirname -- "$(readlink -f -- "${BASH_SOURCE[0]}")")/.." && pwd -P)

# The packages of a purpose, each with what shows that it is there: a program need not come from dpkg.
# gcc only recommends libc6-dev, and clang its runtime, so both are named.
tconv_packages() {
    case $1 in
    build)
        # Deflate's library, which meson.build chooses.
        case $(uname -m) in x86_64 | aarch64) echo libisal-dev=pc:libisal ;; *) echo zlib1g-dev=pc:zlib ;; esac
        echo meson=cmd:meson ninja-build=cmd:ninja gcc=cmd:cc libc6-dev=file:/usr/include/stdio.h \
            pkg-config=cmd:pkg-config libzstd-dev=pc:libzstd \
            libssl-dev=pc:libcrypto libsodium-dev=pc:libsodium libpcre2-dev=pc:libpcre2-8 \
            liblzma-dev=pc:liblzma libjansson-dev=pc:jansson libbz2-dev=file:/usr/include/bzlib.h \
            libprotobuf-c-dev=pc:libprotobuf-c protobuf-c-compiler=cmd:protoc-c \
            libcurl4-openssl-dev=pc:libcurl
        ;;
    test)
        echo libcriterion-dev=pc:criterion libzip-dev=pc:libzip zlib1g-dev=pc:zlib python3=cmd:python3 \
            zstd=cmd:zstd time=cmd:time valgrind=cmd:valgrind groff-base=cmd:groff make=cmd:make zsh=cmd:zsh fish=cmd:fish jq=cmd:jq
        ;;
    lint) echo clang-format-14=cmd:clang-format-14 clang-tidy-14=cmd:clang-tidy-14 ;;
    analyse) echo cppcheck=cmd:cppcheck clang-tools-14=cmd:scan-build-14 clang=cmd:clang ;;
    bench) echo python3=cmd:python3 openssl=cmd:openssl zstd=cmd:zstd time=cmd:time ;;
    disks) echo xfsprogs=cmd:mkfs.xfs btrfs-progs=cmd:mkfs.btrfs e2fsprogs=cmd:mkfs.ext4 ;;
    sanitize) echo clang=cmd:clang libclang-rt-14-dev=fuzzer: llvm-14=symbolizer: ;;
    fuzz) echo "$(tconv_packages sanitize)" libzip-dev=pc:libzip ;;
    arm64)
        echo gcc-aarch64-linux-gnu=cmd:aarch64-linux-gnu-gcc \
            libc6-dev-arm64-cross=file:/usr/aarch64-linux-gnu/include/stdio.h \
            qemu-user=cmd:qemu-aarch64
        ;;
    interop) # Rust is its own matter, by version
        echo python3=cmd:python3 python3-venv=python:ensurepip \
            ca-certificates=file:/etc/ssl/certs/ca-certificates.crt
        ;;
    parallel) echo parallel=cmd:parallel ;;
    slurm) echo slurmctld=cmd:slurmctld slurmd=cmd:slurmd slurm-client=cmd:sbatch munge=cmd:munged ;;
    *) echo "tconv: no such purpose: $1" >&2 && return 1 ;;
    esac
}

tconv_has() {
    case $1 in
    cmd:*) type -P "${1#*:}" ;;
    pc:*) pkg-config --exists "${1#*:}" ;;
    file:*) [[ -e ${1#*:} ]] ;;
    python:*) python3 -c "import ${1#*:}" ;;
    fuzzer:) compgen -G "$(clang --print-runtime-dir)/libclang_rt.fuzzer*" ;;
    symbolizer:) tconv_symbolizer ;;
    esac >/dev/null 2>&1
}

tconv_symbolizer() { type -P llvm-symbolizer || type -P llvm-symbolizer-14; }

tconv_missing() {
    local purpose entry packages missing=()
    for purpose; do
        packages=$(tconv_packages "$purpose")
        for entry in $packages; do
            tconv_has "${entry#*=}" || missing+=("${entry%%=*}")
        done
    done
    echo "${missing[*]}"
}

tconv_install() {
    local as_root=() log=$tconv_root/build/logs/setup.log attempt
    local command="apt-get install -y --no-install-recommends $*"
    if ((EUID != 0)); then
        as_root=(sudo -n)
        if ! sudo -n true 2>/dev/null; then
            echo "tconv: packages are missing; to install them: sudo $command" >&2
            return 6
        fi
    fi
    echo "tconv: setting up: $*" >&2
    # The lock on the package lists has no time limit of its own, so a busy apt gets three tries.
    for attempt in 1 2 3; do
        ((attempt == 1)) || sleep 5
        if {
            "${as_root[@]}" apt-get -q update ||
                echo "tconv: could not refresh the package lists; trying those that are there"
            "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive apt-get -q \
                -o DPkg::Lock::Timeout=600 install -y --no-install-recommends "$@"
        } >"$log" 2>&1 </dev/null; then
            return 0
        fi
    done
    cat "$log" >&2
    echo "tconv: could not install what is missing: $command" >&2
    return 6
}

tconv_setup() {
    local missing
    missing=$(tconv_missing "$@")
    [[ $missing ]] || return 0
    mkdir -p "$tconv_root/build/logs" || exit 6
    (
        flock 9
        missing=$(tconv_missing "$@") # another set-up may have just been here
        [[ $missing ]] || exit 0
        # shellcheck disable=SC2086 # package names hold no spaces
        tconv_install $missing || exit 6
        hash -r
        missing=$(tconv_missing "$@")
        [[ ! $missing ]] || {
            echo "tconv: installed, but still not found: $missing" >&2
            exit 6
        }
    ) 9>"$tconv_root/build/.setup.lock" || exit 6
}

tconv_options() {
    case $1 in
    release) echo --buildtype=release ;;
    test) echo --buildtype=debugoptimized -Dtests=true -Dwerror=true ;;
    # The second is by clang, whose sanitizers see other things, such as a null pointer plus zero. At
    # fixed addresses a program starts in nine tenths of the time, and suites start thousands.
    asan | clang)
        echo --buildtype=debug -Doptimization=2 -Db_sanitize=address,undefined -Db_lundef=false \
            -Dtests=true -Dwerror=true -Dc_args=-fno-pie -Dc_link_args=-no-pie
        ;;
    zlib) echo --buildtype=debugoptimized -Dtests=true -Dwerror=true -Disal=disabled -Dremote=disabled ;;
    arm64)
        echo --buildtype=debugoptimized -Dtests=true -Dwerror=true \
            --cross-file="$tconv_root/build/arm64.ini"
        ;;
    coverage) echo --buildtype=debug -Db_coverage=true -Dtests=true ;;
    fuzz) echo --buildtype=debugoptimized -Dfuzz=true -Db_lundef=false ;;
    *) echo "tconv: no such build: $1" >&2 && return 1 ;;
    esac
}

# Runs in build/NAME's lock. build/NAME/.configured tells what the folder was configured with: it is
# written last, so a set-up that was cut short, a moved clone or another compiler starts afresh.
tconv_build_locked() {
    local dir=build/$1 log=build/logs/build-$1.log options configured
    options=$(tconv_options "$1") || return 1
    case $1 in fuzz | clang) local -x CC=clang ;; esac
    configured="$tconv_root $options CC=${CC-} CFLAGS=${CFLAGS-} LDFLAGS=${LDFLAGS-}"
    if [[ -f $dir/.configured && $(<"$dir/.configured") == "$configured" ]]; then
        ninja --quiet -C "$dir" >"$log" 2>&1 && return 0
        # Code that does not compile is the caller's; a build that ninja or meson rejects is begun again.
        grep -qE '^ninja: (error|fatal)|^FAILED: build\.ninja' "$log" || return 1
    fi
    echo "tconv: building build/$1" >&2
    rm -rf "$dir"
    # shellcheck disable=SC2086 # options hold no spaces
    meson setup "$dir" $options >"$log" 2>&1 || return 1
    echo "$configured" >"$dir/.configured"
    ninja --quiet -C "$dir" >"$log" 2>&1
}

tconv_build() {
    mkdir -p "$tconv_root/build/logs" || return 1
    (
        cd "$tconv_root" || exit 1
        flock 9
        if ! tconv_build_locked "$1" </dev/null; then
            cat "build/logs/build-$1.log" >&2
            echo "tconv: build/$1 failed" >&2
            exit 1
        fi
    ) 9>"$tconv_root/build/.$1.lock"
}

tconv_slot() {
    while (($(jobs -rp | wc -l) >= $(nproc))); do
        wait -n || true
    done
}
