"""Compute independently of the caller's torch modes.

Under `torch.autocast` the matrix products of an analysis would round. Tensors made under
`torch.inference_mode` cannot be used in a gradient later. Public functions therefore switch both off while
they compute; whether gradients are recorded stays as the caller has set it.
"""

from collections.abc import Callable
from functools import wraps
from types import FunctionType

_GENERATOR = 0x20  # inspect.CO_GENERATOR as a literal: importing inspect takes milliseconds


def without_modes(function: Callable) -> Callable:
    """Return the function, run without autocast and inference mode; torch is imported on the first call."""
    if not isinstance(function, FunctionType) or function.__code__.co_flags & _GENERATOR:
        return function

    @wraps(function)
    def plain(*args, **named):
        import torch

        outside = torch.is_grad_enabled()
        with (
            torch.inference_mode(False),  # also enables gradients
            torch.set_grad_enabled(outside),
            torch.autocast("cpu", enabled=False),
            torch.autocast("cuda", enabled=False),
        ):
            return function(*args, **named)

    return plain


def methods_without_modes(cls: type) -> type:
    """Apply `without_modes` to every public method of a class, in place; return the class."""
    for name, method in list(vars(cls).items()):
        if name.startswith("_"):
            continue
        if isinstance(method, classmethod):
            setattr(cls, name, classmethod(without_modes(method.__func__)))
        elif isinstance(method, FunctionType):
            setattr(cls, name, without_modes(method))
    return cls
