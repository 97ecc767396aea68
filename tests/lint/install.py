#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
# install.py - uses the library as other projects do: installed (pkg-config, CMake), and as a
# subproject of Meson.
"""install.py ROOT [--all]. Builds consumer/main.c in every way; each program must run and print the
same digests. --all: with vector kernels, and the Meson subproject also by clang: these take the
most time to compile."""

import os
import pathlib
import re
import shutil
import subprocess
import sys
import tempfile

HERE = pathlib.Path(__file__).resolve().parent
NOT_COPIED = shutil.ignore_patterns("build*", ".git", "__pycache__", "*.o")


def run(command, refused=None, **options):
    """Returns what the command prints. With `refused`, it must fail and print that."""
    done = subprocess.run(
        [str(word) for word in command], capture_output=True, text=True, check=False, **options
    )
    said = " ".join((done.stdout + done.stderr).split())  # CMake wraps lines
    if refused is not None and (not done.returncode or refused not in said):
        print(f"$ {' '.join(map(str, command))}\n{said[-6000:]}")
        sys.exit(f'install: {command[0]} should have failed with "{refused}"')
    if refused is None and done.returncode:
        print(f"$ {' '.join(map(str, command))}\n{done.stdout[-6000:]}\n{done.stderr[-6000:]}")
        sys.exit(f"install: {command[0]} failed")
    return done.stdout


def with_env(**variables):
    return {**os.environ, **{name: str(value) for name, value in variables.items()}}


def setup(build, source, *options, **more):
    """Configures a build with Meson, which may download nothing."""
    run(["meson", "setup", build, source, "--wrap-mode=nodownload", *options], **more)


def install(root, work, vectors):
    """Installs to work/here and then moves the folder, because packages are unpacked at another
    place than the one where they were built. The path of the sources has a comma, at which the
    compiler would cut what it passes to the linker, which is lld where there is one."""
    sources = work / "with, comma"
    shutil.copytree(root, sources, ignore=NOT_COPIED)
    setup(
        *(work / "build", sources, f"--prefix={work / 'here'}", "-Dgpu_archs="),
        *("-Dtests=disabled", "-Dbench=disabled", "-Dtrainer=auto", "-Dtransports=enabled"),
        f"-Dsimd={'enabled' if vectors else 'disabled'}",
        env=with_env(CC_LD="lld") if shutil.which("ld.lld") else None,
    )
    run(["meson", "install", "-C", work / "build"])
    for path in (work / "here").rglob("libdeltawire*.so"):
        if "@@DELTAWIRE_0" not in run(["nm", "-D", "--with-symbol-versions", path]):
            sys.exit(f"install: the symbols of {path.name} have no versions")
    for path in (work / "here").rglob("*"):
        if path.suffix in {".cmake", ".h"} and str(work) in path.read_text():
            sys.exit(f"install: {path} contains the path of the build")
    return work / "here"


def pkg_config_consumers(prefix, work):
    pc_dir = next(prefix.rglob("deltawire.pc")).parent
    for path in pc_dir.glob("*.pc"):  # xxHash is private and header-only: users do not need it
        if "xxhash" in path.read_text():
            sys.exit(f"install: {path.name} asks for xxHash, which is compiled in")
    env = with_env(PKG_CONFIG_PATH=pc_dir, LD_LIBRARY_PATH=pc_dir.parent)
    cflags = run(["pkg-config", "--cflags", "deltawire"], env=env).split()
    shared = run(["pkg-config", "--libs", "deltawire"], env=env).split()
    static = run(["pkg-config", "--static", "--libs", "deltawire"], env=env).split()
    static = ["-l:libdeltawire.a" if word == "-ldeltawire" else word for word in static]
    compiler = ["cc", "-std=c11", "-Wall", "-Werror", *cflags]
    for name, libs in (("shared", shared), ("static", static)):
        run([*compiler, HERE / "consumer/main.c", "-o", work / name, *libs])
    needed = {
        name: "libdeltawire.so.0" in run(["readelf", "-d", work / name])
        for name in ("shared", "static")
    }
    if needed != {"shared": True, "static": False}:
        sys.exit(f"install: who needs libdeltawire.so.0 at run time: {needed}")
    for name in ("link-shared", "link-static", "nccl-whole"):
        how = ["--libs"] if name == "link-shared" else ["--static", "--libs"]
        program = name.partition("-")[0]
        library = {"link": "deltawire-net", "nccl": "deltawire-nccl"}[program]
        libs = run(["pkg-config", *how, library], env=env).split()
        if "--static" in how:
            libs = [
                f"-l:lib{word[2:]}.a" if word.startswith("-ldeltawire") else word for word in libs
            ]
        if name == "nccl-whole":  # all that is in three static libraries: nothing may clash
            ours = sorted({word for word in libs if word.startswith("-l:")})
            libs = ["-Wl,--whole-archive", *ours, "-Wl,--no-whole-archive", *libs]
        run([*compiler, HERE / f"consumer/{program}.c", "-o", work / name, *libs])
        run([work / name], env=env if name == "link-shared" else None)
    for name in ("deltawire", "deltawire-nccl"):
        # Read from the file, because pkg-config would add what other libraries need.
        if not re.search(r"^Libs\.private:.* -ldl\b", (pc_dir / f"{name}.pc").read_text(), re.M):
            sys.exit(f"install: {name}.pc does not name libdl, which opens libraries at run time")
    yield "pkg-config, shared", run([work / "shared"], env=env)
    yield "pkg-config, static", run([work / "static"])


def cmake_consumers(prefix, work):
    moved = prefix.rename(prefix.with_name("elsewhere"))
    if (moved / "bin/deltawire").exists():  # it finds the libraries beside it
        run([moved / "bin/deltawire", "--version"])
    project = work / "cmake"
    shutil.copytree(HERE / "consumer/cmake", project)
    for name in ("main.c", "link.c", "collective.c", "nccl.c"):
        shutil.copy(HERE / "consumer" / name, project)
    found = ["cmake", "-S", project, f"-DCMAKE_PREFIX_PATH={moved}", "-B"]
    run([*found, work / "cmake-build"])
    run(["cmake", "--build", work / "cmake-build"])
    missing_components(found, moved, work)
    for kind in ("link", "collective", "nccl"):
        run([work / "cmake-build" / f"consumer_{kind}"])
        run([work / "cmake-build" / f"consumer_{kind}_static"])
    for kind in ("deltawire", "deltawire_static"):
        yield f"CMake, {kind}", run([work / "cmake-build" / f"consumer_{kind}"])


def missing_components(found, prefix, work):
    """Components that do not exist, or whose library is missing, must be refused by name."""
    run(
        [*found, work / "cmake-none", "-DWANTED=net;pigeon"],
        refused="The component pigeon is none; there are net, threads, tls,",
    )
    away = list(prefix.rglob("libdeltawire-nccl.*"))
    for path in away:
        path.rename(path.with_suffix(path.suffix + ".away"))
    run(
        [*found, work / "cmake-less", "-DWANTED=net;nccl"],
        refused=f"The component nccl was not built into the deltawire in {prefix}",
    )
    for path in away:
        path.with_suffix(path.suffix + ".away").rename(path)


def sanitized(root, work):
    """clang with a sanitizer: without -Db_lundef=false a sentence must say so before the linker."""
    setup(
        *(work / "sanitized", root, "-Db_sanitize=address", "-Dgpu_archs="),
        refused="-Db_lundef=false",
        env=with_env(CC="clang", CXX="clang++"),
    )


def meson_host(root, work, compiler, vectors):
    project = work / f"host-{compiler}"
    shutil.copytree(HERE / "consumer/meson", project)
    for name in ("main.c", "link.c"):
        shutil.copy(HERE / "consumer" / name, project)
    shutil.copytree(root, project / "subprojects/deltawire", ignore=NOT_COPIED)
    setup(
        *(project / "build", project, "-Dc_args=-ffast-math", "-Dc_link_args=-ffast-math"),
        *("-Ddefault_library=static", "-Ddeltawire:gpu_archs="),
        f"-Ddeltawire:simd={'enabled' if vectors else 'disabled'}",
        env=with_env(CC=compiler),
    )
    run(["ninja", "-C", project / "build"])
    targets = run(["meson", "introspect", "--targets", project / "build"])
    for word in ("test_", "bench_", "01_encode_decode"):
        if word in targets:
            sys.exit(
                f"install: as a subproject the library builds {word}..., which its host did not "
                "ask for"
            )
    run([project / "build/host-link"])
    return run([project / "build/host"])


def main():
    root, vectors = pathlib.Path(sys.argv[1]).resolve(), "--all" in sys.argv[2:]
    for tool in ("pkg-config", "cmake", "clang"):
        if not shutil.which(tool):
            print(f"install: no {tool} here")
            sys.exit(77)
    for variable in ("CFLAGS", "LDFLAGS", "DESTDIR", "MAKEFLAGS", "CC"):
        os.environ.pop(variable, None)
    with tempfile.TemporaryDirectory(prefix="dw-install-") as name:
        work = pathlib.Path(name)
        sanitized(root, work)
        prefix = install(root, work, vectors)
        outputs = dict(pkg_config_consumers(prefix, work))
        outputs.update(cmake_consumers(prefix, work))
        for compiler in ("gcc", "clang") if vectors else ("gcc",):
            outputs[f"Meson subproject, {compiler} -std=gnu11 -ffast-math"] = meson_host(
                root, work, compiler, vectors
            )
    expected = outputs["pkg-config, shared"]
    print(expected)
    wrong = [name for name, output in outputs.items() if output != expected]
    for name in wrong:
        print(f"{name} computes other bits:\n{outputs[name]}")
    print(f"{len(outputs)} consumers, {len(wrong)} with other bits")
    sys.exit(1 if wrong else 0)


if __name__ == "__main__":
    main()
