"""Generates the stubs of agentsessions.v1 from the project's proto files.

    python3 generate.py [FOLDER]      default: stubs, beside this file

Put FOLDER on PYTHONPATH to import `agentsessions.v1`.
"""

import importlib.resources
import pathlib
import sys

from grpc_tools import protoc

HERE = pathlib.Path(__file__).resolve().parent
PROTO = HERE.parent.parent / "crates" / "wire" / "proto"


def main() -> int:
    out = pathlib.Path(sys.argv[1]) if len(sys.argv) > 1 else HERE / "stubs"
    out.mkdir(parents=True, exist_ok=True)
    sources = sorted((PROTO / "agentsessions" / "v1").glob("*.proto"))
    if not sources:
        print(f"generate.py: no proto files in {PROTO}", file=sys.stderr)
        return 1
    well_known = importlib.resources.files("grpc_tools") / "_proto"
    includes = [f"-I{PROTO}", f"-I{well_known}"]
    outputs = [f"--{kind}={out}" for kind in ("python_out", "pyi_out", "grpc_python_out")]
    return protoc.main(["protoc", *includes, *outputs, *map(str, sources)])


if __name__ == "__main__":
    sys.exit(main())
