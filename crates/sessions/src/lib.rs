//! The Sessions service over a log.
