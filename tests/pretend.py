"""A device that is not the CPU, on any machine: `pytest --device pretend`.

Its tensors hold CPU tensors and compute with them, but like a GPU's they do not mix with tensors of the CPU, and they
are counted when they go back and forth. So code that forgets a device fails here as it would on a GPU. It draws other
random numbers than the CPU from the same seed, and prints the device of a tensor, as a GPU does.
"""

import re
from contextlib import contextmanager, nullcontext
from functools import partial
from types import SimpleNamespace

import torch
import torch.nn.functional as F
from torch import Tensor, nn
from torch.nn.attention import SDPBackend
from torch.utils import backend_registration
from torch.utils._mode_utils import no_dispatch
from torch.utils._pytree import tree_flatten, tree_map_only, tree_unflatten

from tests.crossings import count

NAME = "pretend"
aten = torch.ops.aten
generator = torch.Generator()

# What may mix on a GPU, too: `device_check: NoCheck` in PyTorch's native_functions.yaml, and TensorIterator.cpp.
COPY = {"copy_", "_local_scalar_dense"}
INDEX = {"index", "_unsafe_index", "index_put", "index_put_", "_index_put_impl_", "_unsafe_index_put"}
WITH_NUMBER = {"fill_", "masked_fill", "masked_fill_", "index_fill", "index_fill_"}  # next to the pointwise ones


class Pretend(Tensor):
    """A tensor of the device: the shape and dtype of `inner`, a CPU tensor that has the numbers."""

    @staticmethod
    def __new__(cls, inner: Tensor):
        layout = {"strides": inner.stride(), "storage_offset": inner.storage_offset(), "dtype": inner.dtype}
        wrapper = Tensor._make_wrapper_subclass(cls, inner.shape, device=f"{NAME}:0", **layout)
        wrapper.inner = inner
        return wrapper

    @classmethod
    def __torch_dispatch__(cls, function, types, args=(), kwargs=None):
        return compute(function, *args, **(kwargs or {}))

    @property
    def data(self):
        return self.detach()

    @data.setter
    def data(self, other):
        assert isinstance(other, Pretend), "a tensor of the CPU as the data of one of the device"
        assert (other.shape, other.dtype) == (self.shape, self.dtype), "data of another shape or dtype"
        self.inner = other.inner

    def untyped_storage(self):
        return self.inner.untyped_storage()

    def __reduce_ex__(self, protocol):
        return Pretend, (self.inner,)

    def tolist(self):  # PyTorch's own refuses tensors of a class of one's own
        return self.detach().cpu().tolist()

    def numpy(self, **_):
        raise TypeError(f"can't convert {self.device} device type tensor to numpy. Use Tensor.cpu() to copy it first.")

    def __format__(self, spec):
        return format(self.item(), spec) if self.dim() == 0 else object.__format__(self, spec)

    def __repr__(self, *, tensor_contents=None):
        text = repr(self.detach().cpu().requires_grad_(self.requires_grad))
        return re.sub(r"(?s)((?:,\s+\w+=.*)?\))$", rf", device='{self.device}'\1", text, count=1)


def compute(function, *args, **kwargs):
    """Run an operation on the tensors inside, and wrap what comes back: the same wrapper for an operation in place."""
    name = function._schema.name.partition("::")[2]
    if name == "_to_copy":
        return converted(function, *args, **kwargs)
    if name in KERNELS:
        return KERNELS[name](*args, **kwargs)
    values, structure = tree_flatten((args, kwargs))
    tensors = [value for value in values if isinstance(value, Tensor)]
    require_one_device(function, name, args, values)
    if name == "copy_" and isinstance(args[0], Pretend) != isinstance(args[1], Pretend) and args[0].numel():
        count("in" if isinstance(args[0], Pretend) else "out")
    if name == "_local_scalar_dense":
        count("out")
    inside, as_keywords = tree_unflatten([inner_of(value) for value in values], structure)
    with own_numbers(values) if torch.Tag.nondeterministic_seeded in function.tags else nullcontext():
        result = function(*inside, **as_keywords)
    if torch.Tag.inplace_view in function.tags:  # squeeze_ and the like change the shape of the wrapper, too
        with no_dispatch():
            function(*args, **kwargs)
    wrapper = {id(value.inner): value for value in tensors if isinstance(value, Pretend)}
    return tree_map_only(Tensor, lambda x: wrapper[id(x)] if id(x) in wrapper else Pretend(x), result)


def require_one_device(function, name, args, values) -> None:
    """Raise RuntimeError where a GPU would: an index of its tensor may be on the CPU, and so may one number."""
    if name in COPY:
        return
    if name in INDEX:
        if not isinstance(args[0], Pretend):
            raise RuntimeError("indices should be either on cpu or on the same device as the indexed tensor (cpu)")
        values = args[2:3]
    others = [value for value in values if isinstance(value, Tensor) and not isinstance(value, Pretend)]
    number = name != "equal" and (torch.Tag.pointwise in function.tags or name in INDEX | WITH_NUMBER)
    written = function._schema.is_mutable and not isinstance(args[0], Pretend)
    if others and (written or not number or any(x.dim() for x in others) or (len(others) > 1 and name != "where")):
        message = f"Expected all tensors to be on the same device, but found at least two devices, {NAME}:0 and cpu!"
        raise RuntimeError(f"{message} ({function})")


@contextmanager
def own_numbers(values):
    """Draw with the generator of the device, as a GPU does: from the same seed it draws others than the CPU's."""
    if any(isinstance(value, torch.Generator) for value in values):
        raise RuntimeError(f"Expected a '{NAME}' device type for generator but found 'cpu'")
    before = torch.get_rng_state()
    torch.set_rng_state(generator.get_state())
    try:
        yield
    finally:
        generator.set_state(torch.get_rng_state())
        torch.set_rng_state(before)


def converted(function, x: Tensor, device=None, pin_memory=None, **kwargs) -> Tensor:
    """Change the dtype, the device or both."""
    device = x.device if device is None else torch.device(device)
    result = function(inner_of(x), **kwargs)
    if device.type != x.device.type:
        count("in" if device.type == NAME else "out")
    return Pretend(result) if device.type == NAME else result


def inner_of(value):
    if isinstance(value, Pretend):
        return value.inner
    return torch.device("cpu") if isinstance(value, torch.device) and value.type == NAME else value


def keep_ties(apply):
    """On a GPU, `module.to` keeps tied weights one parameter. Here each becomes a new one, so tie them again."""

    def _apply(self, change, recurse=True):
        names: dict[int, list[str]] = {}
        before = list(self.named_parameters(remove_duplicate=False))  # held, so that no id is used twice
        for name, parameter in before:
            names.setdefault(id(parameter), []).append(name)
        apply(self, change, recurse)
        for first, *tied in names.values():
            for module, _, attribute in (name.rpartition(".") for name in tied):
                setattr(self.get_submodule(module), attribute, self.get_parameter(first))
        return self

    return _apply


def fused_attention(query, key, value, attn_mask=None, dropout_p=0.0, is_causal=False, scale=None, enable_gqa=False):
    """Take the fused kernel where the CPU takes its own: PyTorch asks no device of Python for one."""
    given = [inner_of(x) for x in (query, key, value, attn_mask, dropout_p, is_causal)]
    options = {"scale": scale, "enable_gqa": enable_gqa}
    chosen = torch._fused_sdp_choice(*given, **options) if isinstance(query, Pretend) else None
    if chosen != SDPBackend.FLASH_ATTENTION.value or dropout_p or getattr(attn_mask, "requires_grad", False):
        return plain_attention(query, key, value, attn_mask, dropout_p, is_causal, **options)
    if attn_mask is not None and attn_mask.dtype == torch.bool:
        attn_mask = torch.zeros_like(attn_mask, dtype=query.dtype).masked_fill(~attn_mask, -torch.inf)
    return getattr(aten, FUSED)(query, key, value, attn_mask, dropout_p, is_causal, scale=scale)[0]


FUSED = "_scaled_dot_product_fused_attention_overrideable"
plain_attention = F.scaled_dot_product_attention


def fused(query, key, value, attn_bias=None, dropout_p=0.0, is_causal=False, return_debug_mask=False, *, scale=None):
    """Run the CPU's fused attention; what GPUs' kernels return in addition is empty."""
    kernel, none = aten._scaled_dot_product_flash_attention_for_cpu.default, torch.empty(0, device=NAME)
    output, sums = compute(kernel, query, key, value, dropout_p, is_causal, attn_mask=attn_bias, scale=scale)
    return output, sums, none, none, query.shape[-2], key.shape[-2], none, none, none


def fused_backward(
    upstream, query, key, value, bias, wanted, output, sums, _0, _1, _2, _3, dropout_p, is_causal, *_, scale=None
):
    kernel = aten._scaled_dot_product_flash_attention_for_cpu_backward.default
    bias = None if bias is None or bias.numel() == 0 else bias
    given = (upstream, query, key, value, output, sums, dropout_p, is_causal)
    return *compute(kernel, *given, attn_mask=bias, scale=scale), None


KERNELS = {FUSED: fused, f"{FUSED}_backward": fused_backward}


def factories():
    """Every operation that makes a tensor from none, such as arange: PyTorch's own fill what they have resized, and a
    wrapper cannot change its shape."""
    for name in torch._C._dispatch_get_all_op_names():
        if name.startswith("aten::"):
            packet, _, overload = name.removeprefix("aten::").partition(".")
            operation = getattr(getattr(aten, packet), overload or "default", None)
            kinds = {argument.name: str(argument.type) for argument in operation._schema.arguments} if operation else {}
            if "device" in kinds and not any("Tensor" in kind for kind in kinds.values()):
                yield name.removeprefix("aten::"), operation


def converting(operation, dtype, *args, **kwargs):
    """Under autocast: convert the floats that an operation is given; by default, to autocast's own dtype."""
    dtype = dtype or torch.get_autocast_dtype(NAME)
    given = tree_map_only(Tensor, lambda x: x.to(dtype) if x.is_floating_point() else x, (args, kwargs))
    with torch._C._ExcludeDispatchKeyGuard(torch._C.DispatchKeySet(torch._C.DispatchKey.AutocastPrivateUse1)):
        return operation(*given[0], **given[1])


def register() -> list[torch.library.Library]:
    """Make the device known to PyTorch. The result has to be kept: without it, the operations are forgotten."""
    module = SimpleNamespace(
        is_available=lambda: True,
        is_initialized=lambda: True,
        device_count=lambda: 1,
        current_device=lambda: 0,
        synchronize=lambda device=None: None,
        manual_seed_all=lambda seed: generator.manual_seed(seed + 1),
        _is_in_bad_fork=lambda: False,
        get_amp_supported_dtype=lambda: [torch.bfloat16, torch.float16],
    )
    backend_registration._setup_privateuseone_for_python_backend(NAME, backend_module=module)
    casts = torch.library.Library("_", "IMPL")
    casts.fallback(torch.library.fallthrough_kernel, "AutocastPrivateUse1")
    every, ours = torch.library.Library("_", "IMPL"), torch.library.Library("aten", "IMPL")
    every.fallback(compute, "PrivateUse1")
    ours.impl("_copy_from", lambda x, to, non_blocking=False: compute(aten.copy_.default, to, x), "PrivateUse1")
    for name, operation in factories():
        ours.impl(name, partial(compute, operation), "PrivateUse1")
    torch.__future__.set_overwrite_module_params_on_conversion(True)  # `data` cannot change a wrapper's dtype
    torch.serialization.add_safe_globals([Pretend])
    in_half = dict.fromkeys(("linear", "matmul", "mm", "addmm", "bmm", "baddbmm", FUSED))
    for name, dtype in (in_half | {"cross_entropy_loss": torch.float32}).items():
        ours.impl(name, partial(converting, getattr(aten, name), dtype), "AutocastPrivateUse1")
    torch.accelerator.synchronize = lambda device=None: None  # PyTorch's own refuses a device of Python
    F.scaled_dot_product_attention = fused_attention
    nn.Module._apply = keep_ties(nn.Module._apply)  # type: ignore[method-assign]
    return [every, ours, casts]


LIBRARIES = register()
