# SPDX-License-Identifier: Apache-2.0
# try_wheel.py - tests an installed wheel on a machine without numpy and without a compiler. Its
# argument is the file that was installed.
import array
import importlib.metadata
import os
import pathlib
import shutil
import sys
import tempfile
import threading

import deltawire
import deltawire.measure

# One wheel serves every Python 3.
file = pathlib.Path(sys.argv[1]).name
assert file.startswith("deltawire-") and "-py3-none-manylinux" in file, file
place = pathlib.Path(deltawire.__file__).parent
assert "site-packages" in place.parts, place
assert not any(shutil.which(name) for name in ("cc", "gcc", "clang")), os.environ["PATH"]
names = {path.name for path in place.iterdir()}
for part in ("", "-net", "-threads", "-python"):
    assert f"libdeltawire{part}.so.0" in names, names
assert "py.typed" in names

x = memoryview(array.array("f", [i % 17 - 8.0 for i in range(2 * 3 * 64)])).cast("B")
x = x.cast("f", (2, 3, 64))
with deltawire.Encoder("delta:bits=4", threads=2) as encoder:
    with deltawire.Decoder("delta:bits=4") as decoder:
        y, ids, reply = decoder.decode(encoder.encode(x, [1, 2]))
        encoder.take_reply(reply)
        assert ids == [1, 2] and y.shape == (2, 3, 64) and encoder.counters().acks == 1

# Kernels, which take nvcc minutes, are compiled only where they are asked for.
try:
    deltawire.Encoder("delta:bits=4", device="cuda:0")
    raise AssertionError("the package has kernels")
except deltawire.DeltawireError as e:
    assert e.status == deltawire.Status.UNSUPPORTED and "-Dgpu_archs=90" in e.why, e

with tempfile.TemporaryDirectory() as folder:
    name = pathlib.Path(folder) / "x.npy"
    head = b"{'descr': '<f4', 'fortran_order': False, 'shape': (6, 64)}"
    name.write_bytes(b"\x93NUMPY\1\0" + len(head).to_bytes(2, "little") + head + x.tobytes())
    assert deltawire.measure.measure([str(name)]) == 0

# A link with TLS, which uses the bundled OpenSSL.
key, bound, said = os.urandom(32), threading.Event(), []


def listen():
    tls = deltawire.Tls(own_name="one", group_key=key)
    options = {
        "listen": True,
        "tls": tls,
        "on_listening": lambda uri: (said.append(uri), bound.set()),
    }
    with deltawire.Link("tcp://127.0.0.1:0", **options) as link:
        said.append((link.peer_name, link.recv(3)))


thread = threading.Thread(target=listen)
thread.start()
bound.wait()
tls = deltawire.Tls(own_name="two", peer_name="one", group_key=key)
with deltawire.Link(said[0], tls=tls) as link:
    link.send(3, b"hello")  # leaving the block waits until the other end has received it
thread.join()
assert said[1] == ("two", b"hello")

files = [str(path) for path in importlib.metadata.files("deltawire")]
for part in ("LICENSE", "OpenSSL.txt", "xxHash.txt", "Random123.txt", "VERSIONS.txt"):
    assert any(file.endswith("/" + part) for file in files), f"{part} is not in the wheel"
assert "deltawire/torch/pipeline/stage.py" in files, "deltawire.torch is not in the wheel"
assert not any(file.endswith((".h", ".a", ".pc")) for file in files), files
print(f"deltawire {deltawire.__version__} from the wheel works")
