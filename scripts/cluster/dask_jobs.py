#!/usr/bin/env python3
"""Runs the jobs of `tconv batch --jobs` on a Dask cluster: dask_jobs.py JOBS [ADDRESS]

Lines travel, not tensors: every worker reads and writes the files themselves, by paths that all of
them share. A job whose worker dies runs again on another. Without ADDRESS two workers start here.
"""

import subprocess
import sys

from distributed import Client, LocalCluster


def run_job(line):
    code = subprocess.run(["sh", "-ec", line], stdin=subprocess.DEVNULL).returncode
    return code if code >= 0 else 128 - code  # as shells tell of a signal


def main(jobs, address=None):
    with open(jobs, "rb") as file:  # names are bytes, and only a newline ends a line
        lines = [line for line in file.read().split(b"\n") if line]
    cluster = address or LocalCluster(n_workers=2, threads_per_worker=1, dashboard_address=None)
    with Client(cluster) as client:
        return max(client.gather(client.map(run_job, lines, pure=False, retries=5)), default=0)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
