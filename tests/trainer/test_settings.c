/* SPDX-License-Identifier: Apache-2.0
 * test_settings.c - errors name the setting that is wrong or that differs between two ranks. */
#include <string.h>

#include "settings.h"
#include "support/test.h"

static dw_train_config sound(void)
{
    return (dw_train_config){.struct_size = sizeof(dw_train_config),
                             .text = "text",
                             .rank = 1,
                             .stages = 2,
                             .connect = "tcp://there:1"};
}

TEST(unset_settings_get_defaults)
{
    dw_settings s;
    dw_train_config config = sound();
    assert_int_equal(dw_settings_resolve(&s, &config, NULL), DW_OK);
    assert_int_equal(s.config.layers, 4);
    assert_int_equal(s.config.batch, 16);
    assert_int_equal(s.config.micro_batches, 4);
    assert_int_equal(s.config.slices, 1);
    assert_int_equal(s.config.epochs, 1);
    assert_true(s.config.lr == 1e-3 && s.config.clip == 1 && s.config.weight_decay == 0.1);
    assert_string_equal(s.forward.text, "raw:f32");
    assert_int_equal(dw_settings_count(&s, 100, NULL), DW_OK);
    assert_int_equal(s.steps_per_epoch, 6);
    assert_int_equal(s.config.steps, 6);
    assert_int_equal(s.config.eval_every, 6);
    config.clip = config.weight_decay = -1;
    assert_int_equal(dw_settings_resolve(&s, &config, NULL), DW_OK);
    assert_true(s.config.clip == 0 && s.config.weight_decay == 0);
}

/* How many of 4 micro-batches a stage of 3 may hold, by schedule and rank. */
TEST(limits_the_micro_batches_in_flight)
{
    static const struct {
        const char *schedule;
        uint32_t rank, in_flight;
    } cases[] = {{NULL, 0, 4},   {"gpipe", 1, 4}, {"gpipe", 2, 1},
                 {"1f1b", 0, 3}, {"1f1b", 1, 2},  {"1f1b", 2, 1}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        dw_settings s;
        dw_train_config config = sound();
        config.stages = 3;
        config.rank = cases[i].rank;
        config.schedule = cases[i].schedule;
        config.listen = config.rank < 2 ? "tcp://:1" : NULL;
        config.connect = config.rank ? "tcp://there:1" : NULL;
        assert_int_equal(dw_settings_resolve(&s, &config, NULL), DW_OK);
        assert_int_equal(s.in_flight, cases[i].in_flight);
        config.slices = 5; /* whole micro-batches count, and not their slices */
        assert_int_equal(dw_settings_resolve(&s, &config, NULL), DW_OK);
        assert_int_equal(s.in_flight, cases[i].in_flight);
        config.micro_batches = 2; /* there are no more than these */
        assert_int_equal(dw_settings_resolve(&s, &config, NULL), DW_OK);
        assert_int_equal(s.in_flight, cases[i].in_flight < 2 ? 1 : 2);
    }
}

static void assert_refused(dw_train_config config, const char *word)
{
    dw_settings s;
    dw_why why = {.text = ""};
    assert_true(dw_settings_resolve(&s, &config, &why) < 0);
    if (!strstr(why.text, word)) fail_msg("\"%s\" does not say \"%s\"", why.text, word);
}

#define REFUSED(word, ...)                                                                         \
    do {                                                                                           \
        dw_train_config config = sound();                                                          \
        __VA_ARGS__;                                                                               \
        assert_refused(config, word);                                                              \
    } while (0)

TEST(names_the_setting_that_is_wrong)
{
    REFUSED("struct_size", config.struct_size--);
    REFUSED("no rank 2 among 2 stages", config.rank = 2);
    REFUSED("no rank 6 among 3 replicas of 2 stages", config.replicas = 3, config.rank = 6);
    REFUSED("replicas is 257; give 1 to 256", config.replicas = 257);
    REFUSED("needs replica-listen", config.replicas = 2, config.listen = "tcp://:1");
    REFUSED("gradient has a meaning only with several", config.gradient = "raw:f32");
    REFUSED("check-every has a meaning only with several", config.check_every = 3);
    REFUSED("hops has a meaning only with several", config.hops = 1);
    REFUSED("hops is 3; give 1 or 2", config.replicas = 2, config.hops = 3);
    REFUSED("100 samples cannot be divided evenly among 3 replicas; give 99", config.replicas = 3,
            config.samples = 100);
    REFUSED("gradient codec \"direct:bots=4\", at \"bots", config.replicas = 2,
            config.gradient = "direct:bots=4");
    REFUSED("group=channel has no meaning", config.replicas = 2,
            config.gradient = "direct:bits=4,group=channel");
    REFUSED("5 stages cannot share 4 layers", config.stages = 5);
    REFUSED("needs listen, the address on which it waits for rank 2", config.stages = 3);
    REFUSED("needs connect, the address on which rank 0", config.connect = NULL);
    REFUSED("nobody to listen for", config.listen = "tcp://:1");
    REFUSED("nobody to connect to", config.rank = 0, config.listen = "tcp://:1");
    REFUSED("text is missing", config.text = NULL);
    REFUSED("epochs (2) and steps (3)", config.epochs = 2, config.steps = 3);
    REFUSED("3 micro-batches do not divide a batch of 16", config.micro_batches = 3);
    REFUSED("32 micro-batches", config.micro_batches = 32);
    REFUSED("schedule is \"2f2b\"; give gpipe or 1f1b", config.schedule = "2f2b");
    REFUSED("129 slices cannot share 128 tokens; give at most one slice per token",
            config.slices = 129);
    REFUSED("65536 micro-batches of 65536 slices are more than 2^31", config.batch = 65536,
            config.micro_batches = 65536, config.context = 65536, config.slices = 65536);
    REFUSED("init and resume", config.init = config.resume = "x");
    REFUSED("lr is -1", config.lr = -1);
    REFUSED("beta1 is 1", config.beta1 = 1);
    REFUSED("heads is 5", config.heads = 5);
    REFUSED("forward codec \"delta:bits=99\", at \"99\"", config.forward = "delta:bits=99");
    REFUSED("backward codec \"dalta\"", config.backward = "dalta");
    REFUSED("forward codec \"\"", config.forward = "");
    REFUSED("forward codec \"raw:f32|raw:f16\"", config.forward = "raw:f32|raw:f16");
}

TEST(names_the_way_to_train_that_is_wrong)
{
    REFUSED("plain-eval has a meaning only with several stages", config.rank = 0, config.stages = 1,
            config.connect = NULL, config.held_out = 3, config.plain_eval = 1);
    REFUSED("plain-eval needs held-out", config.plain_eval = 1);
    REFUSED("local-steps has a meaning only with several replicas", config.local_steps = 2);
    REFUSED("outer-lr has a meaning only with several replicas", config.outer_lr = 1);
    REFUSED("outer-momentum has a meaning only with several replicas", config.outer_momentum = -1);
    REFUSED("outer-lr has a meaning only with local-steps", config.replicas = 2,
            config.outer_lr = 0.5);
    REFUSED("outer-lr is 0 and outer-momentum 1; give", config.replicas = 2, config.local_steps = 2,
            config.outer_momentum = 1);
    REFUSED("outer-lr is -1 and", config.replicas = 2, config.local_steps = 2,
            config.outer_lr = -1);
    REFUSED("eval-every is 6, but replicas hold the same parameters only after every 4 local-steps",
            config.replicas = 2, config.local_steps = 4, config.eval_every = 6);
    REFUSED("check-every is 2, but", config.replicas = 2, config.local_steps = 4,
            config.check_every = 2);
    REFUSED("save-every is 5, but replicas hold", config.replicas = 2, config.local_steps = 4,
            config.save_every = 5);
    REFUSED("bottleneck is 129; give 1 to the 128 channels", config.bottleneck = 129);
    REFUSED("bottleneck has a meaning only with several stages", config.rank = 0, config.stages = 1,
            config.connect = NULL, config.bottleneck = 8);
    REFUSED("tied and local-steps are both given", config.replicas = 2, config.local_steps = 2,
            config.tied = 1);
    REFUSED("needs replica-listen, the address on which the first and last stages",
            config.stages = 3, config.rank = 2, config.tied = 1);
}

static json_t *greeting_of(dw_train_config config, uint64_t text, uint64_t checkpoint)
{
    dw_settings s;
    assert_int_equal(dw_settings_resolve(&s, &config, NULL), DW_OK);
    assert_int_equal(dw_settings_count(&s, config.samples ? config.samples : 160, NULL), DW_OK);
    json_t *greeting = dw_settings_greeting(&s, text, checkpoint);
    assert_non_null(greeting);
    return greeting;
}

static void assert_compared(json_t *theirs, dw_status expected, const char *word)
{
    json_t *ours = greeting_of(sound(), 1, 2);
    /* Settings that were sent as JSON must still be equal, including real numbers. */
    char *text = json_dumps(theirs, 0);
    json_t *arrived = json_loads(text, 0, NULL);
    dw_why why = {.text = ""};
    dw_status status = dw_settings_compare(ours, arrived, 0, &why);
    if (status != expected || !strstr(why.text, word))
        fail_msg("status %d, \"%s\" does not say \"%s\"", (int)status, why.text, word);
    free(text);
    json_decref(arrived);
    json_decref(ours);
    json_decref(theirs);
}

static dw_train_config neighbour(void)
{
    dw_train_config config = sound();
    config.rank = 0;
    config.connect = NULL;
    config.listen = "tcp://:1";
    return config;
}

#define DIFFERS(word, ...)                                                                         \
    do {                                                                                           \
        dw_train_config config = neighbour();                                                      \
        __VA_ARGS__;                                                                               \
        assert_compared(greeting_of(config, 1, 2), DW_ERR_MISMATCH, word);                         \
    } while (0)

TEST(names_the_setting_that_differs_between_ranks)
{
    assert_compared(greeting_of(neighbour(), 1, 2), DW_OK, "");
    DIFFERS("stages 3, this rank with 2", config.stages = 3);
    DIFFERS("layers 6, this rank with 4", config.layers = 6);
    DIFFERS("channels", config.channels = 64);
    DIFFERS("heads", config.heads = 8);
    DIFFERS("context", config.context = 64);
    DIFFERS("forward \"delta", config.forward = "delta:bits=2");
    DIFFERS("backward \"direct", config.backward = "direct:bits=2");
    DIFFERS("batch 8, this rank with 16", config.batch = 8);
    DIFFERS("micro-batches 8", config.micro_batches = 8);
    DIFFERS("schedule \"1f1b\"", config.schedule = "1f1b");
    DIFFERS("slices 2, this rank with 1", config.slices = 2);
    DIFFERS("bottleneck 8, this rank with 0", config.bottleneck = 8);
    DIFFERS("tied true, this rank with false", config.tied = 1);
    DIFFERS("repeat 2, this rank with 1", config.repeat = 2);
    DIFFERS("samples 120", config.samples = 120);
    DIFFERS("held-out 3", config.held_out = 3);
    DIFFERS("steps 30", config.epochs = 3);
    DIFFERS("eval-every 3", config.eval_every = 3);
    DIFFERS("save \"yes\"", config.save = "x");
    DIFFERS("lr", config.lr = 2e-3);
    DIFFERS("warmup 4", config.warmup = 4);
    DIFFERS("beta1", config.beta1 = 0.8);
    DIFFERS("beta2", config.beta2 = 0.8);
    DIFFERS("weight-decay", config.weight_decay = -1);
    DIFFERS("clip", config.clip = 2);
    DIFFERS("seed", config.seed = 5);
    DIFFERS("start \"init\"", config.init = "x");
    DIFFERS("start \"resume\"", config.resume = "x");
    assert_compared(greeting_of(neighbour(), 9, 2), DW_ERR_MISMATCH, "another text");
    assert_compared(greeting_of(neighbour(), 1, 9), DW_ERR_MISMATCH, "another checkpoint");
    assert_compared(greeting_of(sound(), 1, 2), DW_ERR_MISMATCH, "calls itself rank 1");
}

TEST(names_a_peer_of_another_version)
{
    json_t *theirs = greeting_of(neighbour(), 1, 2);
    json_object_set_new(theirs, "version", json_string("9.9.9"));
    assert_compared(theirs, DW_ERR_MISMATCH, "version \"9.9.9\"");
    theirs = greeting_of(neighbour(), 1, 2);
    json_object_del(theirs, "clip");
    assert_compared(theirs, DW_ERR_PROTOCOL, "did not tell its clip");
}

TEST(settings_count_the_steps_of_a_run)
{
    dw_settings s;
    dw_why why;
    dw_train_config config = sound();
    config.epochs = 3;
    config.warmup = 30;
    assert_int_equal(dw_settings_resolve(&s, &config, &why), DW_OK);
    /* With 30 steps, all of them would be warm-up. */
    assert_int_equal(dw_settings_count(&s, 165, &why), DW_ERR_ARGUMENT);
    assert_non_null(strstr(why.text, "warmup is 30 of 30"));
    config.warmup = 29;
    assert_int_equal(dw_settings_resolve(&s, &config, &why), DW_OK);
    assert_int_equal(dw_settings_count(&s, 165, &why), DW_OK);
    assert_int_equal(s.config.steps, 30);
    config.epochs = 2000000000;
    assert_int_equal(dw_settings_resolve(&s, &config, &why), DW_OK);
    assert_int_equal(dw_settings_count(&s, 165, &why), DW_ERR_LIMIT);
    config.epochs = 2;
    config.repeat = 3;
    assert_int_equal(dw_settings_resolve(&s, &config, &why), DW_OK);
    assert_int_equal(dw_settings_count(&s, 165, &why), DW_OK);
    assert_int_equal(s.steps_per_epoch, 30);
    assert_int_equal(s.config.steps, 60);
    assert_int_equal(s.config.eval_every, 30);
    config.replicas = 2;
    config.local_steps = 4;
    config.listen = config.replica_listen = "tcp://:1";
    assert_int_equal(dw_settings_resolve(&s, &config, &why), DW_OK);
    assert_true(s.has_outer && s.config.outer_lr == 0.7 && s.config.outer_momentum == 0.9);
    assert_int_equal(dw_settings_count(&s, 2 * 165, &why), DW_OK);
    assert_int_equal(s.config.eval_every, 32); /* an epoch has 30 steps */
    config.replicas = config.local_steps = 1;
    config.listen = NULL;
    config.repeat = 300000000;
    assert_int_equal(dw_settings_resolve(&s, &config, &why), DW_OK);
    assert_int_equal(dw_settings_count(&s, 165, &why), DW_ERR_LIMIT);
    assert_non_null(strstr(why.text, "give a smaller repeat"));
}

RUN_TESTS(NULL, NULL)
