//! Suites that every implementation of a contract must pass.
