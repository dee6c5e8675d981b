#!/usr/bin/env python3
"""Runs the jobs of `tconv batch --jobs` on a Ray cluster: ray_jobs.py JOBS [ADDRESS]

Lines travel, not tensors: every worker reads and writes the files themselves, by paths that all of
them share. A job whose worker dies runs again on another. Without ADDRESS Ray starts on this machine.
"""

import os
import subprocess
import sys
import time

# A machine that others keep busy takes longer to start Ray's processes than Ray waits by itself.
# These are read when it is imported, and by the processes that it starts.
for name in ("RAY_raylet_start_wait_time_s", "RAY_worker_register_timeout_seconds", "RAY_gcs_rpc_server_connect_timeout_s"):
    os.environ.setdefault(name, "300")
os.environ.setdefault("RAY_gcs_rpc_server_reconnect_timeout_s", "300")
STARTS = 5  # how often it is begun anew

import ray


@ray.remote(num_cpus=1, max_retries=5)
def run_job(line):
    code = subprocess.run(["sh", "-ec", line], stdin=subprocess.DEVNULL).returncode
    return code if code >= 0 else 128 - code  # as shells tell of a signal


def start(address):
    """Ray is there, or starts; what came up in half is taken down before the next try."""
    how = {"address": address} if address else {"num_cpus": 2, "include_dashboard": False}
    for left in reversed(range(STARTS)):
        try:
            ray.init(**how)
            return
        except Exception as error:
            if not left:
                raise
            print(f"ray_jobs: Ray did not start, {left} tries are left: {error}", file=sys.stderr)
            ray.shutdown()
            time.sleep(5)


def main(jobs, address=None):
    with open(jobs, "rb") as file:  # names are bytes, and only a newline ends a line
        lines = [line for line in file.read().split(b"\n") if line]
    start(address)
    return max(ray.get([run_job.remote(line) for line in lines]), default=0)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
