# SPDX-License-Identifier: Apache-2.0
# slow_network.py - SlowNetwork: network namespaces that are joined by links of a limited rate.
"""The benchmarks of step times run each rank in its own namespace. Needs root, ip and tc."""

import os
import pathlib
import subprocess


def _run(command):
    subprocess.run(command.split(), check=True)


class SlowNetwork:
    """A bridge and one namespace for each rank, joined to the bridge by a veth pair whose both
    directions are limited by tc's token bucket filter. The end of the `with` block removes all.

    world: the number of ranks. rate: the limit as tc writes it, such as "100mbit".
    """

    INTERFACE = "wire"  # of each rank
    PORT = 29500  # on which rank 0 listens for the other ranks

    def __init__(self, world, rate):
        self.hub = f"dwhub{os.getpid()}"
        self.names = [f"dwrank{os.getpid()}n{rank}" for rank in range(world)]
        self.rate = rate

    @staticmethod
    def address(rank):
        """The address of a rank."""
        return f"10.77.0.{rank + 1}"

    @staticmethod
    def limit(rate):
        """The words by which tc limits an interface to a rate."""
        return f"root tbf rate {rate} burst 128kb latency 200ms"

    @staticmethod
    def sent_bytes():
        """The number of bytes that the kernel has sent from the namespace of the caller."""
        counter = f"/sys/class/net/{SlowNetwork.INTERFACE}/statistics/tx_bytes"
        return int(pathlib.Path(counter).read_text())

    @staticmethod
    def join(rank, world):
        """Called in the process of a rank: makes torch's process group over the limited link, with
        one thread for computing."""
        import torch
        import torch.distributed as dist

        torch.set_num_threads(1)
        dist.init_process_group(
            "gloo",
            init_method=f"tcp://{SlowNetwork.address(0)}:{SlowNetwork.PORT}",
            rank=rank,
            world_size=world,
        )

    def command(self, rank, command):
        """The words that run a command in the namespace of a rank."""
        return ["ip", "netns", "exec", self.names[rank], *command]

    def start(self, rank, command):
        """Starts a command in the namespace of a rank; gloo uses the limited link."""
        return subprocess.Popen(
            self.command(rank, command),
            env={**os.environ, "GLOO_SOCKET_IFNAME": self.INTERFACE, "OMP_NUM_THREADS": "1"},
        )

    def __enter__(self):
        limit = self.limit(self.rate)
        wire = self.INTERFACE
        try:
            _run(f"ip netns add {self.hub}")
            _run(f"ip -n {self.hub} link add switch type bridge")
            _run(f"ip -n {self.hub} link set switch up")
            for rank, name in enumerate(self.names):
                leg = f"leg{rank}"
                _run(f"ip netns add {name}")
                _run(f"ip -n {name} link add {wire} type veth peer name {leg} netns {self.hub}")
                _run(f"ip -n {self.hub} link set {leg} master switch up")
                _run(f"ip -n {name} addr add {self.address(rank)}/24 dev {wire}")
                _run(f"ip -n {name} link set {wire} up")
                _run(f"ip -n {name} link set lo up")
                _run(f"tc -n {name} qdisc add dev {wire} {limit}")
                _run(f"tc -n {self.hub} qdisc add dev {leg} {limit}")
        except BaseException:
            self.__exit__()
            raise
        return self

    def __exit__(self, *_):
        for name in (self.hub, *self.names):
            subprocess.run(["ip", "netns", "del", name], stderr=subprocess.DEVNULL)
