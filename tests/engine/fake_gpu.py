"""A fake accelerator: tensors that report cuda:0 and compute on the CPU.

As on a real GPU, these tensors cannot be mixed with CPU tensors or read by NumPy. Copies to the host are
counted. Tests without a GPU thus show computations on the wrong device and waits of the host.
"""

from __future__ import annotations

import time
from collections import Counter
from contextlib import contextmanager
from functools import cache
from unittest import mock

import torch
import torch.nn.functional as F
from torch.overrides import TorchFunctionMode
from torch.utils._pytree import tree_flatten, tree_map

CUDA, CPU = torch.device("cuda:0"), torch.device("cpu")
copies: Counter = Counter()  # copies from device to host by operation; the host waits for each
launches: Counter = Counter()  # kernels that a device would start, by operation
_host_reads = (
    torch.ops.aten._local_scalar_dense.default,
    torch.ops.aten.is_nonzero.default,
    torch.ops.aten.equal.default,
)
# the output size depends on values on the device
_data_dependent = (torch.ops.aten.nonzero.default, torch.ops.aten.masked_select.default)


class OnDevice(torch.Tensor):
    """A tensor of the fake device; `inner` is the CPU tensor."""

    @staticmethod
    def __new__(cls, inner, requires_grad=False):
        made = torch.Tensor._make_wrapper_subclass(
            cls, inner.shape, strides=inner.stride(), storage_offset=inner.storage_offset(),
            dtype=inner.dtype, device="meta", requires_grad=requires_grad,  # "meta" needs no runtime
        )  # fmt: skip
        made.inner = inner
        return made

    __torch_function__ = torch._C._disabled_torch_function_impl
    device = property(lambda self: CUDA)
    is_cuda = property(lambda self: True)

    @classmethod
    def __torch_dispatch__(cls, func, types, args=(), kwargs=None):
        kwargs = dict(kwargs or {})
        given = [one for one in tree_flatten((args, kwargs))[0] if isinstance(one, torch.Tensor)]
        copied = func in (torch.ops.aten.copy_.default, torch.ops.aten._to_copy.default)
        made_by_c = [one for one in given if not isinstance(one, OnDevice) and one.device.type == "meta"]
        strangers = [one for one in given if not isinstance(one, OnDevice) and one.ndim > 0]
        strangers = [one for one in strangers if one.device.type != "meta"]
        if strangers and not copied and not _indexes(func):
            raise RuntimeError(
                f"Expected all tensors to be on the same device, but found at least two devices, cuda:0 and"
                f" cpu! ({func}, {tuple(strangers[0].shape)})"
            )
        target = kwargs.get("device")
        home = torch.device(target).type == "cpu" if target is not None else False
        if target is not None:
            kwargs["device"] = CPU
        zeros = {
            id(one): torch.zeros(one.shape, dtype=one.dtype) for one in made_by_c
        }  # gradients of absent inputs
        inner_args, inner_kwargs = tree_map(lambda one: zeros.get(id(one), _to_cpu(one)), (args, kwargs))
        found = func(*inner_args, **inner_kwargs)
        if _launches(func):
            launches[str(func)] += 1
        if func in _data_dependent or _indexes(func) and _selects_by_mask(args[1]):
            copies[str(func)] += 1
        if home or func in _host_reads:
            copies[str(func)] += 1
            return found
        if func is torch.ops.aten.copy_.default and not isinstance(args[0], OnDevice):
            copies[str(func)] += 1
            return args[0]
        same = {id(_to_cpu(one)): one for one in given if isinstance(one, OnDevice)}
        return tree_map(lambda one: same.get(id(one), one) if id(one) in same else _to_device(one), found)

    def __deepcopy__(self, memo):
        return memo.setdefault(id(self), OnDevice(self.inner.clone(), self.requires_grad))

    def numpy(self, **_):
        raise TypeError("can't convert cuda:0 device type tensor to numpy. Use Tensor.cpu() first.")

    __array__ = numpy

    def tolist(self):
        copies["tolist"] += 1
        return self.inner.tolist()

    def __repr__(self):
        return f"OnDevice({self.inner})"


def _to_device(one):
    return OnDevice(one) if isinstance(one, torch.Tensor) else one


def _to_cpu(one):
    return one.inner if isinstance(one, OnDevice) else one


def _indexes(func) -> bool:
    """Return whether CUDA also accepts CPU indices for this operation."""
    return func in (torch.ops.aten.index.Tensor, torch.ops.aten.index_put_.default)


def _selects_by_mask(places) -> bool:
    """Return whether a mask on the device selects, so that the host must wait for the number of selected
    entries.
    """
    return any(isinstance(one, OnDevice) and one.dtype == torch.bool for one in places)


@cache
def _launches(func) -> bool:
    """Return whether an operation starts a kernel. Views and empty tensors start none."""
    views = any(one.alias_info and not one.alias_info.is_write for one in func._schema.returns)
    return not views and "empty" not in func._schema.name and "_unsafe_view" not in func._schema.name


class _DevicePlacement(TorchFunctionMode):
    """Place tensors that are created on or moved to the fake device, without the CUDA runtime."""

    def __torch_function__(self, func, types, args=(), kwargs=None):
        kwargs = dict(kwargs or {})
        kwargs.pop("pin_memory", None)  # pinned memory needs the CUDA runtime
        if func is F.scaled_dot_product_attention:  # a GPU computes attention in one kernel
            before = launches.copy()
            found = func(*args, **kwargs)
            launches.clear()
            launches.update(before + Counter([func.__name__]))
            return found
        if func is torch.Tensor.__setitem__ and isinstance(
            args[0], OnDevice
        ):  # C++ converts the numbers itself
            assert not args[0].requires_grad
            return args[0].inner.__setitem__(*tree_map(_to_cpu, args[1:]))
        if getattr(func, "__name__", "") == "__getitem__" and isinstance(args[0], OnDevice):
            places = args[1] if isinstance(args[1], tuple) else (args[1],)  # C++ would convert lists itself
            args = (args[0], tuple(torch.tensor(one) if isinstance(one, list) else one for one in places))
        if func is torch.where and len(args) == 3 and any(isinstance(one, OnDevice) for one in args):
            kind = next((one.dtype for one in args[1:] if isinstance(one, torch.Tensor)), None)
            args = [
                args[0],
                *(
                    one if isinstance(one, torch.Tensor) else _to_device(torch.tensor(one, dtype=kind))
                    for one in args[1:]
                ),
            ]
        # `to` with another tensor
        if func is torch.Tensor.to and any(isinstance(one, OnDevice) for one in args[1:]):
            args = (args[0], CUDA, args[1].dtype, *args[2:])
        asked = [one for one in (*args, *kwargs.values()) if _names_cuda(one)]
        if not asked:
            return func(*args, **kwargs)
        if func is torch.Tensor.to and isinstance(args[0], OnDevice):
            kinds = [one for one in (*args[1:], kwargs.get("dtype")) if isinstance(one, torch.dtype)]
            return func(args[0], *kinds) if kinds else args[0].clone() if kwargs.get("copy") else args[0]
        here = [CPU if _names_cuda(one) else one for one in args]
        made = func(*here, **{name: CPU if _names_cuda(one) else one for name, one in kwargs.items()})
        if not isinstance(made, torch.Tensor):
            return func(*args, **kwargs)  # torch.device, or a function that reads one
        if isinstance(made, OnDevice):
            return made
        moved = OnDevice(made.detach(), made.requires_grad and made.is_leaf)
        return (
            torch.nn.Parameter(moved, made.requires_grad)
            if isinstance(args[:1], torch.nn.Parameter)
            else moved
        )


def _names_cuda(one) -> bool:
    return (isinstance(one, str) and one.startswith("cuda")) or (
        isinstance(one, torch.device) and one.type == "cuda"
    )


class _Event:
    """An event of a device whose work ends at once."""

    def __init__(self, **_):
        self.at = 0.0

    def record(self):
        self.at = time.perf_counter()

    def synchronize(self):
        pass

    def elapsed_time(self, end) -> float:
        return 1000 * (end.at - self.at)


@contextmanager
def fake_gpu():
    """Simulate a machine with one GPU."""
    cuda = {
        "is_available": lambda: True, "device_count": lambda: 1,
        "synchronize": lambda *_: copies.update(["synchronize"]),
        "current_device": lambda: 0, "get_device_name": lambda *_: "Pretended",
        "mem_get_info": lambda *_: (2**36, 2**36), "is_bf16_supported": lambda *_: True,
        "get_device_capability": lambda *_: (7, 0), "Event": _Event,  # no kernels of Triton
    }  # fmt: skip
    before = torch.__future__.get_overwrite_module_params_on_conversion()
    torch.__future__.set_overwrite_module_params_on_conversion(True)  # as for other backends
    try:
        with mock.patch.multiple(torch.cuda, **cuda), _DevicePlacement():
            copies.clear()
            launches.clear()
            yield copies
    finally:
        torch.__future__.set_overwrite_module_params_on_conversion(before)


__all__ = ["OnDevice", "copies", "launches", "fake_gpu"]
