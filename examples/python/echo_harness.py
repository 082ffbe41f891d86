"""A harness without a model: says `echo:` and the last input.

    python3 echo_harness.py [ADDRESS]     default: HARNESS_ADDR, else a free port

It ends when its standard input closes, as a host expects of its children.
"""

import os
import sys
from concurrent.futures import ThreadPoolExecutor

import grpc
from agentsessions.v1 import common_pb2 as pb
from agentsessions.v1 import harness_pb2, harness_pb2_grpc


class Echo(harness_pb2_grpc.HarnessServicer):
    def Describe(self, request, context):
        return harness_pb2.HarnessDescriptor(id="python-echo", version="1")

    def Connect(self, frames, context):
        opening = next(frames)
        said = [part.text.text for message in opening.start.inputs[-1:] for part in message.parts]
        text = pb.Part(text=pb.TextPart(text="echo:" + "".join(said)))
        turn = opening.execution_id
        message = pb.Message(role="assistant", parts=[text])
        yield pb.Event(execution_id=turn, kind=pb.EVENT_OUTPUT, message=message)
        yield pb.Event(execution_id=turn, kind=pb.EVENT_END, end=pb.HarnessEnd(state="COMPLETED"))


def main():
    address = sys.argv[1] if len(sys.argv) > 1 else os.environ.get("HARNESS_ADDR", "127.0.0.1:0")
    # A turn's whole history comes in one message, so the default of 4 MiB is soon too small.
    limits = [("grpc.max_receive_message_length", 64 << 20), ("grpc.max_send_message_length", 64 << 20)]
    server = grpc.server(ThreadPoolExecutor(max_workers=16), options=limits)
    harness_pb2_grpc.add_HarnessServicer_to_server(Echo(), server)
    port = server.add_insecure_port(address)
    server.start()
    print(f"serving on {address if address.startswith('unix:') else f'127.0.0.1:{port}'}", flush=True)
    sys.stdin.buffer.read()
    server.stop(grace=2).wait()


if __name__ == "__main__":
    main()
