/* SPDX-License-Identifier: Apache-2.0
 * suite_tls.c - TCP under TLS passes the suite. */
#include "transports/suite/transport_suite.h"

#include "tls_pair.h"

int main(void)
{
    const dw_tls_options listener = tls_with_group_key("rank/0", NULL),
                         connector = tls_with_group_key("rank/1", "rank/0");
    const suite_backend tls = {
        .name = "tcp under TLS", .uri = "tcp://127.0.0.1:0", .tls = {&listener, &connector}};
    return run_transport_suite(&tls);
}
