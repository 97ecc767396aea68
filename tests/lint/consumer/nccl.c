/* SPDX-License-Identifier: Apache-2.0
 * nccl.c - a program of a user of NCCL. It only checks that a missing NCCL is reported. */
#include <stdio.h>
#include <string.h>

#include "deltawire/nccl.h"

int main(void)
{
    dw_nccl *nccl = NULL;
    dw_nccl_options options = {.struct_size = sizeof options, .library = "/nowhere/libnccl.so"};
    dw_why why = {.text = ""};
    dw_status status = dw_nccl_create(&nccl, &options, &why);
    printf("%s\n", why.text);
    return status == DW_ERR_UNSUPPORTED && nccl == NULL && strstr(why.text, "/nowhere") ? 0 : 1;
}
