//! The sessions suite over the service of this workspace: embedded, and through
//! gRPC.

mod cancel_points;
mod embedded;
mod grpc;
mod host;
