"""Rows on disks: ext4 with a cold cache, blocks that XFS and btrfs share, and a model that is larger
than the memory of a cgroup. They mount images from the folder for large files, as root alone."""

import contextlib
import os
import shutil
import subprocess
import tempfile

import bench as base

ROUNDS = 5
IMAGE = 3 * base.GIB  # sparse: only what is written takes space
MAKE = {"ext4": ["mkfs.ext4", "-q"], "xfs": ["mkfs.xfs", "-q"], "btrfs": ["mkfs.btrfs", "-q"]}
LIMIT = 96 * base.MIB
GROUP = "tconv-bench"


@contextlib.contextmanager
def mounted(system):
    """A folder on a new file system of this kind, whose image is on a real disk."""
    if os.geteuid() != 0:
        raise base.Missing("only root may mount")
    if not shutil.which(MAKE[system][0]):
        raise base.Missing(f"no {MAKE[system][0]}")
    folder = tempfile.mkdtemp(prefix="tconv-bench.", dir="/var/tmp")
    image, place = os.path.join(folder, "image"), os.path.join(folder, "disk")
    try:
        with open(image, "wb") as file:
            file.truncate(IMAGE)
        os.mkdir(place)
        subprocess.run([*MAKE[system], image], check=True, capture_output=True)
        if subprocess.run(["mount", "-o", "loop", image, place], check=False, capture_output=True).returncode:
            raise base.Missing(f"can't mount {system}")
        try:
            yield place
        finally:
            subprocess.run(["umount", place], check=True)
    finally:
        shutil.rmtree(folder)


def drop_caches():
    """Everything is on the disk, and nothing in memory."""
    os.sync()
    with open("/proc/sys/vm/drop_caches", "w", encoding="ascii") as file:
        file.write("3\n")


def beside_cp(bench, job, bar, **more):
    """A raw conversion, with the sync at its end, beside cp and sync of what it wrote."""
    bench.run(job, "-q --no-checksum {model.safetensors} {out.deathtensors}",
              ["sh", "-c", 'cp "$1" "$2" && sync "$2"', "sh", "{model.safetensors}", "{peer.out}"], bar,
              mib=base.RAW_MIB, out="out.deathtensors", rounds=ROUNDS, peer_named="cp and sync", group="disks",
              **more)
    bench.remove("out.deathtensors")


def cold_ext4(bench):
    beside_cp(bench, "ext4, cold cache", 1.05, before=drop_caches)


def small_cgroup(bench):
    """512 MiB in a cgroup of 96 MiB, on ext4: pages of a RAM disk would count too."""
    for folder, file in (("/sys/fs/cgroup/memory", "memory.limit_in_bytes"), ("/sys/fs/cgroup", "memory.max")):
        if os.path.isdir(folder) and os.access(folder, os.W_OK):
            group = os.path.join(folder, GROUP)
            break
    else:
        raise base.Missing("no cgroup can be made")
    try:
        os.makedirs(group, exist_ok=True)
        with open(os.path.join(group, file), "w", encoding="ascii") as limit:
            limit.write(str(LIMIT))
    except OSError as error:
        raise base.Missing(f"no cgroup can be made: {error.strerror}") from error
    try:
        wrap = ["sh", "-c", f'echo $$ > {group}/cgroup.procs; exec "$@"', "sh"]
        beside_cp(bench, "512 MiB in a cgroup of 96 MiB", 1.05, wrap=wrap, before=drop_caches)
    finally:
        os.rmdir(group)


def shared(bench):
    """Blocks that the file system shares where data is aligned: next to nothing is written, by cp
    neither."""
    base.spawn([bench.tconv, "-q", "--align", "4096", bench.path("model.safetensors"), bench.path("aligned.safetensors")])
    bench.run(f"blocks shared, {bench.system}", "-q --no-checksum --align 4096 {aligned.safetensors} {out.deathtensors}",
              ["sh", "-c", 'cp "$1" "$2" && sync "$2"', "sh", "{aligned.safetensors}", "{peer.out}"], limit=0.1,
              mib=base.RAW_MIB, out="out.deathtensors", rounds=ROUNDS, peer_named="cp and sync", group="disks")


def rows(bench):
    for system, jobs in (("ext4", (cold_ext4, small_cgroup)), ("xfs", (shared,)), ("btrfs", (shared,))):
        try:
            with mounted(system) as place:
                there = base.Bench(bench.tconv, place)
                there.rows, there.system = bench.rows, system
                shutil.copy(bench.path("weights"), there.path("weights"))
                base.write_model(there, "model.safetensors", base.transformer(8, 20480, "BF16"))
                os.sync()
                for job in jobs:
                    try:
                        job(there)
                    except base.Missing as reason:
                        bench.leave_out(f"{system}, {job.__name__}", str(reason))
                bench.failed |= there.failed
        except base.Missing as reason:
            bench.leave_out(f"rows on {system}", str(reason))
