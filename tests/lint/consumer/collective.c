/* SPDX-License-Identifier: Apache-2.0
 * collective.c - a program of a user of groups. A group of one rank needs no link. */
#include <stdio.h>

#include "deltawire/collective.h"

int main(void)
{
    dw_group *group;
    dw_group_config config = {.struct_size = sizeof config, .id = 1, .ranks = 1};
    dw_why why = {.text = ""};
    float x[2] = {3, 4}, y[2] = {0, 0};
    dw_group_job job = {
        .struct_size = sizeof job, .operation = DW_ALL_REDUCE, .n = 2, .x = x, .y = y};
    if (dw_group_open(&group, &config, &why) != DW_OK) {
        printf("%s\n", why.text);
        return 1;
    }
    dw_status status = dw_group_run(group, &job, -1);
    dw_group_close(group);
    return status == DW_OK && y[0] == 3 && y[1] == 4 ? 0 : 1;
}
