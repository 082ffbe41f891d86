//! The protobuf form of agentsessions.v1 and its conversions.
