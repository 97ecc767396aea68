/* SPDX-License-Identifier: Apache-2.0
 * test_group_open.c - groups that must not open: ranks that differ, and configs that are wrong. */
#include "group_rig.h"

static const char *const loop = "loop://opening-%d";

static void groups_that_do_not_fit_do_not_open(void **state)
{
    (void)state;
    for (int what = 0; what < 6; what++) {
        group_rig rig;
        const char *words = NULL;
        rig_link(&rig, loop, 3, "direct:bits=4", NULL);
        for (int r = 0; r < 3; r++) rig.config[r].open_timeout_ms = 60000;
        dw_status expected = DW_ERR_MISMATCH;
        if (what == 0) {
            dw_config_parse(&rig.codec[1], "direct:bits=5", NULL);
            words = "bits=5";
        } else if (what == 1) {
            dw_config_parse(&rig.result[1], "raw:f32", NULL);
            words = "results";
        } else if (what == 2) {
            rig.config[1].piece = 4096;
            words = "4096";
        } else if (what == 3) { /* two links exchanged */
            dw_link *link = rig.links[1][0];
            rig.links[1][0] = rig.links[1][2];
            rig.links[1][2] = link;
            words = "leads to rank";
        } else if (what == 4) {
            dw_config_parse(&rig.codec[1], "direct:bits=4,group=channel", NULL);
            expected = DW_ERR_CONFIG;
        } else {
            for (int r = 0; r < 3; r++) rig.config[r].open_timeout_ms = 300;
            rig.config[1].id = 8;
            expected = DW_ERR_TIMEOUT;
        }
        if (what == 4) { /* the others would wait for long */
            dw_group *group;
            dw_why why;
            assert_int_equal(dw_group_open(&group, &rig.config[1], &why), expected);
            assert_non_null(strstr(why.text, "channel"));
        } else {
            rig_try_open(&rig);
            for (int r = 0; r < 3; r++) {
                assert_null(rig.group[r]);
                if (rig.status[r] != expected) fail_msg("%d: %s", what, rig.why[r].text);
            }
            if (words) assert_non_null(strstr(rig.why[0].text, words));
        }
        rig_close(&rig);
    }
}

static void bad_configs_are_refused(void **state)
{
    (void)state;
    group_rig rig;
    dw_group *group;
    dw_why why;
    rig_link(&rig, loop, 3, "raw:f32", NULL);
    for (int what = 0; what < 9; what++) {
        dw_group_config config = rig.config[0];
        dw_link *links[3] = {NULL, rig.links[0][1], rig.links[0][2]};
        config.links = links;
        if (what == 0) config.id = 0;
        if (what == 1) config.id = 0x10000;
        if (what == 2) config.rank = 3;
        if (what == 3) config.ranks = 0;
        if (what == 4) config.ranks = 257;
        if (what == 5) config.links = NULL;
        if (what == 6) links[2] = NULL;
        if (what == 7) links[2] = links[1];
        if (what == 8) config.piece = 1000;
        assert_int_equal(dw_group_open(&group, &config, &why), DW_ERR_ARGUMENT);
        assert_null(group);
        assert_string_not_equal(why.text, "");
    }
    assert_int_equal(dw_group_open(&group, NULL, &why), DW_ERR_ARGUMENT);
    assert_int_equal(dw_group_open(NULL, &rig.config[0], NULL), DW_ERR_ARGUMENT);
    rig_close(&rig);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(groups_that_do_not_fit_do_not_open),
        cmocka_unit_test(bad_configs_are_refused),
    };
    return cmocka_run_group_tests(tests, NULL, NULL);
}
