#!/usr/bin/env python3
"""Write the P4Runtime protocol's protobuf descriptors to a file.

The P4Runtime server is generated from descriptors, and those come from a published package
(PyPI's ``p4runtime``, with ``googleapis-common-protos`` for ``google.rpc.Status``), so no
``.proto`` file of that protocol is kept in this repository.  The output is one serialised
``google.protobuf.FileDescriptorSet`` that holds ``p4/v1/p4runtime.proto`` and everything it
imports, each file after the files it depends on.

Usage: ``extract_descriptors.py OUTPUT``
"""

from __future__ import annotations

import argparse
import importlib
import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

# The package's generated modules come from an old protoc, which only the pure-Python runtime
# still loads. The choice is made by the first import of google.protobuf, hence before it.
os.environ["PROTOCOL_BUFFERS_PYTHON_IMPLEMENTATION"] = "python"

from google.protobuf import descriptor_pb2

if TYPE_CHECKING:
    from google.protobuf.descriptor import FileDescriptor

ROOT_MODULE = "p4.v1.p4runtime_pb2"


def dependencies_first(root: FileDescriptor) -> list[FileDescriptor]:
    """Return ``root`` and all it imports, each file after its own imports, none twice."""
    ordered: dict[str, FileDescriptor] = {}

    def visit(file: FileDescriptor) -> None:
        if file.name in ordered:
            return
        for dependency in file.dependencies:
            visit(dependency)
        ordered[file.name] = file

    visit(root)
    return list(ordered.values())


def descriptor_set(root: FileDescriptor) -> descriptor_pb2.FileDescriptorSet:
    """Return the descriptor set of ``root`` and all it imports."""
    result = descriptor_pb2.FileDescriptorSet()
    for file in dependencies_first(root):
        result.file.add().ParseFromString(file.serialized_pb)
    return result


def write_if_changed(path: Path, content: bytes) -> bool:
    """Write ``content`` to ``path`` in one step; an equal file keeps its modification time.

    The build depends on that time, so a second run must not rebuild anything.  Returns whether
    the file was written.
    """
    if path.is_file() and path.read_bytes() == content:
        return False
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f"{path.name}.{os.getpid()}.partial")
    partial.write_bytes(content)
    partial.replace(path)
    return True


def main(arguments: list[str] | None = None) -> int:
    """Run the command line; return the exit status."""
    parser = argparse.ArgumentParser(
        description="Write the P4Runtime protocol's descriptors (a FileDescriptorSet) to a file."
    )
    parser.add_argument("output", type=Path, help="where to write, e.g. build/p4runtime.binpb")
    options = parser.parse_args(arguments)
    output: Path = options.output
    try:
        module = importlib.import_module(ROOT_MODULE)
    except ImportError as error:
        print(
            f"extract_descriptors: cannot import {ROOT_MODULE} ({error}); "
            "install the packages p4runtime and googleapis-common-protos",
            file=sys.stderr,
        )
        return 1
    files = descriptor_set(module.DESCRIPTOR)
    try:
        written = write_if_changed(output, files.SerializeToString(deterministic=True))
    except OSError as error:
        print(f"extract_descriptors: cannot write {output}: {error}", file=sys.stderr)
        return 1
    state = "written" if written else "up to date"
    print(f"extract_descriptors: {output}: {len(files.file)} files, {state}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
