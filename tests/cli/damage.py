#!/usr/bin/python3
# SPDX-License-Identifier: Apache-2.0
# damage.py - plays a faulty network: forwards Ethernet frames between two interfaces, and changes a
# byte in some TCP segments.
"""usage: damage.py A B

Prints "ready", and at SIGTERM the number of segments that it has changed. It corrects the checksum
of a changed segment, because TCP would repeat a segment with a wrong one. It changes only a few
segments, only long ones in which no deltawire frame begins, and only in their middle. So the byte
nearly always belongs to a tensor; if it belonged to the length of a message, a channel could not
recover."""

import select
import signal
import socket
import struct
import sys

EVERY, MOST = 5, 4  # every 5th long segment; at most 4 in all
LONG = 900
FRAME = b"DWF1"
TCP, IPV4 = 6, 0x0800


def checksum(data):
    if len(data) % 2:
        data += b"\0"
    total = sum(struct.unpack(f"!{len(data) // 2}H", data))
    while total >> 16:
        total = (total & 0xFFFF) + (total >> 16)
    return ~total & 0xFFFF


class Wire:
    def __init__(self, names):
        self.sockets = []
        for name in names:
            one = socket.socket(socket.AF_PACKET, socket.SOCK_RAW, socket.htons(3))
            one.bind((name, 0))
            self.sockets.append(one)
        self.long = self.damaged = 0

    def change(self, frame):
        """Returns the Ethernet frame with a correct checksum, which the kernel leaves to the
        network card, and sometimes with a changed byte."""
        if struct.unpack_from("!H", frame, 12)[0] != IPV4 or frame[14 + 9] != TCP:
            return frame
        data = bytearray(frame)
        header = 4 * (data[14] & 15)
        end = 14 + struct.unpack_from("!H", data, 16)[0]
        at = 14 + header
        payload = at + 4 * (data[at + 12] >> 4)
        if end - payload >= LONG:
            self.long += FRAME not in data
            if FRAME not in data and self.long % EVERY == 0 and self.damaged < MOST:
                data[(payload + end) // 2] ^= 0x10
                self.damaged += 1
        struct.pack_into("!H", data, at + 16, 0)
        pseudo = bytes(data[14 + 12 : 14 + 20]) + struct.pack("!BBH", 0, TCP, end - at)
        struct.pack_into("!H", data, at + 16, checksum(pseudo + bytes(data[at:end])))
        return bytes(data)

    def pass_one(self, index):
        frame, sender = self.sockets[index].recvfrom(1 << 17)
        if sender[2] == socket.PACKET_OUTGOING:  # sent by this program
            return
        try:
            self.sockets[1 - index].send(self.change(frame))
        except OSError:
            pass  # a network may lose a frame


def main():
    wire = Wire(sys.argv[1:3])
    stop = []
    signal.signal(signal.SIGTERM, lambda *_: stop.append(1))
    print("ready", flush=True)
    while not stop:
        for one in select.select(wire.sockets, [], [], 0.1)[0]:
            wire.pass_one(wire.sockets.index(one))
    print("damaged", wire.damaged, "of", wire.long, "long segments", flush=True)


if __name__ == "__main__":
    main()
