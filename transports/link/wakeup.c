/* SPDX-License-Identifier: Apache-2.0
 * wakeup.c - a pipe by which a thread is woken from poll. */
#include <fcntl.h>
#include <unistd.h>

#include "link/io_owner.h"

bool dw_wakeup_open(dw_wakeup_fd *wakeup)
{
    int ends[2];
    if (pipe2(ends, O_CLOEXEC | O_NONBLOCK) != 0) return false;
    *wakeup = (dw_wakeup_fd){.read = ends[0], .write = ends[1]};
    return true;
}

void dw_wakeup_signal(const dw_wakeup_fd *wakeup)
{
    /* If the pipe is full, the write fails, but the reader wakes up all the same. */
    ssize_t written = write(wakeup->write, "", 1);
    (void)written;
}

void dw_wakeup_clear(const dw_wakeup_fd *wakeup)
{
    char bytes[64];
    while (read(wakeup->read, bytes, sizeof bytes) > 0) {
    }
}

void dw_wakeup_close(const dw_wakeup_fd *wakeup)
{
    if (wakeup->read == wakeup->write) return;
    close(wakeup->read);
    close(wakeup->write);
}
