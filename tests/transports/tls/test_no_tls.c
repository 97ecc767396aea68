/* SPDX-License-Identifier: Apache-2.0
 * test_no_tls.c - a build without OpenSSL refuses links that are given keys, and says why. */
#include <string.h>

#include "support/test.h"
#include "tls/tls.h"

TEST(keys_are_refused_in_a_build_without_tls)
{
    const dw_tls_options options = {.struct_size = sizeof options,
                                    .own_name = "a",
                                    .peer_name = "b",
                                    .group_key_file = "run.key"};
    dw_tls_context *context = (dw_tls_context *)(uintptr_t)1;
    dw_why why = {.text = ""};
    assert_int_equal(dw_tls_context_create(&context, &options, DW_LINK_CONNECT, NULL, &why),
                     DW_ERR_UNSUPPORTED);
    assert_null(context);
    assert_non_null(strstr(why.text, "no TLS"));
    assert_non_null(strstr(why.text, "insecure_plaintext"));
    dw_tls_context_destroy(context);
    dw_stream stream = {.fd = -1};
    assert_int_equal(dw_tls_cover(&stream, context, 0), DW_ERR_UNSUPPORTED);
    assert_null(stream.cover);
    assert_int_equal(dw_tls_shake(&stream), DW_ERR_UNSUPPORTED);
}

RUN_TESTS(NULL, NULL)
