"""ExecuTorch's own runtime, in a process of its own: some kernels abort their process rather than raise.

Upstream: the extension module under `executorch.runtime` of the wheel, with XNNPACK, the portable and optimized kernels
and, as `executorch/kernels/quantized` loads them, the quantized ones. The process imports torch and that module alone;
`executorch.runtime` would import the exporter as well (9.4 s of CPU time against 2.4). A measuring process has one such
process for all its programs, and another one after it died.
"""

from __future__ import annotations

import faulthandler
import hashlib
import os
import signal
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from multiprocessing.connection import Connection, Pipe
from typing import TYPE_CHECKING, Any
from weakref import finalize

from harness.flows import Program

if TYPE_CHECKING:
    import torch

ANSWER_SECONDS = 300.0
"""How long loading a program, or running one batch, may take."""


class RuntimeFailedError(Exception):
    """A program that the runtime did not load or run, in a line."""


class RuntimeDiedError(RuntimeFailedError):
    """The runtime's process ended before it answered."""


def make_program(edge: Any) -> Program:
    """Serialise an `EdgeProgramManager` and load it in the runtime.

    Raises `RuntimeFailedError` for a program that the runtime does not load, such as one with ops it has no kernel for.
    """
    import executorch.kernels.quantized  # noqa: F401  (the out variants of quantize and dequantize)

    counts = count_ops(edge.exported_program().graph_module)
    code: bytes = edge.to_executorch().buffer
    executable = Executable(code)
    executable.load()
    return Program(executable.run, {**counts, "program_bytes": len(code)}, hashlib.sha256(code).hexdigest())


@contextmanager
def shared_provenance() -> Iterator[None]:
    """Let nodes share the record of the nodes that they come from, which nothing writes into.

    torch 2.14 copies it for every node in every pass, with the records of all passes before: a fifth of the time that
    lowering a ViT takes. The programs are the same bytes.
    """
    from torch.fx.traceback import NodeSource

    if hasattr(NodeSource, "__deepcopy__"):  # a release that sees to it itself
        yield
        return
    NodeSource.__deepcopy__ = lambda self, _memo: self  # type: ignore[attr-defined]
    try:
        yield
    finally:
        del NodeSource.__deepcopy__  # type: ignore[attr-defined]


def count_ops(graph: torch.fx.GraphModule) -> dict[str, int]:
    """Ops of an edge graph inside and outside its delegates, and the quantize and dequantize ops outside."""
    from executorch.exir.lowered_backend_module import executorch_call_delegate, get_lowered_submodules

    outside = [name for name in _ops(graph) if name != str(executorch_call_delegate)]
    inside = [name for _, module, _ in get_lowered_submodules(graph) for name in _ops(module.original_module)]
    return {
        "delegated_nodes": len(inside),
        "undelegated_nodes": len(outside),
        "quantize_nodes": sum(".quantize" in name for name in outside),
        "dequantize_nodes": sum(".dequantize" in name for name in outside),
    }


def _ops(graph: Any) -> list[str]:
    """Names of what a graph calls; picking one of several results is not counted."""
    import operator

    called = (node.target for node in graph.graph.nodes if node.op == "call_function")
    return [str(getattr(target, "_op", target)) for target in called if target is not operator.getitem]


class Executable:
    """A serialised program, loaded in the runtime's process whenever it is to run."""

    def __init__(self, code: bytes) -> None:
        self.code = code

    def load(self) -> None:
        """Raises `RuntimeFailedError` if the runtime does not load it."""
        self._ask(None)

    def run(self, *inputs: torch.Tensor) -> list[torch.Tensor]:
        """The program's outputs; raises `RuntimeFailedError` for an error or a death of the runtime."""
        from safetensors.torch import load, save

        tensors = load(self._ask(save({str(i): value.contiguous() for i, value in enumerate(inputs)})))
        return [tensors[str(i)] for i in range(len(tensors))]

    def _ask(self, inputs: bytes | None) -> bytes:
        try:
            return _process().answer(self, inputs)
        except RuntimeDiedError:
            # Once more in a fresh one: what other programs left behind, or who killed it, is not this one's doing.
            return _process().answer(self, inputs)


_PROCESSES: list[RuntimeProcess] = []
"""The one that lives, if any does."""


def _process() -> RuntimeProcess:
    if not (_PROCESSES and _PROCESSES[0].alive):
        _PROCESSES[:] = [RuntimeProcess()]
    return _PROCESSES[0]


class RuntimeProcess:
    """The process and what it has loaded.

    It ends when this object or the process that made it does, at the latest `ANSWER_SECONDS` later. It is no
    `multiprocessing` process, as a daemonic measuring process may not start those.
    """

    def __init__(self) -> None:
        self._connection, theirs = Pipe()
        self._log = tempfile.TemporaryFile("a+b")  # noqa: SIM115  (the process writes to it as long as it lives)
        self._loaded: Executable | None = None
        self._process = subprocess.Popen(
            [sys.executable, "-P", "-m", __name__, str(theirs.fileno()), str(ANSWER_SECONDS)],
            pass_fds=(theirs.fileno(),),
            env={**os.environ, "PYTHONPATH": os.pathsep.join(sys.path)},
            stdin=subprocess.DEVNULL,
            stdout=self._log,
            stderr=self._log,
        )
        theirs.close()
        self._end = finalize(self, _end, self._process, self._connection)

    @property
    def alive(self) -> bool:
        """Whether it can be asked."""
        return self._end.alive and self._process.poll() is None

    @property
    def pid(self) -> int:
        """The process's id."""
        return self._process.pid

    def answer(self, executable: Executable, inputs: bytes | None) -> bytes:
        """The outputs of a program, which is loaded if need be; without inputs it is only loaded."""
        if self._loaded is not executable:
            self._loaded = None
            self._ask("load", executable.code)
            self._loaded = executable
        return b"" if inputs is None else self._ask("run", inputs)

    def _ask(self, action: str, payload: bytes) -> bytes:
        said = self._log.seek(0, os.SEEK_END)
        try:
            self._connection.send((action, payload))
            if not self._connection.poll(ANSWER_SECONDS):
                self._end()
                raise RuntimeFailedError(f"ExecuTorch's runtime gave no answer to {action} within {ANSWER_SECONDS:g} s")
            error, reply = self._connection.recv()
        except (EOFError, OSError):
            status = self._process.wait()
            self._end()
            last = (self._lines(said) or ["no word"])[-1]
            raise RuntimeDiedError(f"ExecuTorch's runtime ended with {_named(status)} in {action}: {last}") from None
        if error:
            # The runtime logs what was wrong first, then what that led to.
            raise RuntimeFailedError(f"{action}: {error}: {(self._lines(said) or ['no word'])[0]}")
        answer: bytes = reply
        return answer

    def _lines(self, start: int) -> list[str]:
        """What it wrote to its log from there on, without the lines on what it could not find out of the processor."""
        self._log.seek(start)
        lines = self._log.read().decode(errors="replace").splitlines()
        return [line.strip() for line in lines if line.strip() and not line.startswith("[cpuinfo_utils.cpp")]


def _end(process: subprocess.Popen[bytes], connection: Connection) -> None:
    connection.close()
    process.kill()
    process.wait()


def _named(status: int) -> str:
    return signal.Signals(-status).name if status < 0 else f"exit code {status}"


def serve(connection: Connection, seconds: float) -> None:
    """What the process does: load and run what it is asked to until the other end is closed.

    A watchdog that needs no lock of Python's ends it if an answer takes too long and nobody is left to end it.
    """
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    faulthandler.dump_traceback_later(seconds + 10, exit=True)
    import executorch.kernels.quantized  # noqa: F401  (registers its kernels)
    import torch
    from executorch.extension.pybindings import _C as runtime  # noqa: N811
    from safetensors.torch import load, save

    torch.set_num_threads(1)
    runtime._unsafe_reset_threadpool(1)
    held: Mapping[str, Any] = {}
    while True:
        faulthandler.cancel_dump_traceback_later()
        try:
            action, payload = connection.recv()
        except EOFError:
            return
        faulthandler.dump_traceback_later(seconds + 10, exit=True)
        error, reply = "", b""
        try:
            if action == "load":
                held = {}  # the last program is freed before there is another
                program = runtime._load_program_from_buffer(payload)
                # A program points into its bytes and does not keep them.
                held = {"code": payload, "program": program, "method": program.load_method("forward")}
            else:
                inputs = load(payload)
                outputs = held["method"]([inputs[str(i)] for i in range(len(inputs))])
                tensors = [value.contiguous() for value in outputs if isinstance(value, torch.Tensor)]
                reply = save({str(i): value for i, value in enumerate(tensors)})
        except Exception as raised:
            error = str(raised).strip() or type(raised).__name__
        connection.send((error, reply))


if __name__ == "__main__":
    serve(Connection(int(sys.argv[1])), float(sys.argv[2]))
