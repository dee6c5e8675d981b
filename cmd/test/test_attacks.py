#!/usr/bin/env python3
"""Hostile, damaged and odd inputs, each with the outcome it must have; `N05` runs one row."""

import sys

import attacks
import attacks_checkpoints  # noqa: F401
import attacks_dcp  # noqa: F401
import attacks_deathtensors  # noqa: F401  (each registers its rows)
import attacks_foreign  # noqa: F401
import attacks_gguf  # noqa: F401
import attacks_machine  # noqa: F401
import attacks_npy  # noqa: F401
import attacks_npz  # noqa: F401
import attacks_onnx  # noqa: F401
import attacks_ot  # noqa: F401
import attacks_pickle  # noqa: F401
import attacks_pt  # noqa: F401
import attacks_pt_legacy  # noqa: F401
import attacks_pt_tar  # noqa: F401
import attacks_safetensors  # noqa: F401
import attacks_scales  # noqa: F401
import attacks_shards  # noqa: F401
import attacks_tf  # noqa: F401
import attacks_trees  # noqa: F401
import attacks_values  # noqa: F401
import attacks_zero  # noqa: F401
from harness import Skip, Suite, one_in

FEW = 4  # files of a row all go through the sanitizers, of the others one in ten


def needs_full(_):
    raise Skip("needs --full")


def cases(suite):
    for row_id, full, tests in attacks.ROWS:
        if full and not suite.full:
            yield f"{row_id} -", needs_full
        elif suite.wants_some(row_id):
            for number, (label, test) in enumerate(tests()):
                if number < FEW or one_in(10, f"{row_id} {label}"):
                    yield f"{row_id} {label}", test


if __name__ == "__main__":
    suite = Suite(__doc__)
    sys.exit(suite.run(cases(suite)))
