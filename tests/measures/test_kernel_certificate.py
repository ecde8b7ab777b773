from dataclasses import replace

from diagnostics.measures.kernel_certificate import compute


def test_the_stored_residual_or_the_stored_reason(coupled, found):
    evidence = coupled({"base": [[1.0]]}, [("q", "panel", True)], why={"late": "NaN in the weights of late"})
    findings = found(compute(evidence))
    assert (findings["base", "all"].value, findings["base", "all"].n) == (1e-9, 1)
    assert findings["late", "all"].why == "NaN in the weights of late"


def test_a_checkpoint_that_was_never_tried_says_what_to_do(coupled, found):
    evidence = coupled({"base": [[1.0]], "late": [[1.0]]}, [("q", "panel", True)])
    runs = evidence.frames["kernel_runs"]
    evidence = replace(evidence, frames={**evidence.frames, "kernel_runs": runs[runs["checkpoint_id"] == "base"]})
    assert found(compute(evidence))["late", "all"].why == "this checkpoint has no kernel; run the audit again"
