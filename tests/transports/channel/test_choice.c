/* SPDX-License-Identifier: Apache-2.0
 * test_choice.c - tests the choice of the config for the next frame with given measurements. */
#include "channel/choice.h"
#include "support/tool.h"

enum { ELEMENTS = 1000 };

/* Records the arrival of a frame of the candidate in use. If no empty message has arrived yet,
 * records one that travelled for 0 seconds. */
static void arrive(dw_choice *choice, double bytes, double since_last_s, double travel_s)
{
    dw_choice_delivery delivery = {bytes, since_last_s, travel_s};
    if (choice->travels == 0) dw_choice_travelled(choice, 0);
    dw_choice_delivered(choice, choice->now, &delivery);
}

/* Records the arrival of a frame that did not wait behind an earlier frame. */
static void deliver(dw_choice *choice, double bytes, double seconds)
{
    arrive(choice, bytes, 1e9, seconds);
}

/* Returns a choice with three known candidates. Their frames have 4000, 1000 and 100 bytes, and
 * each takes twice as long to encode as the one before. The program computes 10 ms between two
 * frames and sends 4 frames in a step. bytes_per_second: the measured rate of the link; 0: unknown.
 */
static dw_choice known(double bytes_per_second)
{
    dw_choice choice;
    dw_choice_begin(&choice, 3, 0, 0.010);
    dw_choice_guess(&choice, 0, ELEMENTS, 4000, 0.00001);
    dw_choice_guess(&choice, 1, ELEMENTS, 1000, 0.00002);
    dw_choice_guess(&choice, 2, ELEMENTS, 100, 0.00004);
    for (int i = 0; i < DW_CHOICE_DELIVERIES && bytes_per_second > 0; i++)
        deliver(&choice, 5000, 5000 / bytes_per_second);
    return choice;
}

/* Records that n frames were encoded with the candidate in use. */
static void send_frames(dw_choice *choice, int n)
{
    static const double bytes[] = {4000, 1000, 100}, encode_s[] = {0.00001, 0.00002, 0.00004};
    uint32_t i = choice->now;
    while (n-- > 0) dw_choice_made(choice, i, ELEMENTS, bytes[i], encode_s[i], true);
}

static double rate_now(const dw_choice *choice)
{
    return dw_choice_rate(choice, choice->now);
}

static uint32_t best(const dw_choice *choice)
{
    double step_s[DW_CHOICE_MOST];
    return dw_choice_best(choice, ELEMENTS, step_s);
}

static void assert_near(double a, double b)
{
    if (!(a > b * (1 - 1e-9) && a < b * (1 + 1e-9))) fail_msg("%.12g is not %.12g", a, b);
}

/* ---- The decision ---------------------------------------------------------------------------- */

static void the_first_is_used_while_nothing_is_known(void **state)
{
    (void)state;
    dw_choice choice = known(0);
    assert_int_equal(best(&choice), 0);
    assert_near(1 + rate_now(&choice), 1);
    for (int i = 1; i < DW_CHOICE_DELIVERIES; i++) deliver(&choice, 5000, 5000);
    assert_int_equal(best(&choice), 0);
    deliver(&choice, 5000, 5000);
    assert_int_equal(best(&choice), 2);
    /* If the computing time of the program is unknown, the first candidate is used. */
    dw_choice unknown = choice;
    dw_choice_begin(&choice, 3, 0, 0);
    memcpy(choice.candidates, unknown.candidates, sizeof choice.candidates);
    for (int i = 0; i < DW_CHOICE_DELIVERIES; i++) deliver(&choice, 5000, 5000);
    assert_int_equal(best(&choice), 0);
    dw_choice_computed(&choice, 0.01);
    assert_int_equal(best(&choice), 2);
    /* An unknown candidate is never chosen. If the one in use is unknown, it stays in use. */
    choice.candidates[2].is_known = false;
    assert_int_equal(best(&choice), 1);
    choice.candidates[0].is_known = false;
    assert_int_equal(best(&choice), 0);
}

static void the_first_of_those_that_are_about_as_fast_is_taken(void **state)
{
    (void)state;
    static const struct {
        double bytes_per_second;
        uint32_t best;
    } cases[] = {{1e9, 0}, {2e6, 0}, {6e5, 1}, {2e5, 2}, {2e4, 2}, {100, 2}};
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        dw_choice choice = known(cases[i].bytes_per_second);
        if (best(&choice) != cases[i].best)
            fail_msg("%g bytes/s: %u", cases[i].bytes_per_second, best(&choice));
    }
}

/* The time of a step has two parts. The first of the 4 frames takes the sum of computing at both
 * ends, encoding, sending and decoding. Each further frame takes the time of the slowest part. */
static void steps_are_those_of_the_forecast(void **state)
{
    (void)state;
    double step_s[DW_CHOICE_MOST];
    dw_choice choice = known(1e5);
    dw_choice_best(&choice, ELEMENTS, step_s);
    assert_near(step_s[0], 2 * 0.010 + 2 * 0.00001 + 0.040 + 3 * 0.040);
    assert_near(step_s[1], 2 * 0.010 + 2 * 0.00002 + 0.010 + 3 * 0.01002);
    /* A tensor with twice as many elements takes twice as long to encode, send and decode. */
    dw_choice_best(&choice, 2 * ELEMENTS, step_s);
    assert_near(step_s[0], 2 * 0.010 + 2 * 0.00002 + 0.080 + 3 * 0.080);
    dw_choice_begin(&choice, 3, 7, 0.010);
    assert_int_equal(choice.micro_batches, 7);
}

static void a_change_is_not_followed_by_another_at_once(void **state)
{
    (void)state;
    dw_choice choice = known(2e4);
    assert_int_equal(best(&choice), 2);
    dw_choice_change(&choice, 2);
    for (int i = 0; i < 400; i++) deliver(&choice, 100, 1e-8); /* the link becomes fast */
    send_frames(&choice, DW_CHOICE_PAUSE - 1);
    assert_int_equal(best(&choice), 2);
    send_frames(&choice, 1);
    assert_int_equal(best(&choice), 0);
}

/* The pause doubles with each change that soon follows another, and is short again after a long
 * time without a change. */
static void going_to_and_fro_becomes_rare(void **state)
{
    (void)state;
    dw_choice choice = known(2e4);
    uint32_t pause = DW_CHOICE_PAUSE;
    for (uint32_t i = 0; i < 20; i++) {
        dw_choice_change(&choice, i % 2);
        assert_int_equal(choice.pause, pause);
        for (int k = 0; k < DW_CHOICE_DELIVERIES; k++) deliver(&choice, 1000, 1);
        send_frames(&choice, (int)pause - 1);
        assert_false(dw_choice_is_due(&choice));
        send_frames(&choice, 1);
        assert_true(dw_choice_is_due(&choice));
        if (pause < DW_CHOICE_PAUSE_MOST) pause *= 2;
    }
    send_frames(&choice, (DW_CHOICE_CALM - 1) * DW_CHOICE_PAUSE_MOST - 1);
    dw_choice unquiet = choice;
    dw_choice_change(&unquiet, 0);
    assert_int_equal(unquiet.pause, DW_CHOICE_PAUSE_MOST);
    send_frames(&choice, 1);
    dw_choice_change(&choice, 0);
    assert_int_equal(choice.pause, DW_CHOICE_PAUSE);
}

/* Returns a choice between two candidates, of which `now` is in use. A step has one frame. The step
 * of candidate 0 is longer than that of candidate 1 by the fraction `part`. */
static dw_choice rivals(double part, uint32_t now)
{
    dw_choice choice;
    dw_choice_begin(&choice, 2, 1, 1.0);
    choice.now = now;
    for (int i = 0; i < DW_CHOICE_DELIVERIES; i++) deliver(&choice, 1000, 1);
    dw_choice_guess(&choice, 0, 1, 2000 * part, 0);
    dw_choice_guess(&choice, 1, 1, 0, 0);
    return choice;
}

static void small_differences_change_nothing(void **state)
{
    (void)state;
    static const struct {
        double part;
        uint32_t from_0, from_1;
    } cases[] = {{0.005, 0, 0}, {0.02, 0, 1}, {0.029, 0, 1}, {0.031, 1, 1}, {0.5, 1, 1}};
    double step_s[DW_CHOICE_MOST];
    for (size_t i = 0; i < sizeof cases / sizeof *cases; i++) {
        dw_choice choice = rivals(cases[i].part, 0);
        assert_int_equal(dw_choice_best(&choice, 1, step_s), cases[i].from_0);
        choice = rivals(cases[i].part, 1);
        assert_int_equal(dw_choice_best(&choice, 1, step_s), cases[i].from_1);
    }
    /* Candidate 1 is within 3 % of the fastest, but its step is not 3 % shorter than that of
     * candidate 0, which is in use. So nothing changes. */
    dw_choice choice;
    dw_choice_begin(&choice, 3, 1, 1.0);
    for (int i = 0; i < DW_CHOICE_DELIVERIES; i++) deliver(&choice, 1000, 1);
    dw_choice_guess(&choice, 0, 1, 80, 0);
    dw_choice_guess(&choice, 1, 1, 50, 0);
    dw_choice_guess(&choice, 2, 1, 0, 0);
    assert_int_equal(dw_choice_best(&choice, 1, step_s), 0);
    dw_choice_guess(&choice, 0, 1, 50, 0);
    dw_choice_guess(&choice, 1, 1, 10, 0);
    choice.now = 2;
    for (int i = 0; i < DW_CHOICE_DELIVERIES; i++) deliver(&choice, 1000, 1);
    assert_int_equal(dw_choice_best(&choice, 1, step_s), 1);
}

/* ---- The measurements ------------------------------------------------------------------------ */

static void frames_of_a_burst_do_not_look_fast(void **state)
{
    (void)state;
    dw_choice choice = known(0);
    for (int i = 0; i < 400; i++) /* groups of 4 arrive together */
        arrive(&choice, 1000, i % 4 == 0 ? 0.4 : 0, 0.5);
    double rate = rate_now(&choice);
    assert_true(rate > 9000 && rate < 11000);
    for (int i = 0; i < DW_CHOICE_WINDOW; i++) arrive(&choice, 1000, 0.01, 0.05);
    assert_near(rate_now(&choice), 1e5);
    /* If the measured times are 0, the rate is limited to a finite value. */
    choice = known(0);
    for (int i = 0; i < DW_CHOICE_DELIVERIES; i++) deliver(&choice, 1000, 0);
    assert_near(rate_now(&choice), 1e10);
}

static void the_faster_lone_frames_count(void **state)
{
    (void)state;
    dw_choice choice = known(0);
    for (int i = 0; i < DW_CHOICE_DELIVERIES; i++) {
        assert_true(rate_now(&choice) == 0);
        deliver(&choice, 1000, i == 2 ? 0.010 : 0.020); /* the fastest of 4 is ignored */
    }
    assert_near(rate_now(&choice), 5e4);
    deliver(&choice, 1000, 0.010);
    assert_near(rate_now(&choice), 1e5);
    for (int i = 0; i < DW_CHOICE_WINDOW; i++) deliver(&choice, 1000, i < 5 ? 0.100 : 0.200 + i);
    assert_near(rate_now(&choice), 1e4);
    deliver(&choice, 1000, 0.300); /* it replaces one of the five fast frames */
    assert_near(rate_now(&choice), 1000 / 0.300);
    /* Queued frames count if they show a higher rate than lone frames do. */
    arrive(&choice, 1000, 0.050, 0.300);
    assert_near(rate_now(&choice), 2e4);
    arrive(&choice, 1000, 0.950, 1.500);
    assert_near(rate_now(&choice), 2e3);
    choice = known(0);
    for (int i = 0; i < DW_CHOICE_DELIVERIES; i++) deliver(&choice, 1000, 0.010);
    arrive(&choice, 1000, 0.500, 0.900);
    assert_near(rate_now(&choice), 1e5);
}

static double rate_after(double empty_s, double bytes, double since_last_s, double travel_s)
{
    dw_choice choice = known(0);
    dw_choice_travelled(&choice, empty_s + 5);
    dw_choice_travelled(&choice, empty_s);
    for (int i = 0; i < DW_CHOICE_DELIVERIES; i++) arrive(&choice, bytes, since_last_s, travel_s);
    return rate_now(&choice);
}

static void the_way_itself_is_not_the_links_work(void **state)
{
    (void)state;
    assert_near(rate_after(0.010, 1000, 1, 0.011), 1e6);
    assert_near(rate_after(0.010, 10000, 1, 0.020), 1e6);
    assert_near(rate_after(-3, 1000, 1, -2.999), 1e6); /* the clocks differ by seconds */
    /* A frame that was sent before the previous one had arrived had to wait. So only the time since
     * that arrival counts. */
    assert_near(rate_after(0.010, 1000, 0.002, 0.014), 5e5);
    assert_near(rate_after(0.010, 1000, 0.008, 0.014), 2.5e5);
    /* A frame that arrived at the same time as the one before gets the highest finite rate. */
    assert_near(rate_after(0.010, 1000, 0, 0.019), 1e10);
    /* If empty messages become slower, this counts only after the last fast one has left the window
     * of DW_CHOICE_TRAVELS messages. */
    dw_choice choice = known(0);
    dw_choice_travelled(&choice, 0.010);
    for (int i = 0; i < DW_CHOICE_DELIVERIES; i++) arrive(&choice, 1000, 1, 0.030);
    for (int i = 1; i < DW_CHOICE_TRAVELS; i++) {
        dw_choice_travelled(&choice, 0.026);
        assert_near(rate_now(&choice), 5e4);
    }
    dw_choice_travelled(&choice, 0.026);
    assert_near(rate_now(&choice), 2.5e5);
    /* One fast empty message is enough to correct the rate, also for frames that arrived earlier.
     */
    dw_choice_travelled(&choice, 0.010);
    assert_near(rate_now(&choice), 5e4);
    /* Without an empty message the rate is unknown. */
    choice.travels = 0;
    assert_false(dw_choice_is_due(&choice));
    assert_true(rate_now(&choice) == 0);
}

/* An excess that is smaller than the differences between empty messages says nothing. */
static void what_travels_unevenly_measures_nothing_small(void **state)
{
    (void)state;
    static const double empty_s[] = {0.014, 0.010, 0.090};
    dw_choice choice = known(0);
    for (int i = 0; i < 3; i++) dw_choice_travelled(&choice, empty_s[i]);
    for (int i = 0; i < DW_CHOICE_DELIVERIES; i++) arrive(&choice, 100, 1, 0.0101);
    assert_near(rate_now(&choice), 100 / 0.004); /* the median is 0.014 */
    for (int i = 0; i < DW_CHOICE_WINDOW; i++) arrive(&choice, 1e5, 1, 0.110);
    assert_near(rate_now(&choice), 1e6);
    /* A frame that travels for a shorter time than any empty message shows that these were held up,
     * at least by the difference. */
    assert_near(rate_after(0.010, 1000, 1, 0.009), 1e6);
    assert_near(rate_after(0.010, 1000, 1, -0.090), 1e4);
    /* On a machine that stalls, the only empty message was held up for 5 ms. The small frames,
     * which take 1 ms each on this link, do not lead back to the large ones, which take 40 ms. */
    choice = known(1e5);
    choice.travels = 0;
    dw_choice_travelled(&choice, 0.005);
    dw_choice_change(&choice, 2);
    send_frames(&choice, DW_CHOICE_CALM * DW_CHOICE_PAUSE);
    for (int i = 0; i < DW_CHOICE_PAUSE; i++) arrive(&choice, 100, 1, 0.001 + i % 5 * 0.001);
    assert_int_equal(best(&choice), 2);
}

/* Every frame takes 10 ms, whatever its size, because of a delay that is not caused by the link. */
static void small_frames_do_not_lead_to_still_smaller_ones(void **state)
{
    (void)state;
    dw_choice choice = known(4e5);
    assert_near(dw_choice_rate(&choice, 1), 4e5);
    assert_near(dw_choice_rate(&choice, 2), 4e5);
    assert_int_equal(best(&choice), 2); /* the delay is taken for a slow link */
    dw_choice_change(&choice, 2);
    send_frames(&choice, DW_CHOICE_CALM * DW_CHOICE_PAUSE);
    assert_int_equal(best(&choice), 2); /* no frame of it has arrived yet */
    assert_false(dw_choice_is_due(&choice));
    for (int i = 0; i < DW_CHOICE_PAUSE; i++) deliver(&choice, 100, 0.010);
    assert_near(rate_now(&choice), 1e4);
    assert_near(dw_choice_rate(&choice, 0), 4e5); /* the rate measured earlier */
    assert_near(dw_choice_rate(&choice, 1), 1e4); /* the rate of candidate 2 */
    assert_int_equal(best(&choice), 0);
    dw_choice_change(&choice, 0);
    send_frames(&choice, DW_CHOICE_CALM * DW_CHOICE_PAUSE);
    for (int i = 0; i < DW_CHOICE_PAUSE; i++) deliver(&choice, 4000, 0.010);
    assert_near(dw_choice_rate(&choice, 2), 1e4);
    assert_int_equal(best(&choice), 1); /* its delay is not known yet */
    dw_choice_change(&choice, 1);
    send_frames(&choice, DW_CHOICE_CALM * DW_CHOICE_PAUSE);
    for (int i = 0; i < DW_CHOICE_PAUSE; i++) deliver(&choice, 1000, 0.010);
    assert_int_equal(best(&choice), 0);
    dw_choice_change(&choice, 0);
    send_frames(&choice, DW_CHOICE_CALM * DW_CHOICE_PAUSE);
    for (int i = 0; i < DW_CHOICE_PAUSE; i++) deliver(&choice, 4000, 0.010);
    assert_int_equal(best(&choice), 0);
    /* If small frames show a higher rate than was measured before, it holds for large frames, too.
     * If large frames show a lower rate, it holds for small frames, too. */
    dw_choice_change(&choice, 1);
    for (int i = 0; i < DW_CHOICE_PAUSE; i++) deliver(&choice, 1000, 0.001);
    assert_near(dw_choice_rate(&choice, 0), 1e6);
    dw_choice_change(&choice, 0);
    for (int i = 0; i < DW_CHOICE_DELIVERIES; i++) deliver(&choice, 4000, 4);
    assert_near(rate_now(&choice), 1e3);
    assert_near(dw_choice_rate(&choice, 1), 1e3);
}

static void waiting_hardly_counts_as_computing(void **state)
{
    (void)state;
    dw_choice choice;
    dw_choice_begin(&choice, 2, 0, 0);
    dw_choice_computed(&choice, 0.010);
    for (int i = 0; i < 100; i++) {
        dw_choice_computed(&choice, i % 4 ? 0.010 : 60);
        assert_true(choice.compute_s > 0.0099 && choice.compute_s < 0.0125);
    }
    for (int i = 0; i < 300; i++) dw_choice_computed(&choice, 0.050);
    assert_true(choice.compute_s > 0.049 && choice.compute_s < 0.051);
    for (int i = 0; i < 10; i++) dw_choice_computed(&choice, 0);
    assert_true(choice.compute_s < 0.0001);
    dw_choice_begin(&choice, 2, 0, 0);
    dw_choice_computed(&choice, 0);
    for (int i = 0; i < 1000; i++) dw_choice_computed(&choice, 0.020);
    assert_true(choice.compute_s > 0.019);
    dw_choice_begin(&choice, 2, 0, 5);
    dw_choice_computed(&choice, 1);
    assert_near(choice.compute_s, 5);
}

static void frames_replace_what_was_guessed(void **state)
{
    (void)state;
    dw_choice choice = known(1e5);
    const dw_choice_candidate *second = &choice.candidates[1];
    dw_choice_made(&choice, 1, 100, 5000, 9, false); /* has first visits, so it is not measured */
    assert_near(second->bytes, 1);
    assert_int_equal(choice.frames, DW_CHOICE_CALM * DW_CHOICE_PAUSE + 1);
    dw_choice_made(&choice, 1, 100, 200, 0.5, true);
    assert_near(second->bytes, 2);
    assert_near(second->encode_s, 0.005);
    dw_choice_made(&choice, 1, 100, 1000, 1.3, true);
    assert_near(second->bytes, 3);
    assert_near(second->encode_s, 0.006);
    assert_near(choice.candidates[0].bytes, 4);
}

int main(void)
{
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(the_first_is_used_while_nothing_is_known),
        cmocka_unit_test(the_first_of_those_that_are_about_as_fast_is_taken),
        cmocka_unit_test(steps_are_those_of_the_forecast),
        cmocka_unit_test(a_change_is_not_followed_by_another_at_once),
        cmocka_unit_test(going_to_and_fro_becomes_rare),
        cmocka_unit_test(small_differences_change_nothing),
        cmocka_unit_test(frames_of_a_burst_do_not_look_fast),
        cmocka_unit_test(the_faster_lone_frames_count),
        cmocka_unit_test(the_way_itself_is_not_the_links_work),
        cmocka_unit_test(what_travels_unevenly_measures_nothing_small),
        cmocka_unit_test(small_frames_do_not_lead_to_still_smaller_ones),
        cmocka_unit_test(waiting_hardly_counts_as_computing),
        cmocka_unit_test(frames_replace_what_was_guessed),
    };
    return cmocka_run_group_tests_name("choice", tests, NULL, NULL);
}
