"""Lowering by Inductor: the converted graph frozen and compiled, and what its generated code calls.

torchao's quantizers register their patterns with Inductor when they are imported
(`torchao/quantization/pt2e/inductor_passes/x86.py`): frozen, a convolution or linear between quantize and dequantize
ops becomes one of oneDNN's int8 kernels. What no pattern takes stays a float kernel behind a dequantize, without a
word, so kernels are counted in the code that runs. Of what a compilation leaves on disk only the builds of C++ sources
are used again, which Inductor files by their content; its caches of whole graphs would not see that a registered
pattern or a repair has changed.
"""

from __future__ import annotations

import ast
import hashlib
import re
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

from harness.flows import Program

if TYPE_CHECKING:
    import torch
    from torch.fx import Graph, GraphModule

_KERNELS = {
    "int8_convs": r"torch\.ops\.onednn\.qconv\w*\.\w+",
    "int8_linears": r"torch\.ops\.onednn\.qlinear\w*\.\w+",
    "float_convs": r"(extern_kernels|aten|torch\.ops\.aten|torch\.ops\.mkldnn)\._?convolution\w*(\.\w+)?",
    "float_linears": (
        r"(extern_kernels|aten|torch\.ops\.aten)\.(_?addmm|mm|bmm|baddbmm|linear)(\.\w+)?"
        r"|torch\.ops\.(mkl|mkldnn)\.\w*linear\w*(\.\w+)?"
        r"|(aten|torch\.ops\.aten)\._scaled_dot_product\w*(\.\w+)?"
    ),
}
"""Calls of the generated code by column; prepacking happened when it was compiled."""
_PREPACK = re.compile(r"prepack")


def edge(converted: GraphModule, inputs: tuple[torch.Tensor, ...]) -> tuple[GraphModule, tuple[torch.Tensor, ...]]:
    """The graph with the inputs it is compiled for: `torch.compile` compiles when it is called."""
    return converted, inputs


def lower(frozen: tuple[GraphModule, tuple[torch.Tensor, ...]]) -> Program:
    """The graph compiled, and run once, which a kernel may refuse; programs made before do not run any more.

    Raises what Inductor raises, or a kernel.
    """
    import torch

    torch._dynamo.reset()  # frees their frozen weights
    return lower_beside(frozen)


def lower_beside(frozen: tuple[torch.nn.Module, tuple[torch.Tensor, ...]]) -> Program:
    """As `lower`, of a float model too, and programs made before still run."""
    import torch

    graph, inputs = frozen
    quantize_nodes: list[dict[str, int]] = []
    with torch.no_grad(), _compiling(quantize_nodes.append), _generated() as codes:
        compiled = torch.compile(graph, fullgraph=True)
        try:
            compiled(*inputs)
        except torch._dynamo.exc.Unsupported as error:
            # What a kernel raised when it ran: dynamo then tries to trace what handles that, and raises in its place.
            raise error.__context__ or error from None
    if not quantize_nodes:
        raise RuntimeError("Inductor compiled nothing; is TORCHDYNAMO_DISABLE set?")
    code = "\n".join(dict.fromkeys(codes))
    return Program(_as_compiled(compiled), kernels(code) | quantize_nodes[-1], _digest(code))


def _as_compiled(compiled: Callable[..., Any]) -> Callable[..., Any]:
    """What was compiled and nothing else: under another setting torch would silently compile again, unfrozen."""
    import torch

    def run(*inputs: torch.Tensor) -> Any:
        with torch.no_grad(), torch.compiler.set_stance("fail_on_recompile"):
            return compiled(*inputs)

    return run


@contextmanager
def _compiling(tell: Callable[[dict[str, int]], None]) -> Iterator[None]:
    """Inductor's settings for one compilation; `tell` is given the counts of the graph that code is generated from."""
    from torch._functorch import config as functorch_config
    from torch._inductor import config

    def count(graph: Graph) -> None:
        names = [str(node.target) for node in graph.nodes if node.op == "call_function"]
        quantize = sum("quantized_decomposed.quantize_" in name for name in names)
        dequantize = sum("quantized_decomposed.dequantize_" in name for name in names)
        tell({"quantize_nodes": quantize, "dequantize_nodes": dequantize, "nodes": len(graph.nodes)})

    settings = {
        "freezing": True,
        "compile_threads": 1,
        "cpp_wrapper": False,  # kernels are counted in Python
        "max_autotune": False,  # it chooses kernels by their time
        "max_autotune_gemm": False,
        "fx_graph_cache": False,
        "fx_graph_remote_cache": False,
        "post_grad_custom_post_pass": count,
    }
    with config.patch(settings), functorch_config.patch(enable_autograd_cache=False):
        yield


@contextmanager
def _generated() -> Iterator[list[str]]:
    """The code that Inductor generates meanwhile; its own `run_and_get_code` would end programs made before."""
    from torch._inductor.graph import GraphLowering

    codes: list[str] = []
    before = GraphLowering.save_output_code
    GraphLowering.save_output_code = codes.append
    try:
        yield codes
    finally:
        GraphLowering.save_output_code = before


def kernels(code: str) -> dict[str, int]:
    """How often the `call` of generated Python calls kernels of each kind."""
    called = Counter(
        ast.unparse(node.func)
        for node in ast.walk(ast.parse(code))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute)
    )
    return {
        column: sum(count for name, count in called.items() if re.fullmatch(calls, name) and not _PREPACK.search(name))
        for column, calls in _KERNELS.items()
    }


def _digest(code: str) -> str:
    """SHA-256 of the code without its comments, which hold paths and addresses."""
    return hashlib.sha256(ast.unparse(ast.parse(code)).encode()).hexdigest()
