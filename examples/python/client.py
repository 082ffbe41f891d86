"""Runs a session against `mainspring serve` and prints its records.

    python3 client.py ADDRESS HARNESS
"""

import sys

import grpc
from agentsessions.v1 import common_pb2 as pb
from agentsessions.v1 import session_pb2, session_pb2_grpc

CALL_SECONDS_MAX = 60


def line(record):
    """A record in the form of the command line: seq, kind, and what was said."""
    kind = pb.EventKind.Name(record.event.kind)
    if record.event.WhichOneof("body") != "message":
        return f"seq={record.seq:<3} {kind}"
    message = record.event.message
    text = "".join(part.text.text for part in message.parts)
    return f"seq={record.seq:<3} {kind}  {message.role}: {text}"


def execute(sessions, uid, text):
    """Runs one turn and prints each record as it is committed."""
    said = pb.Message(role="user", parts=[pb.Part(text=pb.TextPart(text=text))])
    request = session_pb2.ExecRequest(session=uid, inputs=[said])
    for update in sessions.Exec(request, timeout=CALL_SECONDS_MAX):
        if update.WhichOneof("update") == "record":
            print(line(update.record))


def all_sessions(sessions):
    """Every session, page by page."""
    token = ""
    while True:
        request = session_pb2.ListSessionsRequest(page_token=token)
        page = sessions.ListSessions(request, timeout=CALL_SECONDS_MAX)
        yield from page.sessions
        token = page.next_page_token
        if not token:
            return


def main():
    if len(sys.argv) != 3:
        sys.exit("usage: client.py ADDRESS HARNESS")
    address, harness = sys.argv[1:]
    with grpc.insecure_channel(address) as channel:
        sessions = session_pb2_grpc.SessionsStub(channel)
        wanted = session_pb2.Session(metadata=pb.ResourceMetadata(name="from python"), harness=harness)
        request = session_pb2.CreateSessionRequest(session=wanted)
        uid = sessions.CreateSession(request, timeout=CALL_SECONDS_MAX).metadata.uid
        print(f"session {uid}")

        execute(sessions, uid, "hello")
        execute(sessions, uid, "again")

        print("replay")
        request = session_pb2.ReplayRequest(session=uid)
        for record in sessions.Replay(request, timeout=CALL_SECONDS_MAX):
            print(line(record))

        print("list")
        for session in all_sessions(sessions):
            print(f"{session.metadata.uid} last_seq={session.last_seq} name={session.metadata.name}")

        try:
            request = session_pb2.GetSessionRequest(uid="sess-000000000000000000000000")
            sessions.GetSession(request, timeout=CALL_SECONDS_MAX)
        except grpc.RpcError as error:
            print(f"unknown session: {error.code().name}")


if __name__ == "__main__":
    main()
