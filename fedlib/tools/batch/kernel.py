"""The Jupyter kernel that executes notebooks in batch: the running Python, with a client that misses no reply."""

import os
import secrets
import tempfile
from weakref import WeakSet

from ipykernel.kernelspec import get_kernel_dict
from jupyter_client.asynchronous import AsyncKernelClient
from jupyter_client.channels import AsyncZMQSocketChannel
from jupyter_client.kernelspec import KernelSpec
from jupyter_client.manager import AsyncKernelManager


class WatchfulChannel(AsyncZMQSocketChannel):
    """Polls for the next message every half second instead of waiting for the signal of the socket.

    The client answers widgets with synchronous sends on the same socket. These can clear the signal for a cell's reply
    (a ZeroMQ socket signals changes, not states), and the client would wait for the reply forever.
    """

    async def get_msg(self, timeout: float | None = None) -> dict:
        """The next message; with a `timeout` in seconds, `queue.Empty` if none comes in time."""
        while timeout is None and not await self.socket.poll(500):
            pass
        return await super().get_msg(timeout)


class WatchfulClient(AsyncKernelClient):
    """A client whose replies come through a `WatchfulChannel`."""

    shell_channel_class = WatchfulChannel


RUNNING: "WeakSet[RunningPython]" = WeakSet()


class RunningPython(AsyncKernelManager):
    """Starts kernels with the running interpreter, independent of the kernels registered on this machine.

    On POSIX systems the kernels use Unix sockets with random names, not ports: two kernels that start at the same time
    could choose the same free port.
    """

    kernel_spec = KernelSpec(**get_kernel_dict(["--log-level=CRITICAL"]))
    client_factory = WatchfulClient

    def __init__(self, **options):
        super().__init__(**options)
        RUNNING.add(self)
        if os.name == "posix":
            self.transport, self.ip = "ipc", f"{tempfile.gettempdir()}/fedlib-{secrets.token_hex(8)}"


def end_kernels() -> None:
    """End all kernels that this process has started; a call that waits for one of them fails."""
    for kernel in list(RUNNING):
        process = getattr(kernel.provisioner, "process", None)
        if process is not None:
            process.kill()
