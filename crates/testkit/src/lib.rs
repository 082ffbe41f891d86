//! Test doubles: clocks, faults, scripted harnesses.
