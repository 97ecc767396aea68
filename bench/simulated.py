# SPDX-License-Identifier: Apache-2.0
# simulated.py - the environment of a program whose matrix products take as long as on a processor
# of a given speed, without keeping a core busy (slow_products.c).
import os


def environment(build, gflops):
    """Returns the environment for a simulated processor of so many GFLOP/s; without a speed, this
    process's own."""
    given = dict(os.environ)
    if gflops:
        given["LD_PRELOAD"] = str(build / "bench" / "libslow_products.so")
        given["DW_GFLOPS"] = str(gflops)
    return given
