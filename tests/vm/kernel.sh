# shellcheck shell=bash
# The guest's kernel, modules and initramfs, kept in $CACHE until the kernel package or the rig changes. Sourced.

KERNEL_PACKAGE=linux-image-amd64
# In insmod order. What /init itself needs: the 9p share over virtio.
INIT_MODULES=(virtio_ring virtio virtio_pci_modern_dev virtio_pci_legacy_dev virtio_pci netfs fscache 9pnet
    9pnet_virtio 9p)
# In insmod order. crc32_generic comes first: rdma_rxe asks the crypto API for crc32, and the guest has no modprobe.
VERBS_MODULES=(crc32_generic udp_tunnel ip6_udp_tunnel ib_core ib_uverbs rdma_rxe configfs ib_cm iw_cm rdma_cm rdma_ucm
    dummy)
# Loaded by jobs on demand ("load NAME..." in the guest, in this order).
JOB_MODULES=(veth brd null_blk crct10dif_common crc64 crct10dif_generic crc-t10dif crc64-rocksoft t10-pi nvmet nvmet-rdma
    nvme-core nvme-fabrics nvme-rdma crc32c_generic libcrc32c crc16 mbcache jbd2 ext4)

# The real package behind the meta package, or nothing when apt has no lists.
kernel_package() {
    apt-cache depends "$KERNEL_PACKAGE" 2> /dev/null | awk '$1 == "Depends:" { print $2; exit }'
}

kernel_version() { # package
    apt-cache show --no-all-versions "$1" 2> /dev/null | awk '$1 == "Version:" { print $2; exit }'
}

# Everything the products are made of: a different line means that they are made again.
kernel_stamp() { # package
    echo "$1 $(kernel_version "$1") $(cat "$RIG/guest/init" "$RIG/kernel.sh" "$(command -v busybox)" | sha256sum | cut -c -16)"
}

download_kernel() { # package; leaves one .deb in $CACHE
    local deb
    rm -f "$CACHE"/*.deb "$CACHE"/*.deb.part
    # Downloaded elsewhere and then moved: a half file must not look like a whole one.
    deb=$(mktemp -d "$CACHE/download.XXXXXX") || return 1
    (cd "$deb" && apt-get download -q "$1") > "$CACHE/download.log" 2>&1 && mv "$deb"/*.deb "$CACHE/"
    local code=$?
    rm -rf "$deb"
    return $code
}

# The ELF kernel out of a bzImage: booted through PVH it saves the seconds of decompressing under emulation.
# The boot protocol's header: setup sectors at 0x1f1, payload offset and length at 0x248.
unpack_bzimage() { # bzImage vmlinux
    local sectors offset length
    sectors=$(od -An -tu1 -j $((0x1f1)) -N 1 "$1")
    read -r offset length < <(od -An -tu4 -j $((0x248)) -N 8 "$1")
    tail -c +$(((sectors + 1) * 512 + offset + 1)) "$1" | head -c "$length" | xz -dc --single-stream > "$2" 2> /dev/null
    # Behind the xz stream the payload carries the unpacked size, which xz may complain about: what counts is the result.
    [ "$(head -c 4 "$2" | od -An -c | tr -d ' ')" = '177ELF' ]
}

extract_kernel() { # deb directory
    local patterns=("./boot/vmlinuz-*") module
    for module in "${INIT_MODULES[@]}" "${VERBS_MODULES[@]}" "${JOB_MODULES[@]}"; do
        patterns+=("./lib/modules/*/$module.ko")
    done
    # Streamed: the whole tree is 400 MB. Patterns that match nothing are judged below, so tar's own verdict is not.
    dpkg-deb --fsys-tarfile "$1" | tar -x -C "$2" --wildcards "${patterns[@]}" 2> /dev/null
    mkdir "$2/modules"
    find "$2/lib" -name '*.ko' -exec mv -t "$2/modules" {} +
    strip --strip-debug "$2"/modules/*.ko
    for module in "${INIT_MODULES[@]}" "${VERBS_MODULES[@]}" "${JOB_MODULES[@]}"; do
        [ -f "$2/modules/$module.ko" ] || {
            echo "vm: module $module is not in $1" >&2
            return 1
        }
    done
}

make_initramfs() { # directory with modules; makes initramfs.cpio in it
    local root=$1/initramfs module
    mkdir -p "$root"/{bin,mod,proc,sys,dev,tmp,run,h,etc,lib} || return 1
    cp -L "$(command -v busybox)" "$root/bin/busybox" && cp "$RIG/guest/init" "$root/init" && chmod 755 "$root/init" ||
        return 1
    for module in "${INIT_MODULES[@]}"; do
        cp "$1/modules/$module.ko" "$root/mod/" || return 1
    done
    echo "${INIT_MODULES[*]}" > "$root/mod/order"
    (cd "$root" && find . | cpio -o -H newc --quiet -R 0:0) > "$1/initramfs.cpio"
}

make_products() { # deb
    local new=$CACHE/new
    rm -rf "$new" "$CACHE/kernel"
    mkdir -p "$new" && extract_kernel "$1" "$new" && unpack_bzimage "$new"/boot/vmlinuz-* "$new/vmlinux" &&
        make_initramfs "$new" || return 1
    rm -rf "$new/boot" "$new/lib" "$new/initramfs"
    mv "$new" "$CACHE/kernel"
}

# Fills $CACHE/kernel with vmlinux, initramfs.cpio and modules/, or says in $why what went wrong and returns 1.
prepare_kernel() {
    local lock code
    why=""
    mkdir -p "$CACHE" || return 1
    # Two rigs started at once must not both fill the cache.
    exec {lock}> "$CACHE/lock" && flock "$lock"
    prepare_kernel_locked
    code=$?
    exec {lock}>&-
    return $code
}

prepare_kernel_locked() {
    local package stamp begun=$EPOCHREALTIME
    package=$(kernel_package)
    if [ -z "$package" ] && [ -f "$CACHE/kernel/stamp" ]; then
        # Without lists nothing newer can be known; the kernel in the cache is as good as it was.
        return 0
    fi
    if [ -z "$package" ] && may_install; then
        apt_get update -q > "$CACHE/download.log" 2>&1
        package=$(kernel_package)
    fi
    if [ -z "$package" ]; then
        why="apt knows no package $KERNEL_PACKAGE; as root: apt-get update"
        return 1
    fi
    stamp=$(kernel_stamp "$package")
    [ "$(cat "$CACHE/kernel/stamp" 2> /dev/null)" != "$stamp" ] || return 0
    make_kernel "$package" || return 1
    echo "$stamp" > "$CACHE/kernel/stamp"
    echo "vm: prepared $package in $(seconds_since "$begun") s"
}

make_kernel() { # package
    local package=$1 deb version
    version=$(kernel_version "$package")
    deb=$(find "$CACHE" -maxdepth 1 -name "${package}_${version//:/%3a}_*.deb" | head -n 1)
    if [ -z "$version" ] || [ -z "$deb" ]; then
        echo "vm: downloading $package"
        # Old lists name files that the mirror no longer has.
        if ! download_kernel "$package" &&
            ! { may_install && apt_get update -q > /dev/null 2>&1 && download_kernel "$package"; }; then
            why="could not download $package: $(tail -n 1 "$CACHE/download.log")"
            return 1
        fi
        deb=$(find "$CACHE" -maxdepth 1 -name "${package}_*.deb" | head -n 1)
    fi
    make_products "$deb" || { why="could not make the guest's kernel out of $deb"; return 1; }
}
