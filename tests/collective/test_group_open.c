/* SPDX-License-Identifier: Apache-2.0
 * test_group_open.c - groups that must not open, because ranks differ or a config is wrong; and
 * messages of an earlier group or of a hostile peer, which must do no harm. */
#include "group_rig.h"
#include "message.h"

static const char *const loop = "loop://opening-%d";

TEST(ranks_with_different_configs_open_no_group)
{
    for (int what = 0; what < 8; what++) {
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
        } else if (what == 6) {
            rig.config[1].hops = 1;
            words = "hops";
        } else if (what == 7) {
            rig.config[1].verify = 1;
            words = "verify";
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

TEST(bad_group_configs_are_refused)
{
    group_rig rig;
    dw_group *group;
    dw_why why;
    rig_link(&rig, loop, 3, "raw:f32", NULL);
    for (int what = 0; what < 11; what++) {
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
        if (what == 9) config.hops = 3;
        if (what == 10) config.allocator = rig_allocator(), config.allocator.release = NULL;
        assert_int_equal(dw_group_open(&group, &config, &why), DW_ERR_ARGUMENT);
        assert_null(group);
        assert_string_not_equal(why.text, "");
    }
    assert_int_equal(dw_group_open(&group, NULL, &why), DW_ERR_ARGUMENT);
    assert_int_equal(dw_group_open(NULL, &rig.config[0], NULL), DW_ERR_ARGUMENT);
    rig_close(&rig);
}

/* ---- What an earlier group has left ---------------------------------------------------------- */

enum { FLOATS = 100 };

/* Finds a message of this kind in what a link sends, which begins with a header of the link itself.
 * Returns NULL if it is none; *len becomes its length. */
static unsigned char *find_message(unsigned char *bytes, size_t *len, dw_message_kind kind)
{
    for (size_t at = 0; at + DW_MESSAGE_BYTES <= *len; at++) {
        if (bytes[at] != kind || dw_get(bytes + at + 48, 8) != *len - at - DW_MESSAGE_BYTES)
            continue;
        *len -= at;
        return bytes + at;
    }
    return NULL;
}

/* Keeps the first message of an operation that an end sends. */
typedef struct recorder {
    unsigned char message[4096];
    size_t len; /* 0: none yet */
} recorder;

static suite_verdict record(void *context, unsigned char *bytes, size_t *len, uint64_t n)
{
    recorder *r = context;
    size_t found = *len;
    const unsigned char *message = find_message(bytes, &found, DW_MESSAGE_DATA);
    if (r->len > 0 || !message || found > sizeof r->message) return SUITE_PASS;
    memcpy(r->message, message, found);
    r->len = found;
    return SUITE_PASS;
}

/* On a link that duplicates messages, one of an earlier group may still arrive in the next group
 * with the same id, where it fits the operation that is due. Only its digest tells the two groups
 * apart. */
TEST(messages_of_an_earlier_group_are_ignored)
{
    static recorder kept;
    group_rig rig;
    float x[2][FLOATS], y[2][FLOATS];
    rig_deed act = {.rig = &rig};
    for (int r = 0; r < 2; r++)
        act.job[r] = (dw_group_job){.operation = DW_ALL_REDUCE, .n = FLOATS, .x = x[r], .y = y[r]};
    suite_pair pair;
    rig_link(&rig, loop, 2, "raw:f32", NULL);
    rig_spoil_link(&rig, 0, 1, &pair, "shaped:duplicate=1%,seed=8/loop://recorded-%d",
                   (suite_spoiler){record, &kept});
    for (int group = 0; group < 2; group++) {
        rig_open(&rig);
        for (int r = 0; r < 2; r++)
            for (int i = 0; i < FLOATS; i++) x[r][i] = (float)(100 * group + 10 * r + i);
        if (group == 1)
            assert_int_equal(
                dw_link_send(rig.links[0][1], rig.config[0].id << 8, kept.message, kept.len),
                DW_OK);
        rig_run_well(&act);
        for (int r = 0; r < 2; r++) {
            for (int i = 0; i < FLOATS; i++) assert_true(y[r][i] == x[0][i] + x[1][i]);
        }
        assert_true(kept.len > 0);
        rig_close_groups(&rig);
    }
    suite_close(&pair);
    rig_close(&rig);
}

RUN_TESTS(NULL, NULL)
