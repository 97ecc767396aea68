# SPDX-License-Identifier: Apache-2.0
# launchers.py - the programs that start ranks in the commands of docs/deploy.md: ssh, srun,
# torchrun and mpirun. Stand-ins run on one machine and need nothing installed. Real ones, for ./run
# soak, are those of this machine, each with servers of its own on loopback addresses: sshd, and
# Slurm with munge.
import os
import pathlib
import secrets
import shutil
import socket
import subprocess
import time

# Only rank 0 writes a log, so all ranks may get the option.
DELTAWIRE = """#!/bin/sh
command=$1; shift
[ $command = train ] || exec "$PROGRAM" $command "$@"
exec "$PROGRAM" $command "$@" $SMALL --log "$LOG"
"""
MPIRUN = """#!/bin/sh
[ "$1" = -n ] || exit 2
n=$2; shift 2
exec {program} {mpi} $n "$@"
"""
STANDS_IN = {
    "ssh": '#!/bin/sh\nshift\nexec sh -c "$*"\n',
    "srun": """#!/bin/sh
n=$2; shift 2
rank=$n
while [ $rank -gt 0 ]; do
    rank=$((rank - 1))
    env SLURM_PROCID=$rank SLURM_NTASKS=$n SLURM_JOB_NODELIST="localhost,node[07-09,12]" \\
        MASTER_PORT=$FREE_PORT "$@" &
done
wait
""",
    "torchrun": """#!/bin/sh
n=$4; shift 5
rank=$n
while [ $rank -gt 0 ]; do
    rank=$((rank - 1))
    env RANK=$rank WORLD_SIZE=$n MASTER_ADDR=127.0.0.1 MASTER_PORT=$((FREE_PORT - 1)) \\
        TORCHELASTIC_USE_AGENT_STORE=True "$@" &
done
wait
""",
}
# What a login on another machine would find there: the program, the key, and a folder.
REMOTE = """#!/bin/sh
cd {folder} && export PATH={folder}/bin:$PATH PROGRAM={program} SMALL='{small}' LOG={folder}/log
exec sh -c "$SSH_ORIGINAL_COMMAND"
"""
SSHD = """Port {port}
ListenAddress 127.0.0.1
HostKey {folder}/host
AuthorizedKeysFile {folder}/user.pub
PidFile none
StrictModes no
UsePAM no
ForceCommand {folder}/remote
"""
SSH = """Host node*
HostName 127.0.0.1
Port {port}
IdentityFile {folder}/user
StrictHostKeyChecking accept-new
UserKnownHostsFile {folder}/known
"""
SLURM = """ClusterName=one
SlurmctldHost={host}(127.0.0.1)
AuthType=auth/munge
AuthInfo=socket={folder}/munge.socket
SlurmUser=root
SlurmctldPort={port}
SlurmdPort={other_port}
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
ProctrackType=proctrack/linuxproc
TaskPlugin=task/none
SlurmdParameters=config_overrides
NodeName={host} NodeAddr=127.0.0.1 CPUs=8
PartitionName=all Nodes=ALL Default=YES State=UP
"""
NEEDED = ["sshd", "ssh", "ssh-keygen", "munged", "slurmctld", "slurmd", "srun"]


def free_port():
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return one.getsockname()[1]


def write(path, text):
    path.write_text(text)
    path.chmod(0o755)


def stand_in(folder):
    for name, text in STANDS_IN.items():
        write(folder / name, text)


def missing():
    """The programs that real launchers need and this machine lacks; 'root', if we are not root."""
    return [name for name in NEEDED if not shutil.which(name)] + ["root"] * (os.getuid() != 0)


class Servers:
    """The servers that real launchers talk to, and, in folder/bin, launchers that find them. `run`:
    what logins find besides: program, small. torchrun is that of ./run torch, or remains a stand-in
    where there is none."""

    def __init__(self, folder, run):
        self.folder, self.processes = pathlib.Path(folder), []
        names = {"folder": folder, "host": socket.gethostname().split(".")[0], **run}
        names.update(port=free_port(), other_port=free_port())
        self.start_ssh(names)
        names.update(port=free_port())
        self.start_slurm(names)
        venv = pathlib.Path(__file__).parents[2] / "build" / "venv" / "bin"
        real = shutil.which("torchrun", path=f"{os.environ['PATH']}:{venv}")
        text = f'#!/bin/sh\nexec {real} "$@"\n' if real else STANDS_IN["torchrun"]
        write(self.folder / "bin" / "torchrun", text)

    def start(self, *command, **variables):
        with open(self.folder / "servers.log", "a") as log:
            environment = {**os.environ, **variables}
            started = subprocess.Popen(command, stdout=log, stderr=log, env=environment)
        self.processes.append(started)

    def start_ssh(self, names):
        folder = self.folder
        for key in "host", "user":
            subprocess.run(
                ["ssh-keygen", "-q", "-t", "ed25519", "-N", "", "-f", folder / key], check=True
            )
        write(folder / "remote", REMOTE.format(**names))
        write(folder / "sshd_config", SSHD.format(**names))
        write(folder / "ssh_config", SSH.format(**names))
        os.makedirs("/run/sshd", exist_ok=True)  # which sshd wants, and the init scripts make
        self.start(shutil.which("sshd"), "-D", "-e", "-f", str(folder / "sshd_config"))
        ssh = shutil.which("ssh")
        write(folder / "bin" / "ssh", f'#!/bin/sh\nexec {ssh} -F {folder}/ssh_config "$@"\n')

    def start_slurm(self, names):
        folder = self.folder
        for name in "state", "spool":
            (folder / name).mkdir()
        (folder / "munge.key").write_bytes(secrets.token_bytes(1024))
        (folder / "munge.key").chmod(0o600)
        write(folder / "slurm.conf", SLURM.format(**names))
        files = {"socket": "socket", "pid-file": "pid", "log-file": "log", "seed-file": "seed"}
        paths = [f"--{option}={folder}/munge.{name}" for option, name in files.items()]
        key = f"--key-file={folder}/munge.key"
        self.start(shutil.which("munged"), "--force", "--foreground", key, *paths)
        self.variables = {"SLURM_CONF": str(folder / "slurm.conf")}
        for name in "slurmctld", "slurmd":
            self.start(shutil.which(name), "-D", **self.variables)
        self.wait_for(["srun", "true"])
        self.wait_for([str(folder / "bin" / "ssh"), "node1", "true"])

    def wait_for(self, command):
        environment, end = {**os.environ, **self.variables}, time.monotonic() + 60
        while True:
            result = subprocess.run(
                ["timeout", "20", *command], env=environment, capture_output=True, text=True
            )
            if result.returncode == 0:
                return
            if time.monotonic() > end:
                self.stop()
                log = (self.folder / "servers.log").read_text()
                raise AssertionError(f"{command} does not work: {result.stderr}{log}")
            time.sleep(0.5)

    def stop(self):
        for process in reversed(self.processes):
            process.terminate()
            process.wait(30)
