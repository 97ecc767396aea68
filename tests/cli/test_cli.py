#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
# test_cli.py - tests the `deltawire` program: exit codes, errors, clean exits, logs, inspect.
import glob
import json
import os
import pathlib
import re
import resource
import signal
import socket
import subprocess
import sys
import time
import unittest

import scratch

PROGRAM = sys.argv.pop(1)
MAKE_FRAME = sys.argv.pop(1)
SMALL = [*scratch.options(layers=2, samples=32), *scratch.SMALL]


def run(*arguments, **options):
    return scratch.run(PROGRAM, *arguments, **options)


def content_of(name):
    with open(name, "rb") as file:
        return file.read()


def limited(size):
    """For preexec_fn: no file may become larger than this."""
    return lambda: resource.setrlimit(resource.RLIMIT_FSIZE, (size, resource.RLIM_INFINITY))


def is_gone(pid):
    try:
        with open(f"/proc/{pid}/stat") as file:
            return file.read().split()[2] == "Z"  # a zombie that its parent does not wait for
    except (FileNotFoundError, ProcessLookupError):  # it may end between open and read
        return True


def children_of(pid):
    with open(f"/proc/{pid}/task/{pid}/children") as file:
        return [int(word) for word in file.read().split()]


class Base(scratch.Scratch):
    def train(self, *arguments, **options):
        return run("train", "--text", self.text, *SMALL, *arguments, **options)

    def start_rank_0(self, *arguments):
        """Starts rank 0 of two. Returns its process, and the address on which it listens."""
        place = ["--rank", "0", "--stages", "2", "--listen", "tcp://127.0.0.1:0"]
        first = scratch.start(PROGRAM, "train", "--text", self.text, *SMALL, *place, *arguments)
        return first, scratch.address_of(first)

    def log_of(self, name):
        with open(self.path(name)) as file:
            return [json.loads(line) for line in file]

    def assert_one_sentence(self, result, code, *words):
        """stderr must have one line, which contains the words, and nothing else."""
        lines = [line for line in result.stderr.splitlines() if line.strip()]
        self.assertEqual(result.returncode, code, result.stderr)
        self.assertEqual(len(lines), 1, result.stderr)
        for word in words:
            self.assertIn(word, lines[0])


class Usage(Base):
    def test_names_the_word_that_is_wrong(self):
        for arguments, word in [
            (["--frobnicate"], "--frobnicate"),
            (["--layers", "many"], '--layers "many"'),
            (["--layers", "-1"], '--layers "-1"'),
            (["--batch", "8x"], '--batch "8x"'),
            (["--lr", "fast"], '--lr "fast"'),
            (["--seed", "99999999999999999999"], "--seed"),
            (["extra"], '"extra"'),
            (["--local", "2", "--rank", "1"], "--local"),
            (["--link", "tcp://127.0.0.1:0"], "--link"),
        ]:
            result = self.train(*arguments)
            self.assertEqual(result.returncode, 2, arguments)
            self.assertIn(word, result.stderr)
        for arguments, word in [
            (["--forward", "delta:bits=17"], '"17"'),
            (["--local", "2", "--forward", "delta:bots=4"], "bots"),
            (["--local", "2", "--backward", "1:raw"], "2 stages have the boundaries 0 to 0"),
            (["--heads", "5"], "heads is 5"),
            (["--local", "4", "--replicas", "2", "--samples", "33"], "33 samples cannot be"),
            (["--local", "4", "--replicas", "2", "--gradient", "direct:bots=4"], "gradient codec"),
            (["--epochs", "2", "--steps", "3"], "epochs (2)"),
        ]:
            self.assert_one_sentence(self.train(*arguments), 2, word)
        self.assertEqual(run("train").returncode, 2)  # --text is missing

    def test_options_that_would_be_ignored_are_errors(self):
        for arguments, word in [
            (["--rank", "0"], "--rank and --stages"),
            (["--stages", "2"], "--rank and --stages"),
            (["--local", "2", "--rank", "0"], "--local starts all ranks"),
            (["--local", "2", "--link", "env://"], "leave out --local"),
            (["--local", "3", "--replicas", "2"], "3 ranks, which cannot be divided evenly"),
            (["--local", "4", "--stages", "2"], "4 ranks, but 1 replica of 2 stages need 2"),
            (["--local=4", "--stages=1", "--replicas=3"], "but 3 replicas of 1 stage need 3"),
            (["--local=2", "--replicas=2", "--replica-listen=tcp://:0"], "--replica-listen"),
            (["--link", "env://", "--replica-listen", "tcp://:0"], "--replica-listen"),
            (["--replicas", "2"], "--replicas needs other ranks"),
            (["--local", "2", "--host", "here"], "--host"),
            (["--host", "here"], "--host"),
            (["--save-every", "3"], "--save-every needs --save"),
        ]:
            result = self.train(*arguments)
            self.assertEqual(result.returncode, 2, arguments)
            self.assertIn(word, result.stderr)

    def test_output_that_cannot_be_written_is_an_error(self):
        train = ["train", "--text", self.text, *SMALL]
        subprocess.run([MAKE_FRAME, self.directory], check=True)
        for arguments in [
            *(["--help"], ["--version"], ["train", "--help"], ["keygen", "--help"]),
            *(train, [*train, "--local", "2"], ["advise", "--rate=1gbit", "--compute-ms=1"]),
            *(["inspect", self.path("key")], ["inspect", "--json", self.path("key")]),
        ]:
            with open("/dev/full", "w") as full:
                result = run(*arguments, stdout=full)
            self.assert_one_sentence(result, 1, "standard output")

    def test_help_version_and_unknown_commands(self):
        self.assertEqual(run().returncode, 2)
        self.assert_one_sentence(run("trian"), 2, "trian")
        self.assertRegex(run("--version").stdout, r"^deltawire \d+\.\d+\.\d+\n$")
        self.assert_one_sentence(run("--quite"), 2, 'option "--quite"')
        self.assert_one_sentence(run("help", "trian"), 2, "trian")
        for command in ([], ["train"], ["advise"], ["inspect"], ["keygen"]):
            result = run(*command, "--help")
            self.assertEqual(result.returncode, 0)
            self.assertIn(" ".join(["Usage: deltawire", *command]), result.stdout)
            self.assertEqual(run("help", *command).stdout, result.stdout)
        self.assertIn("--local 2", run("train", "--help").stdout)  # from the examples

    def test_unusable_texts_are_named(self):
        open(self.path("empty"), "w").close()
        with open(self.path("short"), "w") as file:
            file.write("x" * 100)
        for text, word in [
            ("missing", "No such file"),
            ("empty", "is empty"),
            ("short", "too short for a batch of 8"),
            (".", "directory"),
        ]:
            for place in ([], ["--local", "2"]):
                result = run("train", *SMALL, "--text", self.path(text), *place)
                self.assert_one_sentence(result, 1, text, word)


class Runs(Base):
    def test_stages_agree_and_the_log_is_complete(self):
        for stages in "1", "2":
            result = self.train(
                "--local", stages, "--epochs", "2", "--log", self.path(f"log{stages}")
            )
            self.assertEqual(result.returncode, 0, result.stderr)
            self.assertRegex(result.stdout, r"step +8/8 \| loss \d\.\d{4} \| norm")
            self.assertRegex(result.stdout, r"held-out loss \d\.\d{4} after 8 steps")
        one, two = self.log_of("log1"), self.log_of("log2")
        kinds = [line["event"] for line in two]
        self.assertEqual(kinds, ["start"] + (["step"] * 4 + ["eval"]) * 2 + ["summary"])
        for a, b in zip(one, two):
            for key in "loss", "norm", "lr", "train_loss", "held_out_loss":
                self.assertEqual(a.get(key), b.get(key))  # bit for bit
        summary = two[-1]
        for key in (
            "wall_s eval_s compute_s codec_s wait_s bytes_forward bytes_backward "
            "frames_forward frames_backward raw_forward raw_backward "
            "ratio_forward ratio_backward held_out_loss train_loss"
        ).split():
            self.assertGreater(summary[key], 0, key)
        self.assertEqual(len(summary["ranks"]), 2)
        self.assertEqual(summary["held_out_loss"], two[-2]["loss"])
        self.assertGreaterEqual(summary["bytes_forward"], summary["raw_forward"])

    def test_a_boundary_has_its_own_codec(self):
        codecs = ["--forward", "0:topk:bits=4,keep=0.1,1:delta:bits=4", "--backward", "raw,1:raw"]
        result = self.train("--local", "3", "--layers", "3", *codecs, "--log", self.path("log"))
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertIn("forward 0:topk:keep=0.1,bits=4,1:delta, backward raw", result.stdout)
        log = self.log_of("log")
        self.assertEqual(log[0]["forward"], "0:topk:keep=0.1,bits=4,1:delta")
        frames = [rank["frames_forward"] for rank in log[-1]["ranks"]]
        self.assertLess(2 * frames[0], frames[1])

    def test_a_codec_that_does_not_fit_is_told_once(self):
        pair = ["--forward", "direct:bits=1", "--backward", "direct:bits=4"]
        result = self.train("--local", "2", *pair, "--log", self.path("log"))
        words = "warning: the forward codec direct:bits=1", "stage 0 sends to stage 1", "try mx"
        self.assert_one_sentence(result, 0, *words)
        told = [line["sentence"] for line in self.log_of("log") if line["event"] == "misfit"]
        self.assertEqual([f"deltawire: warning: {told[0]}\n"], [result.stderr])

    def test_evaluations_with_and_without_the_codec(self):
        options = ["--local", "2", "--forward", "topk:keep=0.05", "--log", self.path("log")]
        result = self.train(*options, "--plain-eval", "--held-out", "3")
        self.assertEqual(result.returncode, 0, result.stderr)
        log = self.log_of("log")
        last = [line for line in log if line["event"] == "eval"][-1]
        both = f"held-out loss {last['loss']:.4f}, {last['plain_loss']:.4f} without codecs |"
        self.assertIn(both, result.stdout)
        self.assertNotEqual(last["loss"], last["plain_loss"])
        self.assertEqual(log[-1]["plain_held_out_loss"], last["plain_loss"])
        self.assertIn(f"({last['plain_loss']:.4f} without codecs)", result.stdout)
        self.train(*options, "--held-out", "3")
        self.assertIsNone(self.log_of("log")[-1]["plain_held_out_loss"])

    def test_options_of_the_model_and_its_slices_take_effect(self):
        found = []
        for options in [], ["--tied"], ["--bottleneck", "8"], ["--slices", "5"]:
            result = self.train("--local", "2", *options, "--log", self.path("log"))
            self.assertEqual(result.returncode, 0, result.stderr)
            log = self.log_of("log")
            found.append([log[0]["parameters"], log[-1]["raw_forward"], log[-1]["frames_forward"]])
        plain, tied, narrow, sliced = found
        self.assertEqual((plain[0] - tied[0]) % 256, 0)
        self.assertGreater(plain[0], tied[0])
        channels = plain[1] * 8 // narrow[1]
        self.assertEqual(narrow[0] - plain[0], 2 * 8 * channels)
        self.assertEqual(sliced[:2], plain[:2])
        self.assertGreater(sliced[2], plain[2])  # headers

    def test_replicas_take_local_steps(self):
        grid = ["--local", "2", "--stages", "1", "--replicas", "2", "--epochs", "4"]
        grid += ["--gradient", "topk:keep=0.05,feedback=ef", "--log", self.path("log")]
        sent = []
        for options in ["--hops", "1"], [
            *("--local-steps", "2", "--outer-lr", "1", "--outer-momentum", "0")
        ]:
            result = self.train(*grid, *options)
            self.assertEqual(result.returncode, 0, result.stderr)
            sent.append(self.log_of("log")[-1]["raw_gradients"])
        self.assertEqual(sent[0], 2 * sent[1])

    def test_the_log_of_a_grid_is_complete(self):
        grid = ["--local", "4", "--stages", "2", "--replicas", "2", "--gradient", "direct:bits=4"]
        result = self.train(*grid, "--log", self.path("log"))
        self.assertEqual(result.returncode, 0, result.stderr)
        self.assertIn("on 2 stages in each of 2 replicas", result.stdout)
        self.assertRegex(result.stdout, r"(?m)^step    1/2 .* \| grad \S+ kB \([67]\.\dx\)$")
        self.assertRegex(result.stdout, r"(?m)^between replicas: .* of gradients \([67]\.\dx less")
        log = self.log_of("log")
        self.assertEqual((log[0]["stages"], log[0]["replicas"]), (2, 2))
        self.assertEqual(log[0]["gradient"], "direct")
        summary = log[-1]
        self.assertEqual((summary["stages"], summary["replicas"]), (2, 2))
        self.assertEqual(len(summary["ranks"]), 4)
        for name in "bytes_gradients", "raw_gradients":
            self.assertEqual(summary[name], sum(rank[name] for rank in summary["ranks"]))
        self.assertGreater(summary["ratio_gradients"], 6)
        self.assertLessEqual(summary["gradient_wait_s"], summary["wait_s"])
        if summary["kernel_gradients"] is not None:
            ratio = summary["kernel_gradients"] / summary["bytes_gradients"]
            self.assertLess(abs(ratio - 1), 0.1)  # control messages, on small tensors

    def test_two_replicas_started_by_hand(self):
        place = ["--replicas", "2", "--replica-listen", "tcp://127.0.0.1:0"]
        first, address = self.start_rank_0("--stages", "1", *place)
        second = self.train("--rank", "1", "--stages", "1", "--connect", address, *place)
        out, _ = first.communicate(timeout=60)
        self.assertEqual((first.returncode, second.returncode), (0, 0), second.stderr)
        local = self.train("--local", "2", "--replicas", "2")
        loss = re.search(r"held-out loss \S+", local.stdout).group(0)
        self.assertIn(loss, out)

    def test_a_port_in_use_is_named(self):
        with socket.socket() as other:
            other.bind(("127.0.0.1", 0))
            other.listen()
            port = other.getsockname()[1]
            result = self.train(
                "--rank", "0", "--stages", "2", "--listen", f"tcp://127.0.0.1:{port}"
            )
            self.assert_one_sentence(result, 1, str(port), "in use")
            result = self.train("--local", "2", "--link", f"tcp://127.0.0.1:{port}")
            self.assert_one_sentence(result, 1, str(port), "in use")

    def test_a_stranger_on_the_port_does_not_hang_the_run(self):
        first, address = self.start_rank_0("--open-timeout", "3")
        port = int(address.rpartition(":")[2])
        with socket.create_connection(("127.0.0.1", port)) as stranger:
            stranger.sendall(b"GET / HTTP/1.0\r\n\r\n" * 100)
            _, err = first.communicate(timeout=60)
        self.assertEqual(first.returncode, 1)
        self.assertEqual(len(err.splitlines()), 1, err)


class Ends(Base):
    def start_long(self, *arguments):
        train = ["train", "--text", self.text, *SMALL, "--steps", "1000000"]
        process = scratch.start(PROGRAM, *train, *arguments)
        for line in process.stdout:
            if line.startswith("step    3/"):
                break
        return process

    def finish(self, process):
        out, err = process.communicate(timeout=60)
        return subprocess.CompletedProcess([], process.returncode, out, err)

    def test_ctrl_c_ends_all_ranks_with_one_sentence(self):
        for place in (["--local", "1"], ["--local", "2"]):
            for number, code, word in [
                (signal.SIGINT, 130, "Ctrl-C"),
                (signal.SIGTERM, 143, "Terminated"),
            ]:
                process = self.start_long(*place)
                ranks = children_of(process.pid)
                process.send_signal(number)
                self.assert_one_sentence(self.finish(process), code, word)
                for rank in ranks:
                    self.assertTrue(is_gone(rank))

    def test_ctrl_c_at_a_terminal_reaches_every_rank_at_once(self):
        process = self.start_long("--local", "2")
        for pid in [process.pid, *children_of(process.pid)]:
            os.kill(pid, signal.SIGINT)
        self.assert_one_sentence(self.finish(process), 130, "Ctrl-C")

    def test_a_rank_of_a_grid_that_dies_ends_the_others(self):
        for victim in 0, 3:
            process = self.start_long("--local", "4", "--replicas", "2")
            ranks = children_of(process.pid)
            os.kill(ranks[victim], signal.SIGKILL)
            result = self.finish(process)
            self.assertEqual(result.returncode, 1)
            self.assertIn(f"rank {victim} was killed by signal 9", result.stderr)
            self.assertRegex(result.stderr, rf"rank \d lost rank {victim}\b")
            self.assertEqual(len(result.stderr.splitlines()), 2, result.stderr)
            for rank in ranks:
                self.assertTrue(is_gone(rank))

    def test_a_rank_of_a_grid_that_stands_still_is_named(self):
        # The others wait for each other, too, but only one of them is to blame.
        for victim in 0, 3:
            process = self.start_long("--local", "4", "--replicas", "2", "--peer-timeout", "4")
            ranks = children_of(process.pid)
            os.kill(ranks[victim], signal.SIGSTOP)
            others = [pid for rank, pid in enumerate(ranks) if rank != victim]
            while not all(is_gone(pid) for pid in others):
                time.sleep(0.1)
            os.kill(ranks[victim], signal.SIGKILL)
            result = self.finish(process)
            self.assertEqual(result.returncode, 1)
            self.assertEqual(re.findall(r"lost rank (\d)", result.stderr), [str(victim)])

    def test_ranks_do_not_outlive_their_parent(self):
        process = self.start_long("--local", "2")
        ranks = children_of(process.pid)
        process.kill()
        process.wait()
        for _ in range(300):
            if all(is_gone(rank) for rank in ranks):
                break
            time.sleep(0.1)
        else:
            self.fail("a rank still runs without its parent")
        process.stdout.close()
        process.stderr.close()


class Checkpoints(Base):
    def test_a_resumed_run_continues(self):
        whole = self.train("--epochs", "4", "--log", self.path("whole"))
        self.assertEqual(whole.returncode, 0)
        save = scratch.options(save=self.path("save"), save_every=9, log=self.path("half"))
        half = self.train("--local", "2", "--epochs", "4", *save)
        self.assertEqual(half.returncode, 0)
        # The parts of the model (embedding, two blocks, head) and the manifest.
        self.assertEqual(len(glob.glob(self.path("save/*"))), 5)
        resumed = self.train(
            "--resume", self.path("save"), "--epochs", "6", "--log", self.path("resumed")
        )
        self.assertEqual(resumed.returncode, 0, resumed.stderr)
        self.assertEqual(
            [line["step"] for line in self.log_of("resumed") if line["event"] == "step"][0], 17
        )

    def test_a_full_disk_keeps_the_old_checkpoint(self):
        for place in (["--local", "1"], ["--local", "2"]):
            save = self.path("save" + place[1])
            self.assertEqual(self.train(*place, "--save", save).returncode, 0)
            before = {name: content_of(name) for name in glob.glob(save + "/*")}
            result = self.train(
                *place, "--epochs", "2", "--save", save, preexec_fn=limited(20000)
            )
            self.assert_one_sentence(result, 1, save, "File too large", "untouched")
            self.assertEqual(before, {name: content_of(name) for name in glob.glob(save + "/*")})
            self.assertEqual(self.train("--init", save).returncode, 0)

    def test_a_full_disk_under_a_file_of_state_is_not_the_neighbours_fault(self):
        state = ["--forward", "delta:bits=4", "--state", f"file:{self.path('prev')},cache=1KiB"]
        result = self.train("--local", "2", *state, preexec_fn=limited(20000))
        words = [" stops: ", self.path("prev."), "File too large", "--resume"]
        self.assert_one_sentence(result, 1, *words)

    def test_the_first_rank_is_asked_to_stop_if_the_second_cannot_begin(self):
        pathlib.Path(self.path("prev.1")).write_bytes(b"no file for prev" * 300)
        state = ["--forward", "delta:bits=4", "--state", f"file:{self.path('prev')}"]
        result = self.train("--local", "2", *state)
        self.assert_one_sentence(result, 1, self.path("prev.1"), "name another one")

    def test_an_unwritable_log_is_an_error(self):
        self.assert_one_sentence(self.train("--log", "/no/such/log"), 1, "/no/such/log")
        result = self.train("--log", "/dev/full")
        self.assert_one_sentence(result, 1, "/dev/full", "No space left")


class Inspect(Base):
    def setUp(self):
        super().setUp()
        subprocess.run([MAKE_FRAME, self.directory], check=True)

    def inspect(self, name):
        result = run("inspect", "--json", self.path(name))
        self.assertEqual(result.returncode, 0, result.stderr)
        return json.loads(result.stdout)

    def test_explains_frames(self):
        key, delta = self.inspect("key"), self.inspect("delta")
        for frame, name, kind in (key, "key", "key"), (delta, "delta", "delta"):
            self.assertEqual(frame["message"], "frame")
            self.assertEqual(frame["bytes"], os.path.getsize(self.path(name)))
            self.assertEqual(frame["shape"], [2, 3, 64])
            self.assertEqual(
                (frame["config"], frame["x"], frame["behind"]),
                ("delta:bits=3,group=32,prev=f32", "f32", 0),
            )
            self.assertEqual(
                [(entry["sample"], entry["slice"], entry["role"]) for entry in frame["entries"]],
                [("1234567890123456789", 0, kind), ("42", 7, kind)],
            )
        self.assertGreater(delta["sequence"], key["sequence"])
        self.assertEqual(key["incarnation"], delta["incarnation"])
        lines = run("inspect", self.path("delta")).stdout.splitlines()
        self.assertIn("shape          2 3 64", lines)
        self.assertIn("entry 1", lines)
        self.assertIn("  role           delta", lines)

    def test_explains_replies(self):
        for name in "key-reply", "delta-reply":
            reply = self.inspect(name)
            self.assertEqual((reply["message"], reply["accepted"]), ("reply", True))
            self.assertEqual(
                [entry["sample"] for entry in reply["entries"]], ["1234567890123456789", "42"]
            )

    def test_hostile_files_do_no_harm(self):
        for name in "delta", "delta-reply":
            whole = content_of(self.path(name))
            # `inspect` reads everything in front of the payloads, but not the payloads.
            read = min(
                [entry.get("payload_offset", len(whole)) for entry in self.inspect(name)["entries"]]
            )
            bad = [whole[:cut] for cut in (1, 7, 8, 31, len(whole) - 1)]
            if "reply" in name:  # bytes after a frame do not belong to it
                bad.append(whole + b"x")
            for at in range(0, read, 23):  # the fuzzers change every byte
                bad.append(whole[:at] + bytes([whole[at] ^ 0xFF]) + whole[at + 1 :])
            for content in bad:
                with open(self.path("bad"), "wb") as file:
                    file.write(content)
                result = run("inspect", self.path("bad"))
                self.assert_one_sentence(result, 1, "bad")

    def test_a_file_that_is_no_frame_is_an_error(self):
        self.assert_one_sentence(run("inspect", "/no/such/frame"), 1, "/no/such/frame")
        self.assert_one_sentence(run("inspect", "/dev/zero", timeout=60), 1, "/dev/zero")
        self.assert_one_sentence(run("inspect", "/no/\x1b[2J\u202e\u00e9"), 1, "/no/?[2J???\u00e9:")
        self.assertEqual(run("inspect").returncode, 2)
        self.assertEqual(run("inspect", "a", "b").returncode, 2)
        self.assert_one_sentence(run("inspect", self.text), 1, self.text)
        open(self.path("empty"), "w").close()
        self.assert_one_sentence(run("inspect", self.path("empty")), 1, "empty")


if __name__ == "__main__":
    unittest.main()
