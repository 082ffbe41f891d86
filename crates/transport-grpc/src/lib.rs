//! agentsessions.v1 over gRPC: Sessions and Harness, both sides.
