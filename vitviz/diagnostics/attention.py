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
from vitviz.diagnostics.finding import Finding, layers_named, stated, verdict_of
from vitviz.diagnostics.subject import CheckSubject, traces_of
from vitviz.traces.localized_text import LocalizedText

UNIFORM, MOST = 0.99, 0.9  # of ln N; share of the heads
OUTLIERS = 10  # MADs above the median norm of a layer's patches
TIMES = 3  # an outlier's norm also exceeds the median so many times
COLLAPSED = 0.99


def uniform(subject: CheckSubject) -> Iterator[Finding]:
    """Count the heads that attend to all tokens alike."""
    entropies = []
    for trace in traces_of(subject):
        by_layer = [attention_entropy(trace, layer) for layer in range(len(trace.layers))]
        entropies.append(torch.cat(by_layer) / log(trace.length))
    share = (torch.stack(entropies).mean(dim=0) > UNIFORM).double().mean().item()
    sentence = "{share} of the heads attend to all tokens alike."
    yield verdict_of(
        "uniform_attention", "attention", share, MOST, sentence, sentence,
        "Attention maps of this model show nothing. Check that its weights are trained.", "explorer",
        share=f"{share:.0%}")  # fmt: skip


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
    yield stated(
        "sink", "attention", "number",
        "The token that receives the most attention is {token}, in {layer}: {share} of all.",
        share, view="explorer", token=title, layer=layers_named([layer]), share=f"{share:.0%}")  # fmt: skip


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
    yield verdict_of(
        "outlier_tokens", "attention", often, 0.5,
        "Outlier tokens from {layer} on: patches whose norm is {norm} times the median.",
        "No regular outlier tokens; the largest norm of a patch is {norm} times its layer's median.",
        "Maps may show speckles there instead of the object. Registers remove them (Darcet et al. 2024); read"
        " maps from earlier layers, or by gradients.", "tokens", severity="note", norm=f"{largest:.1f}",
        layer=layers_named([min(begins, default=0)]))  # fmt: skip


def collapse(subject: CheckSubject) -> Iterator[Finding]:
    """Report how far the patches' tokens have become alike, by depth."""
    by_image = []
    for trace in traces_of(subject):
        patches = torch.stack([tokens[trace.grid.prefix :].double() for tokens in trace.tokens])
        by_image.append(patches.mean(dim=1).square().sum(-1) / patches.square().sum(-1).mean(dim=1))
    shares = torch.stack(by_image).mean(dim=0)
    layers = (shares[1:] > COLLAPSED).nonzero().flatten().tolist()
    yield verdict_of(
        "rank_collapse", "attention", shares[1:].max().item(), COLLAPSED,
        "The patches' tokens are nearly equal after {layers}.",
        "The patches' tokens differ in every layer; the number is the largest share of their common part.",
        "Maps of these layers are almost the same for all patches.", "tokens", severity="note",
        layers=layers_named(layers))  # fmt: skip
