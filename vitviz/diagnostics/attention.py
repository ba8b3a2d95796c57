"""Checks of attention and tokens: uniform heads, sinks, outlier tokens, collapse of the tokens.

    uniform: entropy of a head's rows / ln N      sink: largest share of attention that a token receives
    outlier: norm above median + 10 MAD           collapse: |mean token|^2 / mean |token|^2 of the patches

Sinks and outlier tokens are properties of trained models (Darcet et al. 2024; Xiao et al. 2024), not faults.
Maps then show them instead of the object.
"""

from __future__ import annotations

from collections.abc import Iterator
from math import log

import torch

from vitviz.analyses.depth import token_norms, typical_norms
from vitviz.analyses.one_token import attention_received
from vitviz.analyses.redundancy import attention_entropy
from vitviz.diagnostics.finding import Finding, layers_named, verdict
from vitviz.diagnostics.subject import CheckSubject, traces_of
from vitviz.traces.localized_text import LocalizedText

UNIFORM, MOST = 0.99, 0.9  # of ln N; share of the heads
OUTLIERS = 10  # MADs above the median norm of a layer's patches
TIMES = 3  # an outlier's norm also exceeds the median so many times
COLLAPSED = 0.99


def uniform(subject: CheckSubject) -> Iterator[Finding]:
    """Report the fraction of heads that attend to all tokens uniformly; too many give a verdict."""
    entropies = []
    for trace in traces_of(subject):
        by_layer = [attention_entropy(trace, layer) for layer in range(len(trace.layers))]
        entropies.append(torch.cat(by_layer) / log(trace.length))
    share = (torch.stack(entropies).mean(dim=0) > UNIFORM).double().mean().item()
    yield verdict("uniform_attention", share, MOST, share=f"{share:.0%}")


def sinks(subject: CheckSubject) -> Iterator[Finding]:
    """Report the token that receives the most attention, without a verdict."""
    trace = subject.traces[0]
    layers = range(len(trace.layers))
    received = torch.stack([attention_received(trace, layer).double().mean(dim=0) for layer in layers])
    received = received / received.sum(dim=1, keepdim=True)
    layer, token = divmod(int(received.argmax()), received.shape[1])
    names, share = trace.grid.prefix_names, received.max().item()
    row, col = divmod(token - len(names), trace.grid.cols)
    title = LocalizedText("the patch in row {row}, column {col}", row=row + 1, col=col + 1)
    if token < len(names):
        title = LocalizedText("the {name} token", name=names[token])
    yield verdict("sink", share, token=title, layer=layers_named([layer]), share=f"{share:.0%}")


def outliers(subject: CheckSubject) -> Iterator[Finding]:
    """Find patches with outlying norms, and the layer where they begin."""
    begins, counts, largest = [], [], 0.0
    for trace in traces_of(subject):
        norms, usual = token_norms(trace)[:, trace.grid.prefix :], typical_norms(trace)
        limit = torch.maximum(usual.limit(OUTLIERS), TIMES * usual.median)
        above = norms > limit[:, None]
        largest = max(largest, (norms.max(dim=1).values / usual.median.clamp_min(1e-12))[1:].max().item())
        layers = above[1:].any(dim=1).nonzero().flatten()
        counts.append(above[-1].sum().item())
        begins += [int(layers[0])] if len(layers) else []
    often = len(begins) / len(subject.traces)
    first = layers_named([min(begins, default=0)])
    yield verdict("outlier_tokens", often, 0.5, norm=f"{largest:.1f}", layer=first)


def collapse(subject: CheckSubject) -> Iterator[Finding]:
    """Report how far the patches' tokens have become alike, by depth."""
    by_image = []
    for trace in traces_of(subject):
        patches = torch.stack([tokens[trace.grid.prefix :].double() for tokens in trace.tokens])
        by_image.append(patches.mean(dim=1).square().sum(-1) / patches.square().sum(-1).mean(dim=1))
    shares = torch.stack(by_image).mean(dim=0)
    layers = (shares[1:] > COLLAPSED).nonzero().flatten().tolist()
    yield verdict("rank_collapse", shares[1:].max().item(), COLLAPSED, layers=layers_named(layers))
