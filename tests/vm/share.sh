# shellcheck shell=bash
# Fills the folder that one guest mounts: modules, programs with their libraries, tools, job scripts. Sourced.

# Programs load these by dlopen, so ldd does not show them; libgcc_s is loaded by pthread_exit.
LOADED_LIBRARIES=(libibverbs.so.1 librdmacm.so.1 libgcc_s.so.1)
# The provider of libibverbs for the guest's device; its path without "-rdmav34.so" is RDMAV_DRIVERS in the guest.
PROVIDER_GLOB=/usr/lib/*-linux-gnu/libibverbs/librxe-rdmav*.so
# What every job may use; busybox's ip knows no veth.
BASE_TOOLS=(rdma ip)

# The words behind "# WORD: " in a job script.
declared() { # word file
    sed -n "s/^# $1: *//p" "$2"
}

# Tools that the jobs declare as TOOL or TOOL:PACKAGE; printed as PACKAGE:COMMAND, the entries of packages.sh.
job_tools() { # job file...
    local file tool
    for file in "$@"; do
        for tool in $(declared tools "$file"); do
            echo "${tool#*:}:${tool%%:*}"
        done
    done
}

library_path() { # soname
    ldconfig -p | awk -v name="$1" '$1 == name && /x86-64/ { print $NF; exit }'
}

# All shared libraries of the given files, and the loader.
closure() { # file...
    local all
    # ldd fails for a static program, which needs nothing.
    all=$(ldd "$@" 2> /dev/null)
    if grep -q '=> not found' <<< "$all"; then
        echo "vm: libraries are missing here: $(grep '=> not found' <<< "$all" | sort -u)" >&2
        return 1
    fi
    awk '$2 == "=>" && $3 ~ /^\// { print $3 } $1 ~ /^\/.*\/ld-/ && $2 ~ /^\(/ { print $1 }' <<< "$all" | sort -u
}

# A hard link where possible: test binaries with debug information are large.
place() { # file destination
    if [ -e "$2" ]; then
        echo "vm: two files want to be ${2##*/} in the guest, one is $1" >&2
        return 1
    fi
    ln -L "$1" "$2" 2> /dev/null || cp -L "$1" "$2"
}

# The list has lines "test NAME PATH", "program NAME PATH" and "library NAME PATH"; a library's name may have a folder.
place_programs() { # list share; appends the paths to the array files
    local kind name path
    [ -n "$1" ] || return 0
    while read -r kind name path; do
        case $kind in
            test) place "$path" "$2/tests/$name" || return 1 ;;
            program) place "$path" "$2/bin/$name" || return 1 ;;
            library) mkdir -p "$2/lib/$(dirname "$name")" && place "$path" "$2/lib/$name" || return 1 ;;
            *) echo "vm: $1: expected \"test\", \"program\" or \"library\", found \"$kind\"" >&2; return 1 ;;
        esac
        files+=("$path")
    done < "$1"
}

place_tools() { # share tool...
    local share=$1 tool path
    shift
    while read -r tool; do
        path=$(command -v "$tool") || { echo "vm: no command $tool" >&2; return 1; }
        cp -L "$path" "$share/bin/$tool" || return 1
        files+=("$path")
    done < <(printf '%s\n' "$@" | sort -u)
}

place_libraries() { # share
    local share=$1 name path libraries
    for name in "${LOADED_LIBRARIES[@]}"; do
        path=$(library_path "$name")
        [ -n "$path" ] || { echo "vm: no library $name" >&2; return 1; }
        cp -L "$path" "$share/lib/$name" && files+=("$path") || return 1
    done
    # shellcheck disable=SC2206  # one word per match
    path=($PROVIDER_GLOB)
    cp -L "${path[0]}" "$share/lib/" && files+=("${path[0]}") || return 1
    # In one step, because ldd takes most of the time it takes to make a share.
    libraries=$(closure "${files[@]}") || return 1
    # shellcheck disable=SC2086
    cp -L $libraries "$share/lib/"
}

# A boot's folder. The guest's programs, jobs and interactive flag are the boot's own; the rest is the same for all.
make_share() { # share program_list interactive job_name...
    local share=$1 list=$2 interactive=$3 files=() tools=() name scripts=()
    shift 3
    for name in "$@"; do scripts+=("${JOB_FILES[$name]}"); done
    mkdir -p "$share"/{bin,tests,lib,jobs,out} && cp -r "$RIG/guest" "$share/guest" &&
        cp -rl "$CACHE/kernel/modules" "$share/modules" || return 1
    # Other users of the guest run programs too; mktemp makes a folder for one, and the guest cannot change it.
    chmod 755 "$share" "$share/bin" "$share/lib"
    for name in "$@"; do
        cp "${JOB_FILES[$name]}" "$share/jobs/$name.sh" || return 1
    done
    mapfile -t tools < <(job_tools "${scripts[@]}")
    tools=("${tools[@]#*:}")
    place_programs "$list" "$share" && place_tools "$share" "${BASE_TOOLS[@]}" "${tools[@]}" &&
        place_libraries "$share" || return 1
    {
        echo "VERBS_MODULES='${VERBS_MODULES[*]}'"
        echo "RDMA_CORE='$(dpkg-query -W -f '${Version}' libibverbs1)'"
        echo "INTERACTIVE='$interactive'"
        # With a shell the jobs wait for the person to start them.
        echo "JOBS='$([ -n "$interactive" ] || echo "$*")'"
    } > "$share/env"
}
