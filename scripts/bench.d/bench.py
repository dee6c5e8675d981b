"""Runs the jobs of scripts/bench: bench.py TCONV FOLDER RESULTS.json [--quick] [ROWS…]

Every job runs once to warm up (and for its peak memory), then nine times in turn with its peer,
whatever the result: machines are noisy, and the best of each counts. Outputs are removed before each
run, so that nobody pays for freeing old ones. Slow peers (Python, disks, a million tensors) have three or five
rounds, and with --quick all others five. Where sections are named, the other rows of an earlier run
stay in the results.

more.py has tables, growth, verification and start-up, peers.py programs in Python, disks.py file
systems and cgroups, charts.py draws what came out.
"""

import json
import math
import os
import platform
import shutil
import struct
import subprocess
import sys
import time

MIB, GIB = 1 << 20, 1 << 30
ROUNDS = 9
QUICK_ROUNDS = 5
RAW_MIB = 64  # PERFORMANCE: peak resident memory, plus three times the header
ZSTD_MIB = 160


class Failed(Exception):
    """A command that could not run."""


class Missing(Exception):
    """A row that this machine can't have: a program or a right is not there."""


def spawn(command, fails=False):
    """Runs a command to its end; its seconds. fails: another exit status than 0 is right too."""
    return timed(command, fails)[0]


def timed(command, fails=False):
    """The same; its seconds, and those of processors, which other work on the machine changes less."""
    devnull = [(os.POSIX_SPAWN_OPEN, 0, os.devnull, os.O_RDONLY, 0),
               (os.POSIX_SPAWN_OPEN, 1, os.devnull, os.O_WRONLY, 0)]
    begin = time.perf_counter()
    pid = os.posix_spawnp(command[0], command, os.environ, file_actions=devnull)
    _, status, usage = os.wait4(pid, 0)
    status = os.waitstatus_to_exitcode(status)
    seconds = time.perf_counter() - begin
    if status != 0 and not fails:
        raise Failed(f"exit status {status}: {' '.join(command)}")
    return seconds, usage.ru_utime + usage.ru_stime


class Bench:
    def __init__(self, tconv, folder, rounds=ROUNDS):
        self.rounds = rounds
        self.tconv = tconv
        self.folder = folder
        self.rows = []
        self.failed = False

    def path(self, name):
        return os.path.join(self.folder, name)

    def size(self, name):
        return os.path.getsize(self.path(name))

    def remove(self, *names):
        for name in names:
            if os.path.exists(self.path(name)):
                os.unlink(self.path(name))

    def peak(self, command):
        """Peak resident MiB. By time(1), which is small: a child's figure starts at its parent's."""
        spawn(["time", "-f", "%M", "-o", self.path("peak"), *command])
        with open(self.path("peak"), encoding="ascii") as file:
            return int(file.read().split()[-1]) / 1024

    def run(self, job, arguments, peer=None, bar=None, limit=None, mib=None, out=None, note=None,
            rounds=None, before=None, wrap=None, peer_named=None, group="tools", nbytes=None):
        """One row. arguments and peer are commands (words, or a list of them) in which {NAME} is a
        file of the folder; bar bounds the ratio to the peer, limit the seconds, mib the memory; out
        is the output, kept. before runs ahead of each command and is not timed; wrap is put before
        both commands."""
        words = arguments.split() if isinstance(arguments, str) else arguments
        command = (wrap or []) + [self.tconv] + [self.expand(word) for word in words]
        others = peer.split() if isinstance(peer, str) else peer
        peer_command = [self.expand(word) for word in others] if others else None
        if peer_command and peer_command[0] == "tconv":
            peer_command[0] = self.tconv
        peer_command = (wrap or []) + peer_command if peer_command else None
        outputs = [name for name in (out, "peer.out") if name]
        row = {"job": job, "command": "tconv " + " ".join(words), "group": group,
               "peer": peer_named or (peer if isinstance(peer, str) else None), "bar": bar,
               "limit": limit, "mib_bar": mib, "rounds": 0,
               "bytes": nbytes if nbytes is not None else self.given(words)}
        try:
            self.remove(*outputs)
            row["mib"] = self.peak(command)
            for row["rounds"] in range(1, (rounds or self.rounds) + 1):
                if peer_command:
                    self.remove(*outputs)
                    if before:
                        before()
                    note_least(row, "peer_", timed(peer_command))
                self.remove(*outputs)
                if before:
                    before()
                note_least(row, "", timed(command))
                if peer_command:
                    row["ratio"] = row["seconds"] / row["peer_seconds"]
                    row["cpu_ratio"] = row["cpu"] / max(row["peer_cpu"], 1e-3)
            if note:
                row["note"] = note()
        except (Failed, OSError) as error:
            row["error"] = str(error)
        self.remove("peer.out")
        self.add(row)
        return row

    def expand(self, word):
        return self.path(word[1:-1]) if word.startswith("{") else word

    def given(self, words):
        """The bytes of the first file that a command reads."""
        for word in words:
            if word.startswith("{") and os.path.isfile(self.path(word[1:-1])):
                return self.size(word[1:-1])
        return None

    def leave_out(self, job, reason):
        """A row that can't be had here; the reason stands in the table and in the results."""
        self.rows.append({"job": job, "left_out": reason})
        print(f"{job:<42} left out: {reason}", flush=True)

    def add(self, row):
        self.rows.append(row)
        if "error" in row:
            self.failed = True
            print(f"{row['job']:<42} could not run: {row['error']}", flush=True)
            return
        fits = None if row["mib_bar"] is None else row["mib"] <= row["mib_bar"]
        row["ok"] = within(row) is not False and fits is not False
        print(line(row["job"], seconds(row["seconds"]), peer_name(row["peer"]),
                   seconds(row.get("peer_seconds")), number(row.get("ratio"), ".2f"), number(row.get("cpu_ratio"), ".2f"),
                   number(row["bar"], ".2f") or (row["limit"] and seconds(row["limit"])),
                   word(within(row)), number(row["mib"], ".1f"), number(row["mib_bar"], ".0f"),
                   word(fits), row.get("note"), speed(row)), flush=True)


def note_least(row, who, times):
    """Keeps the best of each: seconds, and seconds of processors."""
    row[who + "seconds"] = least(row.get(who + "seconds"), times[0])
    row[who + "cpu"] = least(row.get(who + "cpu"), times[1])


def speed(row):
    """GB/s of a job that reads its input once."""
    return f"{row['bytes'] / row['seconds'] / 1e9:.2f}" if (row["bytes"] or 0) >= MIB else None


def line(job, own, peer, peer_seconds, ratio, cpu_ratio, bar, verdict, mib, mib_bar, mib_verdict, note, rate):
    cells = [f"{job:<42}", f"{own:>8}", f"{rate or '':>6}", f"  {peer or '':<21}", f"{peer_seconds or '':>8}",
             f"{ratio or '':>6}", f"{cpu_ratio or '':>6}",
             f"{bar or '':>8}", f"{verdict or '':<5}", f"{mib or '':>7}",
             f"{mib_bar or '':>5}", f"{mib_verdict or '':<5}", note or ""]
    return " ".join(cells).rstrip()


def within(row):
    """Whether a row's time is within its bar; None without one."""
    if row["bar"] is not None:
        return row["ratio"] <= row["bar"]
    return None if row["limit"] is None else row["seconds"] <= row["limit"]


def least(a, b):
    return b if a is None else min(a, b)


def number(value, form):
    return None if value is None else format(value, form)


def seconds(value):
    if value is None:
        return None
    return f"{value * 1000:.1f} ms" if value < 0.1 else f"{value:.3f} s"


def peer_name(command):
    if command is None:
        return None
    return "tconv on less" if command.startswith("tconv") else command.split("{")[0][:21]


def word(good):
    return None if good is None else "ok" if good else "over"


def transformer(layers, vocabulary, weights):
    """[(dtype, name, shape)]: 7 matrices a layer of the given dtype, embedding and norms in F32."""
    width, narrow, inner = 1536, 512, 4224
    tensors = [("F32", "model.embed_tokens.weight", [vocabulary, width]),
               ("F32", "model.norm.weight", [width])]
    for i in range(layers):
        layer = f"model.layers.{i}."
        tensors.append(("F32", layer + "input_layernorm.weight", [width]))
        for name, shape in (("self_attn.q_proj", [width, width]), ("self_attn.k_proj", [narrow, width]),
                            ("self_attn.v_proj", [narrow, width]), ("self_attn.o_proj", [width, width]),
                            ("mlp.gate_proj", [inner, width]), ("mlp.up_proj", [inner, width]),
                            ("mlp.down_proj", [width, inner])):
            tensors.append((weights, layer + name + ".weight", shape))
    return tensors


def write_model(bench, name, tensors):
    """A safetensors file as its reference writer lays it out: F32 first, then by name."""
    header, end, counts = {}, 0, []
    for dtype, tensor, shape in sorted(tensors, key=lambda t: (t[0] != "F32", t[1])):
        count = 1
        for extent in shape:
            count *= extent
        begin, end = end, end + count * (4 if dtype == "F32" else 2)
        header[tensor] = {"dtype": dtype, "shape": shape, "data_offsets": [begin, end]}
        counts.append(f"{dtype} {count}\n")
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    with open(bench.path(name), "wb") as file:
        file.write(len(text).to_bytes(8, "little") + text)
        file.flush()
        subprocess.run([bench.path("weights")], input="".join(counts), encoding="ascii", stdout=file,
                       check=True)
    return len(text)


def need_model(bench):
    """The model of 1 GiB that most rows share."""
    if not os.path.exists(bench.path("model.safetensors")):
        write_model(bench, "model.safetensors", transformer(16, 40960, "BF16"))


def raw_rows(bench):
    need_model(bench)
    mib = RAW_MIB + 1

    def share():
        return f"{bench.size('z.deathtensors') / bench.size('model.safetensors'):.3f} of its size"

    bench.run("safetensors -> deathtensors, raw", "--no-checksum {model.safetensors} {raw.deathtensors}",
              "cp {model.safetensors} {peer.out}", 1.05, mib=mib, out="raw.deathtensors")
    bench.run("deathtensors, raw -> safetensors", "{raw.deathtensors} {out.safetensors}",
              "cp {raw.deathtensors} {peer.out}", 1.05, mib=mib, out="out.safetensors")
    bench.remove("raw.deathtensors", "out.safetensors")
    bench.run("safetensors -> deathtensors, checksum", "{model.safetensors} {sum.deathtensors}",
              "openssl dgst -sha256 {model.safetensors}", 1.15, mib=mib, out="sum.deathtensors")
    bench.run("deathtensors, checksum -> safetensors", "{sum.deathtensors} {out.safetensors}",
              "openssl dgst -sha256 {sum.deathtensors}", 1.15, mib=mib, out="out.safetensors")
    bench.remove("sum.deathtensors", "out.safetensors")
    bench.run("hash --digest, safetensors", "hash --digest {model.safetensors}",
              "openssl dgst -sha256 {model.safetensors}", 1.15, mib=mib)
    bench.run("safetensors -> deathtensors, zstd", "--compress {model.safetensors} {z.deathtensors}",
              "zstd -q -3 -T0 {model.safetensors} -o {peer.out}", 1.1, mib=ZSTD_MIB,
              out="z.deathtensors", note=share)
    spawn(["zstd", "-q", "-3", "-T0", bench.path("model.safetensors"), "-o", bench.path("model.zst")])
    bench.run("deathtensors, zstd -> safetensors", "{z.deathtensors} {out.safetensors}",
              "zstd -q -d {model.zst} -o {peer.out}", 1.15, mib=mib, out="out.safetensors")
    bench.remove("z.deathtensors", "model.zst", "out.safetensors")


SHARDS = 8


def shard_rows(bench):
    """A sharded model as shards of another format, beside cp of the same files one after the other."""
    need_model(bench)
    folder, own, peer = bench.path("shards"), bench.path("own"), bench.path("peer")
    os.mkdir(folder)
    spawn([bench.tconv, "-q", "--shard-size", str(bench.size("model.safetensors") // SHARDS + MIB),
           bench.path("model.safetensors"), os.path.join(folder, "model.safetensors")])

    def clear():
        for place in (own, peer):
            shutil.rmtree(place, ignore_errors=True)
            os.mkdir(place)

    clear()
    for name, options in (("deathtensors, raw", ["--no-checksum"]), ("safetensors", [])):
        bench.run(f"sharded -> sharded {name}",
                  ["-q", "--keep-shards", *options, "{shards/model.safetensors.index.json}",
                   f"{{own/model.{name.split(',')[0]}}}"],
                  ["sh", "-c", 'for f in "$1"/*; do cp "$f" "$2"; done', "sh", "{shards}", "{peer}"], 0.65,
                  mib=RAW_MIB, before=clear, peer_named="cp, one by one", nbytes=bench.size("model.safetensors"))
    for place in (folder, own, peer):
        shutil.rmtree(place)


def torch_rows(bench):
    """The same model through torch's archives and ONNX."""
    need_model(bench)
    for name, bar in (("pt", 1.1), ("ot", 1.1), ("onnx", 1.05)):
        bench.run(f"safetensors -> {name}", f"{{model.safetensors}} {{model.{name}}}",
                  "cp {model.safetensors} {peer.out}", bar, mib=RAW_MIB + 1, out=f"model.{name}")
        bench.run(f"{name} -> safetensors", f"{{model.{name}}} {{out.safetensors}}",
                  f"cp {{model.{name}}} {{peer.out}}", 1.05, mib=RAW_MIB + 1, out="out.safetensors")
        bench.remove(f"model.{name}", "out.safetensors")


def npz_rows(bench):
    """In F32: npz has no BF16, and a cast is another row's matter."""
    header = write_model(bench, "f32.safetensors", transformer(8, 40960, "F32"))
    mib = RAW_MIB + 3 * header / MIB

    def share():
        return f"{bench.size('z.npz') / bench.size('f32.safetensors'):.3f} of its size"

    bench.run("safetensors -> npz, stored", "{f32.safetensors} {f32.npz}",
              "cp {f32.safetensors} {peer.out}", 1.1, mib=mib, out="f32.npz")
    bench.run("npz, stored -> safetensors", "{f32.npz} {out.safetensors}",
              "cp {f32.npz} {peer.out}", 1.05, mib=mib, out="out.safetensors")
    bench.remove("f32.npz", "out.safetensors")
    bench.run("safetensors -> npz, deflated", "--compress {f32.safetensors} {z.npz}", mib=mib,
              out="z.npz", note=share)
    bench.run("npz, deflated -> safetensors", "{z.npz} {out.safetensors}", mib=mib,
              out="out.safetensors")
    bench.remove("f32.safetensors", "z.npz", "out.safetensors")


def cast_rows(bench):
    """Casts beside cp of the larger side, and statistics beside cat."""
    header = write_model(bench, "f32.safetensors", transformer(8, 40960, "F32"))
    mib = RAW_MIB + 3 * header / MIB
    bench.run("stats, F32", "stats {f32.safetensors}", "cat {f32.safetensors}", 1.2, mib=mib)
    for narrow in ("BF16", "F16"):
        bench.run(f"F32 -> {narrow}, safetensors",
                  f"-q --lossy --dtype {narrow} {{f32.safetensors}} {{narrow.safetensors}}",
                  "cp {f32.safetensors} {peer.out}", 0.8, mib=mib, out="narrow.safetensors")
        bench.run(f"{narrow} -> F32, safetensors",
                  "-q --dtype F32 {narrow.safetensors} {out.safetensors}",
                  "cp {f32.safetensors} {peer.out}", 0.8, mib=mib, out="out.safetensors")
    bench.remove("narrow.safetensors", "out.safetensors")
    spawn([bench.tconv, "-q", "--dtype", "F64", bench.path("f32.safetensors"),
           bench.path("f64.safetensors")])
    bench.run("F32 -> F64, safetensors", "-q --dtype F64 {f32.safetensors} {out.safetensors}",
              "cp {f64.safetensors} {peer.out}", 0.8, mib=mib, out="out.safetensors")
    bench.run("F64 -> F32, safetensors",
              "-q --lossy --dtype F32 {f64.safetensors} {out.safetensors}",
              "cp {f64.safetensors} {peer.out}", 0.8, mib=mib, out="out.safetensors")
    bench.remove("f32.safetensors", "f64.safetensors", "out.safetensors")


def gguf_rows(bench):
    """GGUF plain and quantised, and FP8 blocks, beside cp of the larger side."""
    write_model(bench, "model.safetensors", transformer(8, 40960, "BF16"))
    spawn([bench.tconv, "-q", bench.path("model.safetensors"), bench.path("model.gguf")])
    bench.run("GGUF, BF16 -> safetensors", "{model.gguf} {out.safetensors}",
              "cp {model.gguf} {peer.out}", 1.15, mib=RAW_MIB, out="out.safetensors")
    bench.remove("model.safetensors", "model.gguf")
    for name, number, elements, size in (("Q8_0", 8, 32, 34), ("Q4_K", 12, 256, 144)):
        write_blocks(bench, "quantised.gguf", number, elements, size)
        bench.run(f"GGUF, {name} -> BF16", "-q --lossy --dtype BF16 {quantised.gguf} {out.safetensors}",
                  "cp {out.safetensors} {peer.out}", 1.3, mib=RAW_MIB)
        bench.remove("quantised.gguf", "out.safetensors")
    packed, exponents = b"\x21\x43\x65\x70\xa9\xcb\xed\x0f", b"\x78\x79\x7a\x77"
    for name, parts in (
        ("FP8 blocks", [("", "F8_E4M3", [ROWS, COLUMNS], None),
                        ("_scale_inv", "F32", [ROWS // 128, COLUMNS // 128], struct.pack("<f", 0.01))]),
        ("MXFP4, swapped", [("_blocks", "U8", [1, ROWS, COLUMNS // 32, 16], packed),
                            ("_scales", "U8", [1, ROWS, COLUMNS // 32], exponents)]),
        ("NVFP4", [("_packed", "U8", [ROWS, COLUMNS // 2], packed),
                   ("_scale", "F8_E4M3", [ROWS, COLUMNS // 16], b"\x38\x39"),
                   ("_global_scale", "F32", [1], struct.pack("<f", 3))]),
    ):
        write_scaled(bench, "scaled.safetensors", parts)
        bench.run(f"{name} -> BF16", "-q --dequantize {scaled.safetensors} {out.safetensors}",
                  "cp {out.safetensors} {peer.out}", 1.3, mib=RAW_MIB)
        bench.remove("scaled.safetensors", "out.safetensors")


ROWS, COLUMNS, MATRICES = 4096, 8192, 16  # a GiB of BF16


def write_blocks(bench, name, number, elements, size):
    """A GGUF file of blocks of one dtype; their scales, in the first bytes, are small numbers."""
    nbytes = ROWS * COLUMNS // elements * size
    head = struct.pack("<4sIQQ", b"GGUF", 3, MATRICES, 0)
    for i in range(MATRICES):
        text = f"blk.{i}.weight".encode()
        head += struct.pack("<Q", len(text)) + text
        head += struct.pack("<IQQIQ", 2, COLUMNS, ROWS, number, nbytes * i)
    block = b"".join(b"\x1f\x21\x1f\x21" + os.urandom(size - 4) for _ in range(4096))
    with open(bench.path(name), "wb") as file:
        file.write(head + bytes(-len(head) % 32))
        for _ in range(MATRICES):
            file.write((block * (nbytes // len(block) + 1))[:nbytes])


def write_scaled(bench, name, parts):
    """Weights with scales of their own: each part is an ending of the name, a dtype, a shape and the
    bytes that its data repeats; None is random codes."""
    header, data, end = {}, [], 0
    codes = bytes(code & 0x77 for code in os.urandom(1 << 20))
    for i in range(MATRICES):
        for ending, dtype, shape, piece in parts:
            nbytes = math.prod(shape) * (4 if dtype == "F32" else 1)
            header[f"blk.{i}.weight{ending}"] = {"dtype": dtype, "shape": shape, "data_offsets": [end, end + nbytes]}
            data.append((nbytes, piece or codes))
            end += nbytes
    text = json.dumps(header).encode()
    with open(bench.path(name), "wb") as file:
        file.write(struct.pack("<Q", len(text)) + text)
        for nbytes, piece in data:
            file.write((piece * -(-nbytes // len(piece)))[:nbytes])


def size_row(bench):
    """Cost against size: the job on 4 GiB, beside itself on 1 GiB."""
    need_model(bench)
    write_model(bench, "four.safetensors", transformer(64, 4 * 40960, "BF16"))
    bench.run("4 GiB -> deathtensors, checksum", "{four.safetensors} {out.deathtensors}",
              "tconv {model.safetensors} {peer.out} -t deathtensors", 4.4, mib=RAW_MIB,
              out="out.deathtensors")
    bench.remove("four.safetensors", "out.deathtensors")


def available(folder):
    """Bytes that may go to the RAM disk."""
    disk = os.statvfs(folder)
    with open("/proc/meminfo", encoding="ascii") as file:
        fields = dict(text.split(":", 1) for text in file)
    return min(disk.f_bavail * disk.f_frsize, int(fields["MemAvailable"].split()[0]) * 1024)


def processor():
    with open("/proc/cpuinfo", encoding="utf-8") as file:
        for text in file:
            if text.startswith("model name"):
                return text.split(":", 1)[1].strip()
    return platform.machine()


def size_rows(bench):
    if available(bench.folder) < 10 * GIB:
        bench.leave_out("4 GiB -> deathtensors, checksum", "it needs 10 GiB of free memory")
    else:
        size_row(bench)


def sections(quick):
    """The rows by the name that chooses them, in order; the first makes the model of 1 GiB."""
    import disks
    import more
    import peers

    chosen = {"raw": raw_rows, "shards": shard_rows, "verify": more.verify_rows, "torch": torch_rows, "size": size_rows,
              "start": more.start_rows, "growth": more.growth_rows, "tables": more.table_rows,
              "npz": npz_rows, "casts": cast_rows, "pairs": more.pair_rows,
              "views": more.view_rows, "gguf": gguf_rows, "python": peers.rows,
              "disks": disks.rows}
    long = ("size", "pairs", "gguf", "python") if quick else ()
    return {name: rows for name, rows in chosen.items() if name not in long}


def write_results(path, machine, before, rows):
    """After each section, so that a run that is ended leaves what it has measured."""
    measured = {row["job"] for row in rows}
    earlier = [row for row in before if row["job"] not in measured]
    with open(path, "w", encoding="utf-8") as file:
        json.dump({"machine": machine, "rows": earlier + rows}, file, indent=2)
        file.write("\n")


def main():
    tconv, folder, results = sys.argv[1:4]
    quick = "--quick" in sys.argv[4:]
    only = [word for word in sys.argv[4:] if not word.startswith("-")]
    bench = Bench(os.path.abspath(tconv), folder, QUICK_ROUNDS if quick else ROUNDS)
    if available(folder) < 5 * GIB:
        sys.exit(f"bench: {folder} and memory have {available(folder) / GIB:.1f} GiB free, "
                 "5 GiB are needed")
    before = []
    if only and os.path.exists(results):  # the other sections' rows stay
        with open(results, encoding="utf-8") as file:
            before = json.load(file)["rows"]
    load = os.getloadavg()[0]
    if load > os.cpu_count() / 4:
        print(f"bench: the machine is busy (load {load:.1f} on {os.cpu_count()} cores): rows that use "
              "every core will look worse than they are", file=sys.stderr)
    print(line("job", "tconv", "peer", "peer", "ratio", "cpu", "bar", "", "MiB", "bar", "", "", "GB/s"),
          flush=True)
    machine = {"processor": processor(), "cores": os.cpu_count(), "kernel": platform.release(), "load": load}
    for name, rows in sections(quick and not only).items():
        if not only or name in only:
            rows(bench)
            write_results(results, machine, before, bench.rows)
    bench.remove("model.safetensors")
    print(f"written to {results}; {sum(row.get('ok') is False or 'error' in row for row in bench.rows)} of "
          f"{sum('left_out' not in row for row in bench.rows)} rows over their bar or not run, "
          f"{sum('left_out' in row for row in bench.rows)} left out")
    return 1 if bench.failed else 0


if __name__ == "__main__":
    sys.exit(main())
