/* SPDX-License-Identifier: Apache-2.0
 * test_cuda_rotated.c - transform=hadamard on a device: the same bytes, states, replies and errors
 * as on the CPU. */
#include "epochs.h"
#include "rig.h"

static const char *const configs[] = {
    "direct:bits=4,transform=hadamard",
    "direct:bits=2,scale=signed,group=256,transform=hadamard,rotate=16",
    "direct:bits=3,scale=mse,group=16,transform=hadamard,rotate=256",
    "direct:bits=4,group=row,scale=mse,transform=hadamard,rotate=16",
    "direct:bits=1,group=row,transform=hadamard,rotate=256",
    "delta:bits=3,transform=hadamard,prev=bf16",
    "delta:bits=2,group=row,transform=hadamard,rotate=256,key=4,audit=3",
    "delta:bits=5,group=32,rounding=stochastic,seed=9,transform=hadamard,prev=f16,key=raw",
    "delta:bits=4,transform=hadamard,rotate=16,replies=never",
    "direct:bits=3,transform=hadamard,feedback=ef",
    "direct:bits=2,group=16,transform=hadamard,rotate=256,feedback=ef",
    "mx:transform=hadamard",
    "mx:element=e2m1,transform=hadamard,rotate=256,feedback=ef",
    "delta:form=mx,element=int8,transform=hadamard,rotate=16,prev=f16,audit=3",
    "direct:form=step,transform=hadamard",
    "direct:form=step,rounding=dither,step=4,seed=3,transform=hadamard,rotate=256",
    "direct:form=step,group=row,step=0.5,transform=hadamard,rotate=16",
    "direct:form=step,group=16,step=2,rounding=dither,transform=hadamard,rotate=256,feedback=ef",
    "delta:form=step,transform=hadamard,prev=bf16",
    "delta:form=step,group=64,rounding=stochastic,transform=hadamard,rotate=256,audit=2",
    "delta:form=step,group=row,rounding=dither,step=1.2,transform=hadamard,key=f32,prev=f16",
    "delta:bits=2,transform=hadamard,entropy=rans",
    "direct:form=step,rounding=dither,step=3,transform=hadamard,entropy=rans",
    "mx:element=e4m3,transform=hadamard,entropy=rans",
};
enum { N_CONFIGS = sizeof configs / sizeof *configs };

/* Numbers of channels that are multiples of 256, so that blocks of every width fit. */
static const epochs_shape shapes[] = {{1, 1, 256}, {3, 5, 768}, {2, 3, 2048}, {1, 2, 4352}};
enum { N_SHAPES = sizeof shapes / sizeof *shapes };

static void frames_tensors_and_replies_equal_those_of_the_cpu(void **state)
{
    (void)state;
    epochs_compare(configs, N_CONFIGS, shapes, N_SHAPES);
}

/* The shape is refused before anything is enqueued, and the message names values of `rotate` that
 * would be possible. */
static void blocks_that_do_not_divide_a_token_are_refused(void **state)
{
    dw_cuda *cuda = rig_open_cuda();
    dw_encode_ticket *ticket = NULL;
    dw_key key = {1, 0};
    rig r;
    (void)state;
    rig_open(&r, cuda, "direct:bits=4,transform=hadamard", 1, 2, 96, DW_CUDA_DEVICE);
    assert_int_equal(rig_encode_start(&r, &key, DW_F32, &ticket), DW_ERR_SHAPE);
    assert_null(ticket);
    assert_non_null(strstr(dw_encoder_why(r.encoder), "give rotate=16, 64 or 256"));
    rig_close(&r);
    dw_cuda_close(cuda);
    rig_nothing_left();
}

int main(int argc, char **argv)
{
    if (argc < 2) return 2;
    rig_library = argv[1];
    const struct CMUnitTest tests[] = {
        cmocka_unit_test(frames_tensors_and_replies_equal_those_of_the_cpu),
        cmocka_unit_test(blocks_that_do_not_divide_a_token_are_refused)};
    return cmocka_run_group_tests(tests, NULL, NULL);
}
