//! From a session to running compute: leases, admission, turns.
