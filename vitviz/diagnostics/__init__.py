"""Model check: findings on weights, input, head, attention, maps and numbers, each with its threshold.

    weights, input, head, attention, maps, numbers     one file each: generators of findings
    check                                              runs them in this order
    findings.json                                      the rule of each finding: group, severity and texts

Thresholds were measured over healthy models and planted faults (docs/check.md). A number without a justified
threshold is reported without a verdict. A check without findings does not show that a model is right: faults
that change outputs little, such as a mirrored position table, cannot be seen.
"""
