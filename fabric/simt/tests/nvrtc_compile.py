# SPDX-License-Identifier: Apache-2.0 OR MIT
"""Compiles a .cu with NVRTC, its header passed from memory: no include path, no system header.

usage: nvrtc_compile.py LIBNVRTC SOURCE HEADER
"""
import ctypes
import glob
import os
import sys


def main(library, source, header):
    # NVRTC finds its builtins only if they are already loaded, or on LD_LIBRARY_PATH.
    for builtins in glob.glob(os.path.join(os.path.dirname(library), "libnvrtc-builtins.so*")):
        ctypes.CDLL(builtins, ctypes.RTLD_GLOBAL)
    nvrtc = ctypes.CDLL(library)
    with open(source, "rb") as f:
        text = f.read()
    with open(header, "rb") as f:
        headers = (ctypes.c_char_p * 1)(f.read())
    names = (ctypes.c_char_p * 1)(b"fabric/arch.cuh")
    program = ctypes.c_void_p()
    if nvrtc.nvrtcCreateProgram(ctypes.byref(program), text, source.encode(), 1, headers, names):
        sys.exit("nvrtcCreateProgram failed")
    for arch in (b"80", b"90"):
        flags = (ctypes.c_char_p * 2)(b"--gpu-architecture=sm_" + arch, b"--std=c++17")
        if nvrtc.nvrtcCompileProgram(program, 2, flags):
            size = ctypes.c_size_t()
            nvrtc.nvrtcGetProgramLogSize(program, ctypes.byref(size))
            log = ctypes.create_string_buffer(size.value)
            nvrtc.nvrtcGetProgramLog(program, log)
            sys.exit(log.value.decode())


if __name__ == "__main__":
    if len(sys.argv) != 4:
        sys.exit(__doc__)
    main(*sys.argv[1:])
