//! Harnesses in this process, or as child processes on private sockets.
