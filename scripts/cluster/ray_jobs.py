#!/usr/bin/env python3
"""Runs the jobs of `tconv batch --jobs` on a Ray cluster: ray_jobs.py JOBS [ADDRESS]

Lines travel, not tensors: every worker reads and writes the files themselves, by paths that all of
them share. A job whose worker dies runs again on another. Without ADDRESS Ray starts on this machine.
"""

import subprocess
import sys

import ray


@ray.remote(num_cpus=1, max_retries=5)
def run_job(line):
    return subprocess.run(["sh", "-ec", line], stdin=subprocess.DEVNULL).returncode


def main(jobs, address=None):
    with open(jobs) as file:
        lines = file.read().splitlines()
    ray.init(address=address, **({} if address else {"num_cpus": 2, "include_dashboard": False}))
    return max(ray.get([run_job.remote(line) for line in lines]), default=0)


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:]))
