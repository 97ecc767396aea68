/* SPDX-License-Identifier: Apache-2.0
 * suite_nccl.c - nccl in front of tcp passes the suite, over a fake NCCL whose calls are completed
 * late. The parts of the suite that fork are in test_nccl.c. */
#include "nccl_rig.h"

int main(int argc, char **argv)
{
    if (!rig_begin(argc, argv)) return fprintf(stderr, "usage: suite_nccl FAKE-LIBRARY\n");
    rig_common = rig_create(NULL);
    rig_reset();
    fake_nccl_get()->late = 1;
    const suite_backend nccl = {
        .name = "nccl over tcp",
        .uri = "nccl:tcp://127.0.0.1:0",
        .transports = rig_transports,
        .one_process = 1,
        .contexts = (const dw_transport_context[]){{"nccl", rig_common}, {NULL, NULL}}};
    int failed = run_transport_suite(&nccl);
    if (fake_nccl_get()->violations)
        failed += fprintf(stderr, "the suite: %s\n", fake_nccl_get()->violation);
    dw_nccl_destroy(rig_common);
    return failed;
}
