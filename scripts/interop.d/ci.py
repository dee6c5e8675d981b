"""The YAML for CI systems against the public schemas: pre-commit's own validator, and those that check-jsonschema has."""
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent.parent
FILES = {
    ".pre-commit-hooks.yaml": ["-m", "pre_commit", "validate-manifest"],
    "scripts/ci/pre-commit-config.yaml": ["-m", "pre_commit", "validate-config"],
    ".github/actions/tconv/action.yml": ["-m", "check_jsonschema", "--builtin-schema", "vendor.github-actions"],
    "scripts/ci/github-actions.yml": ["-m", "check_jsonschema", "--builtin-schema", "vendor.github-workflows"],
    "scripts/ci/gitlab-ci.yml": ["-m", "check_jsonschema", "--builtin-schema", "vendor.gitlab-ci"],
}


def run(checks, tconv):
    for name, command in FILES.items():
        with checks.case(name):
            done = subprocess.run([sys.executable, *command, str(ROOT / name)], capture_output=True, text=True)
            checks.equal("exit code", (done.returncode, done.stdout + done.stderr if done.returncode else ""), (0, ""))
