//! The journal: canonical bytes, hash chain, fold, log contract and memory store.
