"""The Jupyter kernel that executes notebooks in batch: the running Python, and a client that never waits in vain."""

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
    """Looks for the next message every half second instead of only when the socket announces one.

    The client answers widgets with synchronous sends on this very socket, which can swallow the announcement of a
    cell's reply (a ZeroMQ socket signals changes, not states); the notebook would then wait for it for ever.
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
    """Starts kernels with the running interpreter, whatever kernels are registered on this machine.

    They talk through sockets with names of their own where the system has such, not through ports, which two kernels
    that start at the same time might both find free.
    """

    kernel_spec = KernelSpec(**get_kernel_dict(["--log-level=CRITICAL"]))
    client_factory = WatchfulClient

    def __init__(self, **options):
        super().__init__(**options)
        RUNNING.add(self)
        if os.name == "posix":
            self.transport, self.ip = "ipc", f"{tempfile.gettempdir()}/fedlib-{secrets.token_hex(8)}"


def end_kernels() -> None:
    """End all kernels that this process has started; whoever waits for one learns that it has died."""
    for kernel in list(RUNNING):
        process = getattr(kernel.provisioner, "process", None)
        if process is not None:
            process.kill()
