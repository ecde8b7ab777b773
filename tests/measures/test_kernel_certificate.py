from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

from oversharp.diagnostics.measures.kernel.certificate import kernel_certificate
from oversharp.diagnostics.measures.kernel.gradients.examples import gradients, tiny_kernels


def test_the_stored_residual_or_the_stored_reason(found):
    evidence = tiny_kernels({"base": np.eye(1)}, [("q", "panel", True)], why={"late": "NaN in the weights of late"})
    findings = found(kernel_certificate(evidence))
    assert (findings["base", "all"].value, findings["base", "all"].n) == (1e-9, 1)
    assert findings["late", "all"].why == "NaN in the weights of late"


def test_a_checkpoint_that_was_never_tried_says_what_to_do(found):
    evidence = tiny_kernels({"base": np.eye(1), "late": np.eye(1)}, [("q", "panel", True)])
    runs = evidence.frames["kernel_runs"]
    evidence = replace(evidence, frames={**evidence.frames, "kernel_runs": runs[runs["checkpoint_id"] == "base"]})
    assert (
        found(kernel_certificate(evidence))["late", "all"].why == "this checkpoint has no kernel; run the audit again"
    )


@pytest.mark.slow
def test_the_views_of_the_store_hold_what_tests_of_kernels_write_out(world, kernel_type):
    kernel = gradients((1, 0), (1, 2))
    rows = [("q", "r0", -1.5, 3, [("panel", 0, True), ("own", 0, True)]), ("t", "r1", -2.5, 4, [("own", 0, False)])]
    kernels = {"base": kernel_type(rows=rows, kernel=kernel), "late": "too long"}
    stored = world([], n=4, kernels=kernels, groups={"q": "task", "t": "other"}).evidence()
    roles, given = (
        [("q", "panel own", True), ("t", "own", False)],
        {"logps": {"base": [-1.5, -2.5]}, "n_tokens": [3, 4]},
    )
    written = tiny_kernels({"base": kernel}, roles, **given, related={"t": "other"}, why={"late": "too long"})
    for view, expected in written.frames.items():
        columns = [column for column in expected if column != "task"]
        frame = stored.frames[view].sort_values(columns[:3])[columns].reset_index(drop=True)
        expected = expected.sort_values(columns[:3])[columns].reset_index(drop=True)
        pd.testing.assert_frame_equal(frame, expected, check_dtype=False)
