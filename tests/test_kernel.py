"""The kernel of the batch runs: no reply is missed."""

import asyncio

import zmq
import zmq.asyncio
from jupyter_client.session import Session

from fedlib.tools.batch.kernel import RunningPython, WatchfulChannel


async def reply_after_a_swallowed_announcement(channel_class: type) -> dict:
    """The reply that a waiting channel gets although another look at its socket has taken the wake-up signal."""
    context, session = zmq.asyncio.Context(), Session(key=b"")
    ours, theirs = context.socket(zmq.PAIR), zmq.Socket(context, zmq.PAIR)
    try:
        theirs.bind("inproc://kernel")
        ours.connect("inproc://kernel")
        waiting = asyncio.ensure_future(channel_class(ours, session).get_msg())
        await asyncio.sleep(0.1)
        session.send(theirs, "execute_reply")
        assert zmq.Socket.shadow(ours.underlying).get(zmq.EVENTS) & zmq.POLLIN  # the event loop is not told any more
        return await asyncio.wait_for(waiting, 2)
    finally:
        ours.close(0)
        theirs.close(0)
        context.term()


def test_a_reply_is_found_although_its_announcement_was_swallowed():
    assert RunningPython().client_factory.shell_channel_class is WatchfulChannel
    assert asyncio.run(reply_after_a_swallowed_announcement(WatchfulChannel))["msg_type"] == "execute_reply"
