"""The real engines on one machine: GNU parallel; with --full also Slurm, Ray and Dask, each with two workers, one of
which is killed in the middle. The joined model has the digest of a single run. Of Kubernetes, which does not run on
one machine without much, the manifest is validated, and what it says a pod does is done."""
import os
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np

from models import Model, random_tensor
from peers import Safetensors

CLUSTER = Path(__file__).resolve().parent.parent / "cluster"
SHARDS = 4  # of the model folder, which has a job more
TENSORS = 7  # of the other, one a shard
JOBS = TENSORS + SHARDS + 1
ODD = os.fsdecode("it's \u2028 a\r \"$HOME\" ".encode() + b"\xe9")  # a folder; Python takes two of these for ends of lines
SLURM = """ClusterName=tconv
SlurmctldHost={host}
SlurmUser=root
SlurmdUser=root
AuthType=auth/munge
AuthInfo=socket={work}/munge.socket
StateSaveLocation={work}/state
SlurmdSpoolDir={work}/spool
SlurmctldPidFile={work}/slurmctld.pid
SlurmdPidFile={work}/slurmd.pid
SlurmctldLogFile={work}/slurmctld.log
SlurmdLogFile={work}/slurmd.log
SlurmctldPort=26817
SlurmdPort=26818
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SelectType=select/cons_tres
SelectTypeParameters=CR_CPU
MpiDefault=none
ReturnToService=2
NodeName={host} CPUs=2 RealMemory=2000 State=UNKNOWN
PartitionName=all Nodes={host} Default=YES State=UP
"""


def run(checks, tconv):
    with tconv.folder() as folder:
        for name in ("models/hf/assets", "bin"):
            (folder / name).mkdir(parents=True)
        random = np.random.default_rng(14)
        tensors = {f"w{i}": random_tensor(random, "F32", (256, 256)) for i in range(TENSORS)}
        Safetensors().write(folder / "models/model.safetensors", Model(tensors))
        # and a model folder in shards, with files besides
        Safetensors().write(folder / "whole.safetensors", Model({f"f{i}": tensors[f"w{i}"] for i in range(SHARDS)}))
        tconv.run("-q", folder / "whole.safetensors", folder / "models/hf/model.safetensors", "--shard-size", "270K")
        (folder / "models/hf/config.json").write_text("{}")
        (folder / "models/hf/assets/tokenizer.txt").write_text("some words")
        (folder / "bin" / "tconv").symlink_to(tconv.program)
        os.environ["PATH"] = f"{folder / 'bin'}:{os.environ['PATH']}"
        wanted = tconv.run("hash", "--digest", folder / "models/model.safetensors")
        tconv.run("-q", folder / "models/hf", f"{folder / 'one'}/", "-t", "safetensors", "--shard-size", "270K")
        wanted_files = files_of(folder / "one")
        checks.equal("files of a single run", len(wanted_files), SHARDS + 3)
        engines = {"parallel": with_parallel, "kubernetes": with_kubernetes}
        if os.environ.get("INTEROP_FULL"):
            engines |= {"slurm": with_slurm, "ray": with_ray, "dask": with_dask}
        for name, engine in engines.items():
            with checks.case(name):
                if name in PROGRAMS and not all(map(shutil.which, PROGRAMS[name])):
                    checks.skipped.append(f"{name} is not here")
                    continue
                out = folder / name / ODD
                jobs = make_jobs(tconv, folder, out)
                began = time.monotonic()
                engine(checks, jobs, folder)
                count = jobs.read_bytes().count(b"\n")
                checks.equal("jobs", count, JOBS)
                checks.notes.append(f"{name}: {count} jobs, {time.monotonic() - began:.1f} s")
                tconv.run("index", "-q", out)
                got = tconv.run("hash", "--digest", out / "model.safetensors.index.json")
                checks.equal("digest", got and got.split()[0], wanted and wanted.split()[0])
                checks.equal("the files of the folder", files_of(out / "hf"), wanted_files)
                checks.equal("what is left", sorted(path.name for path in out.iterdir() if "part" in path.name), [])


def files_of(folder):
    return {str(path.relative_to(folder)): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()}


ENGINE = 1200  # seconds in which an engine starts and does the jobs, on a machine that others keep busy
PROGRAMS = {"parallel": ["parallel"], "slurm": ["slurmctld", "slurmd", "munged", "sbatch"]}


def make_jobs(tconv, folder, out):
    """A list of jobs that take a moment each, so that one can be killed in its middle."""
    path = folder / f"{out.parent.name}.jobs"
    lines = tconv.run("batch", "--jobs", "-q", folder / "models", out, "-t", "safetensors", "--shard-size", "270K")
    path.write_bytes(b"".join(b"sleep 0.4 && " + line + b"\n" for line in lines.rstrip(b"\n").split(b"\n")))
    return path


def descendants(root):
    """Processes below one, as (process, parent, command)."""
    found, parents = [], {root}
    table = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
                table.append((int(entry.name), int(fields[1]), (entry / "cmdline").read_bytes()))
            except OSError:
                continue
    while True:
        new = [row for row in table if row[1] in parents and row[0] not in parents]
        if not new:
            return found
        found += new
        parents |= {row[0] for row in new}


def kill_a_worker(process):
    """The process that runs a job: the parent of a shell with a line of the list."""
    end = time.monotonic() + ENGINE
    while time.monotonic() < end and process.poll() is None:
        shells = [row for row in descendants(process.pid) if row[2].startswith(b"sh\0-ec\0sleep")]
        if shells:
            os.kill(shells[0][1], signal.SIGKILL)
            return True
        time.sleep(0.1)
    return False


def start(*command, **how):
    return subprocess.Popen(list(map(str, command)), stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, **how)


def with_parallel(checks, jobs, folder):
    """Killed with all its jobs in the middle, and run again: the log says what was done."""
    process = start(CLUSTER / "parallel.sh", jobs, "-j2", start_new_session=True)
    log = Path(f"{jobs}.log")
    while process.poll() is None and (not log.exists() or log.read_bytes().count(b"\n") < 4):
        time.sleep(0.05)
    os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    done = log.read_bytes().count(b"\n") - 1
    checks.true(3 <= done < JOBS, lambda: f"{done} jobs were done before the kill")
    again = subprocess.run([CLUSTER / "parallel.sh", jobs, "-j2"], capture_output=True, text=True)
    checks.equal("exit code", (again.returncode, again.stderr), (0, ""))
    checks.true(log.read_bytes().count(b"\n") - 1 <= 2 * JOBS - done, lambda: "jobs were done twice")
    # The log of another list does not count: its lines are other jobs.
    other, trace = folder / "other.jobs", folder / "trace"
    for word in ("first", "second"):
        other.write_text(f"echo {word} >> {trace}\n")
        os.utime(other, (2e9, 2e9))
        checks.equal("exit code", subprocess.run([CLUSTER / "parallel.sh", other], capture_output=True).returncode, 0)
    checks.equal("a list that was made anew", trace.read_text(), "first\nsecond\n")


def with_driver(checks, driver, jobs):
    process = start(sys.executable, CLUSTER / driver, jobs)
    checks.true(kill_a_worker(process), lambda: "no worker was found")
    checks.equal("exit code", process.wait(timeout=ENGINE), 0)
    # A job that a signal ends is one that failed.
    killed = jobs.with_suffix(".killed")
    killed.write_bytes(b"true\nkill -9 $$\n")
    code = start(sys.executable, CLUSTER / driver, killed).wait(timeout=ENGINE)
    checks.equal("a job that was killed", code, 128 + 9)


def with_ray(checks, jobs, folder):
    with_driver(checks, "ray_jobs.py", jobs)


def with_dask(checks, jobs, folder):
    with_driver(checks, "dask_jobs.py", jobs)


def with_kubernetes(checks, jobs, folder):
    """The manifest is valid by the real schema; its command does each line of the list, by its index."""
    import kubernetes_validate
    import yaml

    manifest = yaml.safe_load((CLUSTER / "kubernetes.yaml").read_text())
    kubernetes_validate.validate(manifest, kubernetes_validate.latest_version(), strict=True)
    broken = {**manifest, "spec": {**manifest["spec"], "completions": "many"}}
    try:
        kubernetes_validate.validate(broken, kubernetes_validate.latest_version(), strict=True)
        checks.fail("a manifest that is wrong is valid")
    except kubernetes_validate.ValidationError:
        pass
    pod = manifest["spec"]["template"]["spec"]["containers"][0]
    script = pod["args"][0].replace("/jobs/jobs", "$LIST")
    checks.equal("places of the list", pod["args"][0].count("/jobs/jobs"), 1)
    running = []
    for index in range(JOBS):
        where = {**os.environ, "JOB_COMPLETION_INDEX": str(index), "LIST": str(jobs)}
        running.append(subprocess.Popen([*pod["command"], script], env=where))
        if index == 3:
            running[index].kill()  # and restarted, as `restartPolicy` has it
            running.append(subprocess.Popen([*pod["command"], script], env=where))
    codes = [process.wait() for process in running]
    checks.equal("exit codes", [code for code in codes if code], [-signal.SIGKILL])


def with_slurm(checks, jobs, folder):
    """An array of two tasks; one is killed and put back into the queue."""
    work = folder / "slurm-state"
    for name in ("state", "spool"):
        (work / name).mkdir(parents=True)
    work.chmod(0o755)
    host = os.uname().nodename.partition(".")[0]
    (work / "slurm.conf").write_text(SLURM.format(host=host, work=work))
    (work / "cgroup.conf").write_text("CgroupPlugin=cgroup/v1\n")  # which is not used, but must be one that comes up
    key = work / "munge.key"
    key.write_bytes(os.urandom(1024))
    key.chmod(0o400)
    os.environ["SLURM_CONF"] = str(work / "slurm.conf")
    daemons = [
        start("munged", "--foreground", "--force", f"--key-file={key}", f"--socket={work}/munge.socket", f"--pid-file={work}/munge.pid",
              f"--log-file={work}/munge.log", f"--seed-file={work}/munge.seed"),
    ]
    try:
        wait_for(lambda: (work / "munge.socket").exists())
        daemons += [start("slurmctld", "-D"), start("slurmd", "-D", "-N", host)]
        wait_for(lambda: b"idle" in output("sinfo", "-h", "-o", "%T"))
        job = output("sbatch", "--parsable", "--array=1-2", "--mem=100M", f"--output={work}/%a.out", CLUSTER / "slurm.sh", jobs).decode().strip()
        wait_for(lambda: b"R" in output("squeue", "-h", "-j", f"{job}_1", "-o", "%t"))
        time.sleep(0.6)
        output("scontrol", "requeue", f"{job}_1")
        # A job that was put back waits for two minutes, unless it is told to start.
        wait_for(lambda: b"PD" in output("squeue", "-h", "-j", f"{job}_1", "-o", "%t"))
        output("scontrol", "update", f"JobId={job}_1", "StartTime=now")
        wait_for(lambda: not output("squeue", "-h", "-j", job).strip(), ENGINE)
        outputs = "".join(path.read_text() for path in work.glob("*.out"))
        checks.equal("what the tasks printed", [line for line in outputs.splitlines() if "CANCELLED" not in line and "slurm" not in line], [])
    finally:
        for daemon in reversed(daemons):
            daemon.terminate()
            daemon.wait(timeout=60)


def output(*command):
    return subprocess.run(list(map(str, command)), capture_output=True).stdout


def wait_for(condition, seconds=300):
    end = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > end:
            raise TimeoutError("an engine did not come up, or did not end")
        time.sleep(0.2)
