/* SPDX-License-Identifier: Apache-2.0
 * test_cuda_paging.c - encoders and decoders on a device whose copies of prev lie in a backing
 * store: the same bytes as those of the CPU without one. */
#include "flight.h"
#include "support/backing.h"

enum { T = 3, C = 64, KEYS = 8, VISITS = 60 };

typedef struct paged {
    rig r;
    test_backing backing;
    test_random random;
    float base[KEYS][T * C];
    dw_key keys[2]; /* of the last visit */
} paged;

static void page(paged *p, const char *config, dw_cuda_place place, uint64_t cache_bytes)
{
    rig_open(&p->r, rig_open_cuda(), config, 2, T, C, place);
    test_backing_open(&p->backing, cache_bytes);
    p->random.state = test_seed();
    for (int k = 0; k < KEYS; k++) test_fill(&p->random, p->base[k], DW_F32, T * C, 1.0f);
    dw_host host = *RIG_HOST(p->r.cuda, place);
    host.allocator = test_allocator_hooks(&p->r.allocator);
    host.backing = &p->backing.calls;
    dw_encoder_destroy(p->r.encoder);
    dw_decoder_destroy(p->r.decoder);
    assert_int_equal(dw_encoder_create(&p->r.encoder, &p->r.config, &host, NULL), DW_OK);
    assert_int_equal(dw_decoder_create(&p->r.decoder, &p->r.config, &host, NULL), DW_OK);
}

static void end(paged *p)
{
    rig_end(&p->r);
    assert_int_equal(p->backing.n, 0); /* every record was released */
}

/* Draws two different keys, and tensors that are near their last ones. */
static void draw(paged *p)
{
    uint64_t first = test_next(&p->random) % KEYS;
    for (uint64_t i = 0; i < 2; i++) {
        uint64_t k = (first + 3 * i) % KEYS;
        p->keys[i] = (dw_key){k, 1};
        for (int v = 0; v < T * C; v++) p->base[k][v] += 0.05f * test_normal(&p->random);
        memcpy((float *)p->r.x + i * T * C, p->base[k], sizeof p->base[k]);
    }
}

static void visit(paged *p)
{
    draw(p);
    rig_encode(&p->r, p->keys, DW_F32);
    if (test_next(&p->random) % 8 == 0) return; /* the frame is lost */
    rig_decode(&p->r, DW_F32);
    if (test_next(&p->random) % 8) rig_feedback(&p->r);
    if (p->r.config.codec == DW_CODEC_DELTA) rig_in_step(&p->r, p->keys[0]);
}

TEST(copies_on_a_device_move_to_a_backing_store_and_back)
{
    static const char *const words[] = {
        "delta:bits=4,prev=f32",
        "delta:bits=2,prev=8",
        "delta:form=step,step=0.5,rounding=dither,entropy=rans",
        "direct:form=step,step=1,feedback=ef,replies=never",
    };
    for (int w = 0; w < 12; w++) {
        static paged p;
        dw_cuda_place place = w % 2 ? DW_CUDA_PINNED : DW_CUDA_DEVICE;
        uint64_t copies = w >= 8 ? KEYS : 0;
        page(&p, words[w / 2 % 4], place, copies * T * C * sizeof(float));
        long waits = fake_cuda_get()->synchronizations;
        for (int i = 0; i < VISITS; i++) visit(&p);
        rig_same_counters(&p.r);
        assert_int_equal(fake_cuda_get()->synchronizations, waits); /* waited for no other stream */
        if (!copies) assert_true(p.backing.reads > VISITS && p.backing.writes > VISITS);
        end(&p);
    }
}

/* Both copies of the first frame are in use until it ends, whatever the second one needs. */
TEST(copies_in_flight_stay_on_the_device)
{
    static paged p;
    page(&p, "delta:bits=4,prev=f32,replies=never", DW_CUDA_DEVICE, 0);
    flight one = {.keys = {{1, 0}, {2, 0}}}, two = {.keys = {{3, 0}, {4, 0}}};
    flight_open(&one, &p.r);
    flight_open(&two, &p.r);
    for (int i = 0; i < 10; i++) {
        flight_start(&p.r, &one, &p.random);
        flight_start(&p.r, &two, &p.random);
        fake_cuda_get()->run();
        flight_end(&one);
        flight_end(&two);
        flight_arrive(&p.r, &one);
        flight_arrive(&p.r, &two);
        fake_cuda_get()->run();
        flight_land(&p.r, &one);
        flight_land(&p.r, &two);
    }
    assert_true(p.backing.reads >= 4 * 8);
    flight_close(&one);
    flight_close(&two);
    end(&p);
}

/* The stream captures while copies are moved, and each further launch has other keys. */
TEST(captured_frames_find_the_copies_of_their_keys)
{
    static paged p;
    flight f = {.out = NULL};
    page(&p, "delta:bits=4,prev=f32,replies=never", DW_CUDA_DEVICE, 0);
    flight_open(&f, &p.r);
    for (uint64_t step = 0; step < 12; step++) {
        for (uint64_t k = 0; k < 2; k++) f.keys[k] = (dw_key){step % 3, k};
        if (step == 0) {
            rig_capture(0);
            flight_start(&p.r, &f, &p.random);
        } else {
            (void)flight_input(&p.r, &f, &p.random);
            flight_twin(&p.r, &f);
            assert_int_equal(dw_encode_again(f.out, f.keys), DW_OK);
        }
        rig_replay(0);
        flight_end(&f);
        for (int k = 0; k < 2; k++) rig_in_step(&p.r, f.keys[k]);
    }
    assert_true(p.backing.reads >= 2 * 9);
    assert_int_equal(dw_encode_cancel(f.out), DW_OK);
    flight_close(&f);
    end(&p);
}

/* Starts an encode in which call number n of the driver fails, or, if n < 0, each write to the
 * backing store. */
static dw_status start_failing(paged *p, long n, dw_encode_ticket **ticket)
{
    fake_cuda *fake = fake_cuda_get();
    fake->calls = 0;
    fake->fail_at = n;
    p->backing.writes_fail = n < 0;
    dw_status status = rig_encode_start(&p->r, p->keys, DW_F32, ticket);
    fake->fail_at = -1;
    p->backing.writes_fail = 0;
    fake->mode = 0; /* a failed call may have prevented its restoration */
    return status;
}

/* The encode says so, and the next one gives the frame that the CPU has. */
TEST(a_copy_that_cannot_be_moved_changes_nothing)
{
    static paged p;
    long failed[2] = {0};
    page(&p, "delta:bits=4,prev=f32", DW_CUDA_DEVICE, 0);
    for (int i = 0; i < VISITS; i++) visit(&p);
    for (long n = 0; n < 60; n++) {
        dw_encode_ticket *ticket;
        dw_tensor x = dw_tensor_3d(p.r.x, DW_F32, 2, T, C);
        draw(&p);
        assert_int_equal(
            dw_encode(p.r.cpu_encoder, p.keys, &x, NULL, p.r.cpu_frame, p.r.cap, &p.r.len), DW_OK);
        dw_status status = start_failing(&p, n % 2 ? -1 : n / 2, &ticket);
        if (status) {
            assert_true(status == DW_ERR_IO || status == DW_ERR_NO_MEMORY);
            assert_true(dw_encoder_why(p.r.encoder)[0] != 0);
            failed[n % 2]++;
            assert_int_equal(rig_encode_start(&p.r, p.keys, DW_F32, &ticket), DW_OK);
        }
        fake_cuda_get()->run();
        rig_encode_end(&p.r, ticket);
        rig_decode(&p.r, DW_F32);
        rig_feedback(&p.r);
    }
    assert_int_equal(test_encoder_counters(p.r.encoder).lost_copies, 0);
    print_message("%ld calls of the driver and %ld writes failed\n", failed[0], failed[1]);
    assert_true(failed[0] >= 10 && failed[1] >= 20);
    end(&p);
}

RUN_TESTS_GIVEN(rig_library)
